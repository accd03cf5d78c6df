"""The interface between a store and whatever keeps count of its messages.

Owns nothing. A store has one listener; several share it through a listener that notifies the
others.
"""


cdef class StoreListener:
    """The default: nobody keeps count."""

    cdef int message_removed(self, uint64_t seq, uint32_t subject_id) except -1:
        """A live message is about to be removed, for whatever reason."""
        return 0

    cdef int all_removed(self) except -1:
        """All messages were removed at once; the next sequence follows the last one."""
        return 0
