"""Transactions by hand: a peer that commits, for tests about the engine."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from engine_kit import Peer


def message(subject: str, payload: bytes = b"", **headers: str) -> dict[str, Any]:
    """A member of `publishes`; an underscore in the name of a header is a hyphen."""
    found: dict[str, Any] = {"subject": subject, "payload": base64.b64encode(payload).decode()}
    if headers:
        found["headers"] = {name.replace("_", "-"): value for name, value in headers.items()}
    return found


def ack_of(stream: str, seq: int, *, consumer: str = "c", deliveries: int = 1) -> str:
    """The reply subject of a message whose deliveries were all in order."""
    return f"$JS.ACK.{stream}.{consumer}.{deliveries}.{seq}.{seq}.0.0"


def commit(peer: Peer, publishes: list[dict[str, Any]], acks: Sequence[str] = ()) -> dict[str, Any]:
    """The answer, which must be there at once."""
    answers = peer.ask("$TW.API.COMMIT", {"publishes": publishes, "acks": list(acks)})
    assert len(answers) == 1, answers
    document: dict[str, Any] = json.loads(answers[0][2])
    return document


def stored(peer: Peer, stream: str) -> list[tuple[int, str, bytes]]:
    """(sequence, subject, payload) of all messages."""
    state = peer.api(f"STREAM.INFO.{stream}")["state"]
    found = []
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        answer = peer.api(f"STREAM.MSG.GET.{stream}", {"seq": seq})
        if "message" in answer:
            one = answer["message"]
            found.append((seq, one["subject"], base64.b64decode(one.get("data", ""))))
    return found


def add_consumer(peer: Peer, stream: str, name: str = "c", **config: Any) -> None:
    config = {"durable_name": name, "ack_policy": "explicit", "ack_wait": 30 * 10**9, **config}
    body = {"stream_name": stream, "config": config}
    answer = peer.api(f"CONSUMER.CREATE.{stream}.{name}", body)
    assert "error" not in answer, answer


def pull(peer: Peer, stream: str, count: int, name: str = "c") -> list[bytes]:
    """The payloads of what is there."""
    request = {"batch": count, "no_wait": True}
    found = peer.ask(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", request)
    return [payload for _, header, payload in found if not header.startswith(b"NATS/1.0 4")]
