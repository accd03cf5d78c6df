"""Headers of dead letters, and what a stream says of itself."""

from __future__ import annotations

from typing import Any

from engine_kit import Peer


def info(peer: Peer, stream: str = "S") -> dict[str, Any]:
    return peer.api(f"CONSUMER.INFO.{stream}.c")


def header_of(peer: Peer, stream: str, seq: int) -> dict[str, str]:
    import base64

    found = peer.api(f"STREAM.MSG.GET.{stream}", {"seq": seq})["message"]["hdrs"]
    lines = base64.b64decode(found).decode().split("\r\n")[1:-2]
    return dict(line.split(": ", 1) for line in lines)
