"""Notifies consumers of messages that leave a stream.

Owns the list of consumers that follow a store. It is called in the middle of a removal, so it only
counts and takes notes; each consumer reads its notes when the turn ends.
"""

from libc.stdint cimport uint32_t, uint64_t


cdef class Follower(StoreListener):
    """Keeps the position of one consumer correct, and notes removals for it.

    `owner` is woken when there are any.
    """

    def __init__(self, Cursor cursor not None, AckState acks not None, Turn turn not None,
                 Participant owner not None):
        self.cursor = cursor
        self.acks = acks
        self.turn = turn
        self.owner = owner

    def __cinit__(self):
        self.gone = []

    cdef int message_removed(self, uint64_t seq, uint32_t subject_id) except -1:
        self.cursor.message_removed(seq, subject_id)
        if seq < self.cursor.limit() \
                and (self.acks.is_pending(seq) or seq in self.acks.redelivered):
            self.gone.append(seq)
            self.turn.wake(self.owner)
        return 0

    cdef int all_removed(self) except -1:
        self.cursor.all_removed()
        self.note_purge()
        return 0

    cdef int note_purge(self) except -1:
        """Note that the removed messages were purged."""
        self.purged = True
        self.turn.wake(self.owner)
        return 0


cdef class RemovalFanOut(StoreListener):
    """The listener of a store: notifies all consumers of the stream."""

    def __cinit__(self):
        self.followers = []

    cdef int message_removed(self, uint64_t seq, uint32_t subject_id) except -1:
        for follower in self.followers:
            (<Follower>follower).message_removed(seq, subject_id)
        return 0

    cdef int all_removed(self) except -1:
        for follower in self.followers:
            (<Follower>follower).all_removed()
        return 0

    def purged(self):
        """Note that the messages just removed were purged: consumers drop them without a report."""
        for follower in self.followers:
            (<Follower>follower).note_purge()
