"""The numbers of counters: in headers, in acknowledgements, and in stored messages.

Owns their format. They may have more digits than `int` accepts from a text.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import msgspec

from tradewind.client.errors import BadAnswerError
from tradewind.errors import JSON_ERRORS

INCREMENT_HEADER = "Nats-Incr"


class _CounterBody(msgspec.Struct):
    """The payload of a message of a counter."""

    val: str


def increment_text(by: int) -> str:
    """An increment as its header says it."""
    return f"{Decimal(by):f}"


def number_in(text: str) -> int:
    """The number of an acknowledgement; BadAnswerError if it is none."""
    try:
        return int(Decimal(text))
    except (InvalidOperation, ValueError, OverflowError):
        raise BadAnswerError(f"counter: {text[:40]!r} is not a number") from None


def number_of(payload: bytes) -> int:
    """The number in a stored message; BadAnswerError if it is none."""
    try:
        return number_in(msgspec.json.decode(payload, type=_CounterBody).val)
    except JSON_ERRORS:
        raise BadAnswerError("counter: the last message of the subject is not a counter") from None
