"""State of a queue of replies; the code and the explanation are in publish_replies.pyx."""

from libc.stdint cimport uint32_t, uint64_t
from tradewind.broker.accounts cimport Account
from tradewind.broker.router cimport Router
from tradewind.containers.buffer cimport Buffer

cdef enum ReplyKind:
    REPLY_ACK = 0           # its message is stored as `seq`; a body follows in the JSON
    REPLY_DUPLICATE = 1     # ... was stored before as `seq`
    REPLY_BODY = 2          # the given bytes, whatever becomes of the messages before it
    REPLY_COPY = 3          # a copy of a message, which goes out only if the message is kept
    REPLY_TEXT = 4          # the given bytes, unless the messages before it are not kept
    REPLY_READ = 5          # the same with a header: the answer to a direct get

ctypedef struct ReplyHead:
    uint64_t seq            # sent when everything up to it is acknowledged
    uint32_t subject_size
    uint32_t reply_size     # only a copy may have one
    uint32_t header_size
    uint32_t total_size     # header and payload
    uint32_t kind
    uint32_t hops           # number of streams that stored a copy before it came here

cdef class Rider:
    cdef bytes reply                # the receiver
    cdef bytes body
    cdef uint32_t hops

cdef class ReplyQueue:
    cdef Buffer entries             # ReplyHead, subject, reply, header, payload; oldest first
    cdef bytes prefix               # of every acknowledgement, up to the sequence
    cdef bint is_legacy            # ... or all of it, in the form of the JetStream previews
    cdef Buffer body                # the acknowledgement being sent
    cdef readonly uint64_t count

    cdef int add(self, uint32_t kind, uint64_t seq, const char* subject, uint32_t subject_size,
                 const char* reply, uint32_t reply_size, const char* body, uint32_t header_size,
                 uint32_t total_size) except -1
    cdef int add_rider(self, uint64_t seq, Rider rider) except -1
    cdef int release(self, Router router, Account account, uint64_t acknowledged,
                     bytes failure) except -1
    cdef int _check(self) except -1
    cdef Rider _next_rider(self, uint64_t seq)
    cdef int _drop_first(self) except -1
    cdef int _write_ack(self, uint64_t seq, bint duplicate, const char* tail,
                        size_t tail_size) except -1
