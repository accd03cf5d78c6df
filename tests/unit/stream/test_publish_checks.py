"""The slow path: every check, its text, and which of two comes first."""

from __future__ import annotations

import itertools
import json

import pytest
from msgspec.structs import replace
from stream_kit import StreamKit, update

from publish_faults import EXCLUSIVE, FAULTS


def full_stream() -> StreamKit:
    kit = StreamKit()
    kit.create(discard="new", max_msgs=1)
    kit.publish("s.1", b"", b"Nats-Msg-Id: known")
    return kit


def code_of(reply: bytes) -> int:
    return int(json.loads(reply).get("error", {}).get("err_code", 0))


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_has_its_code(name: str) -> None:
    header, code = FAULTS[name]
    assert code_of(full_stream().publish("s.1", b"", header)) == code


def test_the_first_of_two_faults_is_named() -> None:
    kit = full_stream()
    for first, second in itertools.combinations(FAULTS, 2):
        if {first, second} in EXCLUSIVE:
            continue
        header = FAULTS[second][0] + b"\r\n" + FAULTS[first][0]
        assert code_of(kit.publish("s.1", b"", header)) == FAULTS[first][1], (first, second)


def test_limits_come_last() -> None:
    assert (
        full_stream().publish("s.1", b"", b"Nats-Msg-Id: new")
        == b'{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},'
        b'"stream":"S","seq":0}'
    )


def test_size_comes_before_all_headers() -> None:
    kit = StreamKit()
    kit.create(max_msg_size=100)
    assert code_of(kit.publish("s.1", b"x" * 101)) == 10054
    assert code_of(kit.publish("s.1", b"x" * 90, b"Nats-Batch-Id: b")) == 10054
    assert code_of(kit.publish("s.1", b"x" * 100)) == 0


def test_sealed_stream_refuses_everything() -> None:
    kit = StreamKit()
    stream = kit.create(max_msg_size=10)
    update(stream, replace(stream.config, sealed=True))
    assert code_of(kit.publish("s.1", b"x" * 11)) == 10109
    assert code_of(kit.publish("s.1", b"", b"Nats-Batch-Id: b")) == 10109


@pytest.mark.parametrize(
    ("header", "reply"),
    [
        (b"Nats-Expected-Last-Sequence: abc", "wrong last sequence: 2"),
        (b"Nats-Expected-Last-Sequence: 2 ", "wrong last sequence: 2"),
        (b"Nats-Expected-Last-Subject-Sequence: 2", "wrong last sequence: 1"),
        (
            (
                b"Nats-Expected-Last-Subject-Sequence: 1\r\n"
                b"Nats-Expected-Last-Subject-Sequence-Subject: s.*"
            ),
            "wrong last sequence: 2",
        ),
        (
            (
                b"Nats-Expected-Last-Subject-Sequence: 1\r\n"
                b"Nats-Expected-Last-Subject-Sequence-Subject: s..2"
            ),
            "wrong last sequence: 0",
        ),
        (b"Nats-Expected-Last-Msg-Id: one", "wrong last msg ID: two"),
        (b"Nats-Rollup: sub", "rollup not permitted"),
    ],
)
def test_texts(header: bytes, reply: str) -> None:
    kit = StreamKit()
    kit.create()
    kit.publish("s.1", b"", b"Nats-Msg-Id: one")
    kit.publish("s.2", b"", b"Nats-Msg-Id: two")
    assert json.loads(kit.publish("s.1", b"", header))["error"]["description"] == reply


@pytest.mark.parametrize(
    "header",
    [
        b"Nats-Expected-Last-Sequence: 2",
        b"Nats-Expected-Last-Subject-Sequence: 1",
        (
            b"Nats-Expected-Last-Subject-Sequence: 2\r\n"
            b"Nats-Expected-Last-Subject-Sequence-Subject: s.*"
        ),
        (
            b"Nats-Expected-Last-Subject-Sequence: 0\r\n"
            b"Nats-Expected-Last-Subject-Sequence-Subject: elsewhere"
        ),
        b"Nats-Expected-Last-Msg-Id: two",
        b"Nats-Expected-Stream: S",
        b"Nats-Expected-Stream:",
        b"Nats-Expected-Last-Msg-Id: ",
        b"Nats-Rollup: ",
        b"Nats-TTL:",
        b"Nats-Batch-Sequence: 1",
        b"nats-expected-stream: OTHER",
    ],
)
def test_what_is_met_or_says_nothing_is_stored(header: bytes) -> None:
    kit = StreamKit()
    stream = kit.create()
    kit.publish("s.1", b"", b"Nats-Msg-Id: one")
    kit.publish("s.2", b"", b"Nats-Msg-Id: two")
    assert kit.publish("s.1", b"", header) == b'{"stream":"S","seq":3}'
    assert stream.store.get(3).header == b"NATS/1.0\r\n" + header + b"\r\n\r\n"


def test_last_id_is_that_of_the_last_message_even_if_it_has_none() -> None:
    kit = StreamKit()
    kit.create()
    kit.publish("s.1", b"", b"Nats-Msg-Id: one")
    kit.publish("s.1")
    reply = kit.publish("s.1", b"", b"Nats-Expected-Last-Msg-Id: one")
    assert json.loads(reply)["error"]["description"] == "wrong last msg ID: "


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (b"NATS/1.0 503 Hello\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"),
        (b"NATS/1.0 503\r\n\r\n", b""),
        (b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\n\r\n"),
        (
            b"NATS/1.0\r\nA: b\r\nNats-Request-Info: {}\r\nC: d\r\n\r\n",
            b"NATS/1.0\r\nA: b\r\nC: d\r\n\r\n",
        ),
        (b"NATS/1.0\r\nNats-Request-Info: {}\r\n\r\n", b""),
    ],
)
def test_header_is_stored_without_status_and_requester(sent: bytes, stored: bytes) -> None:
    kit = StreamKit()
    stream = kit.create()
    assert kit.publish("s.1", b"x", sent) == b'{"stream":"S","seq":1}'
    assert stream.store.get(1).header == stored


