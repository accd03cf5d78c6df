"""The subjects of a stream by name, for filters that match few of many.

Owns pointers to the entries of the index, ascending, in chunks of bounded size: 12 bytes per
subject or so. All subjects with one beginning are neighbours, so those that match `a.b.>` are found
without looking at the others. A stream whose filters match everything or name their subjects has no
order; see `SubjectFilter.gather`, which makes it in steps.

Never raises; -1 means out of memory.
"""

from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove


cdef inline int compare(const SubjectEntry* entry, const char* name, uint32_t size) noexcept nogil:
    cdef int order = memcmp(&entry.name[0], name, min(entry.name_size, size))
    return order if order else (entry.name_size > size) - (entry.name_size < size)


cdef bint starts_with(const SubjectEntry* entry, const char* head, uint32_t size) noexcept nogil:
    return entry.name_size >= size and memcmp(&entry.name[0], head, size) == 0


cdef uint32_t chunk_of(const SubjectOrder* order, const char* name, uint32_t size) noexcept nogil:
    """Find the last chunk that begins at or before a name; the first one if none does."""
    cdef uint32_t low = 0, high = order.chunk_count, middle
    # New subjects often come in ascending order.
    if high and compare(order.chunks[high - 1].entries[0], name, size) <= 0:
        return high - 1
    while low < high:
        middle = (low + high) // 2
        if compare(order.chunks[middle].entries[0], name, size) <= 0:
            low = middle + 1
        else:
            high = middle
    return low - 1 if low else 0


cdef uint32_t place_in(const OrderChunk* chunk, const char* name, uint32_t size) noexcept nogil:
    """Find the first entry of a chunk that is not before a name."""
    cdef uint32_t low = 0, high = chunk.count, middle
    if high and compare(chunk.entries[high - 1], name, size) < 0:
        return high
    while low < high:
        middle = (low + high) // 2
        if compare(chunk.entries[middle], name, size) < 0:
            low = middle + 1
        else:
            high = middle
    return low


cdef OrderPlace order_from(const SubjectOrder* order, const char* name,
                           uint32_t size) noexcept nogil:
    """Find the first subject that is not before a name."""
    cdef OrderPlace place
    place.chunk = chunk_of(order, name, size)
    place.entry = 0
    if order.chunk_count:
        place.entry = place_in(order.chunks[place.chunk], name, size)
    return place


cdef SubjectEntry* order_next(const SubjectOrder* order, OrderPlace* place) noexcept nogil:
    """The subject at a place, which moves on; NULL at the end."""
    if place.chunk < order.chunk_count and place.entry == order.chunks[place.chunk].count:
        place.chunk += 1
        place.entry = 0
    if place.chunk >= order.chunk_count:
        return NULL
    place.entry += 1
    return order.chunks[place.chunk].entries[place.entry - 1]


cdef int add_chunk(SubjectOrder* order, uint32_t index) noexcept nogil:
    """Make room for an empty chunk at an index."""
    cdef uint32_t capacity = order.chunk_capacity
    cdef OrderChunk** chunks
    cdef OrderChunk* chunk
    if order.chunk_count == capacity:
        capacity = capacity * 2 if capacity else 16
        chunks = <OrderChunk**>realloc(order.chunks, capacity * sizeof(OrderChunk*))
        if chunks == NULL:
            return -1
        order.chunks = chunks
        order.chunk_capacity = capacity
    chunk = <OrderChunk*>malloc(sizeof(OrderChunk))
    if chunk == NULL:
        return -1
    chunk.count = 0
    memmove(order.chunks + index + 1, order.chunks + index,
            (order.chunk_count - index) * sizeof(OrderChunk*))
    order.chunks[index] = chunk
    order.chunk_count += 1
    return 0


cdef int split(SubjectOrder* order, uint32_t index, bint is_end) noexcept nogil:
    """Divide a full chunk. At the end, where names ascend, the old one stays almost full."""
    cdef OrderChunk* chunk = order.chunks[index]
    cdef OrderChunk* fresh
    cdef uint32_t kept = ORDER_CHUNK_MAX - 1 if is_end else ORDER_CHUNK_MAX // 2
    if add_chunk(order, index + 1) != 0:
        return -1
    fresh = order.chunks[index + 1]
    fresh.count = chunk.count - kept
    memcpy(&fresh.entries[0], &chunk.entries[kept], fresh.count * sizeof(SubjectEntry*))
    chunk.count = kept
    return 0


cdef int order_insert(SubjectOrder* order, SubjectEntry* entry) noexcept nogil:
    """Add a subject."""
    cdef const char* name = &entry.name[0]
    cdef OrderPlace place
    cdef OrderChunk* chunk
    if order.chunk_count == 0 and add_chunk(order, 0) != 0:
        return -1
    place = order_from(order, name, entry.name_size) if order.chunks[0].count else OrderPlace(0, 0)
    chunk = order.chunks[place.chunk]
    if chunk.count == ORDER_CHUNK_MAX:
        if split(order, place.chunk, place.chunk == order.chunk_count - 1
                 and place.entry == chunk.count) != 0:
            return -1
        if place.entry > chunk.count:
            place.entry -= chunk.count
            chunk = order.chunks[place.chunk + 1]
    memmove(&chunk.entries[place.entry + 1], &chunk.entries[place.entry],
            (chunk.count - place.entry) * sizeof(SubjectEntry*))
    chunk.entries[place.entry] = entry
    chunk.count += 1
    return 0


cdef void order_remove(SubjectOrder* order, const SubjectEntry* entry) noexcept nogil:
    """Remove a subject."""
    cdef OrderPlace place = order_from(order, &entry.name[0], entry.name_size)
    cdef OrderChunk* chunk = order.chunks[place.chunk]
    chunk.count -= 1
    memmove(&chunk.entries[place.entry], &chunk.entries[place.entry + 1],
            (chunk.count - place.entry) * sizeof(SubjectEntry*))
    if chunk.count == 0:
        order.chunk_count -= 1
        memmove(order.chunks + place.chunk, order.chunks + place.chunk + 1,
                (order.chunk_count - place.chunk) * sizeof(OrderChunk*))
        free(chunk)


cdef void order_free(SubjectOrder* order) noexcept nogil:
    cdef uint32_t index
    for index in range(order.chunk_count):
        free(order.chunks[index])
    free(order.chunks)
    order.chunks = NULL
    order.chunk_count = 0
    order.chunk_capacity = 0
    order.ordered = 0
