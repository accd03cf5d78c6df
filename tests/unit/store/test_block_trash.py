"""Which of the blocks that nobody needs go after a commit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tradewind.store.folder.commit_chores import FILES_REMOVED_MAX, BlockTrash


def blocks(*last_sequences: int) -> Any:
    return [SimpleNamespace(last_seq=last_seq) for last_seq in last_sequences]


def taken(trash: BlockTrash, marked: tuple[int, int], floor: int, newest: int = 1) -> list[int]:
    groups = trash.take(marked, floor, newest)
    return [cast(int, block.last_seq) for group in groups for block in group]


def left(trash: BlockTrash) -> list[int]:
    return [cast(int, block.last_seq) for block in trash.blocks]


def test_no_block_goes_before_a_mark_on_disk_has_reached_its_removal() -> None:
    trash = BlockTrash()
    trash.add((2, 100), blocks(5))
    assert taken(trash, (2, 99), 1000) == []
    assert taken(trash, (2, 100), 1000) == [5]
    assert left(trash) == []


def test_without_a_floor_one_group_goes_at_a_time_and_the_oldest_first() -> None:
    trash = BlockTrash()
    trash.add((2, 0), blocks(5))
    trash.add((2, 0), blocks(9))
    assert taken(trash, (3, 0), 0) == [5]
    assert taken(trash, (3, 0), 0) == [9]


def test_below_a_floor_several_go_but_not_more_than_take_a_moment() -> None:
    trash = BlockTrash()
    sequences = list(range(1, 2 * FILES_REMOVED_MAX))
    trash.add((2, 0), blocks(sequences[0]))
    trash.add((2, 0), blocks(*sequences[1:]))
    assert taken(trash, (3, 0), 1000) == sequences[:FILES_REMOVED_MAX]
    assert left(trash) == sequences[FILES_REMOVED_MAX:]


def test_blocks_go_as_fast_as_they_come() -> None:
    trash = BlockTrash()
    sequences = list(range(1, 3 * FILES_REMOVED_MAX))
    trash.add((2, 0), blocks(*sequences))
    assert taken(trash, (3, 0), 1000, newest=10) == sequences[:FILES_REMOVED_MAX]
    assert (
        taken(trash, (3, 0), 1000, newest=12)
        == sequences[FILES_REMOVED_MAX:][: FILES_REMOVED_MAX + 2]
    )
