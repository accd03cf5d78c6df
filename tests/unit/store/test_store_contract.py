"""What every store of messages promises, in memory and on disk: storing, finding, removing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_kit import KINDS, StoreMaker, put, sequences, subject_list

from tradewind.errors import StoreError
from tradewind.store.contract import (
    MessageCopy,
    NotFoundError,
    StoreLimits,
    StoreState,
    SubjectState,
)
from tradewind.store.format.layout import RECORD_BYTES_MAX, record_bytes
from tradewind.store.table.message_store import MessageStore

HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreMaker]:
    maker = StoreMaker(request.param, tmp_path)
    yield maker
    maker.check_that_stores_come_back()


@pytest.fixture
def store(make: StoreMaker) -> MessageStore:
    return make()


# --- a store without messages -------------------------------------------------------------------


def test_new_store_is_empty(store: MessageStore) -> None:
    assert store.state == StoreState(0, 0, 0, 0, 0, 0, 0, 0)


def test_questions_to_an_empty_store_find_nothing(store: MessageStore) -> None:
    for seq in (0, 1, 2**62):
        with pytest.raises(NotFoundError):
            store.get(seq)
        with pytest.raises(NotFoundError):
            store.next_message((), seq)
    for subject in (b"a", b">", b"a.*"):
        with pytest.raises(NotFoundError):
            store.last_message(subject)
    assert list(store.last_sequences((b">",))) == []
    assert store.count_matching((), 0) == store.count_matching((b"a",), 7) == 0
    assert store.sequence_at(0) == 1
    assert store.subjects() == {}
    assert store.subject_state(b"a") is None
    assert store.deleted_sequences() == []
    assert list(store.messages()) == []


def test_removal_from_an_empty_store_removes_nothing(store: MessageStore) -> None:
    assert not store.remove(1)
    assert not store.remove(0)
    assert store.purge(b"a.>") == store.purge(keep=3) == store.purge(below=1) == 0
    assert store.compact(0) == 0
    assert store.expire(2**62) == store.apply_limits(2**62) == 0
    assert store.state == StoreState(0, 0, 0, 0, 0, 0, 0, 0)


def test_empty_store_that_is_purged_as_a_whole_begins_with_1(store: MessageStore) -> None:
    assert store.purge() == store.compact(1) == 0
    assert store.state == StoreState(0, 0, 1, 0, 0, 0, 0, 0)
    assert put(store, b"a") == [1]


def test_emptied_store_goes_on_counting(store: MessageStore) -> None:
    put(store, b"a", b"b")
    assert store.remove(1)
    assert store.remove(2)
    assert (store.state.first_seq, store.state.last_seq, store.state.first_timestamp_ns) == (
        3,
        2,
        0,
    )
    assert put(store, b"c") == [3]
    assert store.state.first_seq == 3


# --- storing and getting ------------------------------------------------------------------------


def test_sequences_start_at_one_and_rise_by_one(store: MessageStore) -> None:
    assert put(store, b"a", b"b", b"a") == [1, 2, 3]
    assert sequences(store) == [1, 2, 3]


@pytest.mark.parametrize("header", [b"", HEADER])
@pytest.mark.parametrize("payload", [b"", b"x", bytes(range(256)), b"\r\n\0" * 5000])
def test_message_comes_back_to_the_byte(store: MessageStore, header: bytes, payload: bytes) -> None:
    store.store(b"orders.eu", header, payload, 1234567890123456789)
    expected = MessageCopy(1, 1234567890123456789, b"orders.eu", header, payload)
    assert store.get(1) == expected
    assert store.next_message((), 0) == expected
    assert store.last_message(b"orders.eu") == expected
    assert list(store.messages()) == [expected]


def test_totals_count_as_the_official_server_does(make: StoreMaker, store: MessageStore) -> None:
    store.store(b"a.b", b"", b"12345", 5)
    assert store.state.bytes == 3 + 5 + (30 if make.is_file else 16)
    store.store(b"a.b", HEADER, b"", 6)
    assert store.state.bytes == make.size(3, 0, 5) + make.size(3, len(HEADER), 0)
    assert store.state == StoreState(2, store.bytes, 1, 5, 2, 6, 1, 0)


def test_longest_subject_is_stored_and_a_longer_one_refused(make: StoreMaker) -> None:
    store = make(block_bytes_max=1 << 20)
    longest = b"x" * 65535
    assert store.store(longest, b"", b"p", 1) == 1
    assert store.get(1).subject == longest
    with pytest.raises(StoreError, match="subject of 65536 bytes cannot be stored; 1 to 65535"):
        store.store(longest + b"x", b"", b"p", 2)
    assert store.state.last_seq == 1


def test_empty_subject_is_refused(store: MessageStore) -> None:
    with pytest.raises(StoreError, match="subject of 0 bytes cannot be stored"):
        store.store(b"", b"", b"p", 1)
    assert store.state == StoreState(0, 0, 0, 0, 0, 0, 0, 0)


def test_absurdly_small_blocks_are_made_larger(make: StoreMaker) -> None:
    store = make(StoreLimits(bytes_max=300), block_bytes_max=1)
    for size in (0, 100, 400, 0, 0, 90):
        put(store, b"a", b"b", payload=b"x" * size)
        store.purge(b"a")
    assert store.state.last_seq == 12
    assert len(store.blocks) <= 4


def test_subject_with_many_tokens_is_found(store: MessageStore) -> None:
    deep = b".".join(b"%d" % number for number in range(200))
    put(store, b"0.1", deep, deep + b".end")
    assert store.next_message((b"0.>",), 2).seq == 2
    assert store.next_message((deep + b".*",), 0).seq == 3
    assert list(store.last_sequences((b".".join([b"*"] * 200),))) == [2]
    assert store.subject_state(deep) == SubjectState(1, 2, 2)


@pytest.mark.slow
def test_largest_record_is_stored_and_a_larger_one_refused_by_files(make: StoreMaker) -> None:
    store = make()
    put(store, b"before")
    payload = bytes(RECORD_BYTES_MAX - record_bytes(1, 0, 0))
    assert store.store(b"a", b"", payload, 2) == 2
    if not make.is_file:
        assert store.store(b"a", b"", payload + b"xy", 3) == 3
        assert store.get(3).payload == payload + b"xy"
        return
    for header, body in ((b"", payload + b"x"), (b"x", payload), (payload, payload)):
        with pytest.raises(StoreError):
            store.store(b"a", header, body, 3)
    assert (store.state.msgs, store.state.last_seq) == (2, 2)
    assert put(store, b"after") == [3]
    assert len(store.get(2).payload) == len(payload)


def test_equal_and_backward_timestamps_are_kept_as_given(store: MessageStore) -> None:
    times = [100, 100, 50, 200, 0, -7]
    for number in times:
        store.store(b"a", b"", b"", number)
    assert [message.timestamp_ns for message in store.messages()] == times
    assert (store.state.first_timestamp_ns, store.state.last_timestamp_ns) == (100, -7)


def test_sequences_beyond_the_ends_have_no_message(store: MessageStore) -> None:
    put(store, b"a", b"b")
    for seq in (0, 3, 2**62, 2**64 - 1):
        with pytest.raises(NotFoundError):
            store.get(seq)


def test_messages_start_where_they_are_told(store: MessageStore) -> None:
    put(store, *[b"a"] * 9)
    store.remove(5)
    assert [message.seq for message in store.messages(4)] == [4, 6, 7, 8, 9]
    assert [message.seq for message in store.messages(5)] == [6, 7, 8, 9]
    assert list(store.messages(10)) == []


def test_messages_may_be_removed_and_added_while_they_are_listed(store: MessageStore) -> None:
    put(store, *[b"a"] * 6)
    seen = []
    for message in store.messages():
        seen.append(message.seq)
        if message.seq == 2:
            store.remove(3)
            store.purge(b"a", below=2)
            put(store, b"b")
    assert seen == [1, 2, 4, 5, 6, 7]


# --- skipped sequences --------------------------------------------------------------------------


def test_skipped_sequences_are_used_up(store: MessageStore) -> None:
    put(store, b"a")
    store.skip(5, 2)
    assert store.state.last_seq == 5
    assert put(store, b"b") == [6]
    assert store.deleted_sequences() == [2, 3, 4, 5]
    assert store.state.deleted == 4
    assert store.next_message((), 2).seq == 6


def test_skip_in_an_empty_store_moves_the_first_sequence(store: MessageStore) -> None:
    store.skip(9, 1)
    assert (store.state.first_seq, store.state.last_seq, store.state.msgs) == (10, 9, 0)
    assert store.deleted_sequences() == []
    assert put(store, b"a") == [10]


def test_skip_backwards_changes_nothing(store: MessageStore) -> None:
    put(store, b"a", b"b")
    before = store.state
    for through in (0, 1, 2):
        store.skip(through, 9)
    assert store.state == before


def test_gap_of_a_billion_costs_neither_time_nor_memory(store: MessageStore) -> None:
    put(store, b"a")
    store.skip(10**9, 2)
    assert put(store, b"a") == [10**9 + 1]
    store.skip(2 * 10**9, 3)
    assert store.state.deleted == 2 * 10**9 - 2
    assert store.deleted_sequences(3) == [2, 3, 4]
    assert store.next_message((b"a",), 2).seq == 10**9 + 1
    assert not store.remove(500_000_000)
    assert store.subject_state(b"a") == SubjectState(2, 1, 10**9 + 1)


def test_gap_behind_removed_messages_costs_no_memory(store: MessageStore) -> None:
    put(store, b"a")
    store.remove(1)
    store.skip(10**9, 2)
    assert put(store, b"a") == [10**9 + 1]
    assert store.state.deleted == 0


@pytest.mark.slow
def test_many_small_gaps_cost_no_memory_for_each_sequence(store: MessageStore) -> None:
    put(store, b"a")
    for number in range(1, 5000):
        store.skip(60_000 * number, 2)
    assert put(store, b"a") == [60_000 * 4999 + 1]
    assert store.deleted_sequences(2) == [2, 3]
    assert sum(block.memory_bytes for block in store.blocks) < 10_000_000


# --- finding by subject -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ((), [1, 2, 3, 4, 5, 6]),
        ((b">",), [1, 2, 3, 4, 5, 6]),
        ((b"a.b",), [1, 4]),
        ((b"a",), []),
        ((b"a.*",), [1, 2, 4]),
        ((b"a.>",), [1, 2, 3, 4]),
        ((b"*.b",), [1, 4]),
        ((b"*",), [6]),
        ((b"*.*.*",), [3]),
        ((b"a.*.d",), [3]),
        ((b"a.c", b"z"), [2, 6]),
        ((b"a.b", b"a.*", b"a.b"), [1, 2, 4]),
        ((b"q", b"r.>"), []),
        ((b"a.b", b">"), [1, 2, 3, 4, 5, 6]),
    ],
)
def test_filters_pass_exactly_what_they_match(
    store: MessageStore, patterns: tuple[bytes, ...], expected: list[int]
) -> None:
    put(store, b"a.b", b"a.c", b"a.c.d", b"a.b", b"b.x", b"z")
    found = []
    seq = 0
    while store.count_matching(patterns, seq):
        seq = store.next_message(patterns, seq).seq + 1
        found.append(seq - 1)
    assert found == expected
    assert [store.count_matching(patterns, number) for number in range(9)] == [
        len([seq for seq in expected if seq >= number]) for number in range(9)
    ]
    chosen = store.filter(patterns)
    assert all(
        chosen.matches(message.subject) == (message.seq in expected) for message in store.messages()
    )


def test_kept_filter_sees_subjects_that_come_later(store: MessageStore) -> None:
    put(store, b"a.1")
    chosen = store.filter((b"a.*",))
    assert store.count_matching(chosen) == 1
    for number in range(2, 300):
        put(store, b"a.%d" % number, b"b.%d" % number)
    assert store.count_matching(chosen) == 299
    assert store.next_message(chosen, 2).subject == b"a.2"


@pytest.mark.parametrize("pattern", [b"a.*", b"a.1"])
def test_kept_filter_survives_a_purge(store: MessageStore, pattern: bytes) -> None:
    chosen = store.filter((pattern,))
    put(store, b"a.1", b"b.1", b"b.2")
    assert store.next_message(chosen, 0).subject == b"a.1"
    store.purge()
    put(store, b"b.3", b"a.1", b"b.1")
    assert store.next_message(chosen, 0).seq == 5
    assert [store.count_matching(chosen, seq) for seq in (0, 4, 5, 6)] == [1, 1, 1, 0]


@pytest.mark.slow
def test_subjects_that_come_and_go_leave_no_memory_behind(make: StoreMaker) -> None:
    store = make(StoreLimits(msgs_max=100), block_bytes_max=20_000)
    chosen = store.filter((b"*.7",))
    for number in range(300_000):
        store.store(b"%d.%d" % (number, number % 10), b"", b"", number)
    assert store.state.subjects == 100
    assert store.index.memory_bytes < 1_500_000
    assert store.count_matching(chosen) == 10
    assert store.next_message(chosen, 0).subject.endswith(b".7")
    store.verify()


@pytest.mark.parametrize("pattern", [b"", b".", b"a..b", b"a.>.b", b"a b", b".a"])
def test_invalid_filter_is_refused(store: MessageStore, pattern: bytes) -> None:
    with pytest.raises(ValueError, match="invalid subject"):
        store.filter((pattern,))


def test_last_message_of_a_literal_and_of_a_pattern(store: MessageStore) -> None:
    put(store, b"a.b", b"a.c", b"a.b", b"x", b"a.c")
    assert store.last_message(b"a.b").seq == 3
    assert store.last_message(b"a.*").seq == 5
    assert store.last_message(b"a.*", up_to=4).seq == 3
    assert store.last_message(b"a.c", up_to=4).seq == 2
    store.remove(5)
    assert store.last_message(b"a.c").seq == 2
    assert store.last_message(b"a.>").seq == 3
    with pytest.raises(NotFoundError):
        store.last_message(b"a.c", up_to=1)
    with pytest.raises(NotFoundError):
        store.last_message(b"q.*")


def test_last_sequences_at_every_moment(store: MessageStore) -> None:
    put(store, b"k.a", b"k.b", b"k.a", b"x", b"k.c", b"k.a")
    assert list(store.last_sequences((b"k.*",))) == [2, 5, 6]
    assert list(store.last_sequences((b"k.*",), up_to=5)) == [2, 3, 5]
    assert list(store.last_sequences((b"k.*",), up_to=3)) == [2, 3]
    assert list(store.last_sequences((b"k.*",), up_to=1)) == [1]
    assert list(store.last_sequences((b"k.a", b"x"))) == [4, 6]
    assert list(store.last_sequences(())) == [2, 4, 5, 6]
    store.remove(3)
    assert list(store.last_sequences((b"k.a",), up_to=5)) == [1]


def test_subjects_are_counted_and_paged(store: MessageStore) -> None:
    put(store, *[b"s.%d" % (number % 7) for number in range(20)], b"t")
    everything = {b"s.%d" % number: 3 if number < 6 else 2 for number in range(7)} | {b"t": 1}
    assert store.subjects() == everything
    assert store.subjects(b"s.*") == {name: n for name, n in everything.items() if name != b"t"}
    assert store.subjects(b"t") == {b"t": 1}
    assert store.subjects(b"q.>") == {}
    pages = [store.subjects(offset=offset, limit=3) for offset in (0, 3, 6, 9)]
    assert [len(page) for page in pages] == [3, 3, 2, 0]
    assert pages[0] | pages[1] | pages[2] == everything
    assert store.subjects(b"s.*", offset=5, limit=10).keys() == {b"s.5", b"s.6"}
    assert store.subjects(limit=0) == {}


def test_subject_state_follows_removals_at_both_ends(store: MessageStore) -> None:
    put(store, b"a", b"b", b"a", b"a", b"b", b"a")
    assert store.subject_state(b"a") == SubjectState(4, 1, 6)
    store.remove(1)
    assert store.subject_state(b"a") == SubjectState(3, 3, 6)
    store.remove(6)
    assert store.subject_state(b"a") == SubjectState(2, 3, 4)
    store.remove(3)
    assert store.subject_state(b"a") == SubjectState(1, 4, 4)
    store.remove(4)
    assert store.subject_state(b"a") is None
    assert store.state.subjects == 1


# --- finding by time ----------------------------------------------------------------------------


def test_sequence_at_a_time(store: MessageStore) -> None:
    for time_ns in (10, 20, 20, 30):
        store.store(b"a", b"", b"", time_ns)
    asked = {-1: 1, 0: 1, 10: 1, 11: 2, 20: 2, 21: 4, 30: 4, 31: 5}
    assert {time_ns: store.sequence_at(time_ns) for time_ns in asked} == asked
    store.remove(2)
    assert store.sequence_at(20) == 3
    store.remove(4)
    assert store.sequence_at(21) == 5
    store.remove(1)
    assert store.sequence_at(0) == 3


def test_sequence_at_never_gives_an_older_message_when_the_clock_went_back(
    store: MessageStore,
) -> None:
    times = [50, 60, 10, 20, 70, 5, 80]
    for time_ns in times:
        store.store(b"a", b"", b"x" * 50, time_ns)
    for asked in range(0, 90, 5):
        seq = store.sequence_at(asked)
        assert seq == 8 or times[seq - 1] >= asked
    assert (store.sequence_at(75), store.sequence_at(81)) == (7, 8)


# --- removing -----------------------------------------------------------------------------------


def test_removed_message_is_gone_and_its_sequence_never_returns(
    make: StoreMaker, store: MessageStore
) -> None:
    put(store, b"a", b"b", b"c")
    assert store.remove(2)
    with pytest.raises(NotFoundError):
        store.get(2)
    assert not store.remove(2)
    assert (store.state.msgs, store.state.deleted, store.deleted_sequences()) == (2, 1, [2])
    assert store.state.bytes == make.size(1, 0, 0) * 2
    assert put(store, b"d") == [4]


def test_removal_of_sequences_without_message_is_false(store: MessageStore) -> None:
    put(store, b"a", b"b")
    store.skip(4, 3)
    for seq in (0, 3, 4, 5, 2**62, 2**64 - 1):
        assert not store.remove(seq)
    assert store.state.msgs == 2


def test_erased_message_is_gone(store: MessageStore) -> None:
    put(store, b"a", b"b", b"c", payload=b"secret")
    assert store.remove(2, erase=True)
    assert not store.remove(2, erase=True)
    assert sequences(store) == [1, 3]
    assert store.remove(3, erase=True)
    assert (store.state.msgs, store.state.last_seq) == (1, 3)


def test_removal_in_any_order_keeps_the_rest(store: MessageStore) -> None:
    put(store, *[b"s.%d" % (number % 3) for number in range(30)], payload=b"x" * 20)
    left = set(range(1, 31))
    for seq in (30, 1, 15, 2, 3, 14, 29, 16, 10, 20, 12, 11, 28, 4):
        assert store.remove(seq)
        left.discard(seq)
        store.verify()
        assert sequences(store) == sorted(left)
        assert store.state.first_seq == min(left)
    gaps = [seq for seq in range(5, 31) if seq not in left]
    assert store.deleted_sequences() == gaps
    assert store.deleted_sequences(limit=2) == gaps[:2]


def test_purge_of_everything(store: MessageStore) -> None:
    put(store, *[b"a", b"b"] * 10)
    assert store.purge() == 20
    assert store.state == StoreState(0, 0, 21, 0, 20, 20, 0, 0)
    assert store.purge() == 0
    assert put(store, b"a") == [21]


def test_purge_of_a_subject(store: MessageStore) -> None:
    put(store, b"a.1", b"b", b"a.2", b"b", b"a.1")
    assert store.purge(b"a.*") == 3
    assert sequences(store) == [2, 4]
    assert store.purge(b"a.*") == 0
    assert store.purge(b"b") == 2
    assert store.state.msgs == 0
    assert store.state.first_seq == 6


def test_purge_below_a_sequence(store: MessageStore) -> None:
    put(store, *[b"a", b"b"] * 5)
    assert store.purge(below=1) == 0
    assert store.purge(below=4) == 3
    assert store.state.first_seq == 4
    assert store.purge(b"a", below=8) == 2
    assert sequences(store) == [4, 6, 8, 9, 10]
    assert store.purge(b"a", below=1000) == 1
    assert store.state.last_seq == 10


def test_purge_below_a_sequence_beyond_the_last_moves_the_next_one(store: MessageStore) -> None:
    put(store, b"a", b"b")
    assert store.purge(below=100) == 2
    assert (store.state.first_seq, store.state.last_seq) == (100, 99)
    assert put(store, b"a") == [100]


def test_purge_that_keeps_the_newest(store: MessageStore) -> None:
    put(store, *[b"a", b"b"] * 5)
    assert store.purge(b"a", keep=2) == 3
    assert sequences(store) == [2, 4, 6, 7, 8, 9, 10]
    assert store.purge(keep=3) == 4
    assert sequences(store) == [8, 9, 10]


@pytest.mark.parametrize("pattern", [b"", b">", b"a"])
def test_purge_that_keeps_as_many_as_there_are_removes_nothing(
    store: MessageStore, pattern: bytes
) -> None:
    put(store, *[b"a"] * 5)
    assert store.purge(pattern, keep=5) == 0
    assert store.purge(pattern, keep=6) == 0
    assert store.purge(pattern, keep=2**63) == 0
    assert store.state.msgs == 5


def test_purge_takes_a_sequence_or_a_number_to_keep_not_both(store: MessageStore) -> None:
    with pytest.raises(ValueError, match="not both"):
        store.purge(below=2, keep=1)


def test_compact_removes_what_is_below(store: MessageStore) -> None:
    put(store, *[b"a"] * 10)
    store.remove(4)
    assert store.compact(0) == store.compact(1) == 0
    assert store.compact(5) == 3
    assert store.state.first_seq == 5
    assert store.compact(10) == 5
    assert store.compact(11) == 1
    assert (store.state.first_seq, store.state.last_seq) == (11, 10)
    assert store.compact(31) == 0
    assert put(store, b"a") == [31]


def test_thousand_messages_survive_random_questions(store: MessageStore) -> None:
    put(store, *[b"s.%d" % (number * 7 % 50) for number in range(1000)])
    assert subject_list(store)[:3] == [b"s.0", b"s.7", b"s.14"]
    assert list(store.last_sequences((b"s.*",))) == list(range(951, 1001))
    assert store.purge(b"s.7") == 20
    assert store.count_matching((b"s.*",), 501) == 490
    assert store.state.deleted == 20
