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
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.jetstream.hosted import HostedStream

Told = Callable[[StoreError | None], None]
Waiting = dict[str, deque[tuple[int, Told]]]


class AckAnswers:
    """The answers to the acks of one consumer in one turn; `left` is the number of events they wait
    for.
    """

    def __init__(self, consumer: ServerConsumer, left: int) -> None:
        self._replies = consumer.delivery.replies
        self._is_in_memory = consumer.config.mem_storage
        self._end = self._replies.end
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

    def __init__(self, hosted: HostedStream) -> None:
        self._hosted = hosted
        # By consumer, with rising tickets: waiters for the disk, and for the system.
        self._until_synced: Waiting = {}
        self._until_written: Waiting = {}
        self._until_taken: dict[str, list[Callable[[], None]]] = {}

    def keep_acks(self, consumer: ServerConsumer) -> None:
        """Send the answers to the acks of this turn when the acks are stored."""
        mode, retention = self._hosted.stream.sync_mode, self._hosted.retention
        if mode is SyncMode.ASYNC:
            replies = consumer.delivery.replies
            replies.answer_through(replies.end)
            return
        answers = AckAnswers(consumer, 1 if retention is None else 2)
        if retention is not None:
            retention.when_removed(partial(self._hosted.commits.when_durable, answers.removed))
        waiting = self._until_synced if mode is SyncMode.ALWAYS else self._until_written
        self._wait(consumer, answers.state_kept, waiting)

    def when_kept(self, consumer: ServerConsumer, told: Told) -> None:
        """Call `told` when the state of a consumer is on disk."""
        self._wait(consumer, told, self._until_synced)

    def _wait(self, consumer: ServerConsumer, told: Told, waiting: Waiting) -> None:
        """Call `told` when the state of a consumer is stored as `waiting` requires."""
        hosted, files = self._hosted, self._hosted.files
        if files is None or consumer.config.mem_storage:
            told(None)
            return
        entry, name = hosted.files_entry, consumer.name
        assert entry is not None
        ticket = files.states.mark(name, consumer.source, is_urgent=True)
        if entry.has_failed:
            told(StoreError(f"the state of consumer {name!r} cannot be written"))
            return
        if waiting is self._until_written and files.write(name):
            told(None)
            return
        queue = waiting.get(name)
        if queue is None:
            queue = waiting[name] = deque()
        queue.append((ticket, told))
        hosted.engine.syncer.mark_dirty(files, hosted.engine.turn.monotonic_ns)

    def when_taken(self, consumer: str, told: Callable[[], None]) -> None:
        """Call `told` when a commit has begun that contains the present state of a consumer."""
        self._until_taken.setdefault(consumer, []).append(told)

    def progressed(self) -> None:
        """Called when more states may have been stored."""
        assert self._hosted.files is not None
        states = self._hosted.files.states
        for consumer in list(self._until_taken):
            if not states.is_waiting(consumer):
                self._tell_taken(consumer)
        for consumer in list(self._until_synced):
            self._tell(self._until_synced, consumer, None, states.kept_ticket(consumer))
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
