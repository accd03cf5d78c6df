"""Consumers whose messages are acknowledged by answers to flow control, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from client_frames import Frame
from conformance.helpers_consumer import Peer, floors
from conformance.helpers_js import ApiClient
from harness import ServerProcess


@pytest.fixture
def peer(js_server: ServerProcess, js: ApiClient) -> Iterator[Peer]:
    peer = Peer(js_server, js)
    yield peer
    peer.raw.close()


def flow_consumer(peer: Peer, **config: object) -> None:
    peer.consumer(ack_policy="flow_control", deliver_subject="out", **config)
    peer.subscribe("out")


def until_question(peer: Peer) -> tuple[list[Frame], Frame]:
    """The messages up to the next question of flow control, and that question."""
    messages = []
    while (frame := peer.next()).status != "100 FlowControl Request":
        if frame.status != "100 Idle Heartbeat":
            messages.append(frame)
    return messages, frame


def answer(peer: Peer, question: Frame, stream_seq: int, consumer_seq: int | None) -> None:
    header = f"NATS/1.0\r\nNats-Last-Stream: {stream_seq}\r\n"
    if consumer_seq is not None:
        header += f"Nats-Last-Consumer: {consumer_seq}\r\n"
    header += "\r\n"
    size = len(header)
    peer.raw.send(f"HPUB {question.reply} {size} {size}\r\n{header}\r\n")


def test_an_answer_acknowledges_all_messages_up_to_its_sequence(peer: Peer) -> None:
    peer.stream("a", "b", "c", "d")
    flow_consumer(peer, max_ack_pending=3)
    messages, question = until_question(peer)
    # As many as may be unacknowledged: the question comes at once.
    assert [frame.numbers for frame in messages] == [(1, 1, 1, 3), (1, 2, 2, 2), (1, 3, 3, 1)]
    assert peer.info()["num_ack_pending"] == 3
    answer(peer, question, 2, 2)
    info = peer.wait_info(lambda info: info["ack_floor"]["stream_seq"] == 2)
    assert floors(info)[1] == (2, 2)
    messages, question = until_question(peer)
    assert [frame.numbers for frame in messages] == [(1, 4, 4, 0)]
    answer(peer, question, 4, 4)
    info = peer.wait_info(lambda info: info["num_ack_pending"] == 0)
    assert floors(info) == ((4, 4), (4, 4))


def test_a_question_comes_with_the_heartbeat_while_anything_is_unacknowledged(peer: Peer) -> None:
    peer.stream("a")
    flow_consumer(peer)
    messages, question = until_question(peer)
    assert len(messages) == 1
    answer(peer, question, 1, 1)
    peer.wait_info(lambda info: info["num_ack_pending"] == 0)


def test_an_answer_without_headers_acknowledges_nothing(peer: Peer) -> None:
    peer.stream("a", "b")
    flow_consumer(peer, max_ack_pending=2)
    _, question = until_question(peer)
    peer.publish(question.reply)
    _, second = until_question(peer)  # the first one was answered
    assert second.reply != question.reply
    assert peer.info()["num_ack_pending"] == 2
    answer(peer, second, 2, 2)
    peer.wait_info(lambda info: info["num_ack_pending"] == 0)


def test_only_the_newest_question_can_be_answered(peer: Peer) -> None:
    peer.stream("a", "b")
    flow_consumer(peer, max_ack_pending=2)
    _, old = until_question(peer)
    peer.publish(old.reply)
    _, new = until_question(peer)
    answer(peer, old, 2, 2)
    assert peer.info()["num_ack_pending"] == 2
    answer(peer, new, 1, 1)
    assert floors(peer.wait_info(lambda info: info["num_ack_pending"] == 1))[1] == (1, 1)


def test_plain_acknowledgements_reach_nobody(peer: Peer) -> None:
    peer.stream("a")
    flow_consumer(peer)
    messages, question = until_question(peer)
    peer.subscribe("inbox", "2")
    peer.publish(messages[0].reply, b"+ACK", "inbox")
    while (frame := peer.next()).status == "100 Idle Heartbeat":
        pass
    assert frame.status == "503"
    assert peer.info()["num_ack_pending"] == 1
    answer(peer, question, 1, 1)
    peer.wait_info(lambda info: info["num_ack_pending"] == 0)


def test_what_an_answer_acknowledges_leaves_a_work_queue(peer: Peer) -> None:
    peer.stream("a", "b", "c", retention="workqueue")
    flow_consumer(peer)
    _, question = until_question(peer)
    answer(peer, question, 2, 2)
    peer.wait_messages(1)


def test_what_was_lost_comes_again_after_a_reset(peer: Peer, js: ApiClient) -> None:
    peer.stream("a", "b")
    flow_consumer(peer, max_ack_pending=2)
    _, question = until_question(peer)
    answer(peer, question, 1, 1)
    peer.wait_info(lambda info: info["num_ack_pending"] == 1)
    js.done("CONSUMER.RESET.S.C")
    messages, question = until_question(peer)
    assert [frame.numbers for frame in messages] == [(1, 2, 1, 0)]
    answer(peer, question, 2, 1)
    peer.wait_info(lambda info: info["num_ack_pending"] == 0)


def test_a_consumer_that_acknowledges_all_is_asked_by_its_window_only(peer: Peer) -> None:
    peer.stream("a", "b")
    peer.consumer(
        ack_policy="all",
        deliver_subject="out",
        flow_control=True,
        idle_heartbeat=200_000_000,
        max_ack_pending=2,
    )
    peer.subscribe("out")
    frames = [peer.next() for _ in range(4)]
    assert [frame.status for frame in frames[2:]] == ["100 Idle Heartbeat"] * 2


@pytest.mark.parametrize("flow_control", [False, True])
def test_an_ack_of_what_was_never_sent_is_taken_with_flow_control_only(
    peer: Peer, flow_control: bool
) -> None:
    peer.stream("a")
    settings = {"flow_control": True, "idle_heartbeat": 10_000_000_000} if flow_control else {}
    peer.consumer(ack_policy="all", deliver_subject="out", **settings)
    peer.subscribe("out")
    assert peer.next().numbers == (1, 1, 1, 0)
    peer.subscribe("inbox", "2")
    peer.publish("$JS.ACK.S.C.1.9.9.0.0", b"", "inbox")
    if flow_control:
        assert peer.next().subject == "inbox"
    else:
        assert peer.nothing_came()
    peer.wait_info(lambda info: info["num_ack_pending"] == (not flow_control))
