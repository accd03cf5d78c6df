"""Dead letters: messages that consumers give up, on their way to the stream that stores them.

Owns which messages are on their way and when a refused one is tried again. Each is a transaction of
its own: the copy in the dead-letter stream and the end in the consumer happen together or not at
all, so that nothing is lost and nothing is stored twice, whatever fails. Until then the consumer
retains the message without delivering it: a stream that takes no dead letters holds up only the
consumer, and only when `max_ack_pending` such messages have accumulated.

Loops end: the copy names all consumers that have given it up, and a consumer that finds its own
name there gives the message up without another copy. So does one whose settings no longer ask for
copies. Publishers can write the same headers, so only a list with a seal is trusted, which the
server makes for this content with a key of its own. The key lives as long as the engine: after a
restart, a loop takes one more round.
"""

from __future__ import annotations

import hmac
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable
from hashlib import blake2b
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api import errors, own_errors
from tradewind.api.dead_letter_rules import (
    EVENT_SUBJECT,
    EVENT_TYPE,
    HEADER_PREFIX,
    ORIGINAL_PREFIX,
    DeadLettered,
)
from tradewind.api.errors import ApiError
from tradewind.api.times import format_time
from tradewind.errors import StoreError
from tradewind.jetstream.transactions.account_transactions import transactions_of
from tradewind.jetstream.transactions.transaction_planning import AckPart, TransactionPlan
from tradewind.store.contract import NotFoundError
from tradewind.stream import header_fields
from tradewind.stream.stream_queries import to_text
from tradewind.subjects import is_subset_of_any

if TYPE_CHECKING:
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.consumer.given_up import GivenUp
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.store.contract import MessageCopy

# This many are in transactions at once; the others wait here.
UNDER_WAY_MAX: Final = 256
RETRY_NS_MIN: Final = 1_000_000_000
RETRY_NS_MAX: Final = 60_000_000_000
# A reason in a header; the rest of a longer one is cut off.
DETAIL_CHARACTERS_MAX: Final = 1024
# The name of a client in a header, and what cannot be in a list there.
CLIENT_CHARACTERS_MAX: Final = 64
_UNFIT: Final = re.compile(r"[^\x21-\x2b\x2d-\x7e]{1,4096}")
_PATH: Final = f"{HEADER_PREFIX}Path".encode()
_SEAL: Final = f"{HEADER_PREFIX}Seal".encode()
_KEY_BYTES: Final = 32
_SEAL_BYTES: Final = 16


class NotWantedError(Exception):
    """The message no longer needs to be given up, or no copy of it is wanted."""