def test_rollup_removes_what_is_older() -> None:
    kit = StreamKit()
    stream = kit.create(allow_rollup_hdrs=True)
    for subject in ("s.1", "s.2", "s.1", "s.2"):
        kit.publish(subject, b"x")
    assert code_of(kit.publish("s.1", b"x", b"Nats-Rollup: other")) == 10111
    assert kit.publish("s.1", b"x", b"Nats-Rollup: SUB") == b'{"stream":"S","seq":5}'
    assert [message.seq for message in stream.store.messages()] == [2, 4, 5]
    assert kit.publish("s.3", b"x", b"Nats-Rollup: all") == b'{"stream":"S","seq":6}'
    assert [message.seq for message in stream.store.messages()] == [6]


def test_discard_new_per_subject_lets_a_rollup_in() -> None:
    kit = StreamKit()
    stream = kit.create(
        discard="new",
        max_msgs_per_subject=1,
        discard_new_per_subject=True,
        allow_rollup_hdrs=True,
    )
    kit.publish("s.1", b"x")
    reply = json.loads(kit.publish("s.1", b"y"))
    assert reply["error"]["description"] == "maximum messages per subject exceeded"
    assert kit.publish("s.1", b"z", b"Nats-Rollup: sub") == b'{"stream":"S","seq":2}'
    assert stream.store.get(2).payload == b"z"


def test_refused_message_leaves_no_id() -> None:
    kit = full_stream()
    for _ in range(2):
        assert code_of(kit.publish("s.1", b"", b"Nats-Msg-Id: new")) == 10077


def test_transform_is_applied_before_the_checks() -> None:
    kit = StreamKit()
    stream = kit.create(
        subjects=["in.*", "plain"], subject_transform={"src": "in.*", "dest": "out.{{wildcard(1)}}"}
    )
    kit.publish("in.1", b"x")
    kit.publish("plain", b"x")
    header = b"Nats-Expected-Last-Subject-Sequence: 1"
    assert kit.publish("in.1", b"x", header) == b'{"stream":"S","seq":3}'
    assert stream.store.subjects() == {b"out.1": 2, b"plain": 1}


def test_republish_sends_a_copy_with_its_origin() -> None:
    kit = StreamKit()
    kit.create(republish={"src": "s.*", "dest": "inbox.copy.{{wildcard(1)}}"})
    kit.peer.send(b"PUB s.1 2\r\nxy\r\nHPUB s.1 inbox.1 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nab\r\n")
    first, second, ack = kit.messages()
    assert first[0] == second[0] == "inbox.copy.1"
    assert first[1] == (
        b"NATS/1.0\r\nNats-Stream: S\r\nNats-Subject: s.1\r\nNats-Sequence: 1\r\n"
        b"Nats-Time-Stamp: 2023-11-14T22:13:20Z\r\nNats-Last-Sequence: 0\r\n\r\n"
    )
    assert second[1].startswith(b"NATS/1.0\r\nA: b\r\nNats-Stream: S\r\n")
    assert second[1].endswith(b"Nats-Last-Sequence: 1\r\n\r\n")
    assert (first[2], second[2]) == (b"xy", b"ab")
    assert ack[2] == b'{"stream":"S","seq":2}'


def test_republish_of_headers_tells_the_size() -> None:
    kit = StreamKit()
    kit.create(republish={"dest": "inbox.>", "headers_only": True})
    kit.peer.send(b"PUB s.1 2\r\nxy\r\n")
    ((subject, header, payload),) = kit.messages()
    assert (subject, payload) == ("inbox.s.1", b"")
    assert header.endswith(b"Nats-Last-Sequence: 0\r\nNats-Msg-Size: 2\r\n\r\n")


def test_copy_waits_for_the_sync_and_is_dropped_if_that_fails() -> None:
    kit = StreamKit()
    kit.create(storage="file", republish={"dest": "inbox.>"})
    kit.engine.auto_sync = False
    kit.peer.send(b"PUB s.1 2\r\nxy\r\n")
    assert kit.messages() == []
    kit.disk.fail("sync")
    kit.syncer.run_all()
    kit.server.run_until_idle()
    assert kit.messages() == []


class _Interest:
    consumer_count = 0

    def has_interest(self, subject: bytes) -> bool:
        return subject == b"s.wanted"

    def before_purge(self) -> None:
        raise AssertionError("nothing is purged")

    def after_purge(self, pattern: bytes, first_left: int) -> None:
        raise AssertionError((pattern, first_left))


def test_interest_retention_numbers_what_nobody_wants() -> None:
    kit = StreamKit()
    stream = kit.create(retention="interest")
    stream.interest = _Interest()
    assert kit.publish("s.1", b"x", b"Nats-Msg-Id: a") == b'{"stream":"S","seq":1}'
    assert kit.publish("s.wanted", b"x") == b'{"stream":"S","seq":2}'
    assert b"duplicate" in kit.publish("s.1", b"x", b"Nats-Msg-Id: a")
    assert [message.seq for message in stream.store.messages()] == [2]


def test_resources_are_asked_when_the_credit_is_used_up() -> None:
    kit = StreamKit()
    stream = kit.create()
    asked: list[int] = []
    stream.checks.resources = lambda size: asked.append(size)  # type: ignore[func-returns-value]
    stream.ingest.credit_bytes = 50
    kit.publish("s.1", b"x" * 10)
    assert asked == []
    kit.publish("s.1", b"x" * 10)
    assert asked == [29]
