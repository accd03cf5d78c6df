"""Files on their way and keys that are watched: bounds, ends, and stopping."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from tradewind.client.errors import BucketNotFoundError, UploadError
from tradewind.dashboard.data import watch_data as watches_module
from tradewind.dashboard.data.account_data import limits_of, rows_of
from tradewind.dashboard.data.transfer_data import (
    KEPT_MAX,
    TRANSFERS_MAX,
    BrokenOffError,
    TooManyTransfersError,
    Transfer,
    Transfers,
    TransferStoppedError,
)
from tradewind.dashboard.data.watch_data import WATCHES_MAX, Watches


async def chunks(*parts: bytes, error: Exception | None = None) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    if error is not None:
        raise error


def made(total: int | None = None) -> Transfer:
    return Transfers().begin("download", "x", "store:s", total)


def test_what_passes_is_counted() -> None:
    async def run() -> None:
        transfer = made()
        assert b"".join([part async for part in transfer.counted(chunks(b"ab", b"c"))]) == b"abc"
        assert (transfer.done, transfer.state, transfer.text) == (3, "done", "")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "state", "text"),
    [
        (UploadError("it broke"), "failed", "it broke"),
        (BrokenOffError("gone"), "stopped", "The browser cancelled it"),
        (RuntimeError("ours"), "failed", "see its log"),
    ],
)
def test_every_end_is_told(error: Exception, state: str, text: str) -> None:
    async def run() -> None:
        transfer = made()
        with pytest.raises(type(error)):
            _ = [part async for part in transfer.counted(chunks(b"a", error=error))]
        assert transfer.state == state
        assert text in transfer.text

        async def work() -> None:
            raise error

        other = made()
        with pytest.raises(type(error)):
            await other.carry(work())
        assert (other.state, other.text) == (transfer.state, transfer.text)

    asyncio.run(run())


def test_a_transfer_that_waits_is_stopped_at_once() -> None:
    async def run() -> None:
        transfer = made()
        closed = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            try:
                yield b"a"
                await asyncio.Event().wait()
            finally:
                closed.set()

        passed = asyncio.Event()

        async def take() -> None:
            async for _ in transfer.counted(endless()):
                passed.set()

        task = asyncio.create_task(take())
        await passed.wait()
        transfer.stop()
        with pytest.raises(TransferStoppedError):
            await task
        assert transfer.state == "stopped"
        assert closed.is_set()
        # One that is stopped between two chunks ends with the next one.
        late = made()
        passing = late.counted(chunks(b"a", b"b"))
        assert await anext(passing) == b"a"
        late.stop()
        with pytest.raises(TransferStoppedError):
            await anext(passing)

    asyncio.run(run())


def test_a_visitor_who_leaves_ends_the_transfer() -> None:
    async def run() -> None:
        transfer = made()
        passing = transfer.counted(chunks(b"a", b"b"))
        await anext(passing)
        await passing.aclose()  # type: ignore[attr-defined]
        assert transfer.state == "stopped"

    asyncio.run(run())


def test_transfers_are_bounded() -> None:
    known = Transfers()
    running = [known.begin("upload", str(number), "p") for number in range(TRANSFERS_MAX)]
    with pytest.raises(TooManyTransfersError):
        known.begin("upload", "one more", "p")
    for number in range(KEPT_MAX * 2):
        running[0].state = "done"
        running[0] = known.begin("upload", f"later {number}", "p")
    assert len(known.of("p")) == KEPT_MAX
    assert known.of("p")[0].name == f"later {KEPT_MAX * 2 - 1}"
    assert all(each in known.of("p") for each in running)
    assert known.find(running[3].id) is running[3]
    assert known.find("x") is None
    assert known.of("other") == []


# ---------------------------------------------------------------------- watches


class FakeBucket:
    """A bucket without changes, or one that is not there."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.opened = 0
        self.watching = 0
        self.left = asyncio.Event()
        self.kv = SimpleNamespace(open=self.open)
        self.manager = SimpleNamespace(streams=SimpleNamespace(info=self.info))

    async def open(self, _bucket: str) -> Any:
        self.opened += 1
        if self.error is not None:
            raise self.error
        return SimpleNamespace(stream="KV_b", watch=self.watch)

    async def info(self, _stream: str) -> Any:
        return SimpleNamespace(state=SimpleNamespace(last_seq=0))

    def watch(self, _keys: str, from_revision: int) -> Any:
        assert from_revision >= 1
        return self

    is_current = True

    async def __aenter__(self) -> FakeBucket:
        self.watching += 1
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self.watching -= 1
        self.left.set()

    async def watched_by(self, count: int) -> None:
        while self.watching != count:
            self.left.clear()
            await self.left.wait()

    async def take_some(self, _count: int) -> list[Any]:
        await asyncio.Event().wait()
        return []


