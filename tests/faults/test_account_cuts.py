"""Backups beside clients that go on: all streams of one moment, nothing torn, nothing missing."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tradewind
import tradewind.sync
from harness import ServerProcess, wait_for
from tradewind.api.request_types import KnownPart
from tradewind.backups import (
    AccountBackups,
    AsyncAccountBackups,
    KeepRules,
    RestoreChoice,
    account_cut_reading,
    cut_reading,
)
from tradewind.backups.account_api import AccountApi, StreamFacts
from tradewind.backups.account_cut_reading import take_account_cut
from tradewind.backups.backup_documents import MessageRange
from tradewind.backups.stream_saving import StreamSaving
from tradewind.jetstream import account_cuts
from tradewind.options import JetStreamOptions
from tradewind.sync import connect

SECONDS = 60


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path_factory.mktemp("store")))
    with tradewind.serve(port=0, jetstream=jetstream) as server:
        yield server.url


@pytest.fixture
def connection(url: str) -> Iterator[tradewind.sync.Connection]:
    with connect(url, timeout=SECONDS) as connection:
        yield connection
        streams = connection.jetstream_manager().streams
        for name in streams.names().all():
            streams.delete(name)


@contextmanager
def going_on(url: str, step: Callable[[tradewind.sync.JetStream, int], None]) -> Iterator[None]:
    """A client of its own that does a step again and again."""
    ended = threading.Event()
    done = [0]
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with connect(url, timeout=SECONDS) as connection:
                js = connection.jetstream()
                while not ended.is_set():
                    step(js, done[0])
                    done[0] += 1
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_for(lambda: done[0] > 5 or bool(failures))
        yield
    finally:
        ended.set()
        thread.join()
    assert failures == []


def test_a_transaction_is_in_all_streams_of_a_backup_or_in_none(
    connection: tradewind.sync.Connection, url: str, tmp_path: Path
) -> None:
    js = connection.jetstream()
    for name in ("A", "B"):
        js.manager.streams.add(name=name, subjects=[name.lower()])
    bucket = js.kv.create("total")

    def step(js: tradewind.sync.JetStream, number: int) -> None:
        with js.transaction() as transaction:
            for subject in ("a", "b", "$KV.total.sum"):
                transaction.publish(subject, b"%d" % number)

    backups = AccountBackups(str(tmp_path))
    bucket.put("sum", b"-1")
    with going_on(url, step):
        records = [backups.create(connection) for _ in range(8)]
    assert all(record.cut == "account" for record in records)
    seen = set()
    for record in records:
        numbers = {link.name: link.last_seq for link in record.streams}
        assert numbers["A"] == numbers["B"] == numbers["KV_total"] - 1
        assert [link.missing for link in record.streams] == [0, 0, 0]
        seen.add(numbers["A"])
    assert len(seen) > 4, "the client went on"
    assert backups.verify().problems == []
    choice = RestoreChoice(renames={"A": "A2", "B": "B2", "KV_total": "KV_total2"})
    backups.restore(connection, records[3], choice)
    # The key was overwritten all the time, and is there with the value of the moment.
    seq = records[3].streams[0].last_seq
    last = js.manager.streams.get_message("A2", seq=seq).data
    assert js.manager.streams.get_message("B2", seq=seq).data == last
    entry = js.kv.open("total2").get("sum")
    assert entry is not None
    assert entry.value == last


def test_messages_that_go_while_they_are_read_are_in_no_backup_and_not_missing(
    connection: tradewind.sync.Connection, url: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    js = connection.jetstream()
    bucket = js.kv.create("hot", history=1)
    for number in range(2000):
        js.publish_async(f"$KV.hot.k{number}", bytes(500))
    js.publish_async_completed()

    def step(js: tradewind.sync.JetStream, number: int) -> None:
        for key in range(20):
            js.publish_async(f"$KV.hot.k{(number * 20 + key) % 2000}", b"%d" % number)
        js.publish_async_completed()

    backups = AccountBackups(str(tmp_path))
    with going_on(url, step):
        records = [backups.create(connection) for _ in range(4)]
    for record in records:
        (link,) = record.streams
        assert (link.messages, link.missing) == (2000, 0)
    assert backups.verify().problems == []
    for record in (records[0], records[-1]):
        report = backups.restore(connection, record, RestoreChoice(renames={"KV_hot": "KV_was"}))
        assert report.streams[0].messages == 2000
        js.manager.streams.delete("KV_was")
    assert len(list(bucket.keys())) == 2000


def test_a_cut_brings_what_is_little_and_names_what_is_much(
    connection: tradewind.sync.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    js = connection.jetstream()
    js.manager.streams.add(name="LARGE", subjects=["large"])
    js.manager.streams.add(name="SMALL", subjects=["small"])
    js.publish("small", b"x")
    for _ in range(20):
        js.publish("large", bytes(50_000))
    api = AccountApi(connection)
    cut = take_account_cut(api, {})
    assert not cut.is_complete
    assert not cut.parts["LARGE"].has_all
    known = {
        "LARGE": KnownPart(created=cut.parts["LARGE"].facts.created, last_seq=18),
        "SMALL": KnownPart(created="2020-01-01T00:00:00Z", last_seq=1),
    }
    cut = take_account_cut(api, known)
    assert cut.is_complete
    assert (cut.parts["LARGE"].after, cut.parts["SMALL"].after) == (18, 0)
    assert 100_000 < len(cut.parts["LARGE"].messages) < 110_000
    monkeypatch.setattr(account_cuts, "TURN_NS", -1)
    late = take_account_cut(api, known)
    assert not late.is_complete
    assert [part.messages for part in late.parts.values()] == [b"", b""]


@pytest.mark.parametrize("last", [1, 2, 10])
def test_a_server_without_time_for_a_cut_is_backed_up_all_the_same(
    connection: tradewind.sync.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    last: int,
) -> None:  # fmt: skip
    js = connection.jetstream()
    js.manager.streams.add(name="S", subjects=["s"])
    js.manager.consumers.add("S", durable_name="c")
    for number in range(30):
        js.publish("s", b"%d" % number)
    backups = AccountBackups(str(tmp_path))
    backups.create(connection)
    for seq in (3, 4, 20, 30):
        js.manager.streams.delete_message("S", seq)
    js.publish("s", b"31")
    monkeypatch.setattr(account_cuts, "TURN_NS", -1)
    monkeypatch.setattr(cut_reading, "CUTS_MAX", last)
    record = backups.create(connection)
    (link,) = record.streams
    assert (link.messages, link.missing) == (27, 0)
    assert backups.verify().problems == []
    report = backups.restore(connection, record, RestoreChoice(renames={"S": "T"}))
    assert report.streams[0].messages == 27
    info = js.manager.streams.info("T", deleted_details=True)
    assert list(info.state.deleted) == [3, 4, 20, 30]


def test_very_many_messages_in_flight_are_saved_with_their_consumers(
    connection: tradewind.sync.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_cuts, "IN_FLIGHT_MAX", 10)
    js = connection.jetstream()
    js.manager.streams.add(name="S", subjects=["s"])
    for number in range(300):
        js.publish_async("s", b"%d" % number)
    js.publish_async_completed()
    for name in ("one", "two"):
        js.manager.consumers.add("S", durable_name=name, ack_policy="explicit", ack_wait=3600)
        messages = list(js.consumers.get("S", name).fetch(200))
        for message in messages[::2]:
            message.ack_sync()
    backups = AccountBackups(str(tmp_path))
    record = backups.create(connection)
    backups.restore(connection, record, RestoreChoice(renames={"S": "T"}))
    for name in ("one", "two"):
        info = js.manager.consumers.info("T", name)
        assert (info.num_ack_pending, info.delivered.stream_seq) == (100, 200)


ROOT = Path(__file__).parent.parent.parent


def documented_permissions() -> list[str]:
    """The subjects of the table in BACKUP.md."""
    page = (ROOT / "docs" / "how-to" / "BACKUP.md").read_text()
    table = page.partition("### Permissions")[2].partition("\n## ")[0]
    return re.findall(r"`(\$[^`]+)`", table)


@contextmanager
def with_user(folder: Path, publish: str) -> Iterator[tuple[str, tradewind.sync.Connection]]:
    """A server with an administrator and `some`, who has these permissions to publish."""
    config = folder / "server.conf"
    config.write_text(
        "listen: 127.0.0.1:-1\n"
        f'jetstream {{ store_dir: "{folder}/store" }}\n'
        "authorization { users: [ { user: admin, password: a }, { user: some, password: s,"
        f" permissions: {{ publish: {{ {publish} }} }} }} ] }}\n"
    )
    process = ServerProcess("tradewind", ["-c", str(config)])
    try:
        url = process.wait_ready().url
        with connect(url, user="admin", password="a", timeout=SECONDS) as admin:
            for name in ("OPEN", "SECRET"):
                admin.jetstream_manager().streams.add(name=name, subjects=[name.lower()])
            yield url, admin
    finally:
        process.stop()


def test_a_user_who_may_not_read_everything_backs_up_what_is_allowed(tmp_path: Path) -> None:
    backups = AccountBackups(str(tmp_path / "place"))
    with with_user(tmp_path, 'deny: ["$JS.API.STREAM.SNAPSHOT.SECRET"]') as (url, _):
        with connect(url, user="some", password="s", timeout=2) as some:
            record = backups.create(some)
        assert record.cut == "stream"
        assert [link.name for link in record.streams] == ["OPEN"]
        assert list(record.failed) == ["SECRET"]


def test_the_documented_permissions_are_enough(tmp_path: Path) -> None:
    allowed = documented_permissions()
    assert "$TW.API.BACKUP.>" in allowed
    backups = AccountBackups(str(tmp_path / "place"))
    with with_user(tmp_path, f"allow: {allowed}") as (url, admin):
        admin.jetstream_manager().templates.put("t", match="t.*", stream="T_{1}", idle=3600)
        with connect(url, user="some", password="s", timeout=5) as some:
            for number in range(2):
                admin.jetstream().publish("open", b"x" * (1_000_000 * number))
                record = backups.create(some)
                assert (record.cut, record.failed, record.template_count) == ("account", {}, 1)
            choice = RestoreChoice(renames={"OPEN": "OPEN2"}, skips_existing=True)
            report = backups.restore(some, record, choice)
        assert (report.failed, report.skipped, report.templates) == ({}, ["SECRET"], 1)
        assert admin.jetstream_manager().streams.info("OPEN2").state.messages == 2


def test_cuts_are_read_by_a_client_that_trusts_nothing() -> None:
    facts = StreamFacts({"name": "S"}, {"first_seq": 1, "last_seq": 9, "messages": 3})
    with pytest.raises(tradewind.errors.BackupError, match="cut of stream S"):
        account_cut_reading._removed(facts, [bytes(16) + b"\x16\x01\xff\xff\xff\xff"])


def test_a_message_that_goes_before_it_is_read_is_counted(
    connection: tradewind.sync.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_cuts, "CUT_BYTES_MAX", 0)
    monkeypatch.setattr(cut_reading, "CUTS_MAX", 1)
    js = connection.jetstream()
    js.manager.streams.add(name="S", subjects=["s"])
    for _ in range(9):
        js.publish("s", bytes(100))
    js.manager.streams.delete_message("S", 3)
    read = StreamSaving.new_ranges

    def too_late(self: StreamSaving, *args: Any) -> list[MessageRange]:
        for seq in (5, 9):
            js.manager.streams.delete_message("S", seq)
        return read(self, *args)

    monkeypatch.setattr(StreamSaving, "new_ranges", too_late)
    backups = AccountBackups(str(tmp_path))
    first = backups.create(connection)
    assert (first.streams[0].messages, first.streams[0].missing) == (8, 2)
    monkeypatch.undo()
    js.publish("s", b"more")
    second = backups.create(connection)
    assert (second.streams[0].messages, second.streams[0].missing) == (7, 0)
    assert backups.verify().problems == []
    for record, count in ((first, 6), (second, 7)):
        report = backups.restore(connection, record, RestoreChoice(renames={"S": "T"}))
        assert report.streams[0].messages == count
        js.manager.streams.delete("T")


def test_a_stream_that_the_server_cannot_open_is_named(tmp_path: Path) -> None:
    store = tmp_path / "store"
    flags = ["-js", "-sd", str(store), "-a", "127.0.0.1", "-p", "-1"]
    backups = AccountBackups(str(tmp_path / "place"))
    for is_damaged in (False, True):
        process = ServerProcess("tradewind", flags)
        try:
            with connect(process.wait_ready().url, timeout=SECONDS) as connection:
                if not is_damaged:
                    for name in ("A", "B"):
                        connection.jetstream_manager().streams.add(name=name, subjects=[name])
                record = backups.create(connection)
        finally:
            process.stop()
        (meta,) = store.rglob("A/meta.inf")
        meta.write_text("{")
        assert list(record.failed) == ["A"] * is_damaged
    assert [link.name for link in record.streams] == ["B"]


def test_a_program_with_an_event_loop_backs_up_and_restores(url: str, tmp_path: Path) -> None:
    async def run() -> None:
        backups = AsyncAccountBackups(str(tmp_path))
        async with tradewind.connect(url) as connection:
            streams = connection.jetstream_manager().streams
            await streams.add(name="S", subjects=["s"])
            await connection.jetstream().publish("s", b"1")
            record = await backups.create(connection, comment="first")
            assert (await backups.verify()).problems == []
            assert [each.comment for each in (await backups.list())[0]] == ["first"]
            await streams.delete("S")
            found = await backups.find()
            assert found == record
            report = await backups.restore(connection, found)
            assert [each.messages for each in report.streams] == [1]
            assert (await backups.prune(KeepRules(last=1), dry_run=True)).removed == []
            await streams.delete("S")

    asyncio.run(run())
