"""What a client receives, cut into lines and messages."""

from __future__ import annotations

import re


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
