"""The output that a client receives, cut into lines and messages."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    """A message as it arrived."""

    subject: str
    sid: str
    reply: str
    header: bytes
    payload: bytes

    @property
    def status(self) -> str:
        """The text after NATS/1.0."""
        return self.header.partition(b"\r\n")[0].removeprefix(b"NATS/1.0").strip().decode()

    @property
    def lines(self) -> dict[str, str]:
        """The header lines."""
        lines = self.header.decode().split("\r\n")[1:]
        return dict(line.split(": ", 1) for line in lines if line)

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """(deliveries, stream sequence, consumer sequence, pending) of the ack subject."""
        tokens = self.reply.split(".")
        assert tokens[:2] == ["$JS", "ACK"]
        assert len(tokens) == 9
        return int(tokens[4]), int(tokens[5]), int(tokens[6]), int(tokens[8])


def frames(output: bytes) -> list[bytes]:
    """The lines and messages of a stream that holds whole ones only; fails if it is malformed."""
    result = []
    while output:
        end = output.index(b"\r\n") + 2
        if re.match(rb"H?MSG ", output):
            end += int(output[: end - 2].rsplit(b" ", 1)[1]) + 2
            assert output[end - 2 : end] == b"\r\n"
        result.append(output[:end])
        output = output[end:]
    return result
