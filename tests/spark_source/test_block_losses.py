"""Messages that a store removes between the planning and the reading of its block files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tradewind.spark.errors import DataLossError
from tradewind.spark.options.source_options import parse_options
from tradewind.spark.providers import block_proof
from tradewind.spark.reads.reading import BatchReader
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.stream_folder import StoreRoot
from tradewind.store.format.meta import StreamMeta

MESSAGES = 40


class Folder:
    """A stream or bucket of forty messages on ten subjects, in several blocks."""

    def __init__(self, base: Path, name: str, subject: str, **config: Any) -> None:
        self.base, self.name, self.subject = base, name, subject
        self._root = StoreRoot(OsDisk(str(base)), str(base))
        folder = self._root.stream("$G", name)
        folder.create(StreamMeta({"name": name, "subjects": [">"], **config}, 1))
        self.store: FileStore = folder.open(1000, block_bytes_max=600, compact_bytes_min=200)[1]
        self.add(MESSAGES)

    def add(self, count: int) -> None:
        for _ in range(count):
            number = self.store.table.last_seq + 1
            subject = f"{self.subject}{number % 10}".encode()
            self.store.table.store(subject, b"", b"x" * 20, 1000 + number)
        self.store.commit()

    def remove(self, *seqs: int, erase: bool = True) -> None:
        for seq in seqs:
            self.store.table.remove(seq, erase=erase)
        self.store.commit()
        self.store.commit()

    def behead(self, first_seq: int) -> None:
        self.store.table.compact(first_seq)
        self.store.commit()
        self.store.commit()

    def plan(self, column: str = "seq", **options: str) -> Read:
        where = {"storeDir": str(self.base), "stream": self.name, **options}
        if self.name.startswith("KV_"):
            where["bucket"] = where.pop("stream").removeprefix("KV_")
        return Read(BatchReader(parse_options(where), (column,)))

    def close(self) -> None:
        self.store.close()
        self._root.close()


class Read:
    """A batch that is planned."""

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader
        self._partitions = reader.partitions()

    def rows(self) -> list[int]:
        return [
            value
            for partition in self._partitions
            for batch in self._reader.read(partition)
            for value in batch[0].to_pylist()
        ]


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path, "S", "s.")
    yield made
    made.close()


def test_a_message_that_is_deleted_after_planning_is_read_or_lost(
    stream: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    stream.remove(3)
    strict, lenient = stream.plan(), stream.plan(failOnDataLoss="false")
    some = stream.plan(filterSubjects="s.7,s.8")
    stream.remove(10, 11)
    with pytest.raises(DataLossError, match="2 messages among the sequences 10 to 11 were removed"):
        strict.rows()
    wanted = [seq for seq in range(1, MESSAGES + 1) if seq not in (3, 10, 11)]
    assert lenient.rows() == wanted
    assert "2 messages among the sequences 10 to 11 were removed" in caplog.text
    with pytest.raises(DataLossError, match="sequences 10 to 11"):
        some.rows()
    assert stream.plan().rows() == wanted


def test_a_message_that_is_still_in_its_file_is_read(stream: Folder) -> None:
    read = stream.plan()
    stream.remove(10, erase=False)
    assert read.rows() == list(range(1, MESSAGES + 1))


def test_old_files_that_have_not_changed_are_believed(
    stream: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_proof, "FRESH_NS", -(1 << 62))
    stream.remove(10)
    read = stream.plan()
    assert len(read.rows()) == MESSAGES - 1
    stream.remove(12)
    with pytest.raises(DataLossError, match="1 messages among the sequences 12 to 12"):
        read.rows()


def test_blocks_that_limits_remove_only_begin_a_batch_later(
    stream: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    stream.remove(5)
    read, strict = stream.plan(), stream.plan(failOnDataLoss="true")
    named = stream.plan(startingSeq="2")
    stream.behead(31)
    rows = read.rows()
    assert rows == list(range(rows[0], MESSAGES + 1))
    assert 5 < rows[0] <= 31
    (record,) = caplog.records
    assert f"{rows[0] - 2} messages among the sequences 1 to " in record.message
    assert "removed at its head" in record.message
    for one in (strict, named):
        with pytest.raises(DataLossError, match="were removed after the read was planned"):
            one.rows()


@pytest.mark.parametrize("is_bucket", [False, True])
def test_replaced_messages_are_missed_only_where_a_value_is_wanted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_bucket: bool
) -> None:
    name, subject = ("KV_PRICES", "$KV.PRICES.") if is_bucket else ("S", "s.")
    folder = Folder(tmp_path, name, subject, max_msgs_per_subject=1)
    try:
        read = folder.plan("revision" if is_bucket else "seq")
        history = folder.plan("revision", history="true") if is_bucket else read
        folder.add(30)
        if is_bucket:
            with pytest.raises(DataLossError, match="10 messages among the sequences 31 to 40"):
                read.rows()
        assert history.rows() == []
        assert "10 messages among the sequences 31 to 40 were removed while it" in caplog.text
        assert len(folder.plan("revision" if is_bucket else "seq").rows()) == 10
    finally:
        folder.close()
