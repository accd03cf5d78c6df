"""The ids of the messages of the last few minutes: `Nats-Msg-Id` -> sequence.

Owns the ids in one heap block, oldest first, and an open-addressing table that refers to them. An
entry costs 24 bytes with 32 to 64 in the table, and its id. Ids arrive in the order of their times,
so those that have left the window are always at the front. All times are monotonic: whatever
happens to the clock of the machine, an id is known for one window. It never reads a clock and never
decides what a duplicate means.

Positions count all bytes ever written. They therefore stay valid when the block moves, and removing
an entry does not affect the others.
"""

from libc.stdint cimport INT64_MIN, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memmove
from tradewind cimport invariants
from tradewind.containers.table cimport hash_bytes
from tradewind.saturated cimport later

cdef enum:
    SLOTS_MIN = 16
    # Old slots that each new id looks at: all of them before the new ones are full (2 would do).
    MOVED_PER_ID = 8

# The position in an old slot whose entry has moved or gone.
cdef uint64_t CROSSED = 0xFFFFFFFFFFFFFFFF

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
        free(self.old_slots)

    cdef IdEntry* _entry(self, uint64_t position) noexcept nogil:
        return <IdEntry*>(self.data + self.begin + (position - self.dropped))

    cdef uint64_t find(self, const char* id, uint32_t size, int64_t now_ns) noexcept nogil:
        """The sequence stored with this id inside the window; 0 if there is none."""
        cdef uint32_t hash
        cdef uint64_t seq
        if self.count == 0:
            return 0
        hash = <uint32_t>hash_bytes(self.seed, id, size)
        seq = self._find_among(self.slots, self.slot_count, id, size, hash, now_ns)
        if self.old_slots != NULL:
            seq = max(seq, self._find_among(self.old_slots, self.slot_count // 2, id, size, hash,
                                            now_ns))
        return seq

    cdef uint64_t _find_among(self, const IdSlot* slots, size_t slot_count, const char* id,
                              uint32_t size, uint32_t hash, int64_t now_ns) noexcept nogil:
        """Find an id in one table of slots. If several entries have this id, the latest counts."""
        cdef size_t index = hash & (slot_count - 1)
        cdef uint64_t seq = 0
        cdef IdEntry* entry
        while slots[index].position:
            if slots[index].hash == hash and slots[index].position != CROSSED:
                entry = self._entry(slots[index].position - 1)
                if entry.size == size and memcmp(entry + 1, id, size) == 0 \
                        and later(entry.timestamp, self.window_ns) > now_ns:
                    seq = max(seq, entry.seq)
            index = (index + 1) & (slot_count - 1)
        return seq

    cdef int64_t latest_ns(self) noexcept nogil:
        """The time of the last id, or the minimum if there is none: times do not go back."""
        return self._latest_ns if self.count else INT64_MIN

    cdef bint has_room(self, uint32_t size) noexcept nogil:
        """Whether one more id of this size stays within `bytes_max`."""
        return (self.end - self.begin) + self._slot_bytes() + sizeof(IdEntry) + size \
            <= self.bytes_max

    cdef size_t _slot_bytes(self) noexcept nogil:
        cdef size_t count = self.slot_count
        if self.old_slots != NULL:
            count += count // 2
        return count * sizeof(IdSlot)

    cdef int add(self, const char* id, uint32_t size, uint64_t seq, int64_t timestamp) except -1:
        """Remember an id as that of message `seq`."""
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
        self._latest_ns = timestamp
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
        """Refer to an entry. Older ones with the same id stay: each is removed by its position."""
        cdef size_t mask = self.slot_count - 1
        cdef size_t index = hash & mask
        while self.slots[index].position:
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
                self._cross_out(position, hash)
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

    cdef void _cross_out(self, uint64_t position, uint32_t hash) noexcept nogil:
        """Free the slot of an entry that has not moved to the new table yet."""
        cdef size_t mask = self.slot_count // 2 - 1
        cdef size_t index = hash & mask
        if self.old_slots == NULL:
            return
        while self.old_slots[index].position:
            if self.old_slots[index].position == position + 1:
                self.old_slots[index].position = CROSSED
                return
            index = (index + 1) & mask

    cdef int _grow_slots(self) except -1:
        """Make room for one more entry. When the table grows, its entries are moved gradually, some
        with each new id.
        """
        cdef size_t slot_count = self.slot_count * 2 if self.slot_count else SLOTS_MIN
        cdef IdSlot* slots
        if self.old_slots != NULL:
            self._move_slots()
            return 0
        if (self.count + 1) * 2 <= self.slot_count:
            return 0
        slots = <IdSlot*>calloc(slot_count, sizeof(IdSlot))
        if slots == NULL:
            raise MemoryError
        self.old_slots = self.slots
        self.moved = 0
        self.slots = slots
        self.slot_count = slot_count
        if self.old_slots != NULL:
            self._move_slots()
        return 0

    cdef void _move_slots(self) noexcept nogil:
        """Move the entries of the next few old slots."""
        cdef size_t end = min(self.moved + MOVED_PER_ID, self.slot_count // 2)
        cdef IdSlot* slot
        while self.moved < end:
            slot = &self.old_slots[self.moved]
            if slot.position and slot.position != CROSSED:
                self._take_slot(slot.position - 1, slot.hash)
                slot.position = CROSSED
            self.moved += 1
        if end == self.slot_count // 2:
            free(self.old_slots)
            self.old_slots = NULL

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

    cpdef void expire(self, int64_t now_ns, size_t count_max=<size_t>-1) noexcept:
        """Remove ids that have left the window, or up to `count_max`: `find` ignores the others."""
        while self.count:
            if count_max == 0 or later(self._entry(self.dropped).timestamp,
                                       self.window_ns) > now_ns:
                return
            self.drop_oldest()
            count_max -= 1
        self._release()

    cdef void drop_oldest(self) noexcept nogil:
        """Remove the oldest id, inside the window or not; there must be one."""
        cdef IdEntry* entry = self._entry(self.dropped)
        cdef size_t padded = (sizeof(IdEntry) + entry.size + 7) & ~<size_t>7
        self._remove_slot(self.dropped, entry.hash)
        self.begin += padded
        self.dropped += padded
        self.count -= 1

    cdef void _release(self) noexcept nogil:
        """Release all memory, because no id is remembered."""
        free(self.data)
        free(self.slots)
        free(self.old_slots)
        self.data = NULL
        self.slots = NULL
        self.old_slots = NULL
        self.begin = self.end = self.capacity = self.slot_count = 0

    # -------------------------------------------------------------- for Python

    @property
    def memory_bytes(self):
        """Heap memory in use."""
        return self.capacity + self._slot_bytes()

    @property
    def unmoved(self):
        """Old slots that are still to be moved."""
        return 0 if self.old_slots == NULL else self.slot_count // 2 - self.moved

    @property
    def next_expiry_ns(self):
        """When the oldest id leaves the window; 0 if there is none."""
        return later(self._entry(self.dropped).timestamp, self.window_ns) if self.count else 0

    def set_window(self, int64_t window_ns, int64_t now_ns):
        """Set the window; ids older than it are unknown immediately."""
        self.window_ns = window_ns
        self.expire(now_ns, EXPIRED_AT_ONCE_MAX)

    def lookup(self, bytes message_id not None, int64_t now_ns):
        """The sequence stored with this id inside the window; 0 if there is none."""
        return self.find(message_id, <uint32_t>len(message_id), now_ns)

    def remember(self, bytes message_id not None, uint64_t seq, int64_t timestamp_ns):
        """Add an id; times must not go back. For tests: a stream calls `add`."""
        self.add(message_id, <uint32_t>len(message_id), seq, timestamp_ns)

    def can_take(self, bytes message_id not None):
        """Whether this id stays within `bytes_max`."""
        return self.has_room(<uint32_t>len(message_id))

    def clear(self):
        """Forget all ids."""
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
