"""The end of a turn: what the engine does for every stream and consumer that takes part in it.

Owns the order of these steps, which `engine` describes. The changes of a stream are written by
`commit_path`. Compiled, because with a publisher that waits for each acknowledgement this is most
of what the server does. Rare cases are left to the engine.
"""

from libc.stdint cimport int64_t
from tradewind.broker.turn cimport Turn
from tradewind.broker.turn_end cimport EngineTurns
from tradewind.clock_reading cimport reading
from tradewind.consumer.delivery cimport Delivery
from tradewind.consumer.taker cimport Taker
from tradewind.jetstream.usage cimport UsageShare
from tradewind.stream.commit_path cimport CommitPath

from typing import Protocol

from tradewind.broker.turn import ROOM_BYTES_MAX
from tradewind.errors import StoreError

cdef enum:
    # Streams are written, and consumers send, for at most this long in one turn.
    TURN_NS_MAX = 10_000_000
    # Number of them between two readings of the clock.
    LOOK_EVERY = 8
    # A turn is shared if an answer has left since this long ago ...
    SHARED_NS = 5_000_000
    # ... and then a consumer that has more than it may send is interrupted this early, at first ...
    ROOM_BYTES_MIN = 4_096
    # ... and later, and unless more is owed to it.
    ROOM_BYTES_SHARED = 65_536


class TurnWorkOwner(Protocol):
    """The owner of the turns: the engine. Its tables stay the same objects."""

    broker: object
    router: object
    syncer: object
    timers: object
    hosts: object
    consumer_hosts: object
    retired: object

    def delete_retired(self):
        """Delete the retired consumers; called if there are any."""

    def stream_failed(self, hosted, error):
        """Called after an internal error while a stream was written."""

    def consumer_failed(self, hosted, consumer, error):
        """Called after an internal error while a consumer sent messages."""


