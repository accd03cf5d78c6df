"""A message that a consumer does not want to deliver any more, for whoever takes such messages."""

from __future__ import annotations

import msgspec


class GivenUp(msgspec.Struct, frozen=True):
    """`reason` is a word of `tradewind.api.dead_letter_rules`; `reply` waits for an empty answer.
    `deliveries` is 0 if it was never delivered.
    """

    seq: int
    deliveries: int
    reason: str
    detail: str = ""
    reply: bytes = b""
