"""Searches in steps, however small, against a list of all messages, which may change meanwhile."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from model import subject_model
from tradewind.store.table.bounded_walk import look_for
from tradewind.store.table.counts import counting
from tradewind.store.table.message_store import MessageStore

SUBJECTS = tuple(f"{first}.{second}".encode() for first in "abc" for second in "xyz")
# Some are literal, and more than four are matched together.
PATTERNS = st.lists(
    st.sampled_from([*SUBJECTS, b"a.*", b"*.x", b"*.y", b"b.>", b"n.*", b"*.*.*"]),
    min_size=1,
    max_size=7,
)
PUBLISHED = st.lists(st.sampled_from(SUBJECTS), max_size=60)
WORK = st.sampled_from([1, 200, 5_000, 100_000])


def filled(subjects: list[bytes], removed: set[int]) -> tuple[MessageStore, dict[int, bytes]]:
    """A store of small blocks, and what is in it."""
    store = MessageStore("S", block_bytes_max=400)
    messages: dict[int, bytes] = {}
    for subject in subjects:
        messages[store.store(subject, b"", b"x", 1)] = subject
    for seq in removed:
        if messages.pop(seq, None) is not None:
            store.remove(seq)
    return store, messages


def passes(patterns: list[bytes], subject: bytes) -> bool:
    return any(subject_model.matches(each.decode(), subject.decode()) for each in patterns)


def newest(messages: dict[int, bytes], patterns: list[bytes], up_to: int) -> dict[bytes, int]:
    """The last sequence of each subject that passes."""
    found: dict[bytes, int] = {}
    for seq in sorted(messages):
        if seq <= up_to and passes(patterns, messages[seq]):
            found[messages[seq]] = seq
    return found


@given(PUBLISHED, st.sets(st.integers(1, 60)), PATTERNS, st.integers(1, 60), WORK)
def test_last_messages_are_those_of_every_subject_that_passes(
    subjects: list[bytes], removed: set[int], patterns: list[bytes], up_to: int, work: int
) -> None:
    store, messages = filled(subjects, removed)
    search = store.search_last(tuple(patterns), up_to)
    while search.step(work):
        pass
    assert list(search.sequences()) == sorted(newest(messages, patterns, up_to).values())


@given(
    PUBLISHED,
    PATTERNS,
    st.integers(1, 60),
    st.lists(st.one_of(st.sampled_from(SUBJECTS), st.integers(1, 60)), max_size=20),
)
def test_changes_between_the_steps_do_not_disturb_other_subjects(
    subjects: list[bytes], patterns: list[bytes], up_to: int, changes: list[bytes | int]
) -> None:
    store, messages = filled(subjects, set())
    up_to = min(up_to, store.last_seq)
    expected = newest(messages, patterns, up_to)
    changed: set[bytes] = set()
    waiting = list(changes)
    search = store.search_last(tuple(patterns), up_to)
    while search.step(1):
        change = waiting.pop() if waiting else None
        if isinstance(change, bytes):
            store.store(change, b"", b"x", 1)
        elif change is not None and change in messages:
            changed.add(messages[change])
            store.remove(change)
    found = set(search.sequences())
    # A newer message changes nothing; a removed one may be found or not.
    for subject, seq in expected.items():
        assert seq in found or subject in changed
    assert {messages[seq] for seq in found} <= set(expected)


@given(PUBLISHED, st.sets(st.integers(1, 60)), PATTERNS, st.integers(0, 70), WORK)
def test_next_message_is_found_behind_what_was_passed(
    subjects: list[bytes], removed: set[int], patterns: list[bytes], start: int, work: int
) -> None:
    store, messages = filled(subjects, removed)
    chosen = store.filter(tuple(patterns))
    found, seq = [], start
    while seq <= store.last_seq:
        next_seq, passed, _ = look_for(store, chosen, seq, work)
        if next_seq:
            found.append(next_seq)
            assert passed == next_seq - 1
        assert passed + 1 >= seq
        seq = max(passed + 1, next_seq + 1)
    assert found == [
        seq for seq in sorted(messages) if seq >= start and passes(patterns, messages[seq])
    ]


@given(PUBLISHED, st.sets(st.integers(1, 60)), PATTERNS, st.integers(0, 70), WORK)
def test_messages_are_counted_from_a_sequence_on(
    subjects: list[bytes], removed: set[int], patterns: list[bytes], start: int, work: int
) -> None:
    store, messages = filled(subjects, removed)
    search = counting(store, store.filter(tuple(patterns)), start)
    while search.step(work):
        pass
    assert search.total == sum(
        seq >= start and passes(patterns, subject) for seq, subject in messages.items()
    )


@given(PUBLISHED, PATTERNS, WORK)
def test_filter_that_was_asked_in_advance_gives_the_same_answers(
    subjects: list[bytes], patterns: list[bytes], work: int
) -> None:
    store, messages = filled(subjects, set())
    chosen = store.filter(tuple(patterns))
    while chosen.judge(work):
        pass
    total = sum(passes(patterns, subject) for subject in messages.values())
    assert store.count_matching(chosen) == total
