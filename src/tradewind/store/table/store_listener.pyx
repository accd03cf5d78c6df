"""The interface between a store and the object that counts its messages.

Owns nothing. A store has one listener; several share it through a listener that notifies the
others.
"""


cdef class StoreListener:
    """The default listener, which ignores all removals."""

    cdef int message_removed(self, uint64_t seq, uint32_t subject_id) except -1:
        """Called when a live message is about to be removed."""
        return 0

    cdef int all_removed(self) except -1:
        """Called when all messages were removed at once; the next sequence follows the last one."""
        return 0
