"""Structures against simple models, and every format against bytes that are nearly right.

What is damaged must give an error of the store or something that can be written again; never a
crash, a hang or memory out of proportion to the file.
"""

from __future__ import annotations

import json
import tracemalloc
from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from subject_tables import subject_table
from thoroughness import some
from tradewind.errors import CorruptRecord, StoreError
from tradewind.store.format.ack_log import decode_with_trailer
from tradewind.store.format.consumer_file import (
    ConsumerState,
    PendingDelivery,
    SequencePair,
    encode_consumer_state,
)
from tradewind.store.format.hash import key_for
from tradewind.store.format.index_file import (
    IndexBlock,
    StreamIndex,
    decode_index,
    encode_index,
)
from tradewind.store.format.meta import (
    StreamMeta,
    decode_consumer_meta,
    decode_stream_meta,
    encode_consumer_meta,
    encode_stream_meta,
)
from tradewind.store.format.sequence_set import SequenceSet
from tradewind.store.format.side_files import (
    Schedule,
    SourcePosition,
    decode_schedules,
    decode_sources,
    encode_schedules,
    encode_sources,
)
from tradewind.store.format.timing_wheel import TimingWheel
from tradewind.store.format.varint import ByteReader, append_uvarint, append_varint

SECOND = 1_000_000_000
U64_MAX = (1 << 64) - 1
u64 = st.integers(0, U64_MAX)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
# Near the edges of words and nodes, close together, and anywhere.
sequences = st.one_of(
    st.integers(0, 300),
    st.integers(0, 12_000),
    st.builds(
        lambda base, offset: min(max(2048 * base + offset, 0), U64_MAX),
        st.integers(0, 40) | st.integers(0, 1 << 53),
        st.integers(-2, 66),
    ),
    u64,
)


@given(u64, i64)
def test_numbers_come_back(unsigned: int, signed: int) -> None:
    target = bytearray()
    append_uvarint(target, unsigned)
    append_varint(target, signed)
    reader = ByteReader(bytes(target), "f")
    assert (reader.uvarint("u"), reader.varint("s"), reader.left) == (unsigned, signed, 0)


# A case here is a whole series of steps, so there are fewer of them.
MODEL_SETTINGS = settings(max_examples=some(30, 1200), stateful_step_count=25, deadline=None)


class SequenceSetModel(RuleBasedStateMachine):
    """A set of sequences against a Python set."""

    def __init__(self) -> None:
        super().__init__()
        self.real = SequenceSet()
        self.model: set[int] = set()

    @rule(seq=sequences)
    def insert(self, seq: int) -> None:
        assert self.real.insert(seq) == (seq not in self.model)
        self.model.add(seq)

    @rule(first=sequences, size=st.integers(0, 5000))
    def insert_range(self, first: int, size: int) -> None:
        last = min(first + size, U64_MAX)
        self.real.insert_range(first, last)
        self.model.update(range(first, last + 1))

    @rule(seq=sequences, step=st.integers(1, 3000), count=st.integers(1, 60))
    def insert_many(self, seq: int, step: int, count: int) -> None:
        for member in range(seq, min(seq + step * count, U64_MAX), step):
            self.insert(member)

    @rule(seq=sequences)
    def delete(self, seq: int) -> None:
        assert self.real.delete(seq) == (seq in self.model)
        self.model.discard(seq)

    @rule(data=st.data())
    def delete_member(self, data: st.DataObject) -> None:
        if self.model:
            self.delete(data.draw(st.sampled_from(sorted(self.model))))

    @rule(keep_every=st.integers(2, 50))
    def delete_most(self, keep_every: int) -> None:
        for index, member in enumerate(sorted(self.model)):
            if index % keep_every:
                assert self.real.delete(member)
                self.model.discard(member)

    @rule(seq=sequences)
    def delete_below(self, seq: int) -> None:
        below = {member for member in self.model if member < seq}
        assert self.real.delete_below(seq) == len(below)
        self.model -= below

    @rule()
    def go_through_the_encoding(self) -> None:
        data = self.real.encode()
        decoded, end = SequenceSet.decode(data)
        assert end == len(data) == 10 + 266 * self.real.node_count
        assert decoded.encode() == data
        self.real = decoded

    @rule(first=sequences, last=sequences)
    def ask(self, first: int, last: int) -> None:
        members = sorted(self.model)
        assert (first in self.real) == (first in self.model)
        place = bisect_left(members, first)
        assert self.real.next_present(first) == (members[place] if place < len(members) else None)
        between = max(bisect_left(members, last + 1) - place, 0)
        assert self.real.count_in(first, last) == between
        absent = first
        while absent in self.model:
            absent += 1
        assert self.real.next_absent(first) == (absent if absent <= U64_MAX else None)

    @rule(data=st.data())
    def ask_about_a_member(self, data: st.DataObject) -> None:
        if self.model:
            self.ask(data.draw(st.sampled_from(sorted(self.model))), data.draw(sequences))

    @invariant()
    def same_members_in_a_sound_tree(self) -> None:
        self.real.check()
        members = sorted(self.model)
        assert list(self.real) == members
        assert self.real.first == (members[0] if members else None)
        assert self.real.last == (members[-1] if members else None)


