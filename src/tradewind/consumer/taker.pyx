"""The seam between a stream and whoever takes its messages: consumers, mirrors and sources.

Owns nothing. A stream that keeps messages until they were taken asks all of its takers; it does not
know what they are. What it may ask once per message is answered by the compiled part of a taker;
the rest of a taker is plain Python.
"""


cdef class TakerPart:
    """Has taken nothing, and needs nothing."""

    cdef bint needs_message(self, uint64_t seq, uint32_t subject_id) except -1:
        """Whether a stored message of a subject is still wanted."""
        return False

    cdef uint64_t limit(self) noexcept:
        """No message from here on was taken."""
        return 0

    cdef bint has_demand(self) noexcept:
        """Whether it would take a message, if there were one."""
        return False


cdef class Taker(Participant):
    """What a turn lists and a stream knows. Whatever takes something overrides `fill` and
    `wait_for_disk`, and has a `part` that knows what was taken.
    """

    def __cinit__(self, *_, **__):
        self.part = TakerPart()

    def __init__(self, TakerPart part not None):
        self.part = part

    def fill(self, uint64_t visible_seq):
        """Take what there is up to a sequence; true if another turn is wanted at once."""
        return False

    def wait_for_disk(self):
        """What is next could not be read: it is tried again later."""

    @property
    def has_demand(self):
        """Whether it would take a message, if there were one."""
        return self.part.has_demand()

    @property
    def limit_seq(self):
        """No message from here on was taken."""
        return self.part.limit()
