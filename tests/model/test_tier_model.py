"""A stream in two tiers loses nothing: random commits, joins, kills and damage, on both servers.

The limits of the tier are far below what is published, so that messages leave all the time. What
has left must be in the table, byte by byte; where a row of the table is wrong, its message and all
that follow must still be in the stream. A kill is an exception that nothing catches, right before
or after a random write of the mark; the first one after a purge is in the same place as the purge.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tradewind.sync
from harness import ServerProcess
from thoroughness import some
from tradewind.api.times import parse_time
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.tables import table_proof, tier_keeping
from tradewind.pipelines.tables.pinned_streams import StreamPlace
from tradewind.pipelines.tables.table_points import pin_table
from tradewind.pipelines.tables.table_spec import with_table
from tradewind.pipelines.tables.tier_keeping import TierKeeper
from written_tables import RAW_SCHEMA, read_point, spec_of, written_table

pytest.importorskip("deltalake")
CASES = some(3, 60)
STEPS = some(12, 24)


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture(scope="module", params=["official", "tradewind"])
def connection(
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


@dataclass
class TieredStream:
    """A stream, its table, and what was published."""

    url: str
    connection: Any
    folder: Path
    chance: random.Random
    payloads: dict[int, bytes] = field(default_factory=dict)
    done: int = 0
    wrong_from: int = 0  # the first sequence whose row is wrong; 0 if none is

    def __post_init__(self) -> None:
        self.name = f"TIERS{self.chance.randrange(10**9)}"
        kind = self.chance.choice(["delta", "iceberg", "parquet"])
        limits = self.chance.choice(
            [{"max_msgs": 5}, {"max_bytes": 600}, {"max_age": "1ms"}, {"max_msgs": 1}]
        )
        self.spec = spec_of(self.folder / self.name, kind, tiers=True, tier_limits=limits)
        self.streams = self.connection.jetstream_manager().streams
        info = self.streams.add(
            name=self.name,
            subjects=[f"{self.name}.*"],
            metadata=with_table({}, self.spec),
            allow_direct=True,
        )
        self.table = written_table(self.spec, self.name, parse_time(info.created))

    def keeper(self) -> TierKeeper:
        return TierKeeper(self.name, self.spec, StreamPlace(PipelineAddress(self.url)))

    def publish(self) -> None:
        js = self.connection.jetstream()
        for _ in range(self.chance.randrange(1, 20)):
            payload = self.chance.randbytes(self.chance.randrange(60))
            headers = {"No": "1"} if self.chance.random() < 0.3 else None
            ack = js.publish(f"{self.name}.{self.chance.randrange(3)}", payload, headers=headers)
            self.payloads[ack.seq] = payload

    def commit(self, *, is_wrong: bool = False) -> None:
        """Have the table go on, as the writer does; the rows of the batch may be wrong."""
        until = max(self.payloads, default=0)
        first = self.done + 1
        if until < first:
            return
        found = [self.streams.get_message(self.name, seq=seq) for seq in range(first, until + 1)]
        rows = [
            {
                "seq": one.seq,
                "subject": one.subject,
                "time": one.time,
                "headers": [(name, [text]) for name, text in (one.headers or {}).items()] or None,
                "data": one.data,
            }
            for one in found
        ]
        if is_wrong:
            self._spoil(rows)
        self.table.add(pa.Table.from_pylist(rows, RAW_SCHEMA), until)
        self.done = until

    def _spoil(self, rows: list[dict[str, Any]]) -> None:
        index = self.chance.randrange(len(rows))
        if not self.wrong_from:
            self.wrong_from = rows[index]["seq"]
        kind = self.chance.choice(["data", "subject", "time", "headers", "lost", "twice"])
        if kind == "lost":
            del rows[index]
        elif kind == "twice":
            rows.append(rows[index])
        else:
            wrong = {
                "data": rows[index]["data"] + b"?",
                "subject": "other",
                "time": rows[index]["time"].replace(year=1999),
                "headers": [("X", ["y"])],
            }
            rows[index][kind] = wrong[kind]

    def round(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a new process does, which may be killed meanwhile."""
        keeper = self.keeper()
        kill_at = self.chance.choice([None, None, self.chance.randrange(5)])
        seen = [0]
        write = tier_keeping.write_mark
        is_after = self.chance.random() < 0.5

        def write_mark(*arguments: Any) -> None:
            is_last = seen[0] == kill_at
            seen[0] += 1
            if is_last and not is_after:
                raise Killed
            write(*arguments)
            if is_last:
                raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(tier_keeping, "write_mark", write_mark)
            patched.setattr(table_proof, "CHUNK_MESSAGES", self.chance.choice([3, 100]))
            try:
                status = keeper.round()
            except Killed:
                return
        if self.wrong_from and self.wrong_from <= self.done:
            assert status.error.startswith("table ")
        else:
            assert status.error == ""
            assert status.is_protected

    def check(self) -> None:
        """Each message is in the stream, or it is right in the table."""
        state = self.streams.info(self.name).state
        first = state.first_seq if state.messages else state.last_seq + 1
        mark = tier_keeping.read_mark(self.keeper().place, self.table.created_ns)
        assert first - 1 <= mark.seq <= self.done
        if self.wrong_from:
            assert mark.seq < self.wrong_from
        assert state.messages == state.last_seq - first + 1
        if first == 1:
            return
        point = pin_table(self.name, self.spec)
        assert point is not None
        rows = read_point(point)
        found = dict(zip(rows["seq"].to_pylist(), rows["data"].to_pylist(), strict=True))
        for seq in range(1, first):
            assert found[seq] == self.payloads[seq]


@pytest.mark.parametrize("seed", range(CASES))
def test_a_message_leaves_only_when_its_row_is_right(
    connection: tuple[str, Any], tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    stream = TieredStream(*connection, tmp_path, chance)
    wrong_step = chance.choice([None, chance.randrange(STEPS)])
    for step in range(STEPS):
        stream.publish()
        action = chance.choice(["commit", "commit", "round", "round", "join", "nothing"])
        if step == wrong_step:
            stream.commit(is_wrong=True)
        elif action == "commit":
            stream.commit()
        elif action == "round":
            stream.round(monkeypatch)
        elif action == "join":
            stream.table.join()
        stream.check()
    stream.commit()
    for _ in range(3):
        stream.round(monkeypatch)
    stream.check()
    assert stream.wrong_from or stream.streams.info(stream.name).state.first_seq > 1
