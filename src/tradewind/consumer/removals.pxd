"""Notified of messages that leave a stream; the code is in removals.pyx."""

from tradewind.broker.turn cimport Participant, Turn
from tradewind.consumer.cursor cimport Cursor
from tradewind.consumer.pending cimport AckState
from tradewind.store.table.store_listener cimport StoreListener


cdef class Follower(StoreListener):
    cdef Cursor cursor
    cdef AckState acks
    cdef Turn turn
    cdef Participant owner      # the consumer, which has this follower
    cdef list gone              # sequences that left the stream while pending or redelivered
    cdef bint purged            # ... and nothing more is reported about it

    cdef int note_purge(self) except -1


cdef class RemovalFanOut(StoreListener):
    cdef list followers
