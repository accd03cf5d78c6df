"""A set of patterns against each pattern asked by itself."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model import subject_model
from tradewind.store.table.message_store import MessageStore
from tradewind.store.table.pattern_set import PatternSet
from tradewind.store.table.subject_index import SubjectFilter

TOKENS = st.sampled_from([b"a", b"b", b"ab", b"*x", b">x", b"a>"])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=5).map(b".".join)
PATTERNS = st.builds(
    lambda tokens, tail: b".".join(tokens + ([b">"] if tail or not tokens else [])),
    st.lists(st.one_of(TOKENS, st.just(b"*")), max_size=5),
    st.booleans(),
)


def matches(pattern: bytes, subject: bytes) -> bool:
    return subject_model.matches(pattern.decode(), subject.decode())


@given(
    st.lists(PATTERNS, max_size=30),
    st.lists(SUBJECTS, min_size=1, max_size=30),
    st.integers(0, 2**64 - 1),
)
def test_set_accepts_what_one_of_its_patterns_matches(
    patterns: list[bytes], subjects: list[bytes], seed: int
) -> None:
    chosen = PatternSet(tuple(patterns), seed)
    for subject in subjects:
        expected = any(matches(pattern, subject) for pattern in patterns)
        assert chosen.accepts(subject) == expected


@given(
    st.lists(st.sampled_from([b"a", b"b", b"*"]), min_size=12, max_size=12),
    st.lists(SUBJECTS, min_size=1, max_size=5),
)
def test_set_of_many_overlapping_patterns_accepts_the_same(
    row: list[bytes], subjects: list[bytes]
) -> None:
    patterns = [b".".join((*row[place:], *row[:place])) for place in range(12)]
    patterns += [pattern + b".>" for pattern in patterns] + [
        b".".join(tokens) for tokens in product((b"a", b"*"), repeat=8)
    ]
    chosen = PatternSet(tuple(patterns), 7)
    for subject in (*subjects, *(b".".join(row[:size]) for size in range(1, 13))):
        literal = subject.replace(b"*", b"c")
        assert chosen.accepts(literal) == any(matches(pattern, literal) for pattern in patterns)


@pytest.mark.parametrize("places", [6, 10, 12])
def test_cost_of_a_subject_is_a_small_share_of_the_tokens(places: int) -> None:
    patterns = [b".".join(tokens) + b".end" for tokens in product((b"a", b"*"), repeat=places)]
    chosen = PatternSet(tuple(patterns), 7)
    assert not chosen.accepts(b"a." * places + b"other")
    tokens = len(patterns) * (places + 1)
    # Rows of `*`, of `>` and the list of a token, and a word more for each place.
    assert chosen.looked_at <= tokens // 64 * 2 + tokens // 32 + 3 * (places + 1)


@given(
    st.lists(st.one_of(PATTERNS, SUBJECTS), min_size=1, max_size=12),
    st.lists(SUBJECTS, max_size=20),
)
def test_totals_of_a_filter_are_those_of_the_subjects_that_it_accepts(
    patterns: list[bytes], subjects: list[bytes]
) -> None:
    store = MessageStore("S")
    for subject in subjects:
        store.store(subject, b"", b"x", store.last_seq + 1)
    passed = [item for item in subjects if any(matches(pattern, item) for pattern in patterns)]
    chosen = SubjectFilter(store.index, tuple(patterns))
    assert store.index.matching_total(chosen) == (len(set(passed)), len(passed))
    assert set(store.index.names_and_totals(chosen)) == set(passed)