TestSequenceSetModel = SequenceSetModel.TestCase
TestSequenceSetModel.settings = MODEL_SETTINGS


class TimingWheelModel(RuleBasedStateMachine):
    """Timers against a dict that is searched."""

    times = st.integers(0, 50) | i64

    def __init__(self) -> None:
        super().__init__()
        self.real = TimingWheel()
        self.model: dict[int, int] = {}

    @rule(seq=st.integers(1, 60) | st.integers(1, U64_MAX), time_ns=times)
    def add(self, seq: int, time_ns: int) -> None:
        self.real.add(seq, time_ns)
        self.model[seq] = time_ns

    @rule(first=st.integers(1, 5000), count=st.integers(1, 3000), step=st.integers(-3, 3))
    def add_many(self, first: int, count: int, step: int) -> None:
        for seq in range(first, first + count):
            self.add(seq, seq * step)

    @rule(seq=st.integers(1, 60), time_ns=times)
    def remove(self, seq: int, time_ns: int) -> None:
        is_there = self.model.get(seq) == time_ns
        assert self.real.remove(seq, time_ns) == is_there
        if is_there:
            del self.model[seq]

    @rule(keep_every=st.integers(2, 100))
    def remove_most(self, keep_every: int) -> None:
        for index, (seq, time_ns) in enumerate(list(self.model.items())):
            if index % keep_every:
                self.remove_one(seq, time_ns)

    def remove_one(self, seq: int, time_ns: int) -> None:
        assert self.real.remove(seq, time_ns)
        del self.model[seq]

    @rule(now_ns=times, limit=st.integers(0, 5000))
    def take_expired(self, now_ns: int, limit: int) -> None:
        due = sorted((time_ns, seq) for seq, time_ns in self.model.items() if time_ns <= now_ns)
        expected = [(seq, time_ns) for time_ns, seq in due[:limit]]
        assert self.real.take_expired(now_ns, limit) == expected
        for seq, _ in expected:
            del self.model[seq]

    @rule(stamp=u64)
    def go_through_the_file(self, stamp: int) -> None:
        self.real, read_stamp = TimingWheel.decode(self.real.encode(stamp))
        assert read_stamp == stamp

    @invariant()
    def same_timers(self) -> None:
        assert self.real.count == len(self.model)
        assert self.real.next_expiry == min(self.model.values(), default=None)


TestTimingWheelModel = TimingWheelModel.TestCase
TestTimingWheelModel.settings = MODEL_SETTINGS


# Formats.

tokens = st.text(
    st.characters(exclude_characters=" .\t\r\n\f\0", codec="utf-8"), min_size=1
).filter(lambda token: token != ">")
subjects = st.lists(tokens, min_size=1, max_size=4).map(lambda parts: ".".join(parts).encode())
block_numbers = st.integers(1, 0xFFFFFFFF)


