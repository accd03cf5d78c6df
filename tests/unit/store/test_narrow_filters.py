"""Filters that match few of many subjects: they find what a walk over all of them would."""

from __future__ import annotations

import random

import pytest
from store_kit import put

from cpu_clock import thread_seconds
from model.store_model import matches
from tradewind.store.table.message_store import MessageStore
from tradewind.store.table.subject_index import SubjectFilter, SubjectIndex
from tradewind.store.table.subject_page import SubjectPage

MANY = 3000
STEP = 5_000
PATTERNS = (
    (b"kv.users.>",),
    (b"kv.users.*",),
    (b"kv.users.7",),
    (b"kv.users.*.name",),
    (b"kv.nobody.>",),
    (b"kv.users.>", b"kv.users.7", b"kv.other.5"),
    (b"kv.users.1.*", b"kv.users.2.*", b"kv.users.3.>", b"kv.other.1", b"kv.other.2"),
    (b"kv.*.7",),
    (b">",),
)


def subject_of(number: int) -> bytes:
    """Few users, some of them with a second level, among many others."""
    if number % 100:
        return b"kv.other.%d" % number
    return b"kv.users.%d" % (number // 100) + (b".name" if number % 200 else b"")


def filled(count: int = MANY) -> MessageStore:
    store = MessageStore("S", block_bytes_max=20_000)
    order = list(range(count))
    random.Random(count).shuffle(order)
    put(store, *[subject_of(number) for number in order])
    return store


def expected(store: MessageStore, patterns: tuple[bytes, ...]) -> dict[bytes, int]:
    return {
        message.subject: message.seq
        for message in store.messages()
        if any(matches(pattern, message.subject) for pattern in patterns)
    }


def check(store: MessageStore, patterns: tuple[bytes, ...]) -> None:
    """All ways to find what passes agree with a look at every message."""
    wanted = expected(store, patterns)
    chosen = store.filter(patterns)
    while chosen.arrange(STEP):
        pass
    search = store.search_last(chosen)
    while search.step(STEP):
        pass
    assert list(search.sequences()) == sorted(wanted.values())
    assert store.index.matching_total(chosen)[0] == len(wanted)
    assert store.last_sequence(chosen) == max(wanted.values(), default=0)
    page = SubjectPage(store.index, chosen)
    while page.collect(10):
        pass
    assert page.count == len(wanted)
    if store.limits.subject_msgs_max == 1:
        assert store.next_sequence(0, chosen) == min(wanted.values(), default=0)


@pytest.mark.parametrize("patterns", PATTERNS)
def test_narrow_filter_finds_what_a_walk_finds(patterns: tuple[bytes, ...]) -> None:
    check(filled(), patterns)


@pytest.mark.parametrize("patterns", PATTERNS)
def test_subjects_that_come_and_go_are_found_and_forgotten(patterns: tuple[bytes, ...]) -> None:
    store = filled()
    check(store, patterns)
    chance = random.Random(28)
    for _ in range(4):
        for _ in range(200):
            number = chance.randrange(2 * MANY)
            put(store, subject_of(number))
            seq = chance.randrange(1, store.last_seq + 1)
            store.remove(seq)
        check(store, patterns)


def test_order_survives_a_change_of_the_numbers_of_subjects() -> None:
    store = MessageStore("S", block_bytes_max=20_000)
    put(store, *[b"kv.other.%d" % number for number in range(66_000)])
    chosen = store.filter((b"kv.users.>",))
    while chosen.arrange(STEP):
        pass
    assert chosen.is_narrow
    epoch = store.index.epoch
    store.compact(60_000)
    put(store, b"kv.users.1", *[b"kv.new.%d" % number for number in range(1000)])
    assert store.index.epoch > epoch
    check(store, (b"kv.users.>",))


def test_order_is_carried_through_the_columns_of_a_clean_stop() -> None:
    store = filled()
    chosen = store.filter((b"kv.users.>",))
    while chosen.arrange(STEP):
        pass
    again = SubjectIndex()
    again.adopt_columns(*store.index.columns())
    adopted = SubjectFilter(again, (b"kv.users.>",))
    assert adopted.is_narrow  # nobody has put them in order since
    assert again.matching_total(adopted) == store.index.matching_total(chosen)


def test_columns_without_order_are_adopted_as_they_are() -> None:
    store = filled()
    again = SubjectIndex()
    again.adopt_columns(*store.index.columns())
    adopted = SubjectFilter(again, (b"kv.users.>",))
    assert not adopted.is_narrow
    assert again.matching_total(adopted) == store.index.matching_total(
        store.filter((b"kv.users.>",))
    )


@pytest.mark.parametrize("pattern", [b"kv.users.>", b"kv.users.7", b"kv.nobody.*"])
@pytest.mark.parametrize("keep", [0, 2])
@pytest.mark.parametrize("messages", [1, 3])
def test_purge_by_a_narrow_filter_removes_what_matches(
    pattern: bytes, keep: int, messages: int
) -> None:
    store = filled()
    for _ in range(messages - 1):
        put(store, *[subject_of(number) for number in range(0, MANY, 100)])
    before = {m.seq: m.subject for m in store.messages()}
    matching = [seq for seq, subject in before.items() if matches(pattern, subject)]
    gone = matching[: max(len(matching) - keep, 0)] if keep else matching
    chosen = store.filter((pattern,))
    purged = list(store.purge_steps(chosen, keep=keep, step=7, work=STEP))
    assert sum(purged) == len(gone)
    assert max(purged, default=0) <= 7
    assert {m.seq for m in store.messages()} == before.keys() - set(gone)


def test_purge_leaves_what_is_stored_between_its_steps() -> None:
    store = filled()
    steps = store.purge_steps(store.filter((b"kv.users.>",)), step=1, work=STEP)
    for _ in steps:
        put(store, b"kv.users.new")
        if store.last_seq > MANY + 100:
            break
    sum(steps)
    assert {m.subject for m in store.messages() if b"users" in m.subject} == {b"kv.users.new"}


def watch(store: MessageStore, pattern: bytes) -> None:
    """What the creation of a watcher asks of the store."""
    chosen = store.filter((pattern,))
    while chosen.arrange(4_000_000):
        pass
    search = store.search_last(chosen)
    while search.step(4_000_000):
        pass
    search.sequences()
    store.index.matching_total(chosen)
    sum(store.purge_steps(store.filter((b"kv.nobody.>",)), step=100, work=4_000_000))


@pytest.mark.parametrize("pattern", [b"kv.users.7", b"kv.users.>"])
def test_cost_of_a_narrow_filter_does_not_grow_with_the_other_subjects(pattern: bytes) -> None:
    costs = []
    for count in (4_000, 80_000):
        store = MessageStore("S")
        put(store, *[b"kv.users.%d" % number for number in range(20)])
        put(store, *[b"kv.other.%d" % number for number in range(count)])
        watch(store, pattern)
        costs.append(thread_seconds(lambda store=store: watch(store, pattern), times=30))
    assert costs[1] < 5 * costs[0]


def test_filters_that_ask_at_once_share_one_ordering_and_no_publisher_waits_for_it() -> None:
    work, count = 200_000, 20_000
    steps = []
    for filters in (1, 3):
        store = MessageStore("S")
        put(store, *[b"kv.other.%d" % number for number in range(count)])
        waiting = [store.filter((b"kv.users.%d.>" % number,)) for number in range(filters)]
        done = 0
        while waiting:
            # Each step is one of all; what is published between two of them is not put off.
            waiting = [one for one in waiting if one.arrange(work)]
            put(store, b"kv.users.1.%d" % done)
            done += 1
        steps.append(done * filters)
        assert store.subject_state(b"kv.users.1.0") is not None
        watched = store.filter((b"kv.users.1.>",))
        assert not watched.arrange(work)
        assert store.index.matching_total(watched) == (done, done)
    assert steps[0] > 20
    assert steps[1] <= steps[0] + 6


def test_no_new_subject_waits_until_the_table_of_all_has_grown() -> None:
    """Each moves a few of the others to the larger table, and never all of them."""
    store = MessageStore("S")
    unmoved, growths = 0, 0
    for number in range(70_000):
        put(store, b"s.%d" % number)
        before, unmoved = unmoved, store.index.unmoved
        growths += unmoved > before
        assert unmoved > before or before - unmoved <= 8
    assert growths == 7
    assert store.index.live_count == 70_000


def test_all_subjects_are_found_while_the_table_grows_and_shrinks() -> None:
    store = MessageStore("S")
    live: dict[int, int] = {}
    chance = random.Random(5)
    for number in range(6000):
        [live[number]] = put(store, b"s.%d" % number)
        if number % 3 == 0:
            gone = chance.choice(list(live))
            store.remove(live.pop(gone))
        if number % 500 == 0:
            assert store.subjects(limit=10_000).keys() == {b"s.%d" % each for each in live}
    shrinks = 0
    for gone in list(live)[:-5]:
        unmoved = store.index.unmoved
        store.remove(live.pop(gone))
        assert store.subject_state(b"s.%d" % gone) is None
        shrinks += store.index.unmoved > unmoved
        assert unmoved - store.index.unmoved <= 32
    assert shrinks
    assert set(store.subjects()) == {b"s.%d" % each for each in live}
    for each, seq in live.items():
        assert store.subject_state(b"s.%d" % each).last_seq == seq  # type: ignore[union-attr]
