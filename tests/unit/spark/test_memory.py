"""Memory that is used again, never while somebody looks at it; what the collector passes over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.spark.columnar.arrow import batches
from tradewind.spark.columnar.memory import Memory, Piece
from tradewind.spark.columnar.rows import RowDecoder
from tradewind.spark.files.store_files import StreamFiles, VanishedFileError
from tradewind.store.format.s2 import encode_block


def fill(piece: Piece, value: int) -> None:
    with memoryview(piece) as view:
        view[:] = bytes([value]) * len(piece)


def test_piece_that_was_let_go_is_given_out_again() -> None:
    memory = Memory()
    piece = memory.take(100_000)
    address = pa.py_buffer(piece).address
    del piece
    again = memory.take(90_000)
    assert (pa.py_buffer(again).address, len(again)) == (address, 90_000)


def test_piece_that_arrow_still_has_is_not_given_out() -> None:
    memory = Memory()
    piece = memory.take(10)
    fill(piece, 7)
    array = pa.Array.from_buffers(pa.int8(), 10, [None, pa.py_buffer(piece)])
    part = array[3:]
    del piece, array
    other = memory.take(10)
    fill(other, 1)
    assert part.to_pylist() == [7] * 7


def test_small_piece_does_not_occupy_a_large_one() -> None:
    memory = Memory()
    large = memory.take(10_000_000)
    address = pa.py_buffer(large).address
    del large
    small = memory.take(10)
    assert pa.py_buffer(small).address != address
    assert pa.py_buffer(memory.take(10_000_000)).address == address


def test_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        Memory().take(-1)


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 60)), max_size=200))
def test_held_pieces_keep_their_content(steps: list[tuple[int, int]]) -> None:
    """However sizes change and whichever pieces go, and with more of them than are remembered."""
    memory = Memory()
    held: list[tuple[pa.Buffer, bytes]] = []
    for number, (size, dropped) in enumerate(steps):
        piece = memory.take(size)
        assert len(piece) == size
        fill(piece, number % 251)
        held.append((pa.py_buffer(piece), bytes([number % 251]) * size))
        if dropped < len(held):
            del held[dropped]
        assert all(buffer.to_pybytes() == expected for buffer, expected in held)


def test_batches_outlive_the_rows_that_come_after_them() -> None:
    decoder = RowDecoder()
    columns = ("seq", "subject", "time", "headers", "data")
    held = []
    for number in range(1, 6):
        decoder.take_row(number, number * 1000, b"s%d" % number, b"NATS/1.0\r\nA: b\r\n\r\n", b"x")
        held += batches(decoder, "S", columns)
        decoder.clear()
    rows = [row for batch in held for row in batch.to_pylist()]
    assert [row["seq"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["subject"] for row in rows] == ["s1", "s2", "s3", "s4", "s5"]
    assert [row["time"].microsecond for row in rows] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("plain", "is_compressed"),
    [(b"", False), (b"x", False), (bytes(2_000_000), False), (bytes(2_000_000), True)],
)
def test_block_is_the_same_in_memory_that_is_used_again(
    tmp_path: Path, plain: bytes, is_compressed: bool
) -> None:
    files = StreamFiles("S", str(tmp_path), {}, 0, was_changed=False)
    (tmp_path / "msgs").mkdir()
    Path(files.block_path(1)).write_bytes(encode_block(plain) if is_compressed else plain)
    memory = Memory()
    for _ in range(2):
        assert bytes(memoryview(files.read_block_into(1, memory))) == plain
    with pytest.raises(VanishedFileError):
        files.read_block_into(2, memory)


PLAIN_PROGRAM = """
import gc
from tradewind.spark.processes.worker import spare_modules

spare_modules()
assert gc.get_freeze_count() == 0
"""


def test_collector_is_left_alone_outside_of_spark() -> None:
    subprocess.run([sys.executable, "-c", PLAIN_PROGRAM], check=True, timeout=60)


DAEMON_PROGRAM = """
import gc, sys
from importlib.machinery import ModuleSpec
from tradewind.spark.processes.worker import spare_modules

sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)
spare_modules()
count = gc.get_freeze_count()
assert count > 0
later = [[number] for number in range(1000)]
spare_modules()
assert gc.get_freeze_count() <= count, "what came later is still collected"
"""


def test_collector_passes_over_modules_in_processes_of_spark() -> None:
    subprocess.run([sys.executable, "-c", DAEMON_PROGRAM], check=True, timeout=60)
