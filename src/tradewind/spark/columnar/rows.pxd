"""State of the row decoder; the code and the explanation are in rows.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.spark.columnar.memory cimport Memory
from tradewind.store.format.hash cimport Key
from tradewind.store.format.sequence_set cimport SequenceSet

# One selected message. The pointers point into the bytes that `RowDecoder._held` keeps alive.
ctypedef struct Row:
    uint64_t seq
    int64_t timestamp
    const char* subject
    const char* header
    const char* payload
    uint32_t subject_size
    uint32_t header_size
    uint32_t payload_size

ctypedef struct Growing:
    char* data                          # owned; NULL while capacity is 0
    size_t size
    size_t capacity


cdef class RowDecoder:
    # Bounds, all inclusive.
    cdef uint64_t first_seq
    cdef uint64_t last_seq
    cdef uint64_t _low                  # the bounds within the current block
    cdef uint64_t _high
    cdef int64_t first_time_ns
    cdef int64_t last_time_ns
    cdef int64_t age_floor_ns           # older messages have expired, unless their TTL is "never"
    cdef int64_t ttl_now_ns             # what TTLs are compared with; 0: no message has one
    cdef tuple _patterns                # tuples of bytes: one of each tuple must match
    cdef tuple _prefixes                # bytes: the subject begins with all of them
    cdef bint _any_subject
    cdef SequenceSet removed
    cdef bint _any_removed
    cdef object _held
    cdef readonly Memory memory         # for columns, and for blocks if the caller chooses
    cdef Row* rows                      # owned
    cdef uint64_t row_capacity
    cdef readonly uint64_t row_count
    cdef readonly uint64_t damaged_bytes    # skipped so far

    cdef uint64_t _walk(self, const char* data, uint64_t size, uint64_t position, Key key,
                        uint64_t* newest) except? 0
    cdef bint _is_wanted(self, const Row* row) except -1
    cdef bint _subject_passes(self, const Row* row) except -1
    cdef bint _has_expired(self, const Row* row) except -1
    cdef int _push(self, const Row* row) except -1
    cdef tuple _texts(self, uint64_t start, uint64_t end, bint of_subjects)
