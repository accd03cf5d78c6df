"""The places of the messages of a block; the code and the explanation are in record_index.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    NO_RECORD = 0xFFFFFFFF          # an offset: nothing live at this sequence

ctypedef struct RecordIndex:
    uint64_t base                   # the sequence of entry 0
    uint32_t count
    uint32_t capacity
    uint32_t* offsets               # NULL: the index is not loaded
    uint32_t* subject_ids
    uint64_t* sequences             # NULL: entry i is sequence base + i


cdef void records_init(RecordIndex* index) noexcept nogil
cdef void records_free(RecordIndex* index) noexcept nogil
# An empty index that counts as loaded; -1 if there is no memory.
cdef int records_start(RecordIndex* index) noexcept nogil
# 0, or -1 if there is no memory, or -2 if seq is not above the last one.
cdef int records_push(RecordIndex* index, uint64_t seq, uint32_t offset,
                      uint32_t subject_id) noexcept nogil
# Give back what growing has reserved in advance.
cdef void records_shrink(RecordIndex* index) noexcept nogil
cdef size_t records_memory(const RecordIndex* index) noexcept nogil
# The entry of a sequence, or -1.
cdef int64_t records_find(const RecordIndex* index, uint64_t seq) noexcept nogil
# The first entry whose sequence is >= seq; `count` if there is none.
cdef uint32_t records_from(const RecordIndex* index, uint64_t seq) noexcept nogil


cdef inline uint64_t records_seq(const RecordIndex* index, uint32_t entry) noexcept nogil:
    return index.base + entry if index.sequences == NULL else index.sequences[entry]


cdef inline uint64_t records_last(const RecordIndex* index) noexcept nogil:
    """The highest sequence; 0 while the index is empty."""
    return records_seq(index, index.count - 1) if index.count else 0
