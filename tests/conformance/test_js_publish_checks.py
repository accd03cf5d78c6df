"""Publishing to a stream: acknowledgements, duplicates, and every check with its text and order."""

from __future__ import annotations

import itertools
import json
import time

import pytest

from conformance.helpers_publish import WAIT_SECONDS, Publisher
from harness import wait_for
from publish_faults import EXCLUSIVE, FAULTS


def test_acknowledgement_has_exactly_these_bytes(peer: Publisher) -> None:
    name = peer.create()
    subject = f"{name.lower()}.1"
    assert peer.publish(subject, b"x") == b'{"stream":"%s","seq":1}' % name.encode()
    assert peer.publish(subject, b"x", b"Nats-Msg-Id: a") == (
        b'{"stream":"%s","seq":2}' % name.encode()
    )
    assert peer.publish(subject, b"y", b"Nats-Msg-Id: a") == (
        b'{"stream":"%s","seq":2,"duplicate": true}' % name.encode()
    )
    assert peer.publish(subject, b"", b"Nats-Expected-Stream: B") == (
        b'{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"},'
        b'"stream":"%s","seq":0}' % name.encode()
    )


def test_first_of_two_faults_is_named_and_limits_come_last(peer: Publisher) -> None:
    name = peer.create(discard="new", max_msgs=1)
    subject = f"{name.lower()}.1"
    peer.publish(subject, b"", b"Nats-Msg-Id: known")
    for fault, (header, code) in FAULTS.items():
        assert peer.refusal(subject, b"", header)[0] == code, fault
    for first, second in itertools.combinations(FAULTS, 2):
        if {first, second} not in EXCLUSIVE:
            header = FAULTS[second][0] + b"\r\n" + FAULTS[first][0]
            assert peer.refusal(subject, b"", header)[0] == FAULTS[first][1], (first, second)
    assert peer.refusal(subject, b"", b"A: b") == (10077, "maximum messages exceeded")


def test_size_is_checked_before_headers(peer: Publisher) -> None:
    name = peer.create(max_msg_size=100)
    subject = f"{name.lower()}.1"
    text = "message size exceeds maximum allowed"
    assert peer.refusal(subject, b"x" * 101) == (10054, text)
    assert peer.refusal(subject, b"x" * 90, b"Nats-Batch-Id: b") == (10054, text)
    assert peer.refusal(subject, b"x" * 82, b"A: b") == (0, "")
    assert peer.refusal(subject, b"x" * 83, b"A: b") == (10054, text)


def test_sealed_stream_refuses_everything(peer: Publisher) -> None:
    name = peer.create()
    subject = f"{name.lower()}.1"
    peer.publish(subject, b"", b"Nats-Msg-Id: known")
    peer.update(name, sealed=True)
    for fault in FAULTS:
        found = peer.refusal(subject, b"", FAULTS[fault][0])
        assert found == (10109, "invalid operation on sealed stream"), fault


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b"Nats-Expected-Last-Sequence: abc", "wrong last sequence: 2"),
        (b"Nats-Expected-Last-Sequence: -1", "wrong last sequence: 2"),
        (b"Nats-Expected-Last-Sequence: 0", "wrong last sequence: 2"),
        (b"Nats-Expected-Last-Sequence: 2 ", "wrong last sequence: 2"),
        (b"Nats-Expected-Last-Subject-Sequence: 2", "wrong last sequence: 1"),
        (b"Nats-Expected-Last-Subject-Sequence: q", "wrong last sequence: 1"),
        (b"Nats-Expected-Last-Msg-Id: one", "wrong last msg ID: two"),
        (b"Nats-Rollup: sub", "rollup not permitted"),
        (b"Nats-Rollup: other", "rollup not permitted"),
    ],
)
def test_texts_of_expectations(peer: Publisher, header: bytes, text: str) -> None:
    subject = peer.create().lower()
    peer.publish(f"{subject}.1", b"", b"Nats-Msg-Id: one")
    peer.publish(f"{subject}.2", b"", b"Nats-Msg-Id: two")
    assert peer.refusal(f"{subject}.1", b"", header)[1] == text


def test_subject_of_an_expectation_may_be_another_or_a_pattern(peer: Publisher) -> None:
    subject = peer.create().lower()
    peer.publish(f"{subject}.1")
    peer.publish(f"{subject}.2")

    def expecting(seq: int, pattern: str) -> tuple[int, str]:
        return peer.refusal(
            f"{subject}.1",
            b"",
            b"Nats-Expected-Last-Subject-Sequence: %d\r\n"
            b"Nats-Expected-Last-Subject-Sequence-Subject: %s" % (seq, pattern.encode()),
        )

    assert expecting(1, f"{subject}.*") == (10071, "wrong last sequence: 2")
    assert expecting(1, f"{subject}..2") == (10071, "wrong last sequence: 0")
    assert expecting(2, f"{subject}.*") == (0, "")
    assert expecting(0, "elsewhere") == (0, "")


@pytest.mark.parametrize(
    "header",
    [
        b"Nats-Expected-Last-Sequence: ",
        b"Nats-Expected-Stream:",
        b"Nats-Expected-Last-Msg-Id: ",
        b"Nats-Rollup: ",
        b"Nats-TTL: ",
        b"Nats-Batch-Sequence: 1",
        b"Nats-Batch-Commit: 1",
        b"Nats-Schedule-Target: a",
        b"Nats-Marker-Reason: MaxAge",
        b"nats-expected-stream: OTHER",
        b" Nats-Expected-Stream: OTHER",
    ],
)
def test_header_that_says_nothing_is_no_hindrance(peer: Publisher, header: bytes) -> None:
    name = peer.create()
    assert peer.refusal(f"{name.lower()}.1", b"", header) == (0, "")


