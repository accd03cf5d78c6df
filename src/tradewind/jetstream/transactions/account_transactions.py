"""Transactions of an account: written to the journal first, then to everything that they change.

Owns their order and their way to the disk, and so the promise "all of it or nothing". A bundle:

1. Each transaction that waits is checked, appended to the journal with the exact sequences of its
   messages, and carried out in memory, all in one go. A refusal changes nothing.
2. Streams and consumer states that it changes are *fenced*: nothing of them is written. A thread
   syncs the journal. Others may publish to these streams meanwhile; they wait for this sync, too.
3. The journal is on disk: this is the moment at which the transaction has happened. The fences are
   lifted, and everything is written and synced as always. The answer leaves when the streams show
   the messages.
4. The record is needed until the streams are synced that far and the states are durable. Then its
   file goes.

Why that is enough: before 3 nothing of a transaction is on disk but perhaps its record, after 3 the
record is. So after a crash, either there is neither a record nor any change, or there is a record,
and the next start repeats what is missing (`replay`): of a stream, what is above its last sequence,
under the same sequences; of a consumer, what it still awaits. Neither can happen twice.

The next bundle begins when the streams of the last one have been handed to the system, and the
states that could not be: so no stream stays behind a fence for longer than a sync takes. A stream
that does not sync before it acknowledges (`sync_interval`, `persist_mode: async`) has no fence: a
kill leaves all or nothing, a power failure may leave what these modes leave.

A journal that refuses a record refuses its transaction. If it cannot be synced, the content of the
disk is unknown: then the streams of the bundle take no changes until the next start, as if their
own sync had failed, and nothing of the bundle is written.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from tradewind.api import errors, own_errors
from tradewind.api.errors import ApiError
from tradewind.errors import StoreError
from tradewind.faults import INTERNAL_ERROR
from tradewind.jetstream.transactions.transaction_planning import TransactionPlan
from tradewind.store.folder.transaction_journal import JournalFiles, Segment, TransactionJournal
from tradewind.store.format.layout import JETSTREAM_FOLDER
from tradewind.store.format.transaction_log import JournaledVoid

if TYPE_CHECKING:
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.jetstream.jetstream_account import JetStreamAccount
    from tradewind.jetstream.lanes import Steps
    from tradewind.store.commits.commit import SyncTarget
    from tradewind.store.commits.syncer import SyncEntry
    from tradewind.store.folder.stream_folder import StoreRoot

# This much may wait while a bundle is on its way.
WAITING_MAX: Final = 10_000
WAITING_BYTES_MAX: Final = 67_108_864
# A bundle takes no more than this, unless one transaction does.
BUNDLE_NS_MAX: Final = 10_000_000
BUNDLE_BYTES_MAX: Final = 16_777_216
# How often it is looked whether a file of the journal can go.
LOOK_NS: Final = 1_000_000_000
# Transactions that are checked each time, after one that is still needed.
LOOKED_AT_MAX: Final = 1000


class Proposal(Protocol):
    """A transaction that waits for its bundle."""

    size: int

    def plan(self) -> TransactionPlan:
        """The changes, checked against the present state; ApiError if the transaction is
        refused.
        """

    def happened(self, plan: TransactionPlan) -> None:
        """Called when the transaction has happened."""

    def refused(self, error: ApiError) -> None:
        """Called when the transaction was refused, or its outcome is unknown
        (TRANSACTION_FAILED).
        """


class NeededTransaction(msgspec.Struct, eq=False):
    """A transaction to be replayed until streams are stored up to a sequence, states up to a
    ticket, and this many removals are durable.
    """

    segment: Segment
    parts: list[tuple[HostedStream, int]]
    states: list[tuple[HostedStream, str, int]]
    removals: int = 0

    def add_removal(self, hosted: HostedStream, *, is_removed: bool) -> None:
        """Count a removal. One that failed is repeated at the next start."""
        self.removals += 1
        if is_removed:
            hosted.commits.when_durable(self._removal_kept)

    def _removal_kept(self, error: StoreError | None) -> None:
        self.removals -= error is None

    def is_safe(self) -> bool:
        """Whether all changes are on disk, or their streams deleted."""
        return (
            not self.removals
            and all(
                _is_closed(hosted) or hosted.stream.store.synced_seq >= seq
                for hosted, seq in self.parts
            )
            and all(
                _is_closed(hosted)
                or hosted.files is None
                or hosted.files.states.kept_ticket(name) >= ticket
                for hosted, name, ticket in self.states
            )
        )


def _is_closed(hosted: HostedStream) -> bool:
    """Whether a stream was deleted, or closed completely. A stream that was closed while fenced has
    written nothing: only the journal has its changes.
    """
    files = hosted.stream.files
    return not hosted.is_attached and not (files is not None and files.is_fenced)


class _Bundle:
    """The transactions that are synced together. `fenced` are the streams that wait for it."""

    def __init__(self) -> None:
        self.plans: list[tuple[Proposal, TransactionPlan, Segment | None]] = []
        self.fenced: dict[HostedStream, None] = {}


class Transactions:
    """The transactions of one account. All methods are for the loop."""

    def __init__(self, engine: JetStreamEngine, tenant: JetStreamAccount) -> None:
        self._engine = engine
        self._tenant = tenant
        self.journal: TransactionJournal | None = None
        if engine.root is not None:
            self.journal = account_journal(engine.root, tenant.name)
        self._files: JournalFiles | None = None
        self._entry: SyncEntry | None = None
        self._bundle: _Bundle | None = None  # the one whose journal is being synced
        if self.journal is not None:
            self._files = JournalFiles(self.journal)
            self._entry = engine.syncer.attach(
                self._files, on_synced=self._journal_synced, on_failure=self._journal_failed
            )
        self._waiting: deque[Proposal] = deque()
        self._waiting_bytes = 0
        self._is_busy = False
        self._owing = 0  # states that have to be written before the next bundle
        self._needed: deque[NeededTransaction] = deque()
        self._idle_looks = 0
        self.done_count = 0
        self.refused_count = 0

    # ---------------------------------------------------------------- bundles

    def submit(self, proposal: Proposal) -> None:
        """Carry out a transaction as soon as possible; its proposal is notified of the outcome."""
        if (
            len(self._waiting) >= WAITING_MAX
            or self._waiting_bytes + proposal.size > WAITING_BYTES_MAX
        ):
            self.refused_count += 1
            proposal.refused(own_errors.TRANSACTION_BUSY())
            return
        self._waiting.append(proposal)
        self._waiting_bytes += proposal.size
        self._begin_bundle()

    def _begin_bundle(self) -> None:
        if self._is_busy or self._owing:
            return
        clock = self._engine.broker.monotonic_ns
        until_ns = clock() + BUNDLE_NS_MAX
        size = 0
        begun = _Bundle()
        while self._waiting and size < BUNDLE_BYTES_MAX and (not begun.plans or clock() < until_ns):
            proposal = self._waiting.popleft()
            self._waiting_bytes -= proposal.size
            size += proposal.size
            try:
                plan = proposal.plan()
                begun.plans.append((proposal, plan, self._carry_out(plan, begun.fenced)))
            except ApiError as error:
                self._refuse(proposal, error)
            except Exception as error:
                self._engine.faults.contain("transaction", error, self._tenant.name)
                self._refuse(proposal, errors.STREAM_STORE_FAILED(err=INTERNAL_ERROR))
        if not begun.plans and not begun.fenced:
            return
        self._is_busy = True
        if self.journal is None or not begun.fenced:
            self._synced(begun, None)
            return
        assert self._entry is not None
        self._bundle = begun
        self._engine.syncer.changed(self._entry, self._engine.turn.monotonic_ns)

    def _journal_synced(self, _files: SyncTarget, _number: int) -> None:
        begun, self._bundle = self._bundle, None
        if begun is not None:
            self._synced(begun, None)

    def _journal_failed(self, _files: SyncTarget, error: StoreError) -> None:
        begun, self._bundle = self._bundle, None
        if begun is not None:
            self._synced(begun, error)

    def _refuse(self, proposal: Proposal, error: ApiError) -> None:
        self.refused_count += 1
        proposal.refused(error)

    def _carry_out(self, plan: TransactionPlan, fenced: dict[HostedStream, None]) -> Segment | None:
        """Step 1 of a bundle, see the module; None if there is nothing to repeat after a crash."""
        segment, offset = None, 0
        try:
            if self.journal is not None and plan.outlives_server:
                if self.journal.is_full:
                    self.tick()
                segment, offset = self.journal.append(plan.journaled())
                for hosted in plan.hosts:
                    fenced[hosted] = None
                    hosted.fence()
            plan.apply()
        except Exception as error:
            if segment is not None:
                self._take_back(segment, offset, plan.hosts)
            if isinstance(error, StoreError):
                raise errors.STREAM_STORE_FAILED(err=str(error)) from None
            raise
        return segment

    def _take_back(self, segment: Segment, offset: int, hosts: list[HostedStream]) -> None:
        """Invalidate the record of a transaction that a stream could not apply."""
        assert self.journal is not None
        try:
            self.journal.take_back(segment, offset)
        except StoreError as error:
            for hosted in hosts:
                hosted.fail_fenced(error)

    def _synced(self, begun: _Bundle, error: Exception | None) -> None:
        """Step 3: called when the journal is on disk, or cannot be."""
        self._engine.set_time()
        if error is not None:
            self._bundle_failed(begun, error)
        else:
            # Before the fences are lifted: then commits begin, and are to have these states.
            needed = [
                self._note_needed(plan, segment)
                for _, plan, segment in begun.plans
                if segment is not None
            ]
            for hosted in begun.fenced:
                hosted.lift_fence()
            self._write_states(needed)
            self._needed.extend(needed)
            for proposal, plan, _ in begun.plans:
                self.done_count += 1
                _TransactionAnswer(proposal, plan).wait()
        self._engine.timers.set(self, self._engine.turn.monotonic_ns + LOOK_NS)
        self._is_busy = False
        self._begin_bundle()

    def _bundle_failed(self, begun: _Bundle, error: Exception) -> None:
        self._engine.log.error(
            f"JetStream journal of account {self._tenant.name!r} cannot be synced: {error}"
        )
        failure = error if isinstance(error, StoreError) else StoreError(INTERNAL_ERROR)
        for hosted in begun.fenced:
            hosted.fail_fenced(failure)
        for proposal, _, _ in begun.plans:
            self._refuse(proposal, own_errors.TRANSACTION_FAILED(err=str(failure)))

    def _note_needed(self, plan: TransactionPlan, segment: Segment) -> NeededTransaction:
        """Note what must be on disk before the journal can drop a transaction."""
        states: dict[tuple[HostedStream, str], int] = {}
        for ack in (*plan.acks.values(), *plan.revivals.values()):
            hosted, consumer = ack.hosted, ack.consumer
            key = (hosted, consumer.name)
            if key in states or hosted.files is None or consumer.config.mem_storage:
                continue
            if hosted.is_attached and hosted.consumers.get(consumer.name) is consumer:
                states[key] = hosted.files.states.mark(
                    consumer.name, consumer.source, is_urgent=True
                )
        needed = NeededTransaction(
            segment,
            [
                (part.hosted, part.last_seq)
                for part in plan.parts.values()
                if part.hosted.stream.files is not None
            ],
            [(hosted, name, ticket) for (hosted, name), ticket in states.items()],
        )
        for (hosted, _), is_removed in plan.deletes.items():
            if hosted.is_attached:
                needed.add_removal(hosted, is_removed=is_removed)
        return needed

    def _write_states(self, transactions: list[NeededTransaction]) -> None:
        """Write the states of a bundle, or have them in a commit, before the next bundle begins:
        while fenced they could not be written.
        """
        for hosted, name in {(host, name) for one in transactions for host, name, _ in one.states}:
            files = hosted.files
            assert files is not None
            self._engine.syncer.mark_dirty(files, self._engine.turn.monotonic_ns)
            if files.states.is_waiting(name) and not files.write(name):
                entry = hosted.files_entry
                if hosted.stream.waits_for_sync and entry is not None and not entry.has_failed:
                    self._owing += 1
                    hosted.state_waiters.when_taken(name, self._state_taken)

    def _state_taken(self) -> None:
        """Called in the middle of a commit that contains a state, or when nothing more is
        written.
        """
        self._owing -= 1
        self._engine.turn.defer(self._begin_next_bundle, b"", b"", b"", b"")

    def _begin_next_bundle(self, *_message: bytes) -> None:
        self._begin_bundle()

    # ---------------------------------------------------------------- what is needed

    def adopt(self, entries: list[NeededTransaction]) -> None:
        """Take over what `replay` has found in the journal and repeated in memory."""
        self._needed.extend(entries)
        self._engine.timers.set(self, self._engine.turn.monotonic_ns + LOOK_NS)

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` has something to do (monotonic); 0: never."""
        if self.journal is None or not self.journal.has_files:
            return 0
        return self._engine.turn.monotonic_ns + LOOK_NS

    def tick(self) -> None:
        """Delete journal files that are no longer needed; the last one when there is no
        activity.
        """
        if self.journal is None:
            return
        while self._needed and self._needed[0].is_safe():
            self.journal.release(self._needed.popleft().segment)
        # One whose stream has failed keeps its file, not those of all that follow.
        first = [self._needed.popleft() for _ in range(min(len(self._needed), LOOKED_AT_MAX))]
        safe = {needed for needed in first if needed.is_safe()}
        for needed in safe:
            self.journal.release(needed.segment)
        self._needed.extendleft(needed for needed in reversed(first) if needed not in safe)
        is_quiet = not self._needed and not self._is_busy and not self._waiting
        self._idle_looks = self._idle_looks + 1 if is_quiet else 0
        remove = self.journal.take_unneeded(also_current=self._idle_looks > 1)
        if remove is not None:
            self._engine.workers.submit(remove, self._removed)

    def _removed(self, error: Exception | None) -> None:
        if error is not None:
            self._engine.log.error(
                f"JetStream cannot remove a journal of account {self._tenant.name!r}: {error}"
            )

    def void(self, hosted: HostedStream, consumer: str = "") -> Steps[None]:
        """Make the records of a deleted stream, or of a consumer that starts over, ineffective; to
        be called before the deletion is answered.
        """
        if self.journal is None or not self.journal.has_files or hosted.stream.files is None:
            return
        failure: StoreError | None = None
        try:
            segment, _ = self.journal.append(JournaledVoid(hosted.name, consumer))
            self.journal.release(segment)
        except StoreError as error:
            self._removed(error)
            return
        sync = self.journal.begin_sync()
        try:
            yield sync.run
        except StoreError as error:
            failure = error
            self._removed(error)
        sync.ended(failure)

    def stop(self) -> None:
        """Begin no more transactions; those in progress continue."""
        self._waiting.clear()
        self._waiting_bytes = 0

    def close(self, *, for_good: bool) -> None:
        """Close the journal after the streams of the account. With `for_good` its files are
        removed, unless a stream has failed; leaving them does no harm.
        """
        self._engine.timers.forget(self)
        if self.journal is None or self._files is None:
            return
        self._engine.syncer.detach(self._files)
        streams = [hosted.stream for needed in self._needed for hosted, _ in needed.parts]
        has_failed = any(
            stream.files is not None and (stream.files.failure or stream.files.is_fenced)
            for stream in streams
        )
        remove = None
        if for_good and not has_failed and not self._is_busy:
            while self._needed:
                self.journal.release(self._needed.popleft().segment)
            remove = self.journal.take_unneeded(also_current=True)
        self.journal.close()
        if remove is not None:
            self._engine.stream_closed(remove)


