"""The interface between a stream and whatever takes its messages: consumers, mirrors and sources.

Owns nothing. A stream that keeps messages until they were taken asks all of its takers; it does not
know what they are. The compiled part of a taker answers what may be asked once per message; the
rest of a taker is plain Python.
"""


cdef class TakerPart:
    """A part that has taken nothing, and needs nothing."""

    cdef bint needs_message(self, uint64_t seq, uint32_t subject_id) except -1:
        """Whether a stored message of a subject is still wanted."""
        return False

    cdef uint64_t limit(self) noexcept:
        """The first sequence that has not been taken, nor any message after it."""
        return 0

    cdef bint has_demand(self) noexcept:
        """Whether the taker would take a message, if there were one."""
        return False


cdef class Taker(Participant):
    """A participant that takes the messages of a stream. It overrides `fill` and `wait_for_disk`,
    and has a `part` that records what was taken.
    """

    def __cinit__(self, *_, **__):
        self.part = TakerPart()

    def __init__(self, TakerPart part not None):
        self.part = part

    def fill(self, uint64_t visible_seq):
        """Take the available messages up to a sequence; true if another turn is wanted
        immediately.
        """
        return False

    def wait_for_disk(self):
        """Try again later, because the next message could not be read."""

    @property
    def has_demand(self):
        """Whether the taker would take a message, if there were one."""
        return self.part.has_demand()

    @property
    def limit_seq(self):
        """The first sequence that has not been taken, nor any message after it."""
        return self.part.limit()
