"""What happens to the server and its stream while a backup is read, on both servers."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

import tradewind.sync
from harness import ServerProcess
from tradewind.spark.contract.filters import filter_of
from tradewind.spark.options.source_options import parse_options
from tradewind.spark.providers import backup_reads
from tradewind.spark.providers.provider_choice import open_provider

if TYPE_CHECKING:
    import pyarrow as pa

COUNT = 40


class Place:
    """A server with a stream ORDERS of messages that cannot be compressed."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._flags = ["-js", "-sd", str(folder), "-a", "127.0.0.1", "-p"]
        self.server = ServerProcess(kind, [*self._flags, "-1"]).wait_ready()
        self._port = self.server.port

    def fill(self) -> None:
        noise = Random(1)
        with tradewind.sync.connect(self.server.url) as connection:
            connection.jetstream_manager().streams.add(name="ORDERS", subjects=["orders.>"])
            js = connection.jetstream()
            for _ in range(COUNT):
                js.publish("orders.x", noise.randbytes(128 * 1024))

    def batches(self) -> Iterator[pa.RecordBatch]:
        options = parse_options(
            {"servers": self.server.url, "stream": "ORDERS", "readMode": "backup"}
        )
        with closing(open_provider(options)) as provider:
            provider.states()
            (task,) = provider.tasks("ORDERS", filter_of(options), 3)
        return task.batches(("seq",))

    def crash(self) -> None:
        self.server.signal(signal.SIGKILL)
        self.server.wait()
        self.server = ServerProcess(self._kind, [*self._flags, str(self._port)]).wait_ready()


@pytest.fixture(params=["official", "tradewind"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """Little is under way at a time, so that a backup that is not read on has not arrived."""
    monkeypatch.setattr(backup_reads, "ROWS_PER_BATCH", 4)
    monkeypatch.setattr(backup_reads, "CHUNK_BYTES", 16 * 1024)
    monkeypatch.setattr(backup_reads, "WINDOW_BYTES", 32 * 1024)
    made = Place(request.param, tmp_path)
    try:
        made.fill()
        yield made
    finally:
        made.server.stop()


def seqs(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [seq for batch in batches for seq in batch[0].to_pylist()]


def test_a_backup_that_a_crash_cuts_off_is_read_on_by_a_consumer(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    batches = place.batches()
    found = next(batches)[0].to_pylist()
    place.crash()
    with caplog.at_level(logging.WARNING):
        found += seqs(batches)
    assert found == list(range(1, COUNT + 1))
    (warning,) = [one for one in caplog.messages if "its backup stopped after sequence" in one]
    assert warning.endswith("the rest is read as in the mode network")


def test_others_write_and_delete_while_a_backup_is_read(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    batches = place.batches()
    found = next(batches)[0].to_pylist()
    with tradewind.sync.connect(place.server.url) as connection:
        streams = connection.jetstream_manager().streams
        assert connection.jetstream().publish("orders.y", b"late").seq == COUNT + 1
        streams.delete_message("ORDERS", 2)
        streams.purge("ORDERS", filter="orders.y")
        assert streams.info("ORDERS").state.messages == COUNT - 1
    found += seqs(batches)
    assert found == list(range(1, COUNT + 1))
    assert not caplog.messages
