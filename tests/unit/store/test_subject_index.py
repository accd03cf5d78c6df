"""The subjects of a stream: counted, listed, filtered, and carried through index.db."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from store_kit import put
from sweeps import sweep

from model.store_model import matches
from tradewind.store.table.message_store import MessageStore
from tradewind.store.table.subject_index import SubjectFilter, SubjectIndex

PATTERNS = (b">", b"*", b"a", b"a.*", b"a.>", b"*.b", b"a.*.c", b"*.*.*", b"b")
SUBJECTS = (b"a", b"b", b"a.b", b"a.c", b"a.b.c", b"b.b", b"a.b.c.d", b"x.y.c")


def filled(*subjects: bytes) -> SubjectIndex:
    store = MessageStore("S")
    put(store, *subjects)
    return store.index


def columns(
    totals: dict[bytes, int],
) -> tuple[bytes, array[int], array[int], array[int], array[int]]:
    ends, names = array("Q"), b""
    for name in totals:
        names += name
        ends.append(len(names))
    blocks = array("I", range(1, len(totals) + 1))
    return names, ends, array("Q", totals.values()), blocks, blocks


def test_new_index_has_no_subjects() -> None:
    index = SubjectIndex()
    assert index.live_count == 0
    assert index.names_and_totals() == {}
    assert index.matching_total(SubjectFilter(index)) == (0, 0)


def test_subjects_are_listed_in_the_order_in_which_they_came() -> None:
    index = filled(b"c", b"a", b"b", b"a")
    assert list(index.names_and_totals().items()) == [(b"c", 1), (b"a", 2), (b"b", 1)]


def test_page_of_the_subjects_that_pass() -> None:
    index = filled(*[b"s.%d" % number for number in range(10)], b"other")
    chosen = SubjectFilter(index, (b"s.*",))
    assert list(index.names_and_totals(chosen, 3, 4)) == [b"s.4", b"s.5", b"s.6"]
    assert list(index.names_and_totals(chosen, 3, 9)) == [b"s.9"]
    assert index.names_and_totals(chosen, 3, 10) == {}
    assert index.matching_total(chosen) == (10, 10)


@sweep("first", PATTERNS)
@sweep("second", PATTERNS)
def test_filter_of_two_patterns_passes_what_either_matches(first: bytes, second: bytes) -> None:
    index = filled(*SUBJECTS)
    chosen = SubjectFilter(index, (first, second))
    expected = {name for name in SUBJECTS if matches(first, name) or matches(second, name)}
    assert index.names_and_totals(chosen).keys() == expected
    assert index.matching_total(chosen) == (len(expected), len(expected))
    assert {name for name in SUBJECTS if chosen.matches(name)} == expected


def test_filter_judges_subjects_that_are_not_stored() -> None:
    chosen = SubjectFilter(SubjectIndex(), (b"a.*", b"q"))
    assert [chosen.matches(name) for name in (b"a.x", b"q", b"a", b"a.x.y")] == [
        True,
        True,
        False,
        False,
    ]


def test_filter_without_patterns_and_the_full_wildcard_pass_everything() -> None:
    index = SubjectIndex()
    for patterns in ((), (b">",), (b"a", b">")):
        chosen = SubjectFilter(index, patterns)
        assert chosen.everything
        assert chosen.matches(b"whatever.it.is")
        assert chosen.patterns == patterns
    assert not SubjectFilter(index, (b"*",)).everything


@pytest.mark.parametrize("pattern", [b"", b"a..b", b".a", b"a.", b"a.>.b", b"a b", b"a\r\n"])
def test_pattern_that_is_no_subject_is_refused(pattern: bytes) -> None:
    with pytest.raises(ValueError, match="invalid subject"):
        SubjectFilter(SubjectIndex(), (b"good", pattern))


def test_filter_takes_only_bytes() -> None:
    with pytest.raises(TypeError):
        SubjectFilter(SubjectIndex(), ("text",))  # type: ignore[arg-type]


def test_columns_fill_an_equal_index() -> None:
    totals = {b"a.%d" % number: number + 1 for number in range(1000)}
    index = SubjectIndex()
    index.adopt_columns(*columns(totals))
    assert index.live_count == 1000
    assert index.names_and_totals() == totals
    names, ends, counts, first_blocks, last_blocks = index.columns()
    found = [names[start:end] for start, end in pairwise([0, *ends])]
    assert dict(zip(found, counts, strict=True)) == totals
    assert list(first_blocks) == list(last_blocks) == list(range(1, 1001))


def test_columns_leave_out_subjects_without_messages() -> None:
    store = MessageStore("S")
    put(store, b"a", b"b", b"c")
    store.remove(2)
    names, ends, totals, _, _ = store.index.columns()
    assert (names, list(ends), list(totals)) == (b"ac", [1, 2], [1, 1])


def test_columns_of_an_empty_index() -> None:
    index = SubjectIndex()
    index.adopt_columns(*index.columns())
    assert index.live_count == 0


def test_seed_changes_nothing_that_can_be_seen() -> None:
    totals = {b"s.%d" % number: 1 for number in range(5000)}
    for seed in (0, 1, 2**64 - 1):
        index = SubjectIndex(seed)
        index.adopt_columns(*columns(totals))
        assert index.names_and_totals() == totals


def test_memory_is_counted_and_given_back() -> None:
    store = MessageStore("S")
    empty = store.index.memory_bytes
    put(store, *[b"subject.%d" % number for number in range(1000)])
    full = store.index.memory_bytes
    assert 1000 * 12 < full - empty < 1000 * 200
    for seq in range(1, 1001):
        store.remove(seq)
    assert store.index.live_count == 0
    assert store.index.memory_bytes <= empty + 1024 * 8
