"""Both sides of the comparison: a stream as nats-server tells it and as our store has it.

`Official` runs nats-server on a store folder and talks to it over its JSON API. `official_truth`
and `our_truth` give the same plain values, so that one `==` compares everything.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import signal
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from harness import ServerProcess
from tradewind.api.times import format_time, parse_time
from tradewind.errors import StoreError
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.stream_folder import StoreRoot, StreamFolder
from tradewind.store.format.consumer_file import ConsumerState
from tradewind.store.format.layout import ZERO_TIME_NS

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
WAIT_SECONDS = 60
# What nats-server says when it is not given the processor for seconds.
SLOWNESS = ("Readloop processing time", "took too long")
GET_AT_ONCE = 200
ZERO_TIMES = ("0001-01-01T00:00:00Z", format_time(ZERO_TIME_NS))


@dataclass
class StreamTruth:
    """All that can be compared about one stream."""

    messages: int
    bytes: int
    first_seq: int
    first_ns: int
    last_seq: int
    last_ns: int
    subjects: dict[str, int]
    deleted: list[int]
    content: dict[int, tuple[int, str, bytes, bytes]]
    consumers: dict[str, tuple[tuple[int, int], tuple[int, int], int, int]] = field(
        default_factory=dict
    )


class ApiError(AssertionError):
    """The official server answered with an error."""


class Official:
    """A running nats-server."""

    def __init__(self, process: ServerProcess, client: Client) -> None:
        self.process = process
        self.client = client

    async def api(self, subject: str, request: Any = None) -> dict[str, Any]:
        data = b"" if request is None else json.dumps(request).encode()
        message = await self.client.request(f"$JS.API.{subject}", data, timeout=WAIT_SECONDS)
        answer: dict[str, Any] = json.loads(message.data)
        if "error" in answer:
            raise ApiError(f"{subject}: {answer['error']}")
        return answer

    async def publish(
        self, subject: str, payload: bytes = b"", headers: dict[str, str] | None = None
    ) -> int:
        message = await self.client.request(subject, payload, timeout=WAIT_SECONDS, headers=headers)
        answer = json.loads(message.data)
        if "error" in answer:
            raise ApiError(f"publish to {subject}: {answer['error']}")
        return int(answer["seq"])

    async def publish_all(self, messages: list[tuple[str, bytes]]) -> None:
        """In this order: one connection keeps it, so the answers may be awaited together."""
        for start in range(0, len(messages), GET_AT_ONCE):
            part = messages[start : start + GET_AT_ONCE]
            await asyncio.gather(*(self.publish(subject, data) for subject, data in part))

    async def fetch(self, stream: str, consumer: str, count: int) -> list[Msg]:
        """Take `count` messages of a pull consumer without acknowledging them."""
        inbox = self.client.new_inbox()
        subscription = await self.client.subscribe(inbox)
        request = json.dumps({"batch": count, "expires": WAIT_SECONDS * SECOND}).encode()
        await self.client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", request, reply=inbox
        )
        messages = []
        for _ in range(count):
            message = await subscription.next_msg(timeout=WAIT_SECONDS)
            assert message.reply.startswith("$JS.ACK."), message
            messages.append(message)
        await subscription.unsubscribe()
        return messages

    async def answer(self, message: Msg, kind: bytes = b"+ACK") -> None:
        """Acknowledge and wait until the server has done so."""
        await self.client.request(message.reply, kind, timeout=WAIT_SECONDS)

    async def wait_for_messages(self, stream: str, count: int) -> None:
        """Wait until a stream has so many: an acknowledgement is answered before it removes one."""

        async def has_so_many() -> bool:
            return await self.messages(stream) == count

        await wait_for(has_so_many, f"{count} messages in {stream}")

    async def messages(self, stream: str) -> int:
        return int((await self.api(f"STREAM.INFO.{stream}"))["state"]["messages"])

    def complaints(self) -> list[str]:
        """The logged lines besides the ordinary ones, except for those about a slow machine."""
        return [
            line
            for line in self.process.lines
            if "[INF]" not in line and not any(text in line for text in SLOWNESS)
        ]

    async def stop(self, *, kill: bool = False) -> None:
        await self.client.close()
        if kill:
            self.process.signal(signal.SIGKILL)
        else:
            self.process.signal(signal.SIGTERM)
        self.process.wait()


@asynccontextmanager
async def official(
    folder: Path, *, config: Path | None = None, user: str = "", password: str = ""
) -> AsyncIterator[Official]:
    """Run nats-server on this store folder; a test that wants a special end calls `stop` inside."""
    arguments = ["-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", "-1"]
    if config is not None:
        arguments += ["-c", str(config)]
    process = ServerProcess("official", arguments).wait_ready()
    try:
        options = {"user": user, "password": password} if user else {}
        client = await nats.connect(process.url, allow_reconnect=False, **options)
        try:
            yield Official(process, client)
        finally:
            await client.close()
    finally:
        process.stop()


async def wait_for(condition: Any, what: str) -> None:
    """Ask again until an async question is answered with yes."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not await condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.02)


def time_ns(text: str) -> int:
    """A time of the API; the zero time is 0 as in our states.

    From an index.db the official server takes its own zero time as a year of the 18th century.
    """
    return 0 if text in ZERO_TIMES else parse_time(text)


