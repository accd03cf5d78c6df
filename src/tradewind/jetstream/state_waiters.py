"""Acks with a reply and requests that wait until the state of a consumer is stored.

Owns the order in which they are answered, per consumer: none waits for the state of another.
"Stored" means what the stream guarantees to publishers: on disk, or handed to the operating system
if it is synced by an interval, or nothing at all with `persist_mode: async`. Many acks share one
commit, that of all consumers of the stream; the event loop never waits for a sync.

In a stream that keeps messages for its consumers, an ack removes a message, and is answered when
the removal is stored as well. If the disk fails, nothing is answered, and clients retry. If the
stream no longer accepts changes, a stored state is enough: it is applied at the next start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tradewind.errors import StoreError
from tradewind.store.commits.syncer import SyncMode

if TYPE_CHECKING:
    from tradewind.consumer.ack_replies import AckReplies
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.stream.commit_path import CommitPath

Told = Callable[[StoreError | None], None]
Waiting = dict[str, deque[tuple[int, Told]]]
# Members of an enumeration are slow to find.
_ASYNC, _INTERVAL = SyncMode.ASYNC, SyncMode.INTERVAL


class AckAnswers:
    """The answers to the acks of one consumer in one turn; `left` is the number of events they wait
    for.
    """

    def __init__(self, replies: AckReplies, left: int, *, is_in_memory: bool = False) -> None:
        self._replies = replies
        self._is_in_memory = is_in_memory
        self._end = replies.end
        self._left = left

    def state_kept(self, error: StoreError | None) -> None:
        """Called when the state with the acks is stored, or cannot be."""
        if error is not None:
            self._replies.drop_unkept()
        self._left -= 1
        if self._left == 0:
            self._replies.answer_through(self._end)

    def removed(self, error: StoreError | None) -> None:
        """Called when the messages are removed; if they cannot be, everything depends on the
        state.
        """
        self.state_kept(error if self._is_in_memory else None)


class StateWaiters:
    """The waiters of one stream."""

    def __init__(self, hosted: HostedStream, commits: CommitPath) -> None:
        self._hosted = hosted
        self._commits = commits
        # By consumer, with rising tickets: waiters for the disk, and for the system.
        self._until_synced: Waiting = {}
        self._until_written: Waiting = {}
        self._until_taken: dict[str, list[Callable[[], None]]] = {}

    def keep_acks(self, consumer: ServerConsumer) -> None:
        """Send the answers to the acks of this turn when the acks are stored."""
        replies: AckReplies = consumer.delivery.replies
        entry, retention = self._commits.entry, self._hosted.retention
        mode = self._hosted.stream.sync_mode if entry is None else entry.mode
        if mode is _ASYNC:
            replies.answer_through(replies.end)
            return
        waiting = self._until_written if mode is _INTERVAL else self._until_synced
        if retention is not None:
            answers = AckAnswers(replies, 2, is_in_memory=consumer.config.mem_storage)
            retention.when_removed(partial(self._commits.when_durable, answers.removed))
            self._wait(consumer, answers.state_kept, waiting)
            return
        try:
            ticket = self._mark(consumer, waiting)
        except StoreError:
            replies.drop_unkept()
            return
        if ticket:
            self._add(consumer.name, ticket, AckAnswers(replies, 1).state_kept, waiting)
        else:
            replies.answer_through(replies.end)

    def when_kept(self, consumer: ServerConsumer, told: Told) -> None:
        """Call `told` when the state of a consumer is on disk."""
        self._wait(consumer, told, self._until_synced)

    def _wait(self, consumer: ServerConsumer, told: Told, waiting: Waiting) -> None:
        """Call `told` when the state of a consumer is stored as `waiting` requires."""
        try:
            ticket = self._mark(consumer, waiting)
        except StoreError as error:
            told(error)
            return
        if ticket:
            self._add(consumer.name, ticket, told, waiting)
        else:
            told(None)

    def _mark(self, consumer: ServerConsumer, waiting: Waiting) -> int:
        """Note that the state of a consumer is to be stored; returns the ticket to wait for, 0 if
        it is stored as `waiting` requires. StoreError if it cannot be.
        """
        hosted, files = self._hosted, self._hosted.files
        if files is None or consumer.config.mem_storage:
            return 0
        entry, name = hosted.files_entry, consumer.name
        assert entry is not None
        ticket = files.states.mark_urgent(name, consumer.source)
        if entry.has_failed:
            raise StoreError(f"the state of consumer {name!r} cannot be written")
        if waiting is self._until_written and files.write(name):
            return 0
        return ticket

    def _add(self, name: str, ticket: int, told: Told, waiting: Waiting) -> None:
        """Queue a waiter; the state is stored with the next commit."""
        queue = waiting.get(name)
        if queue is None:
            queue = waiting[name] = deque()
        queue.append((ticket, told))
        engine, files = self._hosted.engine, self._hosted.files
        assert files is not None
        engine.syncer.mark_dirty(files, engine.turn.monotonic_ns)

    def when_taken(self, consumer: str, told: Callable[[], None]) -> None:
        """Call `told` when a commit has begun that contains the present state of a consumer."""
        self._until_taken.setdefault(consumer, []).append(told)

    def progressed(self) -> None:
        """Called when more states may have been stored."""
        if not (self._until_taken or self._until_synced or self._until_written):
            return
        assert self._hosted.files is not None
        states = self._hosted.files.states
        if self._until_taken:
            for consumer in list(self._until_taken):
                if not states.is_waiting(consumer):
                    self._tell_taken(consumer)
        for consumer in list(self._until_synced):
            self._tell(self._until_synced, consumer, None, states.kept_ticket(consumer))
        if self._until_written:
            for consumer in list(self._until_written):
                self._tell(self._until_written, consumer, None, states.written_ticket(consumer))

    def failed(self, error: StoreError) -> None:
        """Notify all waiters of an error."""
        for consumer in list(self._until_taken):
            self._tell_taken(consumer)
        for waiting in (self._until_synced, self._until_written):
            for consumer in list(waiting):
                self._tell(waiting, consumer, error)

    def _tell_taken(self, consumer: str) -> None:
        for told in self._until_taken.pop(consumer):
            told()

    def _tell(
        self, waiting: Waiting, consumer: str, error: StoreError | None, kept: int | None = None
    ) -> None:
        """Notify the waiters for a consumer, or with `kept` those up to this ticket."""
        queue = waiting[consumer]
        while queue and (kept is None or queue[0][0] <= kept):
            _, told = queue.popleft()
            try:
                told(error)
            except Exception as fault:
                self._hosted.engine.faults.contain("request", fault, self._hosted.place)
        if not queue:
            del waiting[consumer]
