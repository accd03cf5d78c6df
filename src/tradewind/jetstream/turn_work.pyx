"""The end of a turn: what the engine does for every stream and consumer that takes part in it.

Owns the order of these steps, which `engine` describes. The changes of a stream are written by
`commit_path`. Compiled, because with a publisher that waits for each acknowledgement this is most
of what the server does. Rare cases are left to the engine.
"""

from libc.stdint cimport int64_t
from tradewind.broker.turn cimport Turn
from tradewind.clock_reading cimport reading
from tradewind.jetstream.usage cimport UsageShare
from tradewind.stream.commit_path cimport CommitPath

from typing import Protocol

from tradewind.errors import StoreError

cdef enum:
    # Streams are written, and consumers send, for at most this long in one turn.
    TURN_NS_MAX = 10_000_000
    # Number of them between two readings of the clock.
    LOOK_EVERY = 8


class TurnWorkOwner(Protocol):
    """The owner of the turns: the engine. The stub declares what it must have."""


cdef class TurnWork:
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

    def set_time(self):
        """Set the time of everything that happens from now on."""
        self._turn.now_ns = reading(self._wall_ns)
        self._turn.monotonic_ns = reading(self._monotonic_ns)

    def end_turn(self):
        """Write, acknowledge and send, after the input of clients was handled.

        Work that takes too long continues in the next turn, so that other connections are read in
        between.
        """
        cdef Turn turn = self._turn
        cdef Py_ssize_t done = 0
        cdef list dirty, deferred
        if not self._router.changes.is_empty():
            self.set_time()
            self._router.changes.tell(self._watcher_failed)
        if not turn.is_busy():
            return
        self.set_time()
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
        cdef Py_ssize_t done = 0
        cdef list woken = self._turn.take_woken()
        for participant in woken:
            done += 1
            if done % LOOK_EVERY == 0 and self._is_late():
                self._turn.put_back([], woken[done - 1:])
                break
            hosted = self._consumer_hosts.get(participant)
            if hosted is None:
                continue
            commits = hosted.commits
            try:
                try:
                    if participant.fill(commits.ingest.visible()):
                        self._turn.wake(participant)
                except StoreError as error:
                    # A stream that cannot be read must not keep the others waiting.
                    hosted.report_disk_error(error)
                hosted.demand.update_waiting(participant)
                self._timers.set(participant, participant.next_deadline_ns)
            except Exception as error:
                self._owner.consumer_failed(hosted, participant, error)
        return 0