class DeadLetterSender:
    """The dead letters of all accounts of an engine."""

    def __init__(self, engine: JetStreamEngine) -> None:
        self._engine = engine
        self._key = engine.broker.chance.getrandbits(8 * _KEY_BYTES).to_bytes(_KEY_BYTES, "big")
        # Proposals that have not ended: no message is given up twice at a time.
        self._known: dict[Hashable, DeadLetterProposal] = {}
        self._ready: deque[DeadLetterProposal] = deque()
        self._later: list[tuple[int, int, DeadLetterProposal]] = []
        self._under_way = 0
        self._number = 0
        self.stored_count = 0
        self.refused_count = 0
        self.dropped_count = 0

    @property
    def waiting_count(self) -> int:
        """The number of messages that consumers retain until their copies are durable."""
        return len(self._known)

    def add(self, hosted: HostedStream, consumer: ServerConsumer, given: GivenUp) -> None:
        """Add a message that a consumer gives up."""
        if (consumer, given.seq) not in self._known:
            self.enter(GivenUpProposal(self, hosted, consumer, given))

    def enter(self, proposal: DeadLetterProposal) -> None:
        """Add a proposal that is not known yet."""
        assert proposal.key not in self._known
        self._known[proposal.key] = proposal
        self._ready.append(proposal)
        # Not now: its owner is in the middle of something.
        self._engine.turn.defer(self._begin_some, b"", b"", b"", b"")

    def _begin_some(self, *_message: bytes) -> None:
        while self._ready and self._under_way < UNDER_WAY_MAX:
            self._under_way += 1
            proposal = self._ready.popleft()
            transactions_of(self._engine, proposal.hosted.tenant).submit(proposal)

    # ------------------------------------------------------------ earlier letters

    def seal(self, account: str, path: str, payload: bytes) -> str:
        """The proof that the server itself has written a path, for a message of this content."""
        digest = blake2b(key=self._key, digest_size=_SEAL_BYTES)
        texts = (text.encode("utf-8", "surrogateescape") for text in (account, path))
        for part in (*texts, payload):
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.hexdigest()

    def path_of(self, account: str, copy: MessageCopy) -> list[str]:
        """The consumers that have given a message up before, each as stream/consumer."""
        path = _field(copy.header, _PATH)
        wanted = self.seal(account, path, copy.payload).encode()
        given = _field(copy.header, _SEAL).encode("utf-8", "surrogateescape")
        if not path or not hmac.compare_digest(given, wanted):
            return []
        return path.split(",")

    # ---------------------------------------------------------------- what becomes of them

    def stored(self, proposal: DeadLetterProposal) -> None:
        """Called when the copies of a message are durable, and the message is done."""
        self.stored_count += len(proposal.letters)
        self._end(proposal)
        for letter in proposal.letters:
            self._tell(proposal.hosted, letter)

    def dropped(self, proposal: DeadLetterProposal, reason: str) -> None:
        """Called when a message no longer exists, or was given up without a copy."""
        self.dropped_count += 1
        self._end(proposal)
        if reason:
            for letter in proposal.letters:
                self._tell(proposal.hosted, letter, reason)

    def refused(self, proposal: DeadLetterProposal, error: ApiError) -> None:
        """Called when a copy was refused: the message stays, and is tried again later."""
        self.refused_count += 1
        self._under_way -= 1
        if proposal.error != error.description:
            proposal.error = error.description
            for letter in proposal.letters:
                self._engine.log.warn(
                    f"JetStream consumer '{proposal.hosted.tenant.name} > {proposal.hosted.name} >"
                    f" {letter.consumer.name}' keeps message {letter.given.seq}: it could"
                    f" not be stored as a dead letter in {letter.target!r}: {error.description}"
                )
                self._tell(proposal.hosted, letter, error.description)
        due_ns = self._engine.turn.monotonic_ns + proposal.next_wait_ns()
        self._number += 1
        heappush(self._later, (due_ns, self._number, proposal))
        self._engine.timers.set(self, due_ns)
        self._begin_some()

    def _end(self, proposal: DeadLetterProposal) -> None:
        self._under_way -= 1
        self._known.pop(proposal.key, None)
        for letter in proposal.letters:
            if letter.given.reply:
                account = proposal.hosted.tenant.account
                account.publish(letter.given.reply.decode("utf-8", "surrogateescape"), b"")
        self._begin_some()

    def _tell(self, hosted: HostedStream, letter: Letter, error: str = "") -> None:
        given = letter.given
        self._engine.advisories.publish(
            hosted.tenant.account,
            f"{EVENT_SUBJECT}.{hosted.name}.{letter.consumer.name}",
            DeadLettered,
            EVENT_TYPE,
            stream=hosted.name,
            consumer=letter.consumer.name,
            stream_seq=given.seq,
            deliveries=given.deliveries,
            reason=given.reason,
            dead_letter_stream=letter.target,
            dead_letter_seq=0 if error else letter.seq,
            error=error,
        )

    # ---------------------------------------------------------------- time

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` has something to do (monotonic); 0: never."""
        return self._later[0][0] if self._later else 0

    def tick(self) -> None:
        """Try the refused messages again."""
        while self._later and self._later[0][0] <= self._engine.turn.monotonic_ns:
            self._ready.append(heappop(self._later)[2])
        self._begin_some()


class Letter(msgspec.Struct):
    """A message that a consumer gives up: `target` is the stream for its copy, and `seq` the
    sequence of the copy, once they are known.
    """

    consumer: ServerConsumer
    given: GivenUp
    target: str = ""
    seq: int = 0


class DeadLetterProposal(ABC):
    """A message that becomes a dead letter of one or several consumers: a `Proposal`."""

    size = 0

    def __init__(self, owner: DeadLetterSender, hosted: HostedStream) -> None:
        self.owner = owner
        self.hosted = hosted
        self.letters: list[Letter] = []
        self.error = ""  # why it was refused last
        self._refusals = 0

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """The key by which the sender finds the proposal."""

    @abstractmethod
    def fill(self, plan: TransactionPlan) -> None:
        """Add the changes to a plan; NotWantedError if none are needed any more."""

    def next_wait_ns(self) -> int:
        """The time until the next attempt, which grows up to a minute."""
        self._refusals += 1
        return min(RETRY_NS_MIN << min(self._refusals - 1, 10), RETRY_NS_MAX)

    def plan(self) -> TransactionPlan:
        """See `Proposal`. A message that is no longer wanted gives an empty plan."""
        plan = TransactionPlan()
        try:
            self.fill(plan)
        except NotWantedError as reason:
            self.error = str(reason)
            return TransactionPlan()
        return plan

    def add_letter(self, plan: TransactionPlan, letter: Letter, copy: MessageCopy) -> bool:
        """Add a copy for the stream that the consumer names; false if the message has been there
        before, and gets no copy. ApiError if the stream does not accept it.
        """
        hosted, consumer = self.hosted, letter.consumer
        settings = consumer.dead_letters.settings
        assert settings is not None
        letter.target = settings.stream
        place = f"{hosted.name}/{consumer.name}"
        path = self.owner.path_of(hosted.tenant.name, copy)
        if place in path:
            return False
        target = hosted.tenant.stream(settings.stream)
        subject = settings.subject_of(
            hosted.name, consumer.name, to_text(copy.subject), letter.given.reason
        )
        if not is_subset_of_any(subject, target.config.subjects):
            raise own_errors.TRANSACTION_NO_STREAM(subject=subject)
        text = ",".join([*path, place])
        seal = self.owner.seal(hosted.tenant.name, text, copy.payload)
        header = _header(hosted, letter, copy, text, seal)
        message = target.stream.slow_path.incoming(
            subject.encode("utf-8", "surrogateescape"), header, copy.payload
        )
        letter.seq = plan.add_publish(target, message)
        return True

    def happened(self, plan: TransactionPlan) -> None:
        """See `Proposal`."""
        if plan.parts or plan.deletes:
            self.owner.stored(self)
        else:
            self.owner.dropped(self, self.error)

    def refused(self, error: ApiError) -> None:
        """See `Proposal`."""
        self.owner.refused(self, error)


class GivenUpProposal(DeadLetterProposal):
    """The proposal for a message that was delivered and is given up by its consumer."""

    def __init__(
        self,
        owner: DeadLetterSender,
        hosted: HostedStream,
        consumer: ServerConsumer,
        given: GivenUp,
    ) -> None:
        super().__init__(owner, hosted)
        settings = consumer.dead_letters.settings
        self.consumer = consumer
        self.given = given
        self.letters = [Letter(consumer, given, settings.stream if settings is not None else "")]

    @property
    def key(self) -> Hashable:
        """See `DeadLetterProposal`."""
        return self.consumer, self.given.seq

    def fill(self, plan: TransactionPlan) -> None:
        """See `DeadLetterProposal`."""
        hosted, consumer, given = self.hosted, self.consumer, self.given
        if hosted.consumers.get(consumer.name) is not consumer or not hosted.is_attached:
            raise NotWantedError
        if not consumer.acks.is_awaited(given.seq):
            raise NotWantedError
        settings = consumer.dead_letters.settings
        if settings is None or given.reason not in settings.on:
            consumer.dead_letters.let_go(given)
            raise NotWantedError
        try:
            copy = hosted.stream.store.get(given.seq)
        except NotFoundError:
            consumer.dead_letters.let_go(given)
            raise NotWantedError from None
        except StoreError as error:
            raise errors.STREAM_STORE_FAILED(err=str(error)) from None
        if not self.add_letter(plan, self.letters[0], copy):
            consumer.dead_letters.let_go(given)
            path = ", ".join(self.owner.path_of(hosted.tenant.name, copy))
            raise NotWantedError(f"it has been given up here before: {path}")
        plan.add_ack(AckPart(hosted, consumer, given.seq, 0, 0, is_measured=False))


def _header(hosted: HostedStream, letter: Letter, copy: MessageCopy, path: str, seal: str) -> bytes:
    """The header of a copy: the original fields, and the reason of the dead letter."""
    consumer, given = letter.consumer, letter.given
    turn = consumer.turn
    offset_ns = turn.now_ns - turn.monotonic_ns
    attempts = consumer.acks.attempts_of(given.seq)
    fields = {
        "Reason": given.reason,
        "Detail": " ".join(given.detail.split())[:DETAIL_CHARACTERS_MAX],
        "Stream": hosted.name,
        "Consumer": consumer.name,
        "Subject": to_text(copy.subject),
        "Sequence": str(given.seq),
        "Stored": format_time(copy.timestamp_ns),
        "Deliveries": str(given.deliveries),
        "Attempts": ",".join(format_time(at_ns + offset_ns) for at_ns, _ in attempts),
        "Clients": ",".join(_client_text(client) for _, client in attempts),
        "Given-Up": format_time(turn.now_ns),
        "Path": path,
        "Seal": seal,
    }
    lines = [
        f"{HEADER_PREFIX}{name}: {value}\r\n".encode("utf-8", "surrogateescape")
        for name, value in fields.items()
        if value
    ]
    return header_fields.add_fields(_without_meaning(copy.header), b"".join(lines))


def _client_text(client: tuple[int, str] | None) -> str:
    """A connection in a header's list: its id, and as much of its name as fits."""
    if client is None:
        return "?"
    number, name = client
    shown = _UNFIT.sub("_", name)[:CLIENT_CHARACTERS_MAX]
    return f"{number}/{shown}" if shown else str(number)


def _field(header: bytes, wanted: bytes) -> str:
    """The first value of a field, empty if it is missing."""
    for line in header.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name == wanted:
            return value.strip().decode("utf-8", "surrogateescape")
    return ""


def _without_meaning(header: bytes) -> bytes:
    """The block with its special fields renamed (ids, expectations, batches, times to live), and
    without the fields of an earlier dead letter.
    """
    if not header:
        return b""
    kept = []
    for line in header.split(b"\r\n")[1:-2]:
        if line.startswith(b"Nats-"):
            kept.append(ORIGINAL_PREFIX.encode() + line)
        elif not line.startswith(HEADER_PREFIX.encode()):
            kept.append(line)
    return header_fields.add_fields(b"", b"".join(line + b"\r\n" for line in kept)) if kept else b""


def takes_given_up(
    engine: JetStreamEngine, hosted: HostedStream, consumer: ServerConsumer, given: GivenUp
) -> None:
    """Called when a consumer gives a message up and its settings name a stream for it."""
    sender_of(engine).add(hosted, consumer, given)


def sender_of(engine: JetStreamEngine) -> DeadLetterSender:
    """The sender of an engine, created on first use."""
    if engine.dead_letters is None:
        engine.dead_letters = DeadLetterSender(engine)
    return engine.dead_letters
