"""Nothing comes before its time, as measured by the client that asked for it.

Each test takes the time before it sends a request, and again when it has seen the effect: whatever
the load of the machine, that is no less than what was asked for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from conformance.helpers_publish import Publisher
from harness import wait_for

MS = 1_000_000


def filled(peer: Publisher, **config: Any) -> str:
    """A stream with a message."""
    name = peer.create(storage="memory", **config)
    assert b'"seq"' in peer.publish(f"{name.lower()}.a", b"x")
    return name


def consumer(peer: Publisher, stream: str, **config: Any) -> None:
    body = {"stream_name": stream, "config": {"name": "C", "ack_policy": "explicit", **config}}
    answer = peer.api(f"CONSUMER.CREATE.{stream}.C", body)
    assert "error" not in answer, answer


def pull(peer: Publisher, stream: str, **request: int) -> float:
    """Ask for messages; gives the time before."""
    body = {"expires": 20_000 * MS, **request}
    before = time.monotonic()
    peer.send(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.C", json.dumps(body).encode())
    return before


def delivered(peer: Publisher, count: int) -> str:
    """Wait for the delivery of the message with this number; gives its ack subject."""
    line, _, _ = peer.client.read_message()
    ack = line.split()[3]
    assert ack.split(".")[4] == str(count), line
    return str(ack)


def passed_ms(before: float) -> float:
    return (time.monotonic() - before) * 1000


def seen_ms(before: float, effect: Callable[[], bool]) -> float:
    wait_for(effect)
    return passed_ms(before)


def test_redelivery_waits_for_the_ack_wait(peer: Publisher) -> None:
    stream = filled(peer)
    consumer(peer, stream, ack_wait=80 * MS)
    before = pull(peer, stream, batch=3)
    for count in (1, 2, 3):
        delivered(peer, count)
        assert passed_ms(before) >= 80 * (count - 1)


def test_redelivery_waits_for_each_backoff(peer: Publisher) -> None:
    stream = filled(peer)
    consumer(peer, stream, backoff=[40 * MS, 90 * MS], max_deliver=5)
    before = pull(peer, stream, batch=3)
    for count, least_ms in ((1, 0), (2, 40), (3, 130)):
        delivered(peer, count)
        assert passed_ms(before) >= least_ms


def test_redelivery_waits_for_the_delay_of_a_nak(peer: Publisher) -> None:
    stream = filled(peer)
    consumer(peer, stream)
    pull(peer, stream, batch=2)
    nak = f'-NAK {{"delay": {80 * MS}}}'
    ack = delivered(peer, 1)
    before = time.monotonic()
    peer.client.send(f"PUB {ack} {len(nak)}\r\n{nak}\r\n")
    delivered(peer, 2)
    assert passed_ms(before) >= 80


def test_requests_wait_until_they_expire_and_for_heartbeats(peer: Publisher) -> None:
    stream = filled(peer)
    consumer(peer, stream, filter_subject=f"{stream.lower()}.none")
    before = pull(peer, stream, batch=1, expires=100 * MS, idle_heartbeat=40 * MS)
    assert peer.client.read_message()[1].startswith(b"NATS/1.0 100 Idle Heartbeat")
    assert passed_ms(before) >= 40
    while not peer.client.read_message()[1].startswith(b"NATS/1.0 408"):
        pass
    assert passed_ms(before) >= 100


def test_consumers_stay_until_they_are_inactive_for_long_enough(peer: Publisher) -> None:
    stream = filled(peer)
    before = time.monotonic()
    consumer(peer, stream, inactive_threshold=150 * MS)
    assert seen_ms(before, lambda: "error" in peer.api(f"CONSUMER.INFO.{stream}.C")) >= 150


def test_messages_stay_until_they_are_old_enough(peer: Publisher) -> None:
    name = peer.create(storage="memory", max_age=150 * MS, duplicate_window=100 * MS)
    before = time.monotonic()
    peer.publish(f"{name.lower()}.a", b"x")
    assert seen_ms(before, lambda: peer.state(name)["messages"] == 0) >= 150


def test_messages_stay_for_their_time_to_live(peer: Publisher) -> None:
    name = peer.create(storage="memory", allow_msg_ttl=True)
    before = time.monotonic()
    peer.publish(f"{name.lower()}.a", b"x", b"Nats-TTL: 1s")
    assert seen_ms(before, lambda: peer.state(name)["messages"] == 0) >= 1000


def test_message_ids_are_known_for_the_duplicate_window(peer: Publisher) -> None:
    name = peer.create(storage="memory", duplicate_window=150 * MS)

    def is_stored() -> bool:
        answer = peer.publish(f"{name.lower()}.a", b"x", b"Nats-Msg-Id: 1")
        return "duplicate" not in json.loads(answer)

    before = time.monotonic()
    assert is_stored()
    assert seen_ms(before, is_stored) >= 150


def test_scheduled_messages_come_at_their_time(peer: Publisher) -> None:
    name = peer.create(storage="memory", allow_msg_schedules=True)
    subject = name.lower()
    due = datetime.now(UTC) + timedelta(milliseconds=300)
    header = f"Nats-Schedule: @at {due.isoformat()}\r\nNats-Schedule-Target: {subject}.out".encode()
    assert b'"seq"' in peer.publish(f"{subject}.plan", b"x", header)
    wait_for(lambda: f"{subject}.out" in peer.state(name).get("subjects", {}))
    assert datetime.now(UTC) >= due
