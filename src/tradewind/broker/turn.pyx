"""The work that one turn of the event loop leaves to the engine.

Owns the times of the turn and three lists: participants that have something to write (`dirty`),
participants that may have something to send (`woken`), and messages that the server published to
itself, which are handled only when no delivery is in progress (`deferred`). It makes no calls: the
engine takes the lists at the end of the turn.
"""


from tradewind cimport invariants
from tradewind.saturated cimport CLOCK_SLACK_NS, distance, later

# What one consumer may send in one turn.
ROOM_BYTES_MAX = 262_144
# A clock that has jumped ahead is trusted when it has stayed there for this long.
CLOCK_BELIEVED_NS = 30_000_000_000
cdef int64_t BELIEVED_NS = CLOCK_BELIEVED_NS


cdef class Participant:
    """A stream or consumer: what a turn can list, each at most once."""


cdef class Turn:
    """The turn of a broker; the object is reused for every turn."""

    def __cinit__(self):
        self.dirty = []
        self.woken = []
        self.deferred = []
        self.room_bytes = ROOM_BYTES_MAX

    cpdef int64_t steady_ns(self) except? -1:
        """The wall time by which messages expire and schedules are due.

        A clock that goes back is followed at once: nothing is lost by that. A clock that jumps
        ahead is followed when it has stayed there for a while: messages that are removed too early
        do not come back.
        """
        cdef int64_t offset_ns = later(self.now_ns, -self.monotonic_ns)
        cdef int64_t ahead_ns, moved_ns
        if not self.is_set:
            self.is_set = True
            self.offset_ns = offset_ns
        ahead_ns = distance(self.offset_ns, offset_ns)
        if ahead_ns <= CLOCK_SLACK_NS:
            self.offset_ns = offset_ns
            if ahead_ns >= -<int64_t>CLOCK_SLACK_NS and self.ahead_since_ns == 0:
                return later(self.monotonic_ns, offset_ns)
            self.ahead_since_ns = 0
            moved_ns = min(ahead_ns, <int64_t>-1)
        elif self.ahead_since_ns == 0 \
                or abs(distance(self.ahead_offset_ns, offset_ns)) > CLOCK_SLACK_NS:
            self.ahead_since_ns = max(self.monotonic_ns, <int64_t>1)
            self.ahead_offset_ns = offset_ns
            moved_ns = 0
        elif self.monotonic_ns - self.ahead_since_ns >= BELIEVED_NS:
            self.offset_ns = offset_ns
            self.ahead_since_ns = 0
            moved_ns = ahead_ns
        else:
            return later(self.monotonic_ns, self.offset_ns)
        if self.clock_watch is not None:
            self.clock_watch(moved_ns)
        return later(self.monotonic_ns, self.offset_ns)

    @property
    def believed_at_ns(self):
        """The monotonic time at which a clock that is ahead will be trusted; 0: it is not ahead."""
        return self.ahead_since_ns + BELIEVED_NS if self.ahead_since_ns else 0

    cpdef int mark_dirty(self, Participant participant) except -1:
        """List a participant that has something to write at the end of this turn."""
        if not participant.is_dirty:
            participant.is_dirty = True
            self.dirty.append(participant)
        return 0

    cpdef int wake(self, Participant participant) except -1:
        """List a participant that may have something to send at the end of this turn."""
        if not participant.is_woken:
            participant.is_woken = True
            self.woken.append(participant)
        return 0

    def defer(self, handler, bytes subject not None, bytes reply not None, bytes header not None,
              bytes payload not None):
        """Call handler(subject, reply, header, payload) later in this turn."""
        self.deferred.append((handler, subject, reply, header, payload))

    def take_dirty(self):
        """Take the participants with something to write; each may be listed again."""
        cdef list taken = self.dirty
        cdef Participant participant
        self.dirty = []
        for participant in taken:
            if invariants.checked:
                assert participant.is_dirty, "a participant is listed once"
            participant.is_dirty = False
        return taken

    def take_woken(self):
        """Take the participants with something to send; each may be listed again."""
        cdef list taken = self.woken
        cdef Participant participant
        self.woken = []
        for participant in taken:
            if invariants.checked:
                assert participant.is_woken, "a participant is listed once"
            participant.is_woken = False
        return taken

    cdef int put_back(self, list dirty, list woken) except -1:
        """List participants again for which there was no time; they come first in the next turn."""
        cdef Participant participant
        cdef list rest = [one for one in dirty if not (<Participant>one).is_dirty]
        if rest:
            for participant in rest:
                participant.is_dirty = True
            self.dirty = rest + self.dirty
        rest = [one for one in woken if not (<Participant>one).is_woken]
        if rest:
            for participant in rest:
                participant.is_woken = True
            self.woken = rest + self.woken
        return 0

    def take_deferred(self, count_max=1000):
        """Take up to `count_max` deferred messages, oldest first, as tuples that begin with the
        handler.
        """
        cdef list taken = self.deferred[:count_max]
        del self.deferred[:count_max]
        return taken

    def return_deferred(self, list rest not None):
        """Return deferred messages for which there was no time: they come first in the next
        turn.
        """
        self.deferred[:0] = rest

    cpdef bint is_busy(self) noexcept:
        """Whether any of the lists has entries."""
        return len(self.dirty) > 0 or len(self.woken) > 0 or len(self.deferred) > 0
