"""The seam between a stream and whoever takes its messages: consumers, mirrors and sources.

Owns nothing. A stream that keeps messages until they were taken asks all of its takers; it does not
know what they are.
"""


cdef class Taker(Participant):
    """Takes nothing. Whatever takes something has `fill` and `wait_for_disk`, too."""

    cdef bint needs_message(self, uint64_t seq, uint32_t subject_id) except -1:
        """Whether a stored message of a subject is still wanted."""
        return False

    cdef uint64_t limit(self) noexcept:
        """No message from here on was taken."""
        return 0

    @property
    def has_demand(self):
        """Whether it would take a message, if there were one."""
        return False

    @property
    def limit_seq(self):
        """No message from here on was taken."""
        return self.limit()
