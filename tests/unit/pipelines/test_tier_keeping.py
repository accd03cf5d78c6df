"""The tiers of a stream: what is verified, what that finds, and what may leave. On both servers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import tradewind.sync
from harness import ServerProcess
from tradewind.api.stream_types import StreamConfig
from tradewind.api.times import parse_time
from tradewind.client.streams.manager import Streams
from tradewind.pipelines.lake.lake_files import local_path
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.table_runs.table_rounds import TableRounds
from tradewind.pipelines.tables.pinned_streams import StreamPlace
from tradewind.pipelines.tables.table_points import pin_table
from tradewind.pipelines.tables.table_proof import compared_stream
from tradewind.pipelines.tables.table_spec import TableSpec, problem_with, with_table
from tradewind.pipelines.tables.table_status import TierStatus, VerifiedMark
from tradewind.pipelines.tables.tier_keeping import TierKeeper, read_mark
from tradewind.pipelines.tables.tier_limits import (
    TierLimits,
    parse_tier_limits,
    removing_limits,
)
from written_tables import RAW_SCHEMA, spec_of, written_table

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
KINDS = ["delta", "iceberg", "parquet"]
DAY_NS = 86_400 * 10**9
NUMBERS = itertools.count()


@pytest.fixture(scope="module", params=["official", "tradewind"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Any]]:
    store = tmp_path_factory.mktemp(request.param) / "store"
    flags = ["-js", "-sd", str(store), "-a", "127.0.0.1", "-p", "-1"]
    process = ServerProcess(request.param, flags).wait_ready()
    try:
        with tradewind.sync.connect(process.url) as connection:
            yield process.url, connection
    finally:
        process.stop()


class Tiered:
    """A stream in two tiers with its keeper."""

    def __init__(
        self, server: tuple[str, Any], folder: Path, name: str, spec: TableSpec, **limits: Any
    ) -> None:
        self.url, self.connection = server
        self.name, self.spec, self.folder = name, spec, folder
        self.streams = self.connection.jetstream_manager().streams
        self.limits = limits
        self.make()
        self.keeper = TierKeeper(name, spec, StreamPlace(PipelineAddress(self.url)))
        self.done = 0

    def make(self) -> None:
        info = self.streams.add(
            name=self.name,
            subjects=[f"{self.name}.*"],
            metadata=with_table({}, self.spec),
            **self.limits,
        )
        self.table = written_table(self.spec, self.name, parse_time(info.created))

    def publish(self, count: int) -> None:
        js = self.connection.jetstream()
        for number in range(count):
            js.publish(f"{self.name}.{number % 3}", b"message %d" % number, headers={"No": "1"})

    def commit(self) -> None:
        """Have the table go up to the end of the stream."""
        state = self.streams.info(self.name).state
        first = max(state.first_seq, self.done + 1)
        found = [
            self.streams.get_message(self.name, seq=seq) for seq in range(first, state.last_seq + 1)
        ]
        rows = {
            "seq": [one.seq for one in found],
            "subject": [one.subject for one in found],
            "time": [one.time for one in found],
            "headers": [[(name, [text]) for name, text in one.headers.items()] for one in found],
            "data": [one.data for one in found],
        }
        self.table.add(pa.table(rows, RAW_SCHEMA), state.last_seq)
        self.done = state.last_seq

    def first_seq(self) -> int:
        return int(self.streams.info(self.name).state.first_seq)

    def files(self) -> list[Path]:
        point = pin_table(self.name, self.spec)
        assert point is not None
        return [Path(local_path(file.path)) for file in point.files]


MakeTiered = Callable[..., Tiered]


@pytest.fixture
def tiered(server: tuple[str, Any], tmp_path: Path) -> Iterator[MakeTiered]:
    made: list[Tiered] = []

    def make(kind: str = "delta", limits: dict[str, Any] | None = None, **config: Any) -> Tiered:
        spec = spec_of(tmp_path, kind, tiers=True, tier_limits=limits or {})
        # nats-server may find messages of a stream that had the name before, and was deleted.
        name = f"T{next(NUMBERS)}"
        one = Tiered(server, tmp_path, name, spec, **config)
        made.append(one)
        return one

    yield make
    for one in made:
        one.streams.delete(one.name)


def seen(status: TierStatus) -> tuple[int, int, int, int]:
    mark = status.mark
    assert mark is not None
    return mark.seq, mark.compared, mark.gone, mark.absent


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_verified_leaves_by_the_limits_of_the_tier(tiered: MakeTiered, kind: str) -> None:
    stream = tiered(kind, {"max_msgs": 4})
    stream.publish(10)
    assert stream.keeper.round() == TierStatus(), "there is no table yet"
    stream.commit()
    stream.publish(5)
    status = stream.keeper.round()
    assert (status.error, status.is_protected) == ("", True)
    # Of the last four messages that may stay, and of five that the table lacks, the latter count.
    assert stream.first_seq() == 11
    assert seen(status) == (10, 10, 0, 0)
    assert status.mark is not None
    assert (status.mark.released_seq, status.mark.released) == (10, 10)
    stream.commit()
    stream.table.join()
    assert seen(stream.keeper.round()) == (15, 15, 0, 0)
    assert stream.first_seq() == 12


def test_the_age_and_the_size_of_messages_are_limits_too(tiered: MakeTiered) -> None:
    old = tiered("delta", {"max_age": "1d"})
    old.publish(6)
    old.commit()
    old.keeper.round()
    assert old.first_seq() == 1
    fourth = old.streams.get_message(old.name, seq=4).time
    border_ns = (int(fourth.timestamp() * 1_000_000) * 1000) + DAY_NS
    old.keeper.clock_ns = lambda: border_ns
    assert old.keeper.round().error == ""
    assert old.first_seq() == 4
    large = tiered("iceberg", {"max_bytes": 300})
    large.publish(20)
    large.commit()
    assert large.keeper.round().error == ""
    state = large.streams.info(large.name).state
    assert 0 < state.bytes <= 300
    assert state.first_seq > 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_noticed_and_the_mark_stays(tiered: MakeTiered, kind: str) -> None:
    stream = tiered(kind, {"max_msgs": 1})
    stream.publish(5)
    stream.commit()
    (whole,) = stream.files()
    stream.publish(5)
    stream.commit()
    (other,) = set(stream.files()) - {whole}
    data = other.read_bytes()
    at = data.rindex(b"PAR1", 0, len(data) // 2) + 200
    other.write_bytes(
        data[:at] + bytes(byte ^ 0x55 for byte in data[at : at + 40]) + data[at + 40 :]
    )
    status = stream.keeper.round()
    assert status.error.startswith("table ")
    assert status.mark is None or status.mark.seq == 0
    assert stream.first_seq() == 1
    # Once the file is right again, all goes on.
    other.write_bytes(data)
    assert seen(stream.keeper.round()) == (10, 10, 0, 0)
    assert stream.first_seq() == 10


def test_damage_after_verification_is_noticed_before_a_message_leaves(tiered: MakeTiered) -> None:
    stream = tiered("delta", {"max_msgs": 7})
    stream.publish(6)
    stream.commit()
    assert seen(stream.keeper.round()) == (6, 6, 0, 0)
    (file,) = stream.files()
    file.unlink()
    stream.publish(4)
    status = stream.keeper.round()
    assert f"{file} cannot be read" in status.error or file.name in status.error
    assert stream.first_seq() == 1


def test_limits_of_the_stream_are_told_and_what_they_removed_is_counted(
    tiered: MakeTiered,
) -> None:
    stream = tiered("delta", max_msgs=6)
    stream.publish(6)
    stream.commit()
    stream.publish(4)
    status = stream.keeper.round()
    assert status.unprotected == ["max_msgs 6"]
    assert not status.is_protected
    # Four messages left between the commit and the verification.
    assert seen(status) == (6, 2, 4, 0)
    stream.publish(8)
    stream.commit()
    # Neither has 7 to 12.
    assert seen(stream.keeper.round()) == (18, 8, 4, 6)
    stream.streams.delete_message(stream.name, seq=18)
    stream.publish(2)
    stream.commit()
    assert seen(stream.keeper.round()) == (20, 10, 4, 6)


def test_deleted_messages_are_rows_without_a_message(tiered: MakeTiered) -> None:
    stream = tiered("delta")
    stream.publish(9)
    stream.commit()
    for seq in (3, 4):
        stream.streams.delete_message(stream.name, seq=seq)
    assert seen(stream.keeper.round()) == (9, 7, 2, 0)


def test_a_stream_that_was_created_again_keeps_everything(tiered: MakeTiered) -> None:
    stream = tiered("delta", {"max_msgs": 1})
    stream.publish(5)
    stream.commit()
    stream.streams.delete(stream.name)
    stream.make()
    stream.publish(7)
    status = stream.keeper.round()
    assert "was deleted and created again" in status.error
    assert stream.first_seq() == 1


@pytest.mark.parametrize("messages", [0, 3, 9])
def test_a_stream_that_is_created_again_right_before_the_purge_loses_nothing_silently(
    tiered: MakeTiered,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    messages: int,
) -> None:
    stream = tiered("delta", {"max_msgs": 1}, storage="memory")
    stream.publish(5)
    stream.commit()
    purge = Streams.purge

    async def purge_the_next(self: Streams, name: str, **wanted: Any) -> int:
        """The stream is deleted and created again when nothing can be looked at any more."""
        monkeypatch.setattr(Streams, "purge", purge)
        config = (await self.info(name)).config
        await self.delete(name)
        await self.add(config)
        for number in range(messages):
            await self._api.connection.request(f"{name}.new", b"new %d" % number)
        return await self.purge(name, **wanted)

    monkeypatch.setattr(Streams, "purge", purge_the_next)
    error = stream.keeper.round().error
    left = stream.streams.info(stream.name).state.messages
    if request.node.callspec.params["server"] == "tradewind":
        assert "was created at" in error
        assert left == messages
        return
    lost = min(messages, 4)
    assert left == messages - lost
    told = f"{lost} messages of the new stream may be lost" if lost else "nothing was lost"
    assert error == (f"stream {stream.name} was deleted and created again during a purge; {told}")


def test_a_stream_that_is_created_again_right_after_the_purge_has_lost_nothing(
    tiered: MakeTiered, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = tiered("iceberg", {"max_msgs": 1}, storage="memory")
    stream.publish(5)
    stream.commit()
    purge = Streams.purge

    async def purge_the_last(self: Streams, name: str, **wanted: Any) -> int:
        purged = await purge(self, name, **wanted)
        config = (await self.info(name)).config
        await self.delete(name)
        await self.add(config)
        await self._api.connection.request(f"{name}.new", b"new")
        return purged

    monkeypatch.setattr(Streams, "purge", purge_the_last)
    error = stream.keeper.round().error
    assert error.endswith("was deleted and created again during a purge; nothing was lost")
    assert stream.streams.info(stream.name).state.messages == 1


def test_a_purge_that_is_denied_is_told(tiered: MakeTiered) -> None:
    stream = tiered("delta", {"max_msgs": 1}, deny_purge=True)
    stream.publish(3)
    stream.commit()
    status = stream.keeper.round()
    assert "purge not permitted" in status.error
    assert seen(status) == (3, 3, 0, 0)


def test_a_table_without_payloads_cannot_be_verified(tmp_path: Path) -> None:
    spec = TableSpec(str(tmp_path), "delta")
    with (
        pytest.raises(Exception, match="only a table that keeps each message with its payload"),
        compared_stream("ORDERS", spec, StreamPlace()),
    ):
        pass


def test_the_changes_of_a_bucket_are_verified(server: tuple[str, Any], tmp_path: Path) -> None:
    url, connection = server
    bucket = connection.jetstream().kv.create("PRICES", history=5)
    spec = spec_of(tmp_path, "delta", tiers=True, rows="changes")
    streams = connection.jetstream_manager().streams
    try:
        bucket.put("a", b"1")
        bucket.put("b.c", b"2")
        bucket.delete("a")
        info = streams.info("KV_PRICES")
        times = [streams.get_message("KV_PRICES", seq=seq).time for seq in (1, 2, 3)]
        rows = {
            "seq": [1, 2, 3],
            "key": ["a", "b.c", "a"],
            "operation": ["PUT", "PUT", "DEL"],
            "time": times,
            "data": pa.array([b"1", b"2", b""], pa.binary()),
        }
        table = written_table(spec, "KV_PRICES", parse_time(info.created))
        table.add(pa.table(rows), 3)
        keeper = TierKeeper("KV_PRICES", spec, StreamPlace(PipelineAddress(url)))
        status = keeper.round()
        assert status.error == ""
        assert seen(status) == (3, 3, 0, 0)
        assert status.unprotected == ["max_msgs_per_subject 5"]
        bucket.put("a", b"4")
        moment = streams.get_message("KV_PRICES", seq=4).time
        wrong = {"seq": [4], "key": ["b"], "operation": ["PUT"], "time": [moment], "data": [b"4"]}
        table.add(pa.table(wrong), 4)
        assert "column key of sequence 4" in keeper.round().error
    finally:
        connection.jetstream().kv.open("PRICES").destroy()


def test_a_mark_that_cannot_be_read_names_its_file(tmp_path: Path) -> None:
    place = tmp_path / "verified.json"
    assert read_mark(place, 5) == VerifiedMark(5)
    place.write_text("{")
    with pytest.raises(Exception, match=r"cannot be read: .*; remove it"):
        read_mark(place, 5)
    place.write_bytes(msgspec.json.encode(VerifiedMark(4, 100)))
    assert read_mark(place, 5) == VerifiedMark(5), "it is of another stream"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"age": "1d"}, "'age' must be one of max_age, max_msgs, max_bytes"),
        ({"max_age": "long"}, "max_age: 'long' is not a duration"),
        ({"max_age": 3}, "max_age must be a duration such as 12h or 7d, not 3"),
        ({"max_msgs": "10GB"}, "max_msgs must be a number such as 1000000, not '10GB'"),
        ({"max_bytes": 0}, "max_bytes must be a size such as 10GB, not 0"),
    ],
)
def test_a_wrong_limit_is_named(given: dict[str, Any], problem: str) -> None:
    spec = TableSpec("/lake", tiers=True, tier_limits=given)
    key, text = problem_with("ORDERS", spec)
    assert key == "tier_limits"
    assert text.startswith(problem)


def test_limits_are_read_in_the_units_of_people() -> None:
    given = {"max_age": "12h", "max_msgs": 1000, "max_bytes": "2 KiB"}
    assert parse_tier_limits(given) == TierLimits(DAY_NS // 2, 1000, 2048)
    spec = TableSpec("/lake", tier_limits={"max_msgs": 5})
    assert problem_with("ORDERS", spec) == ("tier_limits", "limits of a tier need tiers")


@pytest.mark.parametrize(
    ("config", "unprotected"),
    [
        ({}, []),
        ({"max_age": 3_600 * 10**9}, ["max_age 1h0m0s"]),
        ({"max_msgs": 5, "max_bytes": 6}, ["max_msgs 5", "max_bytes 6"]),
        ({"max_msgs": 5, "max_bytes": 6, "discard": "new"}, []),
        ({"max_msgs_per_subject": 5, "discard": "new"}, ["max_msgs_per_subject 5"]),
        ({"retention": "workqueue"}, ["retention workqueue"]),
        ({"allow_msg_ttl": True}, ["allow_msg_ttl"]),
    ],
)
def test_settings_by_which_a_server_removes_messages_are_known(
    config: dict[str, Any], unprotected: list[str]
) -> None:
    made = msgspec.convert({"name": "ORDERS", **config}, StreamConfig)
    assert removing_limits(made) == unprotected


def test_a_commit_brings_the_round_forward() -> None:
    worked: list[int] = []
    now = [0.0]
    job: Any = SimpleNamespace(stream="ORDERS", batches=0, is_running=True)
    rounds = TableRounds(
        lambda one: worked.append(one.batches),
        30.0,
        version=lambda one: one.batches,
        clock=lambda: now[0],
    )
    for batches, seconds in ((0, 0.0), (1, 1.0), (1, 2.0), (1, 31.0)):
        job.batches, now[0] = batches, seconds
        rounds.poll({"ORDERS": job})
        rounds.wait(60)
    assert worked == [1, 1]
