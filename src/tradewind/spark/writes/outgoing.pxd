"""State of outgoing rows; the code and the explanation are in outgoing.pyx."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from tradewind.store.format.hash cimport HashKey
from tradewind.containers.buffer cimport Buffer

# The texts of an Arrow column of strings or bytes. The array owns everything.
ctypedef struct Texts:
    const int32_t* ends                 # `count + 1` offsets
    const char* data
    const unsigned char* validity       # one bit per row; NULL: no row is null
    int64_t first                       # the row of the buffers that is row 0 of the column

# The headers of an Arrow column, a map of texts to texts or to lists of texts.
ctypedef struct Maps:
    const int32_t* ends
    const unsigned char* validity
    int64_t first
    Texts names
    Texts values
    const int32_t* list_ends            # NULL: a name has one value
    int64_t list_first

ctypedef struct Seen:
    uint64_t hash                       # 0: the slot is free
    uint32_t count


cdef class OutgoingRows:
    cdef bytes _start                   # the header block up to the scope of the ids
    cdef bint _by_key                   # rows are identified by subject and ordinal, not by content
    cdef object _held                   # the arrays that the pointers below point into
    cdef readonly int64_t count         # rows of the current batch
    cdef Texts _subjects
    cdef Texts _payloads
    cdef Texts _ids
    cdef Texts _operations
    cdef Maps _headers
    cdef bint _has_ids
    cdef bint _has_operations
    cdef bint _has_headers
    cdef HashKey _key
    cdef Buffer _block                  # the header block of the current row
    cdef size_t _id_begin               # where its id begins in that block
    cdef size_t _id_end
    cdef Seen* _seen                    # owned; a hash table with open addressing
    cdef uint64_t _seen_capacity        # a power of two, or 0
    cdef uint64_t _seen_used
    cdef readonly uint64_t row_count    # in all batches
    cdef readonly uint64_t digest       # sum over the identities of the rows, whatever their order

    cdef int _encode(self, int64_t row) except -1
    cdef int _refuse_id(self, bytes text) except -1
    cdef int _put_headers(self, int64_t row) except -1
    cdef int _put_field(self, int64_t row, const char* name, Py_ssize_t name_size,
                        const char* value, Py_ssize_t value_size) except -1
    cdef int _identify(self, int64_t row) except -1
    cdef uint32_t _count(self, uint64_t value) except 0
    cdef int _grow(self) except -1