def sequence_set(members: set[int]) -> SequenceSet:
    result = SequenceSet()
    for seq in members:
        result.insert(seq)
    return result


@st.composite
def indexes(draw: st.DrawFn) -> StreamIndex:
    """A consistent index with a few blocks, one after the other."""
    count = draw(st.integers(1, 4))
    numbers = sorted(draw(st.sets(block_numbers, min_size=count, max_size=count)))
    edges = sorted(draw(st.sets(st.integers(2, 20_000), min_size=count + 1, max_size=count + 1)))
    blocks = []
    for number, (first, after) in zip(numbers, pairwise(edges), strict=True):
        deleted = draw(st.sets(st.integers(first, after - 1), max_size=min(20, after - first - 1)))
        blocks.append(
            IndexBlock(
                number=number,
                live_bytes=draw(st.integers(0, 1 << 40)),
                first_seq=first,
                first_time_ns=draw(i64),
                last_seq=after - 1,
                last_time_ns=draw(i64),
                ttl_count=draw(st.integers(0, 9)),
                schedule_count=draw(st.integers(0, 9)),
                deleted=sequence_set(deleted),
            )
        )
    rows = draw(st.lists(st.tuples(subjects, u64, block_numbers, block_numbers), max_size=6))
    return StreamIndex(
        messages=sum(block.messages for block in blocks),
        live_bytes=sum(block.live_bytes for block in blocks),
        first_seq=edges[0],
        first_time_ns=draw(i64),
        last_seq=edges[-1] - 1,
        last_time_ns=draw(i64),
        subjects=subject_table(rows),
        blocks=blocks,
        last_checksum=draw(st.binary(min_size=8, max_size=8)),
    )


@pytest.mark.slow
@given(indexes())
def test_indexes_come_back(index: StreamIndex) -> None:
    data = encode_index(index, "S")
    assert decode_index(data, "S") == index


stream_seqs = st.integers(1, (1 << 63) - 1)
seconds_ns = st.integers(-(10**9), 4 * 10**9).map(lambda seconds: seconds * SECOND)
states = st.builds(
    ConsumerState,
    delivered=st.builds(SequencePair, u64, st.integers(0, (1 << 63) - 1)),
    ack_floor=st.builds(SequencePair, u64, st.integers(0, 1000)),
    pending=st.dictionaries(stream_seqs, st.builds(PendingDelivery, u64, seconds_ns), max_size=8),
    # At the floor a redelivery would mean nothing; the model stays above it.
    redelivered=st.dictionaries(st.integers(1001, (1 << 63) - 1), st.integers(1, 99), max_size=8),
)


@pytest.mark.slow
@given(states, seconds_ns)
def test_consumer_states_come_back(state: ConsumerState, now_ns: int) -> None:
    assert decode_with_trailer(encode_consumer_state(state, now_ns))[0] == state


schedule_lists = st.lists(st.builds(Schedule, st.binary(max_size=300), i64, u64), max_size=5)
source_lists = st.lists(
    st.builds(SourcePosition, st.binary(max_size=300), u64, st.binary(max_size=20)), max_size=5
)


@pytest.mark.slow
@given(schedule_lists, source_lists, u64)
def test_side_files_come_back(
    schedules: list[Schedule], sources: list[SourcePosition], stamp: int
) -> None:
    assert decode_schedules(encode_schedules(schedules, stamp)) == (schedules, stamp)
    assert decode_sources(encode_sources(sources, stamp)) == (sources, stamp)


texts = st.text(max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), U64_MAX) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
configs = st.fixed_dictionaries(
    {"name": texts},
    optional={
        "description": texts.filter(bool),
        "subjects": st.lists(texts, min_size=1, max_size=3),
        "max_msgs": i64,
        "placement": st.dictionaries(st.sampled_from(["cluster", "other"]), texts.filter(bool)),
        "metadata": st.dictionaries(texts, texts, min_size=1, max_size=3),
        "unknown": json_values.filter(lambda value: value is not None),
    },
)


