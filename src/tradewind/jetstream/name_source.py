"""Names that the server generates: ids of events and pins, subjects of backups, names of consumers.

Owns their alphabet and length. Some of these names grant access: the holder of a pin receives the
messages, and the subject of a restore accepts the contents of a stream. `chance` is therefore the
operating system's random source; only tests pass their own, to get reproducible names.
"""

from __future__ import annotations

import random
from typing import Final

from tradewind.store.format.layout import DIGITS

CONSUMER_NAME_LENGTH: Final = 8
EVENT_ID_LENGTH: Final = 22


class NameSource:
    """A source of names that are practically unique and cannot be predicted."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def event_id(self) -> str:
        """The id of an advisory or a pin, or the end of a subject."""
        return self._make(EVENT_ID_LENGTH)

    def consumer(self) -> str:
        """A name for a consumer whose creator gave none."""
        return self._make(CONSUMER_NAME_LENGTH)

    def _make(self, length: int) -> str:
        number = self._chance.randrange(len(DIGITS) ** length)
        digits = []
        for _ in range(length):
            number, digit = divmod(number, len(DIGITS))
            digits.append(DIGITS[digit])
        return "".join(digits)