def run_watches(bucket: FakeBucket, body: Any) -> None:
    async def run() -> None:
        now = [0.0]
        jetstream: Any = bucket
        watches = Watches(lambda: jetstream, clock=lambda: now[0])
        try:
            await body(watches, now)
        finally:
            await watches.close()

    asyncio.run(run())


def test_watches_are_shared_and_bounded() -> None:
    bucket = FakeBucket()

    async def body(watches: Watches, _now: list[float]) -> None:
        for _ in range(3):
            assert await watches.see("b", ">") == ([], None)
        assert bucket.opened == 1
        for number in range(WATCHES_MAX * 2):
            await watches.see("b", f"k{number}")
        assert len(watches) == WATCHES_MAX
        async with asyncio.timeout(60):
            await bucket.watched_by(WATCHES_MAX)

    run_watches(bucket, body)


def test_a_watch_that_nobody_looks_at_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches_module, "LEASE_SECONDS", 0.01)

    async def body(watches: Watches, now: list[float]) -> None:
        await watches.see("b", ">")
        assert bucket.watching == 1
        now[0] = 60.0
        async with asyncio.timeout(60):
            await bucket.left.wait()

    bucket = FakeBucket()
    run_watches(bucket, body)


def test_a_watch_that_fails_says_so_and_is_tried_again_later() -> None:
    bucket = FakeBucket(BucketNotFoundError("there is no bucket"))

    async def body(watches: Watches, now: list[float]) -> None:
        for _ in range(3):
            changes, problem = await watches.see("b", ">")
            assert changes == []
            assert problem is not None
            assert problem.kind == "missing"
        assert bucket.opened == 1
        now[0] += 60
        bucket.error = None
        await watches.see("b", ">")
        assert await watches.see("b", ">") == ([], None)
        assert bucket.opened == 2

    run_watches(bucket, body)


# ---------------------------------------------------------------------- accounts


def test_accounts_of_all_servers_are_added_up() -> None:
    def load(conns: int) -> dict[str, Any]:
        part = {"acc": "A", "conns": conns, "num_subscriptions": 3, "sent": {"msgs": 5}}
        return {"data": {"account_statz": [part, "x", {}]}}

    usage = [{"data": {"account_details": [{"name": "A", "memory": 1, "storage": 2}, 7]}}]
    rows = rows_of([load(1), load(2), {}, {"data": []}], [*usage, *usage])
    (row,) = [row for row in rows if row.name == "A"]
    assert (row.connections, row.subscriptions, row.messages_out) == (3, 6, 10)
    assert (row.memory, row.storage) == (2, 4)


def test_limits_are_read_from_the_token_of_an_account() -> None:
    limits = {"conn": 10, "subs": -1, "disk_storage": 1 << 30, "new": 1}
    detail = {"decoded_jwt": {"nats": {"limits": limits}}}
    assert limits_of(detail) == [
        ("Connections", 10),
        ("Subscriptions", -1),
        ("JetStream disk", 1 << 30),
    ]
    assert limits_of({"decoded_jwt": [1]}) == []
