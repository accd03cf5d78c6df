"""Streams against what must hold: ids against a dict, the fast path against the slow one, and every
promise against a power failure.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thoroughness import some
from tradewind.stream.message_ids import MessageIds
from tradewind.stream.stream import Stream
from unit.stream.stream_kit import SECOND_NS, StreamKit, frame

IDS = st.integers(0, 30).map(lambda number: b"id-%d" % number * (1 + number % 3))
ID_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), IDS),
        st.tuples(st.just("find"), IDS),
        st.tuples(st.just("wait"), st.integers(1, 12)),
        st.tuples(st.just("expire"), st.none()),
        st.tuples(st.just("window"), st.integers(1, 15)),
        st.tuples(st.just("clear"), st.none()),
    ),
    max_size=200,
)


@pytest.mark.slow
@given(ID_STEPS, st.integers(0, 2**64 - 1))
def test_ids_behave_like_a_list_with_times(steps: list[tuple[str, Any]], seed: int) -> None:
    window, now, seq = 10, 100, 0
    ids = MessageIds(window, seed=seed)
    known: list[tuple[bytes, int, int]] = []

    def lookup(message_id: bytes) -> int:
        newest = [entry for entry in known if entry[0] == message_id][-1:]
        return newest[0][1] if newest and newest[0][2] + window > now else 0

    for kind, value in steps:
        if kind == "add" and not lookup(value):
            seq += 1
            ids.remember(value, seq, now)
            known.append((value, seq, now))
        elif kind == "find":
            assert ids.lookup(value, now) == lookup(value)
        elif kind == "wait":
            now += value
        elif kind == "clear":
            ids.clear()
            known.clear()
        elif kind in ("expire", "window"):
            if kind == "window":
                window = value
                ids.set_window(window, now)
            ids.expire(now)
            while known and known[0][2] + window <= now:
                known.pop(0)
        assert ids.items() == known
        assert ids.count == len(known)


def test_a_million_ids_cost_less_than_100_bytes_each_beside_themselves() -> None:
    ids = MessageIds(SECOND_NS, 1)
    count, size = 1_000_000, 22
    for number in range(count):
        ids.remember(b"%022d" % number, number + 1, 1)
    assert ids.memory_bytes <= count * (100 + size)
    assert ids.lookup(b"%022d" % 777_777, 2) == 777_778
    ids.expire(SECOND_NS + 1)
    assert ids.memory_bytes == 0


HEADERS = st.sampled_from(
    [
        b"",
        b"",
        b"A: b",
        b"Nats-Msg-Id: one",
        b"Nats-Msg-Id: two",
        b"A: b\r\nNats-Msg-Id:  three\r\nC: d",
        b"Nats-Msg-Id: ",
        b"Nats-Msg-Id: one\r\nNats-Msg-Id: two",
        b"nats-msg-id: one",
        b" Nats-Msg-Id: one",
        b"Nats-Msg-Ids: one",
        b"X: Nats-Msg-Id: one",
        b"NATS/1.0\r\n\r\n",
        b"NATS/1.0 100 Idle\r\nA: b\r\n\r\n",
        b"NATS/1.0\r\nA\rB: c\r\n\r\n",
        b"NATS/1.0\r\nA: b\nNats-Msg-Id: one\r\n\r\n",
        b"NATS/1.0\r\n\r\nNats-Msg-Id: one\r\n\r\n",
        b"Nats-Expected-Last-Sequence: 3",
        b"Nats-Expected-Last-Subject-Sequence: 0",
        b"Nats-Expected-Last-Msg-Id: one",
        b"Nats-Rollup: sub",
        b"Nats-TTL: 5",
    ]
)
MESSAGES = st.lists(
    st.tuples(
        st.integers(0, 3).map(lambda number: f"s.{number}"),
        st.binary(max_size=40),
        HEADERS,
        st.sampled_from(["inbox.1", "inbox.1", ""]),
        st.sampled_from([0, 0, 0, 3]),
    ),
    max_size=40,
)
CONFIGS = st.fixed_dictionaries(
    {
        "storage": st.sampled_from(["memory", "file"]),
        "retention": st.sampled_from(["limits", "limits", "interest"]),
        "discard": st.sampled_from(["old", "new"]),
        "max_msgs": st.sampled_from([-1, 4]),
        "max_bytes": st.sampled_from([-1, 300]),
        "max_msgs_per_subject": st.sampled_from([-1, 1, 2]),
        "max_msg_size": st.sampled_from([-1, 60]),
        "no_ack": st.sampled_from([False, False, True]),
        "allow_rollup_hdrs": st.booleans(),
        "duplicate_window": st.just(10 * SECOND_NS),
    }
)


class EvenSubjects:
    """Interest in every other subject."""

    consumer_count = 0

    def has_interest(self, subject: bytes) -> bool:
        return subject[-1] % 2 == 0

    def before_purge(self) -> None:
        """Nobody has a position to move."""

    def after_purge(self, pattern: bytes, first_left: int) -> None:
        """Nobody has a position to move."""


def run(config: dict[str, Any], messages: list[Any], *, slow: bool) -> tuple[object, ...]:
    """Everything that can be seen of a stream after these messages."""
    kit = StreamKit()
    per_subject = config["discard"] == "new" and config["max_msgs_per_subject"] == 1
    stream = kit.create(discard_new_per_subject=per_subject, **config)
    stream.interest = EvenSubjects()
    if slow:
        _take_the_slow_path(stream)
    replies = []
    for subject, payload, header, reply, wait_seconds in messages:
        kit.clock.advance_ns(wait_seconds * SECOND_NS)
        kit.peer.send(frame(subject, payload, header, reply))
        replies.append(kit.replies())
    stream.store.verify()
    return (
        replies,
        list(stream.store.messages()),
        stream.store.state,
        stream.ids.items(),
        stream.ingest.last_id,
        stream.ingest.appended_bytes,
        stream.ingest.credit_bytes,
    )


def _take_the_slow_path(stream: Stream) -> None:
    stream.ingest.configure(
        acks=not stream.config.no_ack,
        is_plain=False,
        counts=False,
        takes_batches=False,
        waits=stream.waits_for_sync,
        writes=False,
        asks_interest=False,
        discards_new=False,
        discards_new_per_subject=False,
        message_bytes_max=-1,
    )


INCREMENTS = st.one_of(
    st.integers(-(10**18) + 1, 10**18 - 1).map(lambda number: b"Nats-Incr: %+d" % number),
    st.integers(-9, 9).map(lambda number: b"Nats-Incr: %d" % number),
    st.sampled_from(
        [
            b"Nats-Incr:7",
            b"Nats-Incr:   -007",
            b"Nats-Incr: 999999999999999999",
            b"Nats-Incr: 1000000000000000000",
            b"Nats-Incr: -12345678901234567890",
            b"Nats-Incr: ",
            b"Nats-Incr: +",
            b"Nats-Incr: 1x",
            b"Nats-Incr: 1 ",
            b"Nats-Incr: 1\r\nA: b",
            b"A: b\r\nNats-Incr: 1",
            b"Nats-Incr: 1\r\nNats-Incr: 2",
            b"Nats-Incr: 3\r\nNats-Msg-Id: one",
            b"NATS/1.0\r\nNats-Incr: 1\r\n",
            b"A: b",
            b"",
        ]
    ),
)
COUNTED = st.lists(
    st.tuples(
        st.integers(0, 1).map(lambda number: f"s.{number}"),
        st.sampled_from([b"", b"", b"", b"", b"x"]),
        INCREMENTS,
        st.sampled_from(["inbox.1", "inbox.1", ""]),
        st.just(0),
    ),
    max_size=40,
)


@pytest.mark.slow
@given(CONFIGS, COUNTED)
def test_fast_and_slow_path_count_alike(config: dict[str, Any], messages: list[Any]) -> None:
    config = {**config, "allow_rollup_hdrs": False, "allow_msg_counter": True}
    assert run(config, messages, slow=False) == run(config, messages, slow=True)


@pytest.mark.slow
@given(CONFIGS, MESSAGES)
def test_fast_and_slow_path_agree(config: dict[str, Any], messages: list[Any]) -> None:
    assert run(config, messages, slow=False) == run(config, messages, slow=True)


@pytest.mark.slow
@settings(max_examples=some(60, 150))
@given(st.integers(0, 2**32))
def test_what_was_acknowledged_survives_a_power_failure(seed: int) -> None:
    random = Random(seed)
    kit = StreamKit()
    kit.create(storage="file")
    kit.engine.auto_sync = False
    acknowledged: dict[bytes, int] = {}
    for number in range(random.randrange(1, 30)):
        header = b"Nats-Msg-Id: %d" % number
        if random.random() < 0.3:
            header += b"\r\nNats-Expected-Stream: S"
        kit.peer.send(frame(f"s.{number % 3}", b"m%d" % number, header, f"inbox.{number}"))
        if random.random() < 0.3:
            kit.syncer.run_all()
            kit.server.run_until_idle()
        for subject, _, body in kit.messages():
            acknowledged[subject.removeprefix("inbox.").encode()] = json.loads(body)["seq"]
    after = StreamKit()
    after.disk = kit.disk.crash(seed)
    after.clock.advance_ns(SECOND_NS)
    stream = after.reopen()
    for number, seq in acknowledged.items():
        assert stream.store.get(seq).payload == b"m" + number
        reply = after.publish("s.1", b"again", b"Nats-Msg-Id: " + number)
        assert reply == b'{"stream":"S","seq":%d,"duplicate": true}' % seq
