"""The log beside o.dat, and what a consumer writes to both."""

from __future__ import annotations

import pytest

from tradewind.consumer.ack_codec import encode_whole, take_changes
from tradewind.consumer.pending import AckState
from tradewind.errors import CorruptRecord, StoreError
from tradewind.store.folder import consumer_states
from tradewind.store.format.ack_frame import frame_record
from tradewind.store.format.ack_log import (
    HEADER_BYTES,
    LOG_PREFIX,
    NUMBER_MAX,
    TRAILER_BYTES,
    apply_records,
    decode_with_trailer,
    log_header,
    log_name,
    log_numbers,
    next_number,
    read_log,
    record_prefix,
    with_trailer,
)
from tradewind.store.format.consumer_file import (
    ConsumerState,
    PendingDelivery,
    SequencePair,
    encode_consumer_state,
    read_consumer_state,
)
from tradewind.store.format.varint import append_uvarint, append_varint
from tradewind.testing.fake_disk import SimulatedDisk

SECOND = 1_000_000_000
OFFSET_NS = 1_700_000_000 * SECOND
FAR_NS = (1 << 63) - 1


def plain_state(data: bytes) -> ConsumerState:
    """What a server reads that knows nothing of logs and exact times."""
    return read_consumer_state(data, "o.dat")[0]


def delivered(count: int) -> AckState:
    acks = AckState("explicit", 30 * SECOND)
    for seq in range(1, count + 1):
        acks.deliver(seq, seq * SECOND)
    return acks


FOLLOWS = 5


def log_record(number: int, offset: int, consumer: str, follows: int, changes: bytes) -> bytes:
    return frame_record(number, offset, record_prefix(consumer, follows), changes)


def log_of(number: int, *bodies: bytes) -> bytes:
    log = log_header(number)
    for body in bodies:
        log += log_record(number, len(log), "C", FOLLOWS, body)
    return log


def apply_log(state: ConsumerState, number: int, log: bytes) -> int:
    records = read_log(number, log, log_name(number))
    assert {(record.consumer, record.follows) for record in records} <= {("C", FOLLOWS)}
    apply_records(state, FOLLOWS, records)
    return len(records)


def changes_of(acks: AckState) -> bytes:
    body = take_changes(acks, OFFSET_NS)
    assert body is not None
    return body


# ------------------------------------------------------------------ o.dat


def test_a_whole_state_is_written_as_the_reference_writes_it() -> None:
    acks = delivered(50)
    for seq in (1, 2, 7, 9):
        acks.acknowledge(seq, seq)
    acks.expire(45 * SECOND)
    for _ in range(3):
        acks.deliver(acks.next_redelivery(), 50 * SECOND)
    now_ns = OFFSET_NS + 51 * SECOND + SECOND // 2
    assert encode_whole(acks, OFFSET_NS, now_ns) == encode_consumer_state(
        acks.export(OFFSET_NS), now_ns
    )


@pytest.mark.parametrize("time_ns", [FAR_NS, -FAR_NS, -FAR_NS - 1, 0, -1])
@pytest.mark.parametrize("offset_ns", [0, OFFSET_NS, -OFFSET_NS])
def test_times_at_the_end_of_their_range_can_be_read_again(time_ns: int, offset_ns: int) -> None:
    acks = AckState("explicit")
    state = encode_whole(acks, offset_ns, FAR_NS)
    acks.deliver(1, time_ns)
    acks.nak(1, 1, 1, time_ns)
    log = log_of(1, take_changes(acks, offset_ns) or b"")
    logged = plain_state(state)
    assert apply_log(logged, 1, log) == 1
    whole, _ = decode_with_trailer(with_trailer(encode_whole(acks, offset_ns, 0), 1))
    assert whole == logged
    assert whole.pending.keys() == {1}


def test_a_time_that_a_client_has_named_is_kept_to_the_nanosecond() -> None:
    acks = delivered(5)
    acks.acknowledge(1, 1)
    state, _ = decode_with_trailer(with_trailer(encode_whole(acks, OFFSET_NS, OFFSET_NS), 3))
    acks.nak(2, 2, 1_234_567_891, 6 * SECOND + 7)
    acks.nak(4, 4, 1, 6 * SECOND)
    due = {2: 7 * SECOND + 234_567_898, 4: 6 * SECOND + 1}
    log = log_of(9, changes_of(acks))
    whole = with_trailer(encode_whole(acks, OFFSET_NS, OFFSET_NS), FOLLOWS)
    assert apply_log(state, 9, log) == 1
    assert decode_with_trailer(whole) == (state, FOLLOWS)
    # Whoever does not know of it reads the same state, in whole seconds.
    assert plain_state(whole).pending.keys() == state.pending.keys()
    again = AckState("explicit", 30 * SECOND)
    again.restore(state, OFFSET_NS)
    for seq, due_ns in due.items():
        assert again.pending()[seq].time_ns == due_ns - 30 * SECOND
    # ... and it is kept by the next one who saves it, until it is delivered.
    assert decode_with_trailer(with_trailer(encode_whole(again, OFFSET_NS, 0), 4))[0] == state
    again.progress(2, 8 * SECOND + 5)
    again.deliver(4, 9 * SECOND + 5)
    assert b"twexact1" not in encode_whole(again, OFFSET_NS, 0)


