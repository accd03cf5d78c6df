"""The interface between consumers and a stream's retention: a consumer no longer needs a message.

Owns nothing. A stream that keeps messages for its consumers (work queue, interest) overrides it; a
consumer of a stream that keeps them by limits has none.
"""


cdef class DoneListener:
    """The default implementation: messages stay."""

    cdef int message_done(self, Participant consumer, uint64_t seq) except -1:
        """Called when a delivered message was acknowledged or terminated, or needs no
        acknowledgement.

        The call is in the middle of a delivery: the store may change, nothing may be published.
        """
        return 0
