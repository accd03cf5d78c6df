"""Messages to be read, and answers in short."""

from __future__ import annotations

from typing import Any

from conformance.helpers_publish import Publisher


def six_messages(peer: Publisher, **config: Any) -> str:
    """Messages 1 to 6 on x.1, x.2, x.0, x.1, ..., of which 2 is deleted; gives the stream."""
    name = peer.create(allow_direct=True, **config)
    for number in range(1, 7):
        header = b"H: v" if number % 2 else b""
        peer.publish(f"{name.lower()}.{number % 3}", b"m%d" % number, header)
    assert peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": 2})["success"]
    return name


_SHORT = {
    "Nats-Sequence": "",
    "Nats-Num-Pending": "p",
    "Nats-Last-Sequence": "l",
    "Nats-UpTo-Sequence": "u",
}


def short(answer: list[str]) -> str:
    """A reply in one line: sequence or status, pending, last and up-to sequence, payload."""
    *lines, payload = answer
    words = []
    if lines and lines[0] != "NATS/1.0":
        words.append(lines[0].removeprefix("NATS/1.0 ").removeprefix("204 "))
    for line in lines[1:]:
        name, _, value = line.partition(": ")
        if name in _SHORT:
            words.append(_SHORT[name] + value)
    return " ".join([*words, payload] if payload else words)