def test_every_flipped_bit_behind_a_state_with_exact_times_is_noticed() -> None:
    acks = delivered(3)
    acks.nak(2, 2, 5, 4 * SECOND)
    data = with_trailer(encode_whole(acks, OFFSET_NS, OFFSET_NS), 12)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert decode_with_trailer(bytes(damaged))[1] == 0
        except CorruptRecord:
            continue


def test_the_end_of_an_o_dat_names_its_log() -> None:
    state = encode_consumer_state(ConsumerState(SequencePair(3, 4), SequencePair(1, 2)), 0)
    data = with_trailer(state, 77)
    assert decode_with_trailer(data) == (plain_state(state), 77)
    assert plain_state(data) == plain_state(state)
    assert decode_with_trailer(state) == (plain_state(state), 0)


def test_bytes_behind_a_state_that_are_no_trailer_are_ignored() -> None:
    state = encode_consumer_state(ConsumerState(SequencePair(3, 4), SequencePair(1, 2)), 0)
    for end in (b"x", bytes(TRAILER_BYTES), with_trailer(b"", 5) + b"x"):
        assert decode_with_trailer(state + end) == (plain_state(state), 0)


def test_every_flipped_bit_of_an_o_dat_is_noticed_or_leaves_it_without_a_log() -> None:
    pending = {seq: PendingDelivery(seq, 5 * SECOND) for seq in range(3, 9)}
    state = ConsumerState(SequencePair(9, 9), SequencePair(2, 2), pending, {4: 1})
    data = with_trailer(encode_consumer_state(state, 6 * SECOND), 12)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert decode_with_trailer(bytes(damaged))[1] == 0
        except CorruptRecord:
            continue


# ------------------------------------------------------------------ the log


def test_changes_bring_a_state_up_to_date_however_many_are_pending() -> None:
    acks = delivered(5000)
    state = plain_state(encode_whole(acks, OFFSET_NS, OFFSET_NS))
    bodies = []
    for seq in (1, 2, 4000, 4001):
        acks.acknowledge(seq, seq)
    bodies.append(changes_of(acks))
    acks.progress(3, 6000 * SECOND)
    acks.nak(4, 4, 7 * SECOND, 6000 * SECOND)
    acks.forget(5)
    bodies.append(changes_of(acks))
    assert sum(map(len, bodies)) < 100
    log = log_of(9, *bodies)
    assert apply_log(state, 9, log) == 2
    assert state == acks.export(OFFSET_NS)
    # Applying what is in the state already changes nothing.
    assert apply_log(state, 9, log) == 2
    assert state == acks.export(OFFSET_NS)


def test_a_message_that_changes_often_is_written_once() -> None:
    acks = delivered(1)
    encode_whole(acks, 0, 0)
    once = len(changes_of(acks))
    for number in range(100):
        acks.progress(1, number * SECOND)
        acks.deliver(2, SECOND)
        acks.acknowledge(2, 2)
    assert len(changes_of(acks)) < once + 20


def test_more_changes_than_messages_ask_for_the_whole_state() -> None:
    acks = delivered(10)
    assert take_changes(acks, 0) is None
    encode_whole(acks, 0, 0)
    for seq in range(11, 11 + 2000):
        acks.deliver(seq, 0)
        acks.acknowledge(seq, seq)
    assert acks.changed_all
    assert take_changes(acks, 0) is None
    encode_whole(acks, 0, 0)
    assert take_changes(acks, 0) is not None


def test_a_log_that_was_cut_off_anywhere_gives_what_was_complete() -> None:
    acks = delivered(40)
    first = encode_whole(acks, OFFSET_NS, OFFSET_NS)
    bodies, states = [], [acks.export(OFFSET_NS)]
    for seq in (5, 1, 30):
        acks.acknowledge(seq, seq)
        bodies.append(changes_of(acks))
        states.append(acks.export(OFFSET_NS))
    log = log_of(3, *bodies)
    ends = [len(log_of(3, *bodies[:count])) for count in range(4)]
    for size in range(len(log) + 1):
        complete = max((at for at, end in enumerate(ends) if end <= size), default=0)
        wrong = bytes([log[size] ^ 0xFF]) if size < len(log) else b"x"
        for tail in (b"", wrong + bytes(len(log) - size), wrong + log[size + 1 :]):
            state = plain_state(first)
            assert apply_log(state, 3, log[:size] + tail) == complete
            assert state == states[complete]


