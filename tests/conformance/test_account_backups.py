"""Backups of an account, on both servers: any point in time comes back as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tradewind.sync
from harness import ServerProcess
from jetstream_servers import keep_streams_folder
from sweeps import sweep
from thoroughness import some
from tradewind.api.times import parse_time
from tradewind.backups import AccountBackups, BackupError, KeepRules, RestoreChoice
from tradewind.backups.account_api import AccountApi, StreamSnapshot
from tradewind.backups.backup_places import FolderPlace
from tradewind.client.api_errors import JetStreamApiError
from tradewind.store.backup.archive import ArchiveReader

if TYPE_CHECKING:
    from tradewind.sync import Connection

SECONDS = 60.0


@pytest.fixture(scope="module", params=["official", "tradewind"])
def connections(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Connection, Connection]]:
    """A server to back up, and one to restore to."""
    processes = []
    try:
        for name in ("source", "target"):
            store = tmp_path_factory.mktemp(name)
            flags = ["-js", "-sd", str(store), "-a", "127.0.0.1", "-p", "-1"]
            processes.append(ServerProcess(request.param, flags))
            processes[-1].wait_ready()
            keep_streams_folder(store)
        urls = [process.url for process in processes]
        with (
            tradewind.sync.connect(urls[0], timeout=SECONDS) as source,
            tradewind.sync.connect(urls[1], timeout=SECONDS) as target,
        ):
            yield source, target
    finally:
        for process in processes:
            process.stop()


def clear(connection: Connection) -> None:
    streams = connection.jetstream_manager().streams
    for name in streams.names().all():
        streams.delete(name)


@pytest.fixture
def source(connections: tuple[Connection, Connection]) -> Iterator[Connection]:
    yield connections[0]
    clear(connections[0])


@pytest.fixture
def target(connections: tuple[Connection, Connection]) -> Iterator[Connection]:
    yield connections[1]
    clear(connections[1])


@pytest.fixture
def backups(tmp_path: Path) -> AccountBackups:
    return AccountBackups(str(tmp_path / "place"))


Truth = dict[str, tuple[dict[str, Any], list[Any], list[Any]]]


def truth(connection: Connection) -> Truth:
    """State, consumers and messages of all streams, from the server's own snapshots."""
    api = AccountApi(connection)
    found: Truth = {}
    for facts in api.streams():
        with StreamSnapshot(api, facts.name) as snapshot:
            consumers = [(each.name, each.state) for each in snapshot.consumers()]
            reader = ArchiveReader(1 << 24)
            reader.feed(b"NATSARC1" + b"".join(snapshot.messages()))
            messages = list(iter(reader.next_entry, None))
        state = snapshot.state
        # nats-server forgets when a message was stored that is gone, and that a stream was unused.
        last = messages[-2].seq if len(messages) > 1 else 0
        kept = ("messages", "bytes", "last_seq", *(["last_ts"] * (last == state["last_seq"])))
        known = {name: state.get(name) for name in kept}
        known["first_seq"] = max(state["first_seq"], 1)
        found[facts.name] = (known, consumers, messages)
    return found


