"""Waiting for mirrors and sources, which both servers fill in their own time."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from conformance.helpers_publish import Publisher
from harness import wait_for


def wait_for_last(peer: Publisher, name: str, last_seq: int) -> dict[str, Any]:
    """The state of a stream when it has this last sequence."""

    def state() -> dict[str, Any] | None:
        found = peer.state(name)
        assert found["last_seq"] <= last_seq, found
        return found if found["last_seq"] == last_seq else None

    reached: dict[str, Any] = wait_for(state)
    return reached


def message(peer: Publisher, name: str, seq: int) -> dict[str, Any]:
    """A stored message with its header block and payload as text, as soon as it can be read."""
    found: dict[str, Any] = wait_for(
        lambda: peer.api(f"STREAM.MSG.GET.{name}", {"seq": seq}).get("message")
    )
    for part in ("hdrs", "data"):
        if part in found:
            found[part] = b64decode(found[part]).decode()
    return found


def messages(peer: Publisher, name: str) -> list[dict[str, Any]]:
    """All messages of a stream."""
    return [message(peer, name, seq) for seq in peer.sequences(name)]


def source_fields(found: dict[str, Any]) -> list[str]:
    """The origin fields of a copy, without the identity of its stream."""
    lines = found["hdrs"].split("\r\n")
    values = [line.partition(": ")[2] for line in lines if line.startswith("Nats-Stream-Source:")]
    assert len(values) == 1, lines
    fields: list[str] = values[0].split(" ")
    assert len(fields) == 6, fields
    assert len(fields[5]) == 8, fields
    return fields[:5]
