"""Acknowledgements that are more than a plain one: what a client says about a single message.

Owns the delay of refusals, and which acknowledgements are measured. The delivery handles plain ones
by itself, and passes all others on with the numbers of their subject. Never answers: it says
whether the delivery does.

    +NXT [request]    done, and another pull request
    -NAK [delay]      deliver it again
    +WPI              still working on it
    +TERM [reason]    never deliver it again
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from tradewind.api.consumer_types import AckPolicy, ConsumerConfig
from tradewind.api.nak_policy import NakPolicy, nak_policy_of, reason_of
from tradewind.consumer.delivery import Delivery
from tradewind.consumer.given_up import ConsumerDeadLetters
from tradewind.consumer.queued_advisories import QueuedAdvisories
from tradewind.durations import DURATION_NS_MAX, parse_duration_ns


class OtherAcks:
    """Handles the unusual acks of one consumer. `chance` gives numbers from 0 to below 1, for
    randomised delays.

    `_sample_percent` of 100 acknowledgements are measured: each adds that much to `_sample_credit`,
    and one that makes it 100 is measured.
    """

    __slots__ = (
        "_advisories",
        "_backoff_ns",
        "_chance",
        "_dead_letters",
        "_delivery",
        "_flow_acknowledges",
        "_nak_policy",
        "_sample_credit",
        "_sample_percent",
    )

    def __init__(
        self,
        delivery: Delivery,
        advisories: QueuedAdvisories,
        dead_letters: ConsumerDeadLetters,
        chance: Callable[[], float],
    ) -> None:
        self._delivery = delivery
        self._advisories = advisories
        self._dead_letters = dead_letters
        self._chance = chance
        self._nak_policy: NakPolicy | None = None
        self._backoff_ns: Sequence[int] = ()
        self._flow_acknowledges = False
        self._sample_percent = 0
        self._sample_credit = 0

    def configure(self, config: ConsumerConfig) -> None:
        """Apply a configuration to future acknowledgements."""
        self._nak_policy = nak_policy_of(config.metadata)
        self._backoff_ns = config.backoff
        self._flow_acknowledges = config.ack_policy == AckPolicy.FLOW_CONTROL
        self._sample_percent = int(config.sample_freq.rstrip("%") or 0)
        self._delivery.samples = self._sample_percent > 0

    def other_ack(
        self,
        seq: int,
        consumer_seq: int,
        deliveries: int,
        payload: bytes,
        reply: bytes,
        header: bytes,
    ) -> bool:
        """See `DeliveryOwner`."""
        delivery = self._delivery
        if payload.startswith(b"+NXT"):
            delivery.acknowledge(seq, consumer_seq, deliveries)
            if reply:
                delivery.queue_request(reply, b"", payload[4:])
            return False
        if payload.startswith(b"-NAK"):
            self._nak(seq, consumer_seq, deliveries, payload[4:], header)
        elif payload == b"+WPI":
            if delivery.acks.progress(seq, delivery.turn.monotonic_ns):
                delivery.touch(delivered=True)
        elif payload.startswith(b"+TERM"):
            reason = payload[5:].strip().decode("utf-8", "replace")
            return self._terminate(seq, consumer_seq, deliveries, reason, reply)
        return True

    def _terminate(
        self, seq: int, consumer_seq: int, deliveries: int, reason: str, reply: bytes
    ) -> bool:
        """Terminate a message: it is acknowledged, or taken as a dead letter and answered later."""
        answers = False
        if not self._dead_letters.terminated(seq, reason, reply):
            answers = self._delivery.acknowledge(seq, consumer_seq, deliveries, measures=False)
        self._advisories.add(
            "terminated",
            consumer_seq=consumer_seq,
            stream_seq=seq,
            deliveries=deliveries,
            reason=reason,
        )
        return answers

    def _nak(
        self, seq: int, consumer_seq: int, deliveries: int, argument: bytes, header: bytes
    ) -> None:
        delivery = self._delivery
        delay_ns = nak_delay_ns(argument)
        if delay_ns is None:
            delay_ns = -1
        told: dict[str, object] = {}
        if self._nak_policy is not None:
            reason = reason_of(header)
            if delay_ns < 0:
                delay_ns = self._policy_delay_ns(seq, reason)
            told = {"reason": reason, "delay": max(delay_ns, 0)}
        if not delivery.acks.nak(seq, consumer_seq, delay_ns, delivery.turn.monotonic_ns):
            return
        self._advisories.add(
            "nak", consumer_seq=consumer_seq, stream_seq=seq, deliveries=deliveries, **told
        )
        delivery.touch(delivered=delay_ns >= 0)

    def _policy_delay_ns(self, seq: int, reason: str) -> int:
        """The configured delay for a refusal that has none; -1: at once."""
        assert self._nak_policy is not None
        # The deliveries in the subject of the refusal come from a client and are not trusted.
        deliveries = self._delivery.acks.deliveries(seq)
        return self._nak_policy.wait_ns(reason, deliveries, self._backoff_ns, self._chance) or -1

    def sampled(self, seq: int, consumer_seq: int, deliveries: int) -> None:
        """Measure the configured share of acknowledgements; called when a pending message is
        acknowledged.
        """
        self._sample_credit += self._sample_percent
        if self._sample_credit < 100:
            return
        self._sample_credit = max(self._sample_credit - 100, 0) if self._sample_percent < 100 else 0
        delivered_ns = self._delivery.acks.delivered_at(seq)
        self._advisories.add(
            "consumer_ack",
            consumer_seq=consumer_seq,
            stream_seq=seq,
            ack_time=self._delivery.turn.monotonic_ns - delivered_ns,
            deliveries=deliveries,
        )

    def flow_acknowledged(self, header: bytes) -> None:
        """Acknowledge the messages up to the position in an answer to flow control."""
        if not self._flow_acknowledges:
            return
        seq = _header_number(header, b"Nats-Last-Stream")
        if seq > 0:
            consumer_seq = max(_header_number(header, b"Nats-Last-Consumer"), 0)
            self._delivery.acknowledge(seq, consumer_seq, 1)


class _NakOptions(msgspec.Struct):
    delay: int = 0


def nak_delay_ns(argument: bytes) -> int | None:
    """Parse a redelivery delay: -1 at once; None if the argument is invalid."""
    text = argument.strip()
    if not text:
        return -1
    try:
        if text.startswith(b"{"):
            delay_ns: int | None = msgspec.json.decode(text, type=_NakOptions).delay
        else:
            delay_ns = parse_duration_ns(text.decode())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if delay_ns is None else min(max(delay_ns, 0), DURATION_NS_MAX // 4)


def _header_number(header: bytes, name: bytes) -> int:
    """The number in a header line; -1 if there is none."""
    _, found, rest = header.partition(b"\r\n" + name + b":")
    text = rest.partition(b"\r\n")[0].strip()
    return int(text) if found and text.isdigit() and len(text) < 19 else -1
