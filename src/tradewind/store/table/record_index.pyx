"""The offset of the record and the id of the subject, for each message of a block.

Owns three arrays. Usually the sequences of a block are dense, and entry i simply is sequence base +
i, with NO_RECORD for the few that are missing: 8 bytes a message, found in one step. Where a block
has a large gap (a compaction, a skipped range) filling it would cost unbounded memory, so the index
turns sparse: it then keeps the sequence of each entry too, and finds them by binary search.
"""

from libc.stdlib cimport free, malloc, realloc

cdef enum:
    # A gap is filled while it costs less than this many entries plus a few per message.
    FILLED_GAP_MAX = 4096
    FIRST_CAPACITY = 64


cdef void records_init(RecordIndex* index) noexcept nogil:
    index.base = 0
    index.count = 0
    index.capacity = 0
    index.offsets = NULL
    index.subject_ids = NULL
    index.sequences = NULL


cdef void records_free(RecordIndex* index) noexcept nogil:
    free(index.offsets)
    free(index.subject_ids)
    free(index.sequences)
    records_init(index)


cdef int resize(RecordIndex* index, uint32_t capacity) noexcept nogil:
    cdef void* memory = realloc(index.offsets, <size_t>capacity * sizeof(uint32_t))
    if memory == NULL:
        return -1
    index.offsets = <uint32_t*>memory
    memory = realloc(index.subject_ids, <size_t>capacity * sizeof(uint32_t))
    if memory == NULL:
        return -1
    index.subject_ids = <uint32_t*>memory
    if index.sequences != NULL:
        memory = realloc(index.sequences, <size_t>capacity * sizeof(uint64_t))
        if memory == NULL:
            return -1
        index.sequences = <uint64_t*>memory
    index.capacity = capacity
    return 0


cdef int records_start(RecordIndex* index) noexcept nogil:
    records_free(index)
    return resize(index, FIRST_CAPACITY)


cdef int make_sparse(RecordIndex* index) noexcept nogil:
    cdef uint32_t entry
    index.sequences = <uint64_t*>malloc(<size_t>index.capacity * sizeof(uint64_t))
    if index.sequences == NULL:
        return -1
    for entry in range(index.count):
        index.sequences[entry] = index.base + entry
    return 0


cdef int records_push(
        RecordIndex* index, uint64_t seq, uint32_t offset, uint32_t subject_id) noexcept nogil:
    cdef uint64_t gap = 0
    cdef uint32_t wanted
    if index.offsets == NULL and records_start(index) != 0:
        return -1
    if index.count == 0:
        index.base = seq
    else:
        if seq <= records_last(index):
            return -2
        gap = seq - records_last(index) - 1
    if gap > FILLED_GAP_MAX + <uint64_t>index.count * 2 and index.sequences == NULL:
        if make_sparse(index) != 0:
            return -1
    if index.sequences != NULL:
        gap = 0
    wanted = index.count + <uint32_t>gap + 1
    if wanted > index.capacity:
        if resize(index, max(wanted, index.capacity + index.capacity // 2)) != 0:
            return -1
    while gap:
        index.offsets[index.count] = NO_RECORD
        index.subject_ids[index.count] = NO_RECORD
        index.count += 1
        gap -= 1
    index.offsets[index.count] = offset
    index.subject_ids[index.count] = subject_id
    if index.sequences != NULL:
        index.sequences[index.count] = seq
    index.count += 1
    return 0


cdef void records_shrink(RecordIndex* index) noexcept nogil:
    if index.offsets != NULL and index.capacity > index.count and index.count:
        resize(index, index.count)


cdef size_t records_memory(const RecordIndex* index) noexcept nogil:
    return <size_t>index.capacity * (8 if index.sequences == NULL else 16)


cdef uint32_t records_from(const RecordIndex* index, uint64_t seq) noexcept nogil:
    cdef uint32_t low = 0, high = index.count, middle
    if seq <= index.base:
        return 0
    if index.sequences == NULL:
        return <uint32_t>min(seq - index.base, <uint64_t>index.count)
    while low < high:
        middle = low + (high - low) // 2
        if index.sequences[middle] < seq:
            low = middle + 1
        else:
            high = middle
    return low


cdef int64_t records_find(const RecordIndex* index, uint64_t seq) noexcept nogil:
    cdef uint32_t entry
    if index.count == 0 or seq < index.base:
        return -1
    entry = records_from(index, seq)
    if entry == index.count or records_seq(index, entry) != seq:
        return -1
    return entry
