"""Publishes and their acknowledgements, against a naive model; no network."""

from __future__ import annotations

import re

import pytest
from client_probe import Probe
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.client.api_errors import StreamStoreFailedError
from tradewind.client.core.message import Msg
from tradewind.client.streams.ack_inbox import AckInbox, PendingAck
from tradewind.client.streams.inbox_owners import AckOwner

REPLY = re.compile(rb"^H?PUB \S+ _INBOX\.p\.(\d+) ", re.MULTILINE)


class Window(AckOwner):
    """Notes what it is told."""

    def __init__(self, probe: Probe) -> None:
        self.inbox = AckInbox(self, probe.wire, "_INBOX.p.")
        self.refused: list[PendingAck] = []
        self.failed: list[PendingAck] = []
        self.acknowledged = 0
        self.inbox.watch(True)

    def _on_refused(self, pending: PendingAck, message: Msg) -> None:
        assert message.status == 503
        self.refused.append(pending)

    def _on_failed(self, pending: PendingAck) -> None:
        self.failed.append(pending)

    def _on_acknowledged(self) -> None:
        self.acknowledged += 1


def answer(sid: int, token: int, body: bytes) -> bytes:
    return b"MSG _INBOX.p.%d %d %d\r\n%s\r\n" % (token, sid, len(body), body)


def no_responders(sid: int, token: int) -> bytes:
    return b"HMSG _INBOX.p.%d %d 16 16\r\nNATS/1.0 503\r\n\r\n\r\n" % (token, sid)


OUTCOME = st.sampled_from(["ack", "error", "nobody", "given up", "silence"])


@settings(max_examples=50, deadline=None)
@given(st.lists(OUTCOME, max_size=20), st.randoms(use_true_random=False))
def test_answers_in_any_order_reach_their_messages(outcomes: list[str], random: object) -> None:
    probe = Probe()
    window = Window(probe)
    sid = probe.wire.register(window.inbox)
    sent = [
        window.inbox.send(f"s.{number}", b"%d" % number, None, 1.0, number % 2 == 0)
        for number in range(len(outcomes))
    ]
    tokens = [int(token) for token in REPLY.findall(probe.wire.take_output())]
    assert len(set(tokens)) == len(outcomes)
    order = list(range(len(outcomes)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for index in order:
        token = tokens[index]
        if outcomes[index] == "ack":
            probe.wire.feed(answer(sid, token, b'{"stream":"S","seq":%d}' % (index + 1)))
            probe.wire.feed(answer(sid, token, b'{"stream":"S","seq":999}'))  # too late
        elif outcomes[index] == "error":
            error = b'{"error":{"code":503,"err_code":10077,"description":"full"},"seq":0}'
            probe.wire.feed(answer(sid, token, error))
        elif outcomes[index] == "nobody":
            probe.wire.feed(no_responders(sid, token))
        elif outcomes[index] == "given up":
            assert window.inbox.fail(sent[index], RuntimeError("late"))
            assert not window.inbox.fail(sent[index], RuntimeError("later"))
    probe.wire.feed(answer(sid, 10**9, b"{}"))
    probe.wire.feed(b"MSG _INBOX.p.x %d 0\r\n\r\n" % sid)
    for index, pending in enumerate(sent):
        if outcomes[index] == "ack":
            ack = pending.ack()
            assert ack is not None
            assert ack.seq == index + 1
        elif outcomes[index] == "error":
            assert isinstance(pending.error, StreamStoreFailedError)
        elif outcomes[index] == "given up":
            assert isinstance(pending.error, RuntimeError)
        else:
            assert not pending.is_done
    waiting = [pending for pending in sent if not pending.is_done]
    assert window.inbox.waiting() == waiting
    assert window.inbox.unacknowledged == len(waiting)
    assert window.inbox.unacknowledged_bytes == sum(len(p.subject) - 2 for p in waiting)
    assert len(window.refused) == outcomes.count("nobody")
    assert len(window.failed) == outcomes.count("error")
    assert window.acknowledged == outcomes.count("ack") + outcomes.count("error")
    assert not probe.errors


def test_a_message_is_sent_again_as_it_was_until_its_outcome_is_known() -> None:
    probe = Probe()
    window = Window(probe)
    sid = probe.wire.register(window.inbox)
    pending = window.inbox.send("s", b"payload", b"NATS/1.0\r\nNats-Msg-Id: a\r\n\r\n", 1.0, True)
    first = probe.wire.take_output()
    window.inbox.send_again(pending)
    assert probe.wire.take_output() == first
    probe.wire.feed(answer(sid, 1, b'{"stream":"S","seq":1,"duplicate":true}'))
    window.inbox.send_again(pending)
    assert probe.wire.take_output() == b""
    ack = pending.ack()
    assert ack is not None
    assert ack.duplicate


def test_a_message_that_cannot_be_sent_is_not_kept() -> None:
    probe = Probe()
    window = Window(probe)
    with pytest.raises(ValueError, match="too long"):
        AckInbox(window, probe.wire, "_INBOX." + "x" * 600 + ".")
    with pytest.raises(Exception, match="needs tokens"):
        window.inbox.send("a b", b"", None, 1.0, False)
    assert window.inbox.unacknowledged == 0
