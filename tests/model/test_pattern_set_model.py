"""A set of patterns against each pattern asked by itself."""

from __future__ import annotations

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
