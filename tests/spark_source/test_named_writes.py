"""Writes with a name that are run again, divided otherwise or into another target, on both servers.

No Spark is needed for this: the writer is called as Spark calls it, and a run that is killed is one
that never comes to its commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import tradewind.sync
from jetstream_servers import add_empty_stream, jetstream_on_both
from tradewind.spark.errors import UnknownOutcomeError
from tradewind.spark.options.sink_options import parse_sink_options
from tradewind.spark.writes import sink
from tradewind.spark.writes.outgoing_columns import plan_columns

ROWS = [str(number) for number in range(400)]


server = jetstream_on_both()


class FakeTask:
    """What a task of Spark knows about itself."""

    def __init__(self) -> None:
        self.number = 0

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return self.number


class Place:
    """An empty stream OUT, and programs that write to it."""

    def __init__(self, url: str, connection: Any, task: FakeTask) -> None:
        self._url = url
        self._task = task
        self.js = connection.jetstream()
        self.streams = connection.jetstream_manager().streams
        for name in list(self.streams.names()):
            self.streams.delete(name)
        self.make()

    def make(self) -> None:
        add_empty_stream(self.streams, name="OUT", subjects=["out.>"])

    def write(
        self, partitions: list[list[str]], *, version: int = 1, is_killed: bool = False, **more: str
    ) -> None:
        """Run a program once; one that is killed has not come to its commit."""
        given = {"servers": self._url, "stream": "OUT", "txnAppId": "job", **more}
        options = parse_sink_options({**given, "txnVersion": str(version)})
        names = ("subject", "data", "id") if options.id_column else ("subject", "data")
        schema = StructType([StructField(name, StringType()) for name in names])
        writer = sink.BatchWriter(options, plan_columns(schema, options), overwrite=False)
        written = []
        for number, rows in enumerate(partitions):
            self._task.number = number
            columns = {"subject": ["out.x"] * len(rows), "data": rows, "id": rows}
            batch = pa.RecordBatch.from_pydict({name: columns[name] for name in names})
            written.append(writer.write(iter([batch])))
        if not is_killed:
            writer.commit(written)

    def stored(self) -> Counter[str]:
        count = self.streams.info("OUT").state.last_seq
        return Counter(
            self.streams.get_message("OUT", seq=seq).data.decode() for seq in range(1, count + 1)
        )


@pytest.fixture
def place(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    task = FakeTask()
    monkeypatch.setattr(sink, "_task", lambda: task)
    with tradewind.sync.connect(server) as connection:
        yield Place(server, connection, task)


def divided(rows: list[str], parts: int) -> list[list[str]]:
    return [rows[part::parts] for part in range(parts)]


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_a_run_with_other_partitions_writes_the_rest(place: Place, parts: int) -> None:
    killed = divided(ROWS, 3)
    place.write([killed[0], killed[1][:50]], is_killed=True)
    place.write(divided(ROWS, parts), is_killed=True)
    place.write(divided(list(reversed(ROWS)), 2))
    assert place.stored() == Counter(ROWS)
    place.write(divided(ROWS, 4))
    assert place.stored() == Counter(ROWS)


def test_a_run_with_ids_of_its_own_writes_the_rest(place: Place) -> None:
    place.write(divided(ROWS, 3)[:2], is_killed=True, idColumn="id")
    place.write(divided(ROWS, 2), idColumn="id")
    assert place.stored() == Counter(ROWS)


def test_equal_rows_that_cannot_be_told_apart_are_an_error(place: Place) -> None:
    place.write([["same"], ["other"]], is_killed=True)
    with pytest.raises(UnknownOutcomeError, match="1 rows that are equal to stored ones"):
        place.write([["same", "other"], ["same"]])
    # In the same partitions they can.
    place.write([["same", "same"], ["same"]], version=2, is_killed=True)
    place.write([["same", "same"], ["same"]], version=2)
    assert place.stored() == Counter({"same": 4, "other": 1})


def test_other_rows_than_those_of_a_run_before_are_an_error(place: Place) -> None:
    place.write([["a", "b"]], is_killed=True)
    with pytest.raises(UnknownOutcomeError, match="1 that are in the target were not repeated"):
        place.write([["a", "c"]])


def test_more_rows_of_a_version_that_is_done_are_an_error(place: Place) -> None:
    place.write([["a", "b"]])
    with pytest.raises(UnknownOutcomeError, match="was already written with 2 rows; none of the 3"):
        place.write([["a", "b", "c"]])
    assert place.stored() == Counter("ab")
    place.write([["a", "b", "c"]], failOnUnknown="false")
    assert place.stored() == Counter("ab")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_target_that_was_made_again_is_written_again(place: Place, version: int) -> None:
    place.write(divided(ROWS, 2), version=2)
    place.streams.delete("OUT")
    place.make()
    place.write(divided(ROWS, 2), version=version)
    assert place.stored() == Counter(ROWS)


def test_an_older_version_is_skipped(place: Place) -> None:
    place.write([["new"]], version=2)
    place.write([["old"]], version=1)
    assert place.stored() == Counter(["new"])
