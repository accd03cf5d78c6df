"""The seam between consumers and what a stream keeps: a consumer does not need a message any more.

Owns nothing. A stream that keeps messages for its consumers (work queue, interest) overrides it; a
consumer of a stream that keeps them by limits has none.
"""


cdef class DoneListener:
    """Nobody is interested: messages stay."""

    cdef int message_done(self, Participant consumer, uint64_t seq) except -1:
        """A delivered message was acknowledged or terminated, or needs no acknowledgement.

        Called in the middle of a delivery: the store may change, nothing may be published.
        """
        return 0