class RandomAccount:
    """An account that changes at random: a log, a work queue, a bucket."""

    def __init__(self, connection: Connection, seed: int) -> None:
        self.rng = random.Random(seed)
        self.js = connection.jetstream()
        self.streams = self.js.manager.streams
        self.streams.add(name="LOG", subjects=["log.>"], max_msgs=150, allow_direct=True)
        self.streams.add(name="WORK", subjects=["work.*"], retention="workqueue")
        self.streams.add(name="EMPTY", subjects=["empty"])
        for stream in ("LOG", "WORK"):
            self.js.manager.consumers.add(
                stream, durable_name="c", ack_policy="explicit", ack_wait=3600
            )
        self.bucket = self.js.kv.create("b", history=2)

    def change(self) -> None:
        for _ in range(self.rng.randrange(1, 4)):
            getattr(self, self.rng.choice(("publish", "work", "put", "consume", "remove")))()

    def publish(self) -> None:
        for number in range(self.rng.choice((1, 30, 90))):
            payload = self.rng.randbytes(self.rng.choice((0, 10, 300)))
            headers = {"N": str(number)} if number % 3 else None
            self.js.publish_async(f"log.{number % 7}", payload, headers=headers)
        self.js.publish_async_completed()

    def work(self) -> None:
        for number in range(self.rng.choice((1, 20))):
            self.js.publish(f"work.{number % 3}", b"job")

    def put(self) -> None:
        for _ in range(10):
            key = f"k{self.rng.randrange(6)}"
            if self.rng.random() < 0.2:
                self.bucket.delete(key)
            else:
                self.bucket.put(key, self.rng.randbytes(5))

    def consume(self) -> None:
        stream = self.rng.choice(("LOG", "WORK"))
        consumer = self.js.consumers.get(stream, "c")
        for message in consumer.fetch(self.rng.randrange(1, 12), expires=0.5, no_wait=True):
            if self.rng.random() < 0.7:
                message.ack_sync()

    def remove(self) -> None:
        deed = self.rng.random()
        info = self.streams.info("LOG")
        if deed < 0.5 and info.state.messages:
            seq = self.rng.randint(info.state.first_seq, info.state.last_seq)
            with suppress(JetStreamApiError):  # it may be gone
                self.streams.delete_message("LOG", seq)
        elif deed < 0.8:
            self.streams.purge("LOG", filter=f"log.{self.rng.randrange(7)}")
        elif deed < 0.9:
            self.streams.purge("LOG")
        else:
            self.streams.delete("LOG")
            self.streams.add(name="LOG", subjects=["log.>"], max_msgs=150, allow_direct=True)
            self.js.manager.consumers.add(
                "LOG", durable_name="c", ack_policy="explicit", ack_wait=3600
            )


@sweep("seed", range(some(2, 20)))
def test_any_backup_is_restored_as_it_was(
    source: Connection, target: Connection, tmp_path: Path, seed: int
) -> None:
    backups = AccountBackups(str(tmp_path / f"place{seed}"))
    account = RandomAccount(source, seed)
    moments = []
    for _ in range(6):
        account.change()
        moments.append((backups.create(source), truth(source)))
    clear(source)
    assert backups.verify().problems == []
    for record, wanted in moments:
        report = backups.restore(target, record)
        assert report.failed == {}
        assert truth(target) == wanted
        clear(target)
    # Those that stay are not changed by those that go.
    record, wanted = moments[3]
    backups.prune(KeepRules(last=3))
    assert [each.id for each in backups.list()[0]] == [each.id for each, _ in moments[3:]]
    assert backups.verify().problems == []
    backups.restore(target, record)
    assert truth(target) == wanted
    clear(target)


def test_a_backup_without_a_change_adds_nothing_but_itself(
    source: Connection, backups: AccountBackups
) -> None:
    account = RandomAccount(source, 1)
    account.publish()
    account.put()
    first = backups.create(source)
    second = backups.create(source)
    assert first.added_objects > 3
    assert second.added_objects == 0
    assert [link.object for link in second.streams] == [link.object for link in first.streams]


def test_an_increment_stores_what_is_new(source: Connection, backups: AccountBackups) -> None:
    js = source.jetstream()
    js.manager.streams.add(name="S", subjects=["s"])
    rng = random.Random(1)
    for _ in range(300):
        js.publish_async("s", rng.randbytes(1000))
    js.publish_async_completed()
    first = backups.create(source)
    for _ in range(10):
        js.publish("s", rng.randbytes(1000))
    second = backups.create(source)
    assert first.added_bytes > 300_000
    assert 10_000 < second.added_bytes < 14_000


def test_a_stream_is_restored_under_another_name_beside_the_original(
    source: Connection, backups: AccountBackups
) -> None:
    js = source.jetstream()
    manager = js.manager
    manager.streams.add(name="S", subjects=["s.*"])
    manager.consumers.add("S", durable_name="c", filter_subject="s.1")
    bucket = js.kv.create("old")
    for number in range(9):
        js.publish(f"s.{number % 3}", b"%d" % number)
        bucket.put(f"k{number}", b"%d" % number)
    record = backups.create(source)
    choice = RestoreChoice(streams=("S", "KV_*"), renames={"S": "COPY", "KV_old": "KV_new"})
    report = backups.restore(source, record, choice)
    assert report.failed == {}
    copy = manager.streams.info("COPY")
    assert list(copy.config.subjects) == ["COPY"]
    assert (copy.state.messages, copy.state.last_seq) == (9, 9)
    assert manager.streams.get_message("COPY", seq=5).subject == "s.1"
    assert manager.consumers.info("COPY", "c").num_pending == 3
    renamed = js.kv.open("new")
    assert sorted(renamed.keys()) == [f"k{number}" for number in range(9)]
    assert renamed.get("k4").value == b"4"
    renamed.put("k4", b"new")
    assert bucket.get("k4").value == b"4"
    js.publish("s.1", b"more")
    assert manager.streams.info("COPY").state.last_seq == 9