def test_ids_are_compared_byte_for_byte(peer: Publisher) -> None:
    subject = f"{peer.create().lower()}.1"

    def is_new(header: bytes) -> bool:
        return b"duplicate" not in peer.publish(subject, b"", header)

    assert is_new(b"Nats-Msg-Id: a")
    assert is_new(b"Nats-Msg-Id: a ")
    assert is_new(b"Nats-Msg-Id: A")
    assert is_new(b"nats-msg-id: a")
    assert is_new(b"Nats-Msg-Id:\ta")
    assert is_new(b"X: Nats-Msg-Id: a")
    assert is_new(b"Nats-Msg-Id: ")
    assert is_new(b"Nats-Msg-Id: ")
    assert not is_new(b"Nats-Msg-Id:a")
    assert not is_new(b"Nats-Msg-Id:   a")
    assert is_new(b"Nats-Msg-Id: first\r\nNats-Msg-Id: second")
    assert is_new(b"Nats-Msg-Id: second")
    assert not is_new(b"Nats-Msg-Id: first")


def test_id_can_be_used_again_after_the_window(peer: Publisher) -> None:
    subject = f"{peer.create(duplicate_window=100_000_000).lower()}.1"
    begin = time.monotonic()
    assert json.loads(peer.publish(subject, b"", b"Nats-Msg-Id: a"))["seq"] == 1
    while "duplicate" in (reply := json.loads(peer.publish(subject, b"", b"Nats-Msg-Id: a"))):
        assert time.monotonic() - begin < WAIT_SECONDS
    assert reply["seq"] == 2
    assert time.monotonic() - begin >= 0.1


def test_last_id_outlives_its_message(peer: Publisher) -> None:
    name = peer.create()
    subject = f"{name.lower()}.1"
    peer.publish(subject, b"", b"Nats-Msg-Id: one")
    peer.publish(subject, b"", b"Nats-Msg-Id: two")
    peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": 2})
    wrong = b"Nats-Expected-Last-Msg-Id: zz"
    assert peer.refusal(subject, b"", wrong)[1] == "wrong last msg ID: two"
    assert b'"duplicate"' in peer.publish(subject, b"", b"Nats-Msg-Id: two")
    peer.api(f"STREAM.PURGE.{name}")
    assert peer.refusal(subject, b"", wrong)[1] == "wrong last msg ID: two"
    assert b'"duplicate"' in peer.publish(subject, b"", b"Nats-Msg-Id: one")
    peer.publish(subject)
    assert peer.refusal(subject, b"", wrong)[1] == "wrong last msg ID: "


def test_refused_message_leaves_no_id(peer: Publisher) -> None:
    subject = f"{peer.create(discard='new', max_msgs=1).lower()}.1"
    peer.publish(subject)
    for _ in range(2):
        assert peer.refusal(subject, b"", b"Nats-Msg-Id: a")[0] == 10077


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (b"NATS/1.0 503 Hello\r\nA: b\r\n\r\n", "TkFUUy8xLjANCkE6IGINCg0K"),
        (b"NATS/1.0 503\r\n\r\n", None),
        (b"NATS/1.0\r\n\r\n", "TkFUUy8xLjANCg0K"),
        (b"NATS/1.0\r\nA: b\r\nNats-Request-Info: {}\r\n\r\n", "TkFUUy8xLjANCkE6IGINCg0K"),
        (b"NATS/1.0\r\nNats-Request-Info: {}\r\n\r\n", None),
    ],
)
def test_header_is_stored_without_status_and_requester(
    peer: Publisher, sent: bytes, stored: str | None
) -> None:
    name = peer.create()
    peer.publish(f"{name.lower()}.1", b"x", sent)
    message = peer.api(f"STREAM.MSG.GET.{name}", {"seq": 1})["message"]
    assert message.get("hdrs") == stored


def test_no_ack_stream_says_nothing(peer: Publisher) -> None:
    name = peer.create(no_ack=True)
    peer.send(f"{name.lower()}.1", b"x")
    peer.send(f"{name.lower()}.1", b"x", b"Nats-Expected-Stream: OTHER")
    peer.send(f"{name.lower()}.2", b"x")
    # No answer says when they are stored; the third is behind the other two.
    wait_for(lambda: peer.state(name).get("num_subjects") == 2, "the third message is stored")
    peer.client.ping()
    assert peer.state(name)["messages"] == 2


def test_subject_of_no_stream_has_no_responders(peer: Publisher) -> None:
    assert peer.publish("nowhere.to.go").startswith(b"NATS/1.0 503\r\n")


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("1", 0),
        ("1s", 0),
        ("1.5s", 0),
        ("1h1m", 0),
        ("never", 0),
        ("NEVER", 0),
        ("", 0),
        ("0", 10165),
        ("-1", 10165),
        ("500ms", 10165),
        ("abc", 10165),
        ("5 ", 10165),
        ("+5", 10165),
    ],
)
def test_time_to_live_values(peer: Publisher, value: str, code: int) -> None:
    name = peer.create(allow_msg_ttl=True)
    assert peer.refusal(f"{name.lower()}.1", b"", b"Nats-TTL: " + value.encode())[0] == code