cdef class TurnWork(EngineTurns):
    """The work of one engine, its `owner`, whose tables it reads."""

    def __init__(self, owner not None):
        self._owner = owner
        self._router = owner.router
        self._turn = owner.router.turn
        self._syncer = owner.syncer
        self._hosts = owner.hosts
        self._consumer_hosts = owner.consumer_hosts
        self._retired = owner.retired
        self._timers = owner.timers
        clock = owner.broker.clock
        self._wall_ns = clock.wall_ns
        self._monotonic_ns = clock.monotonic_ns
        self._watch = owner.broker.watch
        self._answered_ns = -SHARED_NS
        self._room_bytes = ROOM_BYTES_MIN

    def set_time(self):
        """Set the time of everything that happens from now on."""
        self._set_time()

    cdef int _set_time(self) except -1:
        self._turn.now_ns = reading(self._wall_ns)
        self._turn.monotonic_ns = reading(self._monotonic_ns)
        return 0

    cpdef object next_deadline_ns(self):
        """The earliest deadline of a stream, consumer or companion."""
        return self._timers.next_ns()

    cpdef int end_turn(self) except -1:
        """Write, acknowledge and send, after the input of clients was handled.

        Work that takes too long continues in the next turn, so that other connections are read in
        between.
        """
        cdef Turn turn = self._turn
        cdef Py_ssize_t done = 0
        cdef list dirty, deferred
        if not self._router.changes.is_empty():
            self._set_time()
            self._router.changes.tell(self._watcher_failed)
        if not turn.is_busy():
            return 0
        self._set_time()
        if turn.deferred:
            deferred = turn.take_deferred()
            for handler, subject, reply, header, payload in deferred:
                done += 1
                if done % LOOK_EVERY == 0 and self._is_late():
                    turn.return_deferred(deferred[done - 1:])
                    break
                try:
                    handler(subject, reply, header, payload)
                except Exception as error:
                    self._router.faults.contain("deferred message", error, repr(subject))
            done = 0
        if turn.dirty:
            dirty = turn.take_dirty()
            for participant in dirty:
                done += 1
                if done % LOOK_EVERY == 0 and self._is_late():
                    turn.put_back(dirty[done - 1:], [])
                    break
                hosted = self._hosts.get(participant)
                if hosted is not None:
                    try:
                        self._commit_stream(hosted)
                    except Exception as error:
                        self._owner.stream_failed(hosted, error)
        self._syncer.end_turn(turn.monotonic_ns)
        if turn.woken:
            self._send()
        if self._retired:
            self._owner.delete_retired()
        return 0

    cdef int _commit_stream(self, hosted) except -1:
        """Commit a stream that has changed, count its bytes, and update its next deadline."""
        cdef CommitPath commits = hosted.commits
        commits.commit_changes(self._turn.monotonic_ns)
        (<UsageShare?>hosted.share).update()
        if commits.ingest.has_moved():
            hosted.set_timer()
        return 0

    cdef bint _is_late(self) except -1:
        """Whether the remaining work should wait for the next turn."""
        return <int64_t>self._monotonic_ns() - self._turn.monotonic_ns > TURN_NS_MAX

    def _watcher_failed(self, error):
        self._router.faults.contain("listener to interest", error)

    cdef int _send(self) except -1:
        """Let consumers that may have something to send do so, each up to its budget."""
        cdef CommitPath commits
        cdef Delivery delivery
        cdef Taker participant
        cdef int64_t due_ns
        cdef bint wants_more
        cdef Py_ssize_t done = 0
        cdef list woken = self._turn.take_woken()
        cdef bint answers_first = self._share_turn()
        cdef set replaying = self._replaying
        self._replaying = None
        for participant in woken:
            done += 1
            if done % LOOK_EVERY == 0 and self._is_late():
                self._turn.put_back([], woken[done - 1:])
                break
            if replaying is not None and answers_first and participant in replaying:
                self._wait_for_next(participant)
                continue
            hosted = self._consumer_hosts.get(participant)
            if hosted is None:
                continue
            commits = hosted.commits
            try:
                delivery = participant.part if type(participant.part) is Delivery else None
                try:
                    wants_more = participant.fill(commits.ingest.visible()) if delivery is None \
                        else delivery.fill(commits.ingest.visible())
                    if wants_more:
                        self._wait_for_next(participant)
                except StoreError as error:
                    # A stream that cannot be read must not keep the others waiting.
                    hosted.report_disk_error(error)
                if participant.is_waiting != participant.part.has_demand():
                    hosted.demand.update_waiting(participant)
                due_ns = participant.next_deadline_ns if delivery is None \
                    else delivery.next_deadline_ns()
                if due_ns:
                    self._timers.set(participant, due_ns)
            except Exception as error:
                self._owner.consumer_failed(hosted, participant, error)
        return 0

    cdef int _wait_for_next(self, participant) except -1:
        """Let a consumer that has more to send continue in the next turn."""
        self._turn.wake(participant)
        if self._replaying is None:
            self._replaying = set()
        self._replaying.add(participant)
        return 0

    cdef bint _share_turn(self) except -1:
        """Decide how much a consumer may send in this turn, and whether those that were interrupted
        have to wait for the next one, because the output of others is to leave first.

        While others get answers, a consumer with a long way to go sends little at a time, and more
        with each turn without an answer. Time spent on others is owed to it, a byte for each ns,
        and is paid back once that is much.
        """
        cdef Turn turn = self._turn
        cdef int64_t now_ns = turn.monotonic_ns
        cdef bint has_answers = len(self._router.touched) > 0
        if has_answers:
            self._answered_ns = now_ns
            self._room_bytes = ROOM_BYTES_MIN
        turn.room_bytes = ROOM_BYTES_MAX
        if self._replaying is None or not (has_answers or self._answers_first):
            self._owed_ns = 0   # nothing else was to be done since it has sent
        elif self._answers_first:
            self._owed_ns += now_ns - self._passed_ns
        else:   # what it has sent was written before the end of the last turn, and is not counted
            self._owed_ns += now_ns - self._watch.turn_ns
        self._answers_first = has_answers and not self._answers_first
        if self._answers_first:
            self._passed_ns = now_ns
            return True
        if self._replaying is not None and now_ns - self._answered_ns < SHARED_NS:
            turn.room_bytes = self._room_bytes
            self._room_bytes = min(2 * turn.room_bytes, <int64_t>ROOM_BYTES_SHARED)
            if self._owed_ns > ROOM_BYTES_SHARED:
                turn.room_bytes = min(self._owed_ns, <int64_t>ROOM_BYTES_MAX)
            self._owed_ns = max(self._owed_ns - turn.room_bytes, <int64_t>0)
        return False
