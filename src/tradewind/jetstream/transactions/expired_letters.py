"""Dead letters of messages that expire before a consumer is done with them.

Owns which consumers of a stream miss expired messages, and which of its messages are retained after
their expiry, until copies of them are durable. It follows the consumers, not the configuration of
the stream, and is asked until the stream is closed, so it is beside the stream (`SharedState`) and
not a companion.

The copies for all consumers that miss a message, its removal and the marker that it may leave are
one transaction, so that nothing is lost and nothing is stored twice. If a stream refuses its copy,
the message stays, and is tried again later; consumers can still receive it. Other messages expire
meanwhile, as long as not too many are retained.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from tradewind.api import errors
from tradewind.api.dead_letter_rules import EXPIRED
from tradewind.consumer.given_up import GivenUp
from tradewind.errors import StoreError
from tradewind.jetstream.transactions.given_up_letters import (
    DeadLetterProposal,
    Letter,
    NotWantedError,
    sender_of,
)
from tradewind.store.contract import NotFoundError

if TYPE_CHECKING:
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.jetstream.transactions.transaction_planning import TransactionPlan
    from tradewind.store.contract import MessageCopy

# While a stream retains this many expired messages, no other of its messages expires.
HELD_MAX: Final = 4096


class ExpiredLetters:
    """The expired messages of one stream: an `ExpiryKeeper`."""

    def __init__(self, hosted: HostedStream) -> None:
        self._hosted = hosted
        self._keepers: dict[str, ServerConsumer] = {}
        self._held: dict[int, ExpiredProposal] = {}
        # Their letters are safe, and the disk did not let them go.
        self._done: set[int] = set()

    def set_keeper(self, consumer: ServerConsumer, *, is_keeper: bool) -> None:
        """Add or remove a consumer that misses expired messages. Without any, messages expire
        directly.
        """
        if is_keeper:
            self._keepers[consumer.name] = consumer
        else:
            self._keepers.pop(consumer.name, None)
        upkeep = self._hosted.stream.upkeep
        upkeep.keeper = self if self._keepers else None
        upkeep.look_again()

    def save(self) -> None:
        """See `SharedState`: the journal has all that is under way."""

    @property
    def is_full(self) -> bool:
        """See `ExpiryKeeper`."""
        return len(self._held) >= HELD_MAX

    def takes(self, seq: int) -> bool:
        """See `ExpiryKeeper`."""
        if seq in self._held:
            return True
        if seq in self._done:
            return False
        store = self._hosted.stream.store
        if self._hosted.config.sealed and store.leaves_marker(seq):
            return False  # it takes no marker, so the message stays
        try:
            copy = store.get(seq)
        except NotFoundError:
            return False
        if not self.missing(copy):
            return False
        self._held[seq] = proposal = ExpiredProposal(self._hosted, self, seq)
        proposal.owner.enter(proposal)
        return True

    def missing(self, copy: MessageCopy) -> list[ServerConsumer]:
        """The consumers that miss a message."""
        return [
            consumer
            for consumer in self._keepers.values()
            if consumer.dead_letters.keeps_expired and consumer.misses(copy.seq, copy.subject)
        ]

    def let_go(self, seq: int, *, is_done: bool) -> None:
        """Release a message that was removed, or is no longer expired. `is_done`: its letters are
        durable.
        """
        self._held.pop(seq, None)
        store = self._hosted.stream.store
        if not self._hosted.is_attached or not store.is_live(seq):
            return
        if is_done:
            self._done = {each for each in self._done if store.is_live(each)} | {seq}
        self._hosted.stream.upkeep.look_again()


class ExpiredProposal(DeadLetterProposal):
    """The proposal for one expired message, for all consumers that miss it."""

    def __init__(self, hosted: HostedStream, keeper: ExpiredLetters, seq: int) -> None:
        super().__init__(sender_of(hosted.engine), hosted)
        self._keeper = keeper
        self._seq = seq

    @property
    def key(self) -> Hashable:
        """See `DeadLetterProposal`."""
        return self.hosted, self._seq

    def fill(self, plan: TransactionPlan) -> None:
        """See `DeadLetterProposal`."""
        hosted, seq = self.hosted, self._seq
        store = hosted.stream.store
        if not hosted.is_attached or not store.has_expired(seq, hosted.engine.turn.steady_ns()):
            raise NotWantedError
        try:
            copy = store.get(seq)
        except NotFoundError:
            raise NotWantedError from None
        except StoreError as error:
            raise errors.STREAM_STORE_FAILED(err=str(error)) from None
        # One that was acknowledged in the meantime is removed all the same: its time is over.
        self.letters = [
            Letter(consumer, GivenUp(seq, _deliveries(consumer, seq), EXPIRED))
            for consumer in self._keeper.missing(copy)
        ]
        self.letters = [one for one in self.letters if self.add_letter(plan, one, copy)]
        plan.add_expired(hosted, seq, copy.subject)

    def happened(self, plan: TransactionPlan) -> None:
        """See `Proposal`."""
        super().happened(plan)
        self._keeper.let_go(self._seq, is_done=bool(plan.deletes))


def _deliveries(consumer: ServerConsumer, seq: int) -> int:
    return consumer.acks.deliveries(seq) if consumer.acks.is_awaited(seq) else 0
