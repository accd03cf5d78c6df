"""The end of a turn: what the engine does for every stream that was published to.

Owns the order of things there, which `engine` describes, and the state that it needs. Compiled,
because with a publisher that waits for each acknowledgement this is most of what the server does.
Whatever is rare is left to the subclasses, `JetStream` and `HostedStream`.
"""

from libc.stdint cimport int64_t, uint64_t
from tradewind.broker.router cimport Router
from tradewind.broker.turn cimport Turn
from tradewind.jetstream.usage cimport Usage
from tradewind.store.file_core cimport FileCore
from tradewind.store.message_core cimport MessageCore
from tradewind.store.syncer cimport Syncer
from tradewind.stream.ingest cimport Ingest

from collections import deque

from tradewind.errors import StoreError

cdef enum:
    CREDIT_BYTES = 67108864
    # Streams are written, and consumers send, so long in one turn.
    TURN_NS_MAX = 10_000_000
    # So many do before anybody looks at the clock.
    LOOK_EVERY = 8


cdef class StreamTurns:
    """The subclass has `room_share`, `set_timer`, `wake_consumers`, `tell_requests`, `hindered` and
    `demand`.
    """

    def __init__(self, EngineTurns engine not None, stream not None, Usage account_usage not None):
        self.engine = engine
        self.stream = stream
        self.ingest = stream.ingest
        self.account_usage = account_usage
        self.consumers = {}
        self.waiting_requests = deque()
        self._counted = Usage()
        self._is_tight = True

    cdef int settle(self) except -1:
        """The stream changed in this turn: write, acknowledge, and have it synced."""
        cdef Ingest ingest = self.ingest
        cdef MessageCore store = ingest.store
        cdef Syncer syncer = self.engine.syncer
        cdef int64_t now_ns = self.engine.turn.monotonic_ns
        if self.sync_entry is None:
            ingest.promise_to(ingest.visible(), None)
            if self.consumers:
                self.wake_consumers()
        else:
            if (<FileCore>store).failure is not None:
                self.stream.failed((<FileCore>store).failure)
            elif ingest.waits:
                ingest.note_turn()
                ingest.send_replies(ingest.promised_seq, None)
                self.sync_entry.waiters = ingest.replies.count
            syncer.changed(self.sync_entry, now_ns)
        self.use_bytes()
        if ingest.has_deadline or ingest.ids.count or store.age_max_ns > 0 \
                or store.timers.table.count or store.trims or store.cuts_front:
            ingest.has_deadline = False
            self.set_timer()
        return 0

    def synced(self, _store, uint64_t kept):
        """The syncer has kept its promise for this round: acknowledge, and wake who may see more.
        """
        self.ingest.promise_to(self.ingest.visible(), None)
        if self.consumers:
            self.wake_consumers()
        if self.waiting_requests:
            self.tell_requests(None, kept)

    def flush(self):
        """`settle` for Python callers."""
        self.settle()

    cdef int use_bytes(self) except -1:
        """The stream has stored or removed messages; what it reserves is the same as before."""
        cdef Usage usage = self._counted
        cdef int64_t more = <int64_t>self.ingest.store.bytes - usage.memory - usage.storage
        if more:
            if not self.ingest.store.keeps_tombstones:
                usage.memory += more
                self.account_usage.memory += more
                self.engine.usage.memory += more
            else:
                usage.storage += more
                self.account_usage.storage += more
                self.engine.usage.storage += more
        if self._is_tight or self.ingest.credit_bytes < CREDIT_BYTES // 2:
            self.grant_credit()
        return 0

    def grant_credit(self):
        """Let the stream store so much without asking.

        While there is room for the credit of every stream nobody can use up that of another; else
        it is shared out anew in every turn.
        """
        cdef int64_t share = self.room_share()
        self._is_tight = share < CREDIT_BYTES
        self.ingest.credit_bytes = min(share, <int64_t>CREDIT_BYTES)

    def count(self, Usage usage not None):
        """What the stream uses and reserves from now on."""
        self.account_usage.replace(self._counted, usage)
        self.engine.usage.replace(self._counted, usage)
        self._counted = usage


cdef class EngineTurns:
    """The subclass has `delete_retired`, `stream_failed`, `consumer_failed`, and all that is rare.
    """

    def __init__(self, Router router not None, Syncer syncer not None, timers not None,
                 wall_ns not None, monotonic_ns not None):
        self.router = router
        self.turn = router.turn
        self.syncer = syncer
        self.usage = Usage()
        self.hosts = {}
        self.consumer_hosts = {}
        self.retired = []
        self.timers = timers
        self.wall_ns = wall_ns
        self.monotonic_ns = monotonic_ns

    def set_time(self):
        """Everything from here on happens now."""
        self.turn.now_ns = self.wall_ns()
        self.turn.monotonic_ns = self.monotonic_ns()

    def end_turn(self):
        """The clients had their turn: write, acknowledge, send.

        What takes too long goes on in the next turn, so that others are read in between.
        """
        cdef Turn turn = self.turn
        cdef Py_ssize_t done = 0
        cdef list dirty
        if not self.router.changes.is_empty():
            self.set_time()
            self.router.changes.tell(self._watcher_failed)
        if not turn.is_busy():
            return
        self.turn.now_ns = self.wall_ns()
        self.turn.monotonic_ns = self.monotonic_ns()
        if turn.deferred:
            for handler, subject, reply, header, payload in turn.take_deferred():
                try:
                    handler(subject, reply, header, payload)
                except Exception as error:
                    self.router.faults.contain("deferred message", error, repr(subject))
        if turn.dirty:
            dirty = turn.take_dirty()
            for participant in dirty:
                done += 1
                if done % LOOK_EVERY == 0 and self._is_late():
                    turn.put_back(dirty[done - 1:], [])
                    break
                hosted = self.hosts.get(participant)
                if hosted is not None:
                    try:
                        (<StreamTurns?>hosted).settle()
                    except Exception as error:
                        self.stream_failed(hosted, error)
        self.syncer.end_turn(turn.monotonic_ns)
        if turn.woken:
            self.send()
        if self.retired:
            self.delete_retired()

    cdef bint _is_late(self) except -1:
        """Whether what is left should wait for the next turn."""
        return <int64_t>self.monotonic_ns() - self.turn.monotonic_ns > TURN_NS_MAX

    def _watcher_failed(self, error):
        self.router.faults.contain("listener to interest", error)

    def next_deadline_ns(self):
        """When `tick` has something to do."""
        return self.timers.next_ns()

    cdef int send(self) except -1:
        """Consumers that may have something to send send it, each up to its budget."""
        cdef Ingest ingest
        cdef Py_ssize_t done = 0
        cdef list woken = self.turn.take_woken()
        for participant in woken:
            done += 1
            if done % LOOK_EVERY == 0 and self._is_late():
                self.turn.put_back([], woken[done - 1:])
                break
            hosted = self.consumer_hosts.get(participant)
            if hosted is None:
                continue
            ingest = (<StreamTurns?>hosted).ingest
            try:
                try:
                    if participant.fill(ingest.visible()):
                        self.turn.wake(participant)
                except StoreError as error:
                    # What one cannot read must not keep the others waiting.
                    hosted.hindered(error)
                hosted.demand.filled(participant)
                self.timers.set(participant, participant.next_deadline_ns)
            except Exception as error:
                self.consumer_failed(hosted, participant, error)
        return 0
