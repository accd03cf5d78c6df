"""What every store of messages promises about its limits: who goes when there is too much."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from store_kit import KINDS, StoreMaker, put, sequences

from model.store_model import ModelStore
from tradewind.store.contract import DiscardedError, StoreLimits, SubjectState
from tradewind.store.folder.recover import open_store
from tradewind.store.table.message_store import MessageStore
from tradewind.testing.fake_disk import SimulatedDisk


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreMaker]:
    maker = StoreMaker(request.param, tmp_path)
    yield maker
    maker.check_that_stores_come_back()


def test_no_limit_keeps_everything(make: StoreMaker) -> None:
    store = make(StoreLimits(msgs_max=-1, bytes_max=-1, age_max_ns=0, subject_msgs_max=-1))
    put(store, *[b"a"] * 100)
    assert store.apply_limits(2**62) == 0
    assert store.state.msgs == 100


def test_number_limit_removes_the_oldest(make: StoreMaker) -> None:
    store = make(StoreLimits(msgs_max=3))
    assert put(store, *[b"a"] * 10) == list(range(1, 11))
    assert sequences(store) == [8, 9, 10]
    assert (store.state.first_seq, store.state.deleted) == (8, 0)


def test_number_limit_counts_messages_and_not_sequences(make: StoreMaker) -> None:
    store = make(StoreLimits(msgs_max=3))
    put(store, *[b"a"] * 3)
    store.remove(2)
    put(store, b"a")
    assert sequences(store) == [1, 3, 4]
    put(store, b"a")
    assert sequences(store) == [3, 4, 5]


def test_size_limit_is_exact(make: StoreMaker) -> None:
    size = make.size(1, 0, 20)
    store = make(StoreLimits(bytes_max=3 * size))
    put(store, *[b"a"] * 3, payload=b"x" * 20)
    assert store.state.msgs == 3
    put(store, b"a", payload=b"x" * 20)
    assert (store.state.msgs, store.state.bytes) == (3, 3 * size)
    put(store, b"a", payload=b"x" * 21)
    assert sequences(store) == [4, 5]


def test_message_larger_than_the_size_limit_removes_everything_and_itself(make: StoreMaker) -> None:
    store = make(StoreLimits(bytes_max=100))
    put(store, b"a", b"b")
    assert put(store, b"c", payload=b"x" * 200) == [3]
    assert (store.state.msgs, store.state.bytes, store.state.first_seq) == (0, 0, 4)


def test_sequence_of_a_message_that_removed_itself_is_never_given_again(make: StoreMaker) -> None:
    store = make(block_bytes_max=128)
    put(store, b"a")
    store.set_limits(StoreLimits(bytes_max=make.size(1, 0, 9), subject_msgs_max=1))
    assert put(store, b"a", payload=b"x" * 18) == [2]
    assert (store.state.msgs, store.state.first_seq, store.state.last_seq) == (0, 3, 2)
    store.purge(below=7)
    assert put(store, b"b", payload=b"x" * 300) == [7]
    assert (store.state.msgs, store.state.first_seq, store.state.last_seq) == (0, 8, 7)


def test_limit_that_removes_across_a_gap_of_a_billion_takes_no_time(make: StoreMaker) -> None:
    store = make(StoreLimits(msgs_max=1))
    put(store, b"a")
    store.skip(10**9, 2)
    put(store, *[b"a"] * 3)
    assert store.remove(store.last_seq)
    assert store.state.msgs == 0
    assert put(store, b"b") == [10**9 + 4]
    store.set_limits(StoreLimits(msgs_max=5))
    assert put(store, b"b") == [10**9 + 5]


def test_subject_limit_removes_the_oldest_of_that_subject_only(make: StoreMaker) -> None:
    store = make(StoreLimits(subject_msgs_max=2))
    put(store, b"a", b"b", b"a", b"a", b"c", b"a", b"b", b"b")
    assert sequences(store) == [4, 5, 6, 7, 8]
    assert store.subject_state(b"a") == SubjectState(2, 4, 6)
    assert store.subjects() == {b"a": 2, b"b": 2, b"c": 1}


def test_subject_limit_of_one_keeps_the_newest_value(make: StoreMaker) -> None:
    store = make(StoreLimits(subject_msgs_max=1))
    for turn in range(5):
        for number in range(20):
            store.store(b"k.%d" % number, b"", b"%d" % turn, turn)
    assert store.state.msgs == 20
    assert {message.payload for message in store.messages()} == {b"4"}
    assert list(store.last_sequences((b"k.*",))) == list(range(81, 101))


def test_age_limit_follows_the_given_clock(make: StoreMaker) -> None:
    store = make(StoreLimits(age_max_ns=10))
    for time_ns in (100, 105, 105, 120):
        store.store(b"a", b"", b"", time_ns)
    assert store.expire(109) == 0
    assert store.expire(110) == 1
    assert store.expire(114) == 0
    assert store.expire(115) == 2
    assert store.state.first_timestamp_ns == 120
    assert store.expire(2**62) == 1
    assert (store.state.msgs, store.state.first_seq) == (0, 5)
    make.now_ns = 2**62


def test_age_limit_stops_at_the_first_young_message(make: StoreMaker) -> None:
    store = make(StoreLimits(age_max_ns=10))
    for time_ns in (100, 50, 100):
        store.store(b"a", b"", b"", time_ns)
    assert store.expire(109) == 0
    assert store.expire(110) == 3
    make.now_ns = 110


def test_new_limits_are_applied_on_demand(make: StoreMaker) -> None:
    store = make()
    put(store, *[b"s.%d" % (number % 4) for number in range(20)])
    store.set_limits(StoreLimits(msgs_max=10))
    assert store.state.msgs == 20
    assert store.apply_limits(0) == 10
    store.set_limits(StoreLimits(msgs_max=10, subject_msgs_max=1))
    assert store.apply_limits(0) == 6
    assert sequences(store) == [17, 18, 19, 20]
    store.set_limits(StoreLimits(bytes_max=make.size(3, 0, 0)))
    assert store.apply_limits(0) == 3


def test_removed_by_a_limit_is_not_remembered_when_the_limit_grows(make: StoreMaker) -> None:
    store = make(StoreLimits(msgs_max=2))
    put(store, *[b"a"] * 5)
    store.set_limits(StoreLimits(msgs_max=100))
    assert store.apply_limits(0) == 0
    assert sequences(store) == [4, 5]


@pytest.mark.parametrize(
    ("msgs_max", "bytes_max", "subject_msgs_max", "age_max_ns"),
    list(product((0, 4), (0, 180), (0, 1, 2), (0, 6))),
)
def test_limits_together_do_what_they_do_one_after_the_other(
    make: StoreMaker, msgs_max: int, bytes_max: int, subject_msgs_max: int, age_max_ns: int
) -> None:
    limits = StoreLimits(msgs_max, bytes_max, age_max_ns, subject_msgs_max)
    store, model = make(limits), ModelStore(limits, make.size)
    for number in range(1, 40):
        subject = b"s.%d" % (number * number % 5)
        payload = b"x" * (number % 7 * 5)
        store.store(subject, b"", payload, number)
        model.store(subject, b"", payload, number)
        if number % 3 == 0:
            assert store.expire(number) == model.expire(number)
        if number % 5 == 0:
            assert store.remove(number - 2) == model.remove(number - 2)
        assert store.state == model.state
    assert list(store.messages()) == model.matching()
    make.now_ns = 39


# --- a full stream that refuses ---------------------------------------------------------------


def refusal(store: MessageStore, *arguments: object, per_subject: bool = False) -> str:
    try:
        store.check_room(*arguments, per_subject=per_subject)
    except DiscardedError as error:
        return str(error)
    return ""


def test_stream_that_refuses_new_messages_never_removes_for_its_size(make: StoreMaker) -> None:
    """As measured on the official server, also when a limit is lowered and at the next start."""
    store = make(StoreLimits(msgs_max=10, bytes_max=10_000, subject_msgs_max=5, discard_new=True))
    put(store, *[b"a", b"b"] * 6)
    assert sequences(store) == list(range(3, 13))
    store.set_limits(StoreLimits(msgs_max=5, bytes_max=100, subject_msgs_max=4, discard_new=True))
    assert store.apply_limits(0) == 2
    assert sequences(store) == list(range(5, 13))
    store.set_limits(StoreLimits(age_max_ns=5, discard_new=True))
    make.now_ns = 13
    assert store.apply_limits(13) == 4
    assert sequences(store) == [9, 10, 11, 12]


def test_room_for_a_number_of_messages(make: StoreMaker) -> None:
    store = make(StoreLimits(msgs_max=2))
    put(store, b"a")
    assert refusal(store, b"a", 0, 10) == ""
    put(store, b"a")
    assert refusal(store, b"a", 0, 10) == "maximum messages exceeded"
    assert refusal(store, b"new", 0, 0) == "maximum messages exceeded"
    store.remove(1)
    assert refusal(store, b"a", 0, 10) == ""


def test_room_for_bytes_is_exact(make: StoreMaker) -> None:
    used = make.size(1, 0, 10)
    store = make(StoreLimits(bytes_max=used + make.size(1, 0, 50)))
    put(store, b"a", payload=b"x" * 10)
    assert refusal(store, b"b", 0, 50) == ""
    assert refusal(store, b"b", 0, 51) == "maximum bytes exceeded"
    assert refusal(store, b"bb", 0, 50) == "maximum bytes exceeded"


def test_message_that_replaces_one_of_its_subject_needs_no_room_for_itself(
    make: StoreMaker,
) -> None:
    store = make(StoreLimits(msgs_max=2, subject_msgs_max=1))
    put(store, b"a", b"b")
    assert refusal(store, b"a", 0, 0) == ""
    assert refusal(store, b"c", 0, 0) == "maximum messages exceeded"


def test_message_that_replaces_a_larger_one_fits_into_a_full_stream(make: StoreMaker) -> None:
    full = make.size(1, 0, 100) * 2
    store = make(StoreLimits(bytes_max=full, subject_msgs_max=1))
    put(store, b"a", b"b", payload=b"x" * 100)
    assert refusal(store, b"b", 0, 100) == ""
    assert refusal(store, b"b", 0, 101) == "maximum bytes exceeded"
    assert refusal(store, b"c", 0, 0) == "maximum bytes exceeded"


def test_full_subject_refuses_if_it_is_told_to(make: StoreMaker) -> None:
    store = make(StoreLimits(subject_msgs_max=2))
    put(store, b"a", b"a", b"b")
    full = "maximum messages per subject exceeded"
    assert refusal(store, b"a", 0, 0, per_subject=True) == full
    assert refusal(store, b"b", 0, 0, per_subject=True) == ""
    assert refusal(store, b"a", 0, 0) == ""


@pytest.mark.parametrize("by_limit", [True, False], ids=["limit", "removal"])
def test_blocks_go_as_fast_as_they_come(by_limit: bool) -> None:
    disk = SimulatedDisk()
    disk.make_directory("/disk/S", sync=True)
    limits = StoreLimits(msgs_max=20 if by_limit else 0)
    store, _ = open_store(disk, "/disk/S", "S", limits, now_ns=0, block_bytes_max=500)
    most = 0
    for _ in range(40):
        for seq in put(store.table, *[b"a"] * 60, payload=b"x" * 50):
            if not by_limit and seq > 20:
                store.table.remove(seq - 20)
        commit = store.begin_commit()
        assert commit is not None
        commit.run()
        store.finish_commit(commit)
        most = max(most, len(disk.list_directory("/disk/S/msgs")))
    # What came during three commits, with its tombstones; never all that ever was.
    assert most < 100
    store.verify()
