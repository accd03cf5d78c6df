"""Messages: status, metadata of consumers, acknowledgements."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from client_probe import Probe

from tradewind.client.core.message import Msg
from tradewind.client.errors import (
    AlreadyAcknowledgedError,
    BadHeaderError,
    NoReplyError,
    NotJetStreamError,
    OptionsError,
)

SHORT = "$JS.ACK.ORDERS.worker.2.10.5.1700000000123456789.7"
LONG = "$JS.ACK.hub.ACCHASH.ORDERS.worker.2.10.5.1700000000123456789.7"
LONG_WITH_TOKEN = "$JS.ACK._.ACCHASH.ORDERS.worker.2.10.5.1700000000123456789.7.rnd"


def receive(reply: str = "", header: bytes = b"", body: bytes = b"") -> tuple[Probe, Msg]:
    probe = Probe()
    queue = probe.add()
    total = len(header) + len(body)
    words = f"orders.1 1 {reply}".rstrip().encode()
    if header:
        line = b"HMSG %s %d %d" % (words, len(header), total)
    else:
        line = b"MSG %s %d" % (words, total)
    probe.wire.feed(b"%s\r\n%s%s\r\n" % (line, header, body))
    message = queue.take()
    assert message is not None
    return probe, message


@pytest.mark.parametrize(("reply", "domain"), [(SHORT, ""), (LONG, "hub"), (LONG_WITH_TOKEN, "")])
def test_metadata_of_a_delivered_message(reply: str, domain: str) -> None:
    metadata = receive(reply)[1].metadata
    assert (metadata.stream, metadata.consumer, metadata.domain) == ("ORDERS", "worker", domain)
    assert (metadata.delivered_count, metadata.stream_sequence) == (2, 10)
    assert (metadata.consumer_sequence, metadata.pending_count) == (5, 7)
    assert metadata.timestamp_ns == 1700000000123456789
    assert metadata.timestamp == datetime.datetime(
        2023, 11, 14, 22, 13, 20, 123456, tzinfo=datetime.UTC
    )


@pytest.mark.parametrize("delay", [-1, float("nan"), "soon", True, datetime.timedelta(days=-1)])
def test_a_delay_that_cannot_be_leaves_the_message_open(delay: Any) -> None:
    probe, message = receive(SHORT)
    with pytest.raises(OptionsError, match=r"^delay must .*; numbers are seconds$"):
        message.nak(delay)
    assert not message.is_settled
    assert probe.wire.take_output() == b""


@pytest.mark.parametrize("reply", ["", "_INBOX.1", "$JS.ACK.a.b", SHORT.replace(".10.", ".x.")])
def test_other_messages_have_no_metadata(reply: str) -> None:
    with pytest.raises(NotJetStreamError):
        _ = receive(reply)[1].metadata


@pytest.mark.parametrize(
    ("call", "payload"),
    [
        (lambda message: message.ack(), b"+ACK"),
        (lambda message: message.nak(), b"-NAK"),
        (lambda message: message.nak(delay=1.5), b'-NAK {"delay": 1500000000}'),
        (
            lambda message: message.nak(delay=datetime.timedelta(minutes=1)),
            b'-NAK {"delay": 60000000000}',
        ),
        (lambda message: message.nak("250ms"), b'-NAK {"delay": 250000000}'),
        (lambda message: message.term(), b"+TERM"),
        (lambda message: message.term("bad order"), b"+TERM bad order"),
    ],
)
def test_message_is_settled_once(call: object, payload: bytes) -> None:
    probe, message = receive(SHORT)
    message.working()
    assert not message.is_settled
    call(message)  # type: ignore[operator]
    assert message.is_settled
    assert probe.wire.take_output() == (
        b"PUB %s 4\r\n+WPI\r\n" % SHORT.encode()
        + b"PUB %s %d\r\n%s\r\n" % (SHORT.encode(), len(payload), payload)
    )
    with pytest.raises(AlreadyAcknowledgedError):
        message.ack()
    assert probe.wire.take_output() == b""


def test_message_without_reply_cannot_be_answered() -> None:
    message = receive()[1]
    with pytest.raises(NoReplyError):
        message.ack()
    with pytest.raises(NoReplyError):
        message.respond(b"")


@pytest.mark.parametrize(
    ("header", "status", "description"),
    [
        (b"NATS/1.0 503\r\n\r\n", 503, ""),
        (
            b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\n\r\n",
            409,
            "Message Size Exceeds MaxBytes",
        ),
        (b"NATS/1.0\r\nA: 1\r\n\r\n", 0, ""),
        (b"NATS/1.0 abc\r\n\r\n", 0, ""),
        (b"", 0, ""),
    ],
)
def test_status_of_a_message_of_the_server(header: bytes, status: int, description: str) -> None:
    message = receive("", header)[1]
    assert (message.status, message.description) == (status, description)


def test_messages_cannot_be_made_by_hand() -> None:
    with pytest.raises(TypeError, match="made by the library"):
        Msg()


def test_a_refusal_names_its_reason_in_a_header() -> None:
    probe, message = receive(SHORT)
    with pytest.raises(BadHeaderError, match="1 to 32 letters"):
        message.nak(reason="too busy\r\n")
    message.nak(reason="busy")
    assert probe.wire.take_output() == (
        b"HPUB %s 40 44\r\nNATS/1.0\r\nTradewind-Nak-Reason: busy\r\n\r\n-NAK\r\n" % SHORT.encode()
    )
    with pytest.raises(AlreadyAcknowledgedError):
        message.nak(reason="busy")
