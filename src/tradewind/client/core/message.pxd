"""A received message, as the parser creates it and users see it."""

from libc.stdint cimport int64_t, uint64_t

from tradewind.client.core.publisher cimport Publisher

cdef class Metadata:
    cdef readonly str stream
    cdef readonly str consumer
    cdef readonly str domain                # empty: none
    cdef readonly uint64_t delivered_count
    cdef readonly uint64_t stream_sequence
    cdef readonly uint64_t consumer_sequence
    cdef readonly int64_t timestamp_ns
    cdef readonly uint64_t pending_count


cdef class Msg:
    cdef readonly str subject
    cdef readonly bytes data
    cdef bytes _reply               # None: no reply subject
    cdef bytes _header              # the block as received; None: no headers
    cdef object _headers            # parsed on first use
    cdef Metadata _metadata         # likewise
    cdef bint _settled              # a final acknowledgement was sent
    cdef Publisher _publisher

    cdef int _answer(self, const char* payload, Py_ssize_t size, bint final) except -1
    cdef Metadata _parse_metadata(self)


cdef Msg make_message(Publisher publisher, str subject, bytes reply, bytes header, bytes data)