class _TransactionAnswer:
    """The answer to a transaction, sent when all its streams show their messages."""

    def __init__(self, proposal: Proposal, plan: TransactionPlan) -> None:
        self._proposal = proposal
        self._plan = plan
        self._left = 1

    def wait(self) -> None:
        """Wait for all streams of the transaction."""
        for hosted in dict.fromkeys((*self._plan.parts, *(one for one, _ in self._plan.deletes))):
            if hosted.is_attached:
                self._left += 1
                hosted.commits.when_durable(self._kept)
        self._kept(None)

    def _kept(self, _error: StoreError | None) -> None:
        """Called when a stream is durable. One that fails now gets its part from the journal at the
        next start.
        """
        self._left -= 1
        if self._left == 0:
            self._proposal.happened(self._plan)


def account_journal(root: StoreRoot, account: str) -> TransactionJournal:
    """The journal of an account, which may have no files yet."""
    folder = f"{root.root}/{JETSTREAM_FOLDER}/{account}"
    return TransactionJournal(root.disk, folder, account, root.ring)


def transactions_of(engine: JetStreamEngine, tenant: JetStreamAccount) -> Transactions:
    """The transactions of an account, created on first use."""
    if tenant.transactions is None:
        tenant.transactions = Transactions(engine, tenant)
    return tenant.transactions
