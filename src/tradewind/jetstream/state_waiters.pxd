"""State of the waiters for a consumer's state; the code and the explanation are in
state_waiters.py.

That module is compiled Python, because every acknowledgement with an answer creates a waiter.
"""

import cython

from libc.stdint cimport int64_t, uint64_t
from tradewind.consumer.ack_replies cimport AckReplies
from tradewind.store.commits.syncer cimport SyncEntry
from tradewind.store.folder.consumer_states cimport ConsumerFiles, ConsumerStates
from tradewind.stream.commit_path cimport CommitPath


cdef class AckAnswers:
    cdef AckReplies _replies
    cdef bint _is_in_memory
    cdef uint64_t _end
    cdef int _left

    cpdef state_kept(self, error)
    cpdef removed(self, error)


cdef class StateWaiters:
    cdef object _hosted                     # HostedStream
    cdef CommitPath _commits                # of the stream
    cdef dict _until_synced
    cdef dict _until_written
    cdef dict _until_taken

    @cython.locals(
        answers=AckAnswers, replies=AckReplies, entry=SyncEntry, waiting=dict, ticket=int64_t)
    cpdef keep_acks(self, consumer)

    cpdef when_kept(self, consumer, told)

    @cython.locals(ticket=int64_t)
    cdef _wait(self, consumer, told, dict waiting)

    @cython.locals(files=ConsumerFiles, entry=SyncEntry, ticket=int64_t)
    cdef int64_t _mark(self, consumer, dict waiting) except -1

    cdef _add(self, str name, int64_t ticket, told, dict waiting)

    @cython.locals(states=ConsumerStates)
    cpdef progressed(self)

    @cython.locals(states=ConsumerStates)
    cdef _tell(self, dict waiting, str consumer, error, kept=*)