async def official_truth(server: Official, stream: str) -> StreamTruth:
    """Everything the official server says about a stream and its consumers."""
    info = await server.api(
        f"STREAM.INFO.{stream}", {"deleted_details": True, "subjects_filter": ">"}
    )
    state = info["state"]
    assert state.get("lost") is None, state
    if state["last_seq"] == 0:
        # Of a stream that was never used it says that message 0 is deleted.
        assert (state.pop("deleted", [0]), state.pop("num_deleted", 1)) == ([0], 1)
    truth = StreamTruth(
        state["messages"],
        state["bytes"],
        state["first_seq"],
        time_ns(state["first_ts"]),
        state["last_seq"],
        time_ns(state["last_ts"]),
        state.get("subjects") or {},
        state.get("deleted") or [],
        await official_messages(server, stream, state),
    )
    assert state.get("num_subjects", 0) == len(truth.subjects)
    assert state.get("num_deleted", 0) == len(truth.deleted)
    names = (await server.api(f"CONSUMER.NAMES.{stream}"))["consumers"]
    for name in names or ():
        consumer = await server.api(f"CONSUMER.INFO.{stream}.{name}")
        truth.consumers[name] = (
            _pair(consumer["delivered"]),
            _pair(consumer["ack_floor"]),
            consumer["num_ack_pending"],
            consumer["num_redelivered"],
        )
    return truth


def _pair(value: dict[str, Any]) -> tuple[int, int]:
    return value["consumer_seq"], value["stream_seq"]


async def official_messages(
    server: Official, stream: str, state: dict[str, Any]
) -> dict[int, tuple[int, str, bytes, bytes]]:
    """All messages by sequence, as (time, subject, header block, payload)."""
    deleted = set(state.get("deleted") or ())
    wanted = [
        seq
        for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1)
        if seq not in deleted
    ]
    content = {}
    for start in range(0, len(wanted), GET_AT_ONCE):
        answers = await asyncio.gather(
            *(
                server.api(f"STREAM.MSG.GET.{stream}", {"seq": seq})
                for seq in wanted[start : start + GET_AT_ONCE]
            )
        )
        for answer in answers:
            message = answer["message"]
            content[message["seq"]] = (
                parse_time(message["time"]),
                message["subject"],
                base64.b64decode(message.get("hdrs", "")),
                base64.b64decode(message.get("data", "")),
            )
    return content


async def direct_messages(server: Official, stream: str, last_seq: int) -> dict[int, bytes]:
    """The payloads by sequence, through direct get."""
    found = {}
    for seq in range(1, last_seq + 1):
        message = await server.client.request(
            f"$JS.API.DIRECT.GET.{stream}", json.dumps({"seq": seq}).encode(), timeout=WAIT_SECONDS
        )
        assert message.headers is not None
        found[int(message.headers["Nats-Sequence"])] = message.data
    return found


def our_truth(folder: StreamFolder, store: FileStore) -> StreamTruth:
    """The same from our files."""
    state = store.table.state
    assert state.lost is None
    store.verify()
    consumers, skipped = folder.consumers()
    assert not skipped, skipped
    assert not any(consumer.problem for consumer in consumers)
    subjects = {name.decode(): total for name, total in store.table.subjects().items()}
    deleted = store.table.deleted_sequences()
    assert state.subjects == len(subjects)
    assert state.deleted == len(deleted)
    return StreamTruth(
        state.msgs,
        state.bytes,
        state.first_seq,
        state.first_timestamp_ns,
        state.last_seq,
        state.last_timestamp_ns,
        subjects,
        deleted,
        {
            message.seq: (
                message.timestamp_ns,
                message.subject.decode(),
                message.header,
                message.payload,
            )
            for message in store.table.messages()
        },
        {consumer.meta.name: consumer_truth(consumer.state) for consumer in consumers},
    )


def consumer_truth(state: ConsumerState) -> tuple[tuple[int, int], tuple[int, int], int, int]:
    """The values that consumer info would show for an o.dat."""
    return (
        tuple(state.delivered),
        tuple(state.ack_floor),
        len(state.pending),
        len(state.redelivered),
    )


def open_ours(folder: Path, now_ns: int, account: str = "$G") -> dict[str, StreamTruth | str]:
    """Open every stream of an account in our store and close it again.

    A stream that fails has the error as its truth, so that only the tests about it fail.
    """
    root = StoreRoot(OsDisk(str(folder)), str(folder))
    truths: dict[str, StreamTruth | str] = {}
    try:
        listing = root.streams(account)
        assert not listing.skipped, listing.skipped
        for stream, _ in listing.streams:
            try:
                _, store, report = stream.open(now_ns)
                assert report.is_clean, report
                truths[stream.stream] = our_truth(stream, store)
                store.close()
            except (AssertionError, StoreError):
                truths[stream.stream] = traceback.format_exc()
    finally:
        root.close()
    return truths


def copy_store(source: Path, target: Path, *, with_index: bool = True) -> Path:
    """A copy of a store folder, if so wanted without any index.db."""
    shutil.copytree(source, target)
    if not with_index:
        for path in target.rglob("index.db"):
            path.unlink()
    return target
