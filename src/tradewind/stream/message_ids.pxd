"""State of the table of message ids; the code and the explanation are in message_ids.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

ctypedef struct IdEntry:
    uint64_t seq            # of the message that brought the id
    int64_t timestamp       # of that message
    uint32_t size           # of the id, which follows the entry
    uint32_t hash

ctypedef struct IdSlot:
    uint64_t position       # of the entry in all bytes ever written, plus one; 0: free
    uint32_t hash
    uint32_t unused

cdef class MessageIds:
    cdef char* data                 # entries, oldest first
    cdef size_t begin               # of the oldest entry in `data`
    cdef size_t end
    cdef size_t capacity
    cdef uint64_t dropped           # bytes ever taken out: the position of data[begin]
    cdef IdSlot* slots
    cdef size_t slot_count          # 0 or a power of two, at least twice `count`
    cdef readonly uint64_t seed
    cdef readonly size_t count
    cdef readonly int64_t window_ns         # 0: nothing is remembered
    cdef readonly size_t bytes_max

    cdef uint64_t find(self, const char* id, uint32_t size, int64_t now_ns) noexcept nogil
    cdef int add(self, const char* id, uint32_t size, uint64_t seq, int64_t timestamp) except -1
    cdef bint has_room(self, uint32_t size) noexcept nogil
    cpdef void expire(self, int64_t now_ns) noexcept
    cdef void drop_oldest(self) noexcept nogil
    cdef IdEntry* _entry(self, uint64_t position) noexcept nogil
    cdef int _grow_slots(self) except -1
    cdef int _reserve(self, size_t size) except -1
    cdef void _take_slot(self, uint64_t position, uint32_t hash) noexcept nogil
    cdef void _release(self) noexcept nogil
    cdef void _remove_slot(self, uint64_t position, uint32_t hash) noexcept nogil
