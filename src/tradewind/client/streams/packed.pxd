"""Delivered messages stored one after the other; the explanation is in packed.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from tradewind.containers.buffer cimport Buffer

# What the reply subject of a delivered message states about it.
ctypedef struct DeliveryFacts:
    uint64_t stream_sequence
    uint64_t consumer_sequence
    uint64_t timestamp_ns
    uint64_t pending_count

# Precedes each message; its subject, header block and payload follow, padded to 8 bytes.
ctypedef struct PackedHead:
    uint64_t seq
    int64_t timestamp
    uint32_t subject_size
    uint32_t header_size
    uint32_t payload_size
    uint32_t stride                     # from here to the next head


cdef class PackedMessages:
    cdef Buffer _bytes                  # owned
    cdef readonly uint64_t count        # messages
    cdef readonly uint64_t first_seq
    cdef readonly uint64_t last_seq
    cdef readonly uint64_t pending_count    # how many the consumer had left after the last one
    cdef readonly uint64_t size         # bytes of headers and payloads

    cdef int add(self, const DeliveryFacts* delivery, const char* subject, uint32_t subject_size,
                 const char* body, uint32_t header_size, uint32_t payload_size) except -1


cdef bint parse_delivery(const char* text, Py_ssize_t size, DeliveryFacts* delivery) noexcept nogil
