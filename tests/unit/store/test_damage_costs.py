"""Which sequences are named as lost for damage, where only what is left can tell."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tradewind.store.folder.filestore import FileStore
from tradewind.store.format.layout import RECORD_BYTES_MIN
from tradewind.store.repair.damage_costs import BlockCosts, block_costs
from tradewind.store.table.block import Block
from tradewind.store.table.scan import BlockReport, Damage
from tradewind.testing.fake_disk import SimulatedDisk


def some_block() -> Block:
    store = FileStore(SimulatedDisk(), "/disk/S/msgs", "S")
    return Block("S", 1, store.block_file(1))


def costs(*damage: Damage, behind: int = 0, torn: set[int] | None = None) -> BlockCosts:
    report = BlockReport(damage=list(damage))
    return block_costs(some_block(), report, torn or set(), behind, ())


def test_all_damage_between_two_messages_is_one_question() -> None:
    # A damaged mark, and behind it damaged messages that still say which ones they were.
    mark = Damage(0, 30, 31, 0, torn=False, at_start=True)
    messages = Damage(60, 151, 31, 0, torn=False, at_start=True, claimed=[70032, 70033])
    found = costs(mark, messages, behind=70034)
    assert found.lost == {0: set(range(70028, 70034)), 60: set(range(70028, 70034))}
    assert not found.used_up


def test_what_was_never_promised_is_neither_named_nor_room() -> None:
    rotten = Damage(30, 30, 5, 0, torn=False)
    torn = Damage(90, 900, 5, 0, torn=True, unfinished=True)
    assert costs(rotten, torn, behind=100, torn={90}).lost == {30: {6}}


def test_the_numbers_of_an_end_that_nobody_knows_are_used_up() -> None:
    found = costs(Damage(60, 95, 7, 0, torn=True))
    assert found.lost == {60: set()}
    assert found.used_up == 10


pieces = st.lists(
    st.tuples(st.integers(1, 200), st.booleans(), st.lists(st.integers(11, 3000), max_size=3)),
    min_size=1,
    max_size=5,
)


@given(pieces=pieces, width=st.sampled_from((0, 1, 3, 10, 2000)), at_end=st.booleans())
def test_no_more_is_named_than_there_was_room_for(
    pieces: list[tuple[int, bool, list[int]]], width: int, at_end: bool
) -> None:
    before = 11 + width
    damage = [
        Damage(300 * place, size, 10, 0 if at_end else before, False, at_start, claimed)
        for place, (size, at_start, claimed) in enumerate(pieces)
    ]
    found = costs(*damage, behind=before if at_end else 0)
    answers = list(found.lost.values())
    assert all(answer == answers[0] for answer in answers)
    assert answers[0] <= set(range(11, before))
    room = sum(-(-size // RECORD_BYTES_MIN) for size, _, _ in pieces)
    claimed = {seq for _, _, said in pieces for seq in said}
    assert len(answers[0]) <= room or answers[0] <= claimed
    assert bool(answers[0]) == bool(width)
