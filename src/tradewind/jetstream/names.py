"""Names that the server makes up: ids of events, names of consumers.

Owns their alphabet and length. Randomness comes from a seed, so that a test sees the same names.
"""

from __future__ import annotations

import random
from typing import Final

DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
CONSUMER_NAME_LENGTH: Final = 8
EVENT_ID_LENGTH: Final = 22


class Names:
    """A source of names that do not repeat within the life of a server, for all one can tell."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - unique is enough, they guard nothing

    def event_id(self) -> str:
        """The id of an advisory."""
        return self._make(EVENT_ID_LENGTH)

    def consumer(self) -> str:
        """A name for a consumer whose creator gave none."""
        return self._make(CONSUMER_NAME_LENGTH)

    def _make(self, length: int) -> str:
        return "".join(self._random.choices(DIGITS, k=length))