def test_a_log_of_another_number_or_place_is_not_applied() -> None:
    acks = delivered(3)
    encode_whole(acks, 0, 0)
    acks.acknowledge(2, 2)
    body = changes_of(acks)
    state = ConsumerState()
    assert apply_log(state, 4, log_of(3, body)) == 0
    moved = log_header(3) + log_record(3, HEADER_BYTES + 1, "C", FOLLOWS, body)
    assert apply_log(state, 3, moved) == 0
    assert state == ConsumerState()


def test_a_record_that_follows_another_state_is_not_applied() -> None:
    acks = delivered(3)
    encode_whole(acks, 0, 0)
    acks.acknowledge(2, 2)
    records = read_log(3, log_of(3, changes_of(acks)), log_name(3))
    state = ConsumerState()
    for number in (0, FOLLOWS - 1, FOLLOWS + 1):
        apply_records(state, number, records)
        assert state == ConsumerState()
    apply_records(state, FOLLOWS, records)
    assert state.delivered == SequencePair(3, 3)


def test_names_of_logs_are_told_from_others() -> None:
    names = [*(LOG_PREFIX + end for end in ("", "12", "x", "\u0663", "08")), "o.dat", log_name(7)]
    names += [LOG_PREFIX + str(1 << 62), LOG_PREFIX + "9" * 200, "acks.3"]
    assert log_numbers(names) == [12, 7]


@pytest.mark.parametrize(
    ("last", "now_ns"), [(0, OFFSET_NS), (OFFSET_NS, OFFSET_NS), (0, FAR_NS), (5, -FAR_NS), (0, 0)]
)
def test_a_number_is_new_whatever_the_clock_says(last: int, now_ns: int) -> None:
    number = next_number(last, now_ns)
    assert last < number < NUMBER_MAX
    state = encode_consumer_state(ConsumerState(), 0)
    assert decode_with_trailer(with_trailer(state, number))[1] == number


def test_a_number_that_nobody_has_given_is_refused() -> None:
    data = with_trailer(encode_consumer_state(ConsumerState(), 0), NUMBER_MAX)
    with pytest.raises(CorruptRecord, match="must be below"):
        decode_with_trailer(data)


@pytest.mark.parametrize(
    ("seconds", "rest_ns", "reason"),
    [
        (1 << 62, 0, "a pending message has the time 4611686018427387904 s"),
        (5, 1_000_000_000, "a time has 1000000000 ns beside its seconds"),
        (5, -1_000_000_000, "a time has -1000000000 ns beside its seconds"),
    ],
)
def test_time_that_cannot_be_is_refused_with_its_file(
    seconds: int, rest_ns: int, reason: str
) -> None:
    changes = bytearray()
    for number in (0, 0, 1, 1, 1, 1, 1 | 4, 1):  # floors, delivered, one change: pending and exact
        append_uvarint(changes, number)
    append_varint(changes, seconds)
    append_varint(changes, rest_ns)
    data = log_header(7) + log_record(7, HEADER_BYTES, "C", 3, bytes(changes))
    with pytest.raises(CorruptRecord, match=reason) as caught:
        apply_records(ConsumerState(), 3, read_log(7, data, "/disk/the.log"))
    assert "/disk/the.log" in str(caught.value)


class Counting:
    """A source whose changes are gone when they were taken, as those of a consumer are."""

    def __init__(self) -> None:
        self.entry_count = consumer_states.SMALL_ENTRIES_MAX + 1
        self.wholes = 0
        self.untaken: list[bytes] = []

    def encode_whole(self, now_ns: int) -> bytes:
        self.wholes += 1
        self.untaken.clear()
        return encode_consumer_state(ConsumerState(), now_ns)

    def take_changes(self) -> bytes | None:
        changes = b"".join(self.untaken)
        self.untaken.clear()
        return changes


def test_changes_that_were_taken_and_not_written_are_in_a_whole_state() -> None:
    disk = SimulatedDisk()
    disk.make_directory(f"{disk.root}/obs/C", sync=True)
    states = consumer_states.ConsumerStates(disk, f"{disk.root}/obs")
    source = Counting()
    states.mark("C", source)
    states.commit(1)
    assert source.wholes == 1
    disk.fail("write", "*/tradewind.acks.*")
    source.untaken.append(b"x")
    ticket = states.mark("C", source)
    with pytest.raises(StoreError):
        states.begin_commit(2)
    assert source.untaken == []
    states.commit(3)
    assert source.wholes == 2  # no record follows one that is missing
    assert states.kept_ticket("C") == ticket