@pytest.mark.slow
@given(configs, st.none() | st.integers(-62135596800 * SECOND, 253402300799 * SECOND))
def test_stream_configurations_come_back(config: dict[str, Any], created_ns: int | None) -> None:
    data = encode_stream_meta(StreamMeta(config, created_ns))
    meta = decode_stream_meta(data)
    assert meta.created_ns == created_ns
    assert {name: meta.config[name] for name in config} == config
    assert ("unknown" in meta.unknown_fields) == ("unknown" in config)
    assert encode_stream_meta(meta) == data


def written_by_go(text: str) -> str:
    """A text as Go's JSON has it."""
    plain = json.dumps(text, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        plain = plain.replace(character, f"\\u{ord(character):04x}")
    return plain


@pytest.mark.slow
@given(texts.filter(bool), st.dictionaries(texts, texts, min_size=1, max_size=3))
def test_texts_are_written_as_go_does(description: str, metadata: dict[str, str]) -> None:
    config = {"name": "S", "description": description, "metadata": metadata}
    data = encode_stream_meta(StreamMeta(config, None)).decode()
    assert f'"description":{written_by_go(description)},' in data
    members = (f"{written_by_go(key)}:{written_by_go(metadata[key])}" for key in sorted(metadata))
    assert f'"metadata":{{{",".join(members)}}}' in data


# Damage.


def signed(body: bytes) -> bytes:
    return body + key_for("S").hash(body)


def check_set(data: bytes) -> None:
    decoded, _ = SequenceSet.decode(data)
    decoded.check()
    assert SequenceSet.decode(decoded.encode())[0] == decoded


def check_wheel(data: bytes) -> None:
    wheel, stamp = TimingWheel.decode(data)
    again, _ = TimingWheel.decode(wheel.encode(stamp))
    count = wheel.count
    assert again.take_expired((1 << 63) - 1, count) == wheel.take_expired((1 << 63) - 1, count)


def check_state(data: bytes) -> None:
    state = decode_with_trailer(data)[0]
    # A redelivery that wraps around to the floor or below is lost or kept, but never a crash.
    encode_consumer_state(state, 0)


def check_index(body: bytes) -> None:
    index = decode_index(signed(body), "S")
    assert decode_index(encode_index(index, "S"), "S") == index


def check_schedules(data: bytes) -> None:
    assert decode_schedules(encode_schedules(*decode_schedules(data))) == decode_schedules(data)


def check_sources(data: bytes) -> None:
    assert decode_sources(encode_sources(*decode_sources(data))) == decode_sources(data)


def check_stream_meta(data: bytes) -> None:
    encode_stream_meta(decode_stream_meta(data))


def check_consumer_meta(data: bytes) -> None:
    encode_consumer_meta(decode_consumer_meta(data))


def example_index() -> StreamIndex:
    members = set(range(5, 300, 3)) | {5000, 9000, 12_000}
    blocks = [
        IndexBlock(1, 5000, 2, 100, 14_999, 200, 3, 1, sequence_set(members)),
        IndexBlock(7, 70, 15_000, 300, 15_001, 400, ttl_count=2),
    ]
    table = subject_table([(b"a.b", 9000, 1, 7), (b"c", 996, 1, 1)])
    messages = sum(block.messages for block in blocks)
    return StreamIndex(messages, 5070, 2, 100, 15_001, 400, table, blocks, b"checksum")


def example_wheel() -> bytes:
    wheel = TimingWheel()
    for seq in range(1, 40):
        wheel.add(seq, 1_794_766_065_474_714_839 + seq * SECOND)
    return wheel.encode(41)


STATE = ConsumerState(
    SequencePair(11, 300),
    SequencePair(2, 3),
    {seq: PendingDelivery(seq, 1_794_766_065 * SECOND) for seq in range(4, 30)},
    dict.fromkeys(range(4, 30), 2),
)
STREAM_META = encode_stream_meta(
    StreamMeta({"name": "S", "subjects": ["s.>"], "mirror": {"name": "M", "external": {}}}, 5)
)
CONSUMER_META = b'{"Created":"2026-11-15T18:07:45.8Z","Name":"C","name":"C","backoff":[1,2]}'
FORMATS: dict[str, tuple[Callable[[bytes], None], bytes]] = {
    "set": (check_set, example_index().blocks[0].deleted.encode()),
    "wheel": (check_wheel, example_wheel()),
    "state": (check_state, encode_consumer_state(STATE, 1_794_766_067 * SECOND)),
    "index": (check_index, encode_index(example_index(), "S")[:-8]),
    "schedules": (
        check_schedules,
        encode_schedules([Schedule(b"s.%d" % n, n * SECOND, n) for n in range(20)], 21),
    ),
    "sources": (
        check_sources,
        encode_sources([SourcePosition(b"S%d > >" % n, n, b"ident") for n in range(20)], 21),
    ),
    "stream meta": (check_stream_meta, STREAM_META),
    "consumer meta": (check_consumer_meta, CONSUMER_META),
}


def outcome(check: Callable[[bytes], None], data: bytes) -> StoreError | None:
    try:
        check(data)
    except StoreError as error:
        return error
    return None


@pytest.mark.parametrize("name", FORMATS)
def test_the_examples_are_right(name: str) -> None:
    check, data = FORMATS[name]
    assert outcome(check, data) is None


@pytest.mark.parametrize("name", FORMATS)
def test_every_file_that_lacks_its_end_is_refused(name: str) -> None:
    check, data = FORMATS[name]
    # An empty o.dat is that of a new consumer.
    for size in range(1 if name == "state" else 0, len(data)):
        assert isinstance(outcome(check, data[:size]), CorruptRecord), size


@pytest.mark.parametrize("name", FORMATS)
def test_every_changed_byte_gives_an_error_or_a_sound_result(name: str) -> None:
    check, data = FORMATS[name]
    step = max(len(data) // 300, 1)
    for place in range(0, len(data), step):
        for change in (0x01, 0x80, 0xFF, data[place]):
            damaged = bytearray(data)
            damaged[place] ^= change
            outcome(check, bytes(damaged))


edits = st.lists(
    st.tuples(st.sampled_from(["set", "insert", "delete", "copy"]), u64, st.binary(max_size=12)),
    min_size=1,
    max_size=5,
)


def edited(data: bytes, steps: list[tuple[str, int, bytes]]) -> bytes:
    result = bytearray(data)
    for kind, number, content in steps:
        place = number % (len(result) + 1)
        if kind == "set":
            result[place : place + len(content)] = content
        elif kind == "insert":
            result[place:place] = content
        elif kind == "delete":
            del result[place : place + 1 + len(content)]
        else:
            result[place:place] = result[place // 2 : place // 2 + 40]
    return bytes(result)


@given(st.sampled_from(sorted(FORMATS)), edits)
@example("index", [("set", 2, b"\xff" * 9 + b"\x01")])
@example("wheel", [("set", 1, b"\xff" * 8)])
def test_edited_files_give_an_error_or_a_sound_result(
    name: str, steps: list[tuple[str, int, bytes]]
) -> None:
    check, data = FORMATS[name]
    outcome(check, edited(data, steps))


@given(st.sampled_from(sorted(FORMATS)), st.binary(max_size=200))
def test_any_bytes_give_an_error_or_a_sound_result(name: str, data: bytes) -> None:
    outcome(FORMATS[name][0], data)


@pytest.mark.parametrize("name", ["state", "index", "schedules", "sources"])
def test_a_huge_count_does_not_take_memory(name: str) -> None:
    check, data = FORMATS[name]
    tracemalloc.start()
    try:
        for place in range(min(len(data), 60)):
            for count in (b"\xff" * 4, b"\xff" * 8, b"\xff" * 9 + b"\x01", b"\x80" * 8 + b"\x40"):
                outcome(check, data[:place] + count + data[place + len(count) :])
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
