"""The sequences of each batch, read from checkpoints as Spark leaves them, or does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.spark.errors import CheckpointError
from tradewind.spark.progress.batch_log import read_batches

AT_MS = 1_794_816_000_000  # 2026-11-16T08:00:00Z
Plans = list[dict[str, dict[str, int]]]


def point(seq: int, after: int | None = None, created_ns: int = 5) -> dict[str, int]:
    begin = {} if after is None else {"after": after, "parts": 1}
    return {"created_ns": created_ns, "seq": seq, **begin}


def offsets_text(*sources: Any, at_ms: int = AT_MS) -> str:
    lines = [source if isinstance(source, str) else json.dumps(source) for source in sources]
    return "\n".join(["v1", json.dumps({"batchTimestampMs": at_ms, "conf": {}}), *lines])


class Checkpoint:
    """A folder as Spark writes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("offsets", "commits"):
            (folder / name).mkdir()
        (folder / "metadata").write_text('{"id":"x"}')

    def plan(self, number: int, *sources: Any) -> Path:
        path = self.folder / "offsets" / str(number)
        path.write_text(offsets_text(*sources, at_ms=AT_MS + number * 1000))
        path.with_name(f".{number}.crc").write_bytes(b"crc")
        return path

    def commit(self, number: int) -> None:
        (self.folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    def rows(self) -> list[tuple[int, int, str, int, int, str]]:
        return [(*row[:5], row.state) for row in read_batches(self.folder)]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path)


def test_each_batch_has_the_sequences_that_it_moved_by(checkpoint: Checkpoint) -> None:
    checkpoint.plan(0, {"A": point(30, 0), "QUIET": point(7)})
    checkpoint.commit(0)
    checkpoint.plan(1, {"A": point(60, 30), "NEW": point(4, 0), "QUIET": point(7)})
    checkpoint.commit(1)
    checkpoint.plan(2, {"A": point(60, 30), "NEW": point(9, 4), "QUIET": point(7)})
    (checkpoint.folder / "offsets" / ".3.0f5d.tmp").write_text("v1")
    assert checkpoint.rows() == [
        (0, 0, "A", 1, 30, "committed"),
        (1, 0, "A", 31, 60, "committed"),
        (1, 0, "NEW", 1, 4, "committed"),
        (2, 0, "NEW", 5, 9, "planned"),
    ]
    moments = [row.planned_at.isoformat() for row in read_batches(checkpoint.folder)]
    assert moments[0] == "2026-11-16T08:00:00+00:00"
    assert moments[3] == "2026-11-16T08:00:02+00:00"


def test_sources_of_other_kinds_are_passed_over(checkpoint: Checkpoint) -> None:
    checkpoint.plan(0, "0", {"A": point(5, 0)}, "-", {"topic": {"0": 7}}, '"text"')
    assert checkpoint.rows() == [(0, 1, "A", 1, 5, "planned")]


def test_a_stream_that_was_made_again_begins_anew(checkpoint: Checkpoint) -> None:
    checkpoint.plan(0, {"A": point(50, 0)})
    checkpoint.plan(1, {"A": point(5, 0, created_ns=6)})
    assert checkpoint.rows()[1] == (1, 0, "A", 1, 5, "planned")


def test_the_oldest_batch_is_left_out_when_the_one_before_is_gone(checkpoint: Checkpoint) -> None:
    for number in range(100, 103):
        checkpoint.plan(number, {"A": point(number * 10, number * 10 - 10)})
        checkpoint.commit(number)
    assert [row[:5] for row in checkpoint.rows()] == [
        (101, 0, "A", 1001, 1010),
        (102, 0, "A", 1011, 1020),
    ]


def test_offsets_of_earlier_versions_are_read(checkpoint: Checkpoint) -> None:
    checkpoint.plan(0, {"A": point(30)})
    checkpoint.plan(1, {"A": point(60), "NEW": point(3, 0)})
    assert [row[2:5] for row in checkpoint.rows()] == [("A", 31, 60), ("NEW", 1, 3)]


def test_sequences_may_be_as_large_as_they_get(checkpoint: Checkpoint) -> None:
    checkpoint.plan(0, {"A": point((1 << 64) - 1, (1 << 63) - 1)})
    assert checkpoint.rows() == [(0, 0, "A", 1 << 63, (1 << 64) - 1, "planned")]


def test_a_file_that_is_cut_off_anywhere_gives_an_error_or_is_left_out(
    checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint.plan(0, {"A": point(30, 0)})
    checkpoint.commit(0)
    path = checkpoint.plan(1, {"A": point(60, 30)})
    whole = path.read_bytes()
    second_line = whole.index(b"\n") + 1, whole.rindex(b"\n") + 1
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        caplog.clear()
        (row,) = checkpoint.rows()
        assert row[0] == 0
        (record,) = caplog.records
        assert str(path) in record.message
    # The same in a file that Spark has gone on from is damage.
    checkpoint.commit(1)
    for size in (0, 1, *second_line, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=f"{path}: line [123]: "):
            checkpoint.rows()


BROKEN = [
    (b"v2\n{}\n{}", "line 1: 'v2' is not v1"),
    (b"v1\n{]\n{}", "line 2: "),
    (b'v1\n{"batchTimestampMs": "x"}\n{}', "line 2: "),
    (b'v1\n{"batchTimestampMs": -1}\n{}', "line 2: -1 ms is not a time"),
    (b'v1\n{"batchTimestampMs": 9223372036854775807}\n{}', "line 2: 9223372036854775807 ms is"),
    (b"v1\n{}\n\xff", "byte 6 is not UTF-8"),
]


@pytest.mark.parametrize(("content", "reason"), BROKEN, ids=range(len(BROKEN)))
def test_a_file_that_is_no_log_is_named(
    checkpoint: Checkpoint, content: bytes, reason: str
) -> None:
    path = checkpoint.folder / "offsets" / "0"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{path}: {reason}"):
        checkpoint.rows()


def test_a_folder_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match="not a checkpoint of a query: it contains no offsets"
    ):
        read_batches(tmp_path / "none")
    (tmp_path / "offsets").mkdir()
    assert read_batches(tmp_path) == []


def test_files_that_spark_removes_meanwhile_are_passed_over(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        checkpoint.plan(number, {"A": point(number * 10 + 10, number * 10)})
    read_text = Path.read_text

    def removed(path: Path, *words: Any) -> str:
        if path.name in "01":
            path.unlink()
        return read_text(path, *words)

    monkeypatch.setattr(Path, "read_text", removed)
    assert checkpoint.rows() == []


@given(
    steps=st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=8),
    kept=st.integers(1, 8),
)
def test_batches_are_those_of_a_naive_model(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[int]], kept: int
) -> None:
    """Three streams that move by so much in each batch; only the last files are still there."""
    checkpoint = Checkpoint(tmp_path_factory.mktemp("model"))
    points = {name: point(0) for name in "ABC"}
    wanted = []
    first = max(len(steps) - kept, 0)
    for number, moves in enumerate(steps):
        for name, move in zip("ABC", moves, strict=True):
            seq = points[name]["seq"]
            if move:
                points[name] = point(seq + move, seq)
                if number > first or number == 0 == first:
                    wanted.append((number, name, seq + 1, seq + move))
        if number >= first:
            checkpoint.plan(number, dict(points))
    assert [(row[0], *row[2:5]) for row in checkpoint.rows()] == wanted
