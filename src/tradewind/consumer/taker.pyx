"""The interface between a stream and whatever takes its messages: consumers, mirrors and sources.

Owns nothing. A stream that keeps messages until they were taken asks all of its takers; it does not
know what they are. The compiled part of a taker answers what may be asked once per message; the
rest of a taker is plain Python.
"""


cdef class TakerPart:
    """The default: has taken nothing, and needs nothing."""

    cdef bint needs_message(self, uint64_t seq, uint32_t subject_id) except -1:
        """Whether a stored message of a subject is still wanted."""
        return False

    cdef uint64_t limit(self) noexcept:
        """No message from here on has been taken."""
        return 0

    cdef bint has_demand(self) noexcept:
        """Whether it would take a message, if there were one."""
        return False


cdef class Taker(Participant):
    """What a turn lists and a stream knows. A taker overrides `fill` and `wait_for_disk`, and has a
    `part` that knows what was taken.
    """

    def __cinit__(self, *_, **__):
        self.part = TakerPart()

    def __init__(self, TakerPart part not None):
        self.part = part

    def fill(self, uint64_t visible_seq):
        """Take what there is up to a sequence; true if another turn is wanted immediately."""
        return False

    def wait_for_disk(self):
        """The next message could not be read: it is retried later."""

    @property
    def has_demand(self):
        """Whether it would take a message, if there were one."""
        return self.part.has_demand()

    @property
    def limit_seq(self):
        """No message from here on has been taken."""
        return self.part.limit()
