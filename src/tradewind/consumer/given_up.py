"""Messages that a consumer gives up, and the receiver of such messages.

Owns the configuration of dead letters of one consumer, and what happens to such a message: a
receiver takes it and acknowledges it when a copy is durable; without a receiver it ends as on a
server without dead letters. Never copies a message.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.dead_letter_rules import (
    EXPIRED,
    MAX_DELIVER,
    TERM,
    DeadLetterSettings,
    dead_letters_of,
)
from tradewind.consumer.delivery import Delivery


class GivenUp(msgspec.Struct, frozen=True):
    """A message that was given up. `reason` is a word of `tradewind.api.dead_letter_rules`; `reply`
    waits for an empty answer. `deliveries` is 0 if it was never delivered.
    """

    seq: int
    deliveries: int
    reason: str
    detail: str = ""
    reply: bytes = b""


class ConsumerDeadLetters:
    """The dead letters of one consumer. `give_up` takes a message; None: messages are not taken,
    whatever the configuration says. `settings` is None for a consumer without dead letters.
    """

    __slots__ = ("_delivery", "_give_up", "settings")

    def __init__(self, delivery: Delivery, give_up: Callable[[GivenUp], None] | None) -> None:
        self._delivery = delivery
        self._give_up = give_up
        self.settings: DeadLetterSettings | None = None

    def configure(self, config: ConsumerConfig) -> None:
        """Apply the settings of a configuration."""
        acks = self._delivery.acks
        self.settings = dead_letters_of(config.metadata)
        acks.keeps_exceeded = self._takes(MAX_DELIVER)
        acks.keep_attempts(self.settings is not None)

    def _takes(self, reason: str) -> bool:
        """Whether messages that are given up for this reason are taken."""
        settings = self.settings
        return settings is not None and reason in settings.on and self._give_up is not None

    @property
    def keeps_expired(self) -> bool:
        """Whether messages are taken that expire before the consumer is done with them."""
        return self._takes(EXPIRED)

    def exceeded(self, seq: int, deliveries: int) -> None:
        """Called when a message was delivered as often as allowed."""
        if self._takes(MAX_DELIVER):
            self._hand_over(GivenUp(seq, deliveries, MAX_DELIVER))

    def terminated(self, seq: int, reason: str, reply: bytes) -> bool:
        """Called when a client terminates a message; true if it is taken, and answered later."""
        acks = self._delivery.acks
        if not self._takes(TERM) or not acks.rest(seq):
            return False
        self._hand_over(GivenUp(seq, acks.deliveries(seq), TERM, reason, reply))
        return True

    def _hand_over(self, given: GivenUp) -> None:
        assert self._give_up is not None
        self._give_up(given)

    def let_go(self, given: GivenUp) -> None:
        """End a message that was given up and not taken, as without dead letters."""
        if given.reason == TERM:
            self._delivery.acknowledge(given.seq, 0, given.deliveries, measures=False)
        else:
            self._delivery.acks.drop(given.seq)
            self._delivery.touch(delivered=False)
