"""The set of sequences against Python's own."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.chain.sequence_bits import SequenceBits

FEW = settings(max_examples=50)

near = st.integers(4000, 4200)
sequences = st.one_of(near, st.integers(1, 40_000), st.integers(1, (1 << 64) - 1))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), sequences, sequences),
        st.tuples(st.just("take"), sequences, sequences),
        st.tuples(st.just("span"), near, near),
    ),
    max_size=60,
)


def filled(items: set[int]) -> SequenceBits:
    bits = SequenceBits()
    for item in items:
        bits.add(item)
    return bits


def members(bits: SequenceBits) -> set[int]:
    return {item for first, last in bits.ranges() for item in range(first, last + 1)}


@FEW
@given(steps)
def test_adding_and_taking_are_those_of_a_set(script: list[tuple[str, int, int]]) -> None:
    bits, model = SequenceBits(), set[int]()
    for step, first, last in script:
        if step == "add":
            bits.add(first)
            model.add(first)
            continue
        if step == "span":
            bits.add_range(first, last)
            model |= set(range(first, last + 1))
            continue
        taken = bits.take(first, last)
        expected = {item for item in model if first <= item <= last}
        assert members(taken) == expected
        assert taken.count == len(expected)
        model -= expected
    assert members(bits) == model
    assert bits.count == len(model)
    near_ones = model | {item + 1 for item in model}
    assert {item for item in near_ones if item in bits} == model
    assert all(later[0] > earlier[1] + 1 for earlier, later in pairwise(bits.ranges()))


@FEW
@given(st.sets(near), st.sets(near))
def test_merging_and_subtracting_are_those_of_sets(left: set[int], right: set[int]) -> None:
    rest = filled(left).without(filled(right))
    assert (members(rest), rest.count) == (left - right, len(left - right))
    both = filled(left)
    both.merge(filled(right))
    assert (members(both), both.count) == (left | right, len(left | right))


def test_the_largest_range_costs_only_what_is_in_it() -> None:
    bits = filled({1, 5000, (1 << 64) - 1})
    assert bits.take(2, (1 << 64) - 1).count == 2
    assert list(bits.ranges()) == [(1, 1)]
