"""Consumers that push: interest, groups, flow control, heartbeats, pace, and their end."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from conformance.helpers_consumer import MS, Peer, wait_gone
from conformance.helpers_js import ApiClient
from harness import ServerProcess


@pytest.fixture
def peer(js_server: ServerProcess, js: ApiClient) -> Iterator[Peer]:
    peer = Peer(js_server, js)
    yield peer
    peer.raw.close()


def test_messages_are_pushed_when_somebody_subscribes(peer: Peer) -> None:
    peer.stream("a", "b")
    assert "push_bound" not in peer.consumer(deliver_subject="out")
    peer.subscribe("out")
    assert [(frame.subject, frame.numbers) for frame in peer.take(2)] == [
        ("s.a", (1, 1, 1, 1)),
        ("s.b", (1, 2, 2, 0)),
    ]
    assert peer.info()["push_bound"] is True
    peer.store("c")
    assert peer.next().numbers == (1, 3, 3, 0)


@pytest.mark.parametrize(
    ("group", "subject", "queue", "bound"),
    [
        ("", "out.x", "", True),
        ("", "out.*", "", False),
        ("", "out.x", "q", False),
        ("q", "out.x", "q", True),
        ("q", "out.x", "other", False),
        ("q", "out.x", "", False),
    ],
)
def test_what_counts_as_somebody(
    peer: Peer, group: str, subject: str, queue: str, bound: bool
) -> None:
    peer.stream()
    peer.consumer(deliver_subject="out.x", deliver_group=group)
    peer.subscribe(subject, queue=queue)
    if bound:
        peer.wait_info(lambda info: info.get("push_bound", False))
    else:
        peer.store("a")
        assert peer.nothing_came()
        assert "push_bound" not in peer.info()


def test_without_anybody_nothing_counts_as_delivered(peer: Peer) -> None:
    peer.stream()
    peer.consumer(deliver_subject="out")
    peer.subscribe("out")
    peer.wait_info(lambda info: info.get("push_bound", False))
    peer.unsubscribe("1")
    peer.wait_info(lambda info: not info.get("push_bound", False))
    peer.store("a")
    peer.wait_counts((0, 0, 1))
    peer.subscribe("out", "2")
    assert peer.next().numbers == (1, 1, 1, 0)


def test_headers_only(peer: Peer) -> None:
    peer.stream("a")
    peer.consumer(deliver_subject="out", headers_only=True)
    peer.subscribe("out")
    frame = peer.next()
    assert (frame.header, frame.payload) == (b"NATS/1.0\r\nNats-Msg-Size: 1\r\n\r\n", b"")


def test_idle_heartbeats(peer: Peer) -> None:
    peer.stream("a")
    peer.consumer(deliver_subject="out", idle_heartbeat=100 * MS)
    peer.subscribe("out")
    peer.next()
    expected = (
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
    )
    for frame in peer.take(2):
        assert (frame.subject, frame.reply, frame.header) == ("out", "", expected)


def test_flow_control(peer: Peer) -> None:
    peer.stream()
    peer.store(*(["a"] * 30), payload=b"x" * 100_000)
    peer.consumer(deliver_subject="out", flow_control=True, idle_heartbeat=200 * MS)
    peer.subscribe("out")
    frames = []
    while b"Nats-Consumer-Stalled" not in (frame := peer.next()).header:
        if frame.status != "100 Idle Heartbeat":
            frames.append(frame)
    questions = [frame for frame in frames if frame.status == "100 FlowControl Request"]
    assert [frame.header for frame in questions] == [b"NATS/1.0 100 FlowControl Request\r\n\r\n"]
    assert questions[0].reply.startswith("$JS.FC.S.C.")
    # A window of 2 MiB at first: the question comes above half of it, the end above all of it.
    assert frames.index(questions[0]) == 11
    assert len([frame for frame in frames if frame.payload]) == 21
    assert f"Nats-Consumer-Stalled: {questions[0].reply}\r\n".encode() in frame.header
    peer.publish(questions[0].reply)
    left = 9
    while left:
        left -= peer.next().payload != b""
    assert peer.info()["num_pending"] == 0


def test_a_push_consumer_delivers_again(peer: Peer) -> None:
    peer.stream("a")
    peer.consumer(deliver_subject="out", ack_wait=100 * MS)
    peer.subscribe("out")
    assert [frame.numbers for frame in peer.take(3)] == [(1, 1, 1, 0), (2, 1, 2, 0), (3, 1, 3, 0)]


def test_replay_keeps_the_distances_in_time(peer: Peer) -> None:
    peer.stream("a")
    time.sleep(0.3)
    peer.store("b")
    peer.consumer(deliver_subject="out", replay_policy="original")
    begin = time.monotonic()  # not after the first message: who reads it late would wait less
    peer.subscribe("out")
    peer.take(2)
    assert time.monotonic() - begin >= 0.29


def test_a_rate_limit_slows_down(peer: Peer) -> None:
    # The first megabyte is free: the limit lets that much through at once.
    peer.stream()
    peer.store("a", "b", "c", "d", payload=b"x" * 500_000)
    peer.consumer(deliver_subject="out", rate_limit_bps=16_000_000)
    begin = time.monotonic()
    peer.subscribe("out")
    peer.take(4)
    assert time.monotonic() - begin > 0.3


def test_an_ephemeral_without_receiver_goes(peer: Peer, js: ApiClient) -> None:
    peer.stream()
    begin = time.monotonic()
    peer.consumer(deliver_subject="out", inactive_threshold=100 * MS)
    wait_gone(js, begin, 0.1)


def test_a_change_of_the_deliver_subject_sends_pending_messages_there(peer: Peer) -> None:
    peer.stream("a")
    peer.consumer(deliver_subject="out")
    peer.subscribe("out", "old")
    assert peer.next().sid == "old"
    peer.unsubscribe("old")
    peer.wait_info(lambda info: not info.get("push_bound", False))
    peer.consumer(deliver_subject="other")
    peer.subscribe("other", "new")
    frame = peer.next()
    assert (frame.sid, frame.numbers) == ("new", (2, 1, 2, 0))
