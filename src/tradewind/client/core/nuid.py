"""Short unique ids for inboxes and names: 12 random characters, then a counter of 10.

Owns the format that all NATS clients use: 22 digits and letters.
"""

from __future__ import annotations

import itertools
import os
import secrets
from typing import Final

DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
PREFIX_LENGTH: Final = 12
COUNTER_LENGTH: Final = 10


def encode(number: int, length: int) -> str:
    """`number` in base 62 with exactly `length` digits; the highest ones are cut off."""
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(DIGITS[digit])
    return "".join(reversed(digits))


class Nuid:
    """Gives a new id per call; safe to use from several threads."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._prefix = "".join(secrets.choice(DIGITS) for _ in range(PREFIX_LENGTH))
        # Steps of a random odd size hide how many ids were made, and never repeat within 62**10.
        step = 33 + 2 * secrets.randbelow(150)
        self._counter = itertools.count(secrets.randbelow(62**COUNTER_LENGTH), step)

    def next(self) -> str:
        """An id that no other call gives, nor one in a process that was forked off."""
        if self._process != os.getpid():
            self._begin()
        return self._prefix + encode(next(self._counter), COUNTER_LENGTH)