def test_only_the_messages_of_a_subject_and_time_are_restored(
    source: Connection, target: Connection, backups: AccountBackups
) -> None:
    js = source.jetstream()
    js.manager.streams.add(name="S", subjects=["s.>"])
    for number in range(30):
        js.publish(f"s.{number % 3}.x", b"%d" % number)
    record = backups.create(source)
    times = {seq: parse_time(AccountApi(source).message_time("S", seq)) for seq in range(1, 31)}
    choice = RestoreChoice(
        subjects=("s.1.*", "s.2.>"), since_ns=times[10], until_ns=times[20], has_consumers=False
    )
    backups.restore(target, record, choice)
    wanted = [seq for seq in range(10, 20) if (seq - 1) % 3 and times[10] <= times[seq] < times[20]]
    messages = truth(target)["S"][2][:-1]
    assert [entry.seq for entry in messages] == wanted
    assert target.jetstream_manager().streams.info("S").state.last_seq == 30


def test_streams_that_exist_are_never_changed(
    source: Connection, target: Connection, backups: AccountBackups
) -> None:
    for connection, name in ((source, "A"), (source, "B"), (target, "B")):
        connection.jetstream_manager().streams.add(name=name, subjects=[name.lower()])
        connection.jetstream().publish(name.lower(), name.encode())
    target.jetstream().publish("b", b"of the target")
    record = backups.create(source)
    with pytest.raises(BackupError, match="exist already: B"):
        backups.restore(target, record)
    assert list(truth(target)) == ["B"]
    report = backups.restore(target, record, RestoreChoice(skips_existing=True))
    assert report.skipped == ["B"]
    assert {name: found[0]["messages"] for name, found in truth(target).items()} == {"A": 1, "B": 2}


def test_one_stream_that_cannot_be_restored_does_not_keep_back_the_others(
    source: Connection, target: Connection, backups: AccountBackups
) -> None:
    for name in ("A", "B", "C"):
        source.jetstream_manager().streams.add(name=name, subjects=[name.lower()])
    target.jetstream_manager().streams.add(name="OTHER", subjects=["b"])
    report = backups.restore(target, backups.create(source))
    assert [each.name for each in report.streams] == ["A", "C"]
    assert list(report.failed) == ["B"]
    assert "subjects overlap" in report.failed["B"]


def test_every_damaged_byte_is_found_and_named(
    source: Connection, target: Connection, tmp_path: Path
) -> None:
    js = source.jetstream()
    js.manager.streams.add(name="S", subjects=["s"])
    js.manager.consumers.add("S", durable_name="c")
    js.publish("s", b"content")
    backups = AccountBackups(FolderPlace(tmp_path))
    record = backups.create(source)
    assert backups.verify().problems == []
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 5  # backup, stream, page, messages, consumers
    for path in files:
        content = path.read_bytes()
        for damaged in (content[:-2], bytes([content[0] ^ 1]) + content[1:], b"", None):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            if path.suffix == ".json":
                if damaged is None:
                    continue
                assert path.name in backups.list()[1][0]
            problems = backups.verify().problems
            assert any(path.name in problem for problem in problems), (path, problems)
            if path.suffix != ".json":
                report = backups.restore(target, record)
                assert path.name in report.failed["S"]
                assert truth(target) == {}
        path.write_bytes(content)
    assert backups.verify().problems == []


def test_a_stream_that_was_made_again_is_read_again(
    source: Connection, target: Connection, backups: AccountBackups
) -> None:
    js = source.jetstream()
    for payload in (b"old", b"new"):
        js.manager.streams.add(name="S", subjects=["s"])
        for _ in range(5):
            js.publish("s", payload)
        record = backups.create(source)
        if payload == b"old":
            js.manager.streams.delete("S")
    backups.restore(target, record)
    assert [entry.payload for entry in truth(target)["S"][2][:-1]] == [b"new"] * 5
