"""State of the table of message ids; the code and the explanation are in message_ids.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

ctypedef struct IdEntry:
    uint64_t seq            # of the message that brought the id
    int64_t timestamp       # when it came
    uint32_t size           # of the id, which follows the entry
    uint32_t hash

ctypedef struct IdSlot:
    uint64_t position       # of the entry in all bytes ever written, plus one; 0: free, see CROSSED
    uint32_t hash
    uint32_t unused

cdef enum:
    # Ids that have left the window are removed in small numbers: each id that comes takes a few
    # with it, and a step many.
    EXPIRED_PER_ID = 16
    EXPIRED_AT_ONCE_MAX = 16_384

cdef class MessageIds:
    cdef char* data                 # entries, oldest first
    cdef size_t begin               # of the oldest entry in `data`
    cdef size_t end
    cdef size_t capacity
    cdef uint64_t dropped           # bytes ever taken out: the position of data[begin]
    cdef IdSlot* slots
    cdef size_t slot_count          # 0 or a power of two, at least twice `count`
    cdef IdSlot* old_slots          # half as many, while their entries move; else NULL
    cdef size_t moved               # of those, the slots before this one have been
    cdef readonly uint64_t seed
    cdef readonly size_t count
    cdef readonly int64_t window_ns         # 0: nothing is remembered
    cdef readonly size_t bytes_max
    cdef int64_t _latest_ns                 # the time of the last entry, if there is one

    cdef uint64_t find(self, const char* id, uint32_t size, int64_t now_ns) noexcept nogil
    cdef int add(self, const char* id, uint32_t size, uint64_t seq, int64_t timestamp) except -1
    cdef int64_t latest_ns(self) noexcept nogil
    cdef bint has_room(self, uint32_t size) noexcept nogil
    cpdef void expire(self, int64_t now_ns, size_t count_max=*) noexcept
    cdef void drop_oldest(self) noexcept nogil
    cdef IdEntry* _entry(self, uint64_t position) noexcept nogil
    cdef uint64_t _find_among(self, const IdSlot* slots, size_t slot_count, const char* id,
                              uint32_t size, uint32_t hash, int64_t now_ns) noexcept nogil
    cdef int _grow_slots(self) except -1
    cdef void _move_slots(self) noexcept nogil
    cdef int _reserve(self, size_t size) except -1
    cdef void _take_slot(self, uint64_t position, uint32_t hash) noexcept nogil
    cdef void _release(self) noexcept nogil
    cdef size_t _slot_bytes(self) noexcept nogil
    cdef void _cross_out(self, uint64_t position, uint32_t hash) noexcept nogil
    cdef void _remove_slot(self, uint64_t position, uint32_t hash) noexcept nogil
