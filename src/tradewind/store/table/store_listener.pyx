"""The seam between a store and whoever keeps count of its messages.

Owns nothing. A store has one listener; whoever wants to be several is one that tells the others.
"""


cdef class StoreListener:
    """Nobody keeps count."""

    cdef int message_removed(self, uint64_t seq, uint32_t subject_id) except -1:
        """A live message is about to be removed, for whatever reason."""
        return 0

    cdef int all_removed(self) except -1:
        """All messages were removed at once; the next sequence is the one behind the last."""
        return 0
