"""The ids of the messages of the last few minutes: `Nats-Msg-Id` -> sequence.

Owns the ids in one heap block, oldest first, and an open-addressing table that refers to them. An
entry costs 24 bytes with 32 to 64 in the table, and its id. Ids arrive in the order of their times,
so those that have left the window are always at the front. It never reads a clock and never decides
what a duplicate means.

Positions count all bytes ever written. They therefore stay valid when the block moves, and removing
an entry does not affect the others.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memmove
from tradewind cimport invariants
from tradewind.containers.table cimport hash_bytes
from tradewind.saturated cimport later

cdef enum:
    SLOTS_MIN = 16

IDS_BYTES_MAX = 1024 * 1024 * 1024


cdef class MessageIds:
    """The table of one stream. With a window of 0 nothing is a duplicate."""

    def __init__(self, int64_t window_ns, uint64_t seed, size_t bytes_max=IDS_BYTES_MAX):
        self.window_ns = window_ns
        self.bytes_max = bytes_max
        self.seed = seed

    def __dealloc__(self):
        free(self.data)
        free(self.slots)

    cdef IdEntry* _entry(self, uint64_t position) noexcept nogil:
        return <IdEntry*>(self.data + self.begin + (position - self.dropped))

    cdef uint64_t find(self, const char* id, uint32_t size, int64_t now_ns) noexcept nogil:
        """The sequence that came with this id inside the window; 0 if there is none."""
        cdef uint32_t hash = <uint32_t>hash_bytes(self.seed, id, size)
        cdef size_t mask = self.slot_count - 1
        cdef size_t index
        cdef IdEntry* entry
        if self.count == 0:
            return 0
        index = hash & mask
        while self.slots[index].position:
            if self.slots[index].hash == hash:
                entry = self._entry(self.slots[index].position - 1)
                if entry.size == size and memcmp(entry + 1, id, size) == 0:
                    return entry.seq if later(entry.timestamp, self.window_ns) > now_ns else 0
            index = (index + 1) & mask
        return 0

    cdef bint has_room(self, uint32_t size) noexcept nogil:
        """Whether one more id of this size stays within `bytes_max`."""
        return (self.end - self.begin) + self.slot_count * sizeof(IdSlot) \
            + sizeof(IdEntry) + size <= self.bytes_max

    cdef int add(self, const char* id, uint32_t size, uint64_t seq, int64_t timestamp) except -1:
        """Remember an id. The table then refers to the new entry of an id known from outside the
        window.
        """
        cdef IdEntry* entry
        cdef size_t padded = (sizeof(IdEntry) + size + 7) & ~<size_t>7
        cdef uint64_t position
        if self.window_ns <= 0:
            return 0
        self._grow_slots()
        self._reserve(padded)
        position = self.dropped + (self.end - self.begin)
        entry = <IdEntry*>(self.data + self.end)
        entry.seq = seq
        entry.timestamp = timestamp
        entry.size = size
        entry.hash = <uint32_t>hash_bytes(self.seed, id, size)
        memcpy(entry + 1, id, size)
        self.end += padded
        self._take_slot(position, entry.hash)
        self.count += 1
        if invariants.checked:
            assert self.begin <= self.end <= self.capacity, (self.begin, self.end, self.capacity)
            assert self.count * 2 <= self.slot_count, (self.count, self.slot_count)
            assert self.find(id, size, timestamp) == seq, (id[:size], seq)
        return 0

    cdef void _take_slot(self, uint64_t position, uint32_t hash) noexcept nogil:
        """Refer to an entry, in front of an older one with the same id.

        The older one is outside the window by then, and `expire` removes each of them by position.
        """
        cdef size_t mask = self.slot_count - 1
        cdef size_t index = hash & mask
        cdef IdEntry* fresh = self._entry(position)
        cdef IdEntry* other
        cdef uint64_t moved
        while self.slots[index].position:
            if self.slots[index].hash == hash:
                other = self._entry(self.slots[index].position - 1)
                if other.size == fresh.size and memcmp(other + 1, fresh + 1, fresh.size) == 0:
                    moved = self.slots[index].position - 1
                    self.slots[index].position = position + 1
                    position = moved
            index = (index + 1) & mask
        self.slots[index].position = position + 1
        self.slots[index].hash = hash

    cdef void _remove_slot(self, uint64_t position, uint32_t hash) noexcept nogil:
        """Free the slot of an entry; later ones of the run move back, so there are no gaps."""
        cdef size_t mask = self.slot_count - 1
        cdef size_t hole = hash & mask
        cdef size_t index, first_slot
        while self.slots[hole].position != position + 1:
            if self.slots[hole].position == 0:
                return
            hole = (hole + 1) & mask
        index = hole
        while True:
            index = (index + 1) & mask
            if self.slots[index].position == 0:
                break
            first_slot = self.slots[index].hash & mask
            if ((index - first_slot) & mask) >= ((index - hole) & mask):
                self.slots[hole] = self.slots[index]
                hole = index
        self.slots[hole].position = 0

    cdef int _grow_slots(self) except -1:
        cdef size_t slot_count = self.slot_count * 2 if self.slot_count else SLOTS_MIN
        cdef IdSlot* slots
        cdef size_t old, index
        if (self.count + 1) * 2 <= self.slot_count:
            return 0
        slots = <IdSlot*>calloc(slot_count, sizeof(IdSlot))
        if slots == NULL:
            raise MemoryError
        for old in range(self.slot_count):
            if self.slots[old].position:
                index = self.slots[old].hash & (slot_count - 1)
                while slots[index].position:
                    index = (index + 1) & (slot_count - 1)
                slots[index] = self.slots[old]
        free(self.slots)
        self.slots = slots
        self.slot_count = slot_count
        return 0

    cdef int _reserve(self, size_t size) except -1:
        cdef size_t used = self.end - self.begin
        cdef size_t capacity
        cdef char* data
        if self.end + size <= self.capacity:
            return 0
        # Moved only if half is free, so each byte removed pays for one moved.
        if self.begin > used:
            memmove(self.data, self.data + self.begin, used)
            self.begin = 0
            self.end = used
            if used + size <= self.capacity:
                return 0
        # By half rather than double, because this may be the largest block of the stream.
        capacity = max(self.capacity + self.capacity // 2, self.end + size, <size_t>1024)
        data = <char*>realloc(self.data, capacity)
        if data == NULL:
            raise MemoryError
        self.data = data
        self.capacity = capacity
        return 0

    cpdef void expire(self, int64_t now_ns) noexcept:
        """Remove what has left the window."""
        while self.count:
            if later(self._entry(self.dropped).timestamp, self.window_ns) > now_ns:
                return
            self.drop_oldest()
        self._release()

    cdef void drop_oldest(self) noexcept nogil:
        """Remove the oldest, whether or not it has left the window; there is one."""
        cdef IdEntry* entry = self._entry(self.dropped)
        cdef size_t padded = (sizeof(IdEntry) + entry.size + 7) & ~<size_t>7
        self._remove_slot(self.dropped, entry.hash)
        self.begin += padded
        self.dropped += padded
        self.count -= 1

    cdef void _release(self) noexcept nogil:
        """Nothing is remembered: an idle stream holds no memory."""
        free(self.data)
        free(self.slots)
        self.data = NULL
        self.slots = NULL
        self.begin = self.end = self.capacity = self.slot_count = 0

    # -------------------------------------------------------------- for Python

    @property
    def memory_bytes(self):
        """Heap memory in use."""
        return self.capacity + self.slot_count * sizeof(IdSlot)

    @property
    def next_expiry_ns(self):
        """When the oldest id leaves the window (wall time); 0 if there is none."""
        return later(self._entry(self.dropped).timestamp, self.window_ns) if self.count else 0

    def set_window(self, int64_t window_ns, int64_t now_ns):
        """Remember ids for this long from now on; older ones are removed immediately."""
        self.window_ns = window_ns
        self.expire(now_ns)

    def lookup(self, bytes message_id not None, int64_t now_ns):
        """The sequence that came with this id inside the window; 0 if there is none."""
        return self.find(message_id, <uint32_t>len(message_id), now_ns)

    def remember(self, bytes message_id not None, uint64_t seq, int64_t timestamp_ns):
        """Add an id; times must not go back. For tests: a stream calls `add`."""
        self.add(message_id, <uint32_t>len(message_id), seq, timestamp_ns)

    def can_take(self, bytes message_id not None):
        """Whether this id stays within `bytes_max`."""
        return self.has_room(<uint32_t>len(message_id))

    def clear(self):
        """Forget everything."""
        self.dropped += self.end - self.begin
        self.count = 0
        self._release()

    def items(self):
        """(id, sequence, timestamp) of every entry, oldest first; for tests and tools."""
        cdef uint64_t position = self.dropped
        cdef IdEntry* entry
        result = []
        for _ in range(self.count):
            entry = self._entry(position)
            result.append(((<char*>(entry + 1))[:entry.size], entry.seq, entry.timestamp))
            position += (sizeof(IdEntry) + entry.size + 7) & ~<size_t>7
        return result
