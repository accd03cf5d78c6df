"""When messages with a time to live expire, and thw.db, the file that preserves this over a
restart.

Owns the timers of one stream and the format. Never reads a clock and never touches the disk.

The official server's structure is a hashed wheel of 4096 slots, which gave the file its name; here
it is a table by sequence and a heap by time. So the next expiry is exact, and nothing is scanned
that is not due. Removing only touches the table; the heap is rebuilt when more than half of it is
leftovers. That is O(1) amortised to add times that rise and to remove, O(log n) to expire; up to 64
bytes per timer.

    thw.db:  1 | u64 LE count | u64 LE stamp | count x (varint expiry in ns, uvarint seq)

The stamp is the stream's next sequence when it was written: the timers of all lower ones are here,
and the reader scans the messages from there on. There is no checksum.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from libc.stdint cimport uint8_t

from tradewind.containers.table cimport fold_multiply
from tradewind.store.format.index_codec cimport UVARINT_BYTES_MAX, read_uvarint, write_uvarint

from os import urandom

from tradewind.errors import CorruptRecord

cdef enum:
    VERSION = 1
    HEAD_BYTES = 17
    TIMER_BYTES_MIN = 2
    PLACES_MIN = 16
    # Below these neither leftovers nor unused places are worth the work.
    HEAP_KEPT_MIN = 64
    PLACES_KEPT_MIN = 1024


cdef inline uint64_t first_slot(const TimerTable* table, uint64_t seq) noexcept nogil:
    """The preferred slot of a sequence; neighbours are spread, because they expire together.

    Publishers choose which messages have a time to live, so the slots depend on a secret.
    """
    return fold_multiply(seq ^ table.seed, table.seed ^ <uint64_t>11400714819323198485ULL) \
        & (table.capacity - 1)


cdef inline bint is_before(const Timer* one, const Timer* other) noexcept nogil:
    if one.expires_ns != other.expires_ns:
        return one.expires_ns < other.expires_ns
    return one.seq < other.seq


cdef void timers_init(TimerTable* table, uint64_t seed) noexcept nogil:
    memset(table, 0, sizeof(TimerTable))
    table.seed = seed


cdef void timers_free(TimerTable* table) noexcept nogil:
    free(table.places)
    free(table.heap)
    timers_init(table, table.seed)


# The table by sequence.

cdef uint64_t find_place(const TimerTable* table, uint64_t seq) noexcept nogil:
    """The place of a sequence, or the unused one where it belongs; there is a table."""
    cdef uint64_t place = first_slot(table, seq)
    while table.places[place].seq != 0 and table.places[place].seq != seq:
        place = (place + 1) & (table.capacity - 1)
    return place


cdef int resize_table(TimerTable* table, uint64_t capacity) noexcept nogil:
    cdef Timer* old = table.places
    cdef uint64_t old_capacity = table.capacity
    cdef uint64_t i
    cdef Timer* places = <Timer*>calloc(capacity, sizeof(Timer))
    if places == NULL:
        return -1
    table.places = places
    table.capacity = capacity
    for i in range(old_capacity):
        if old[i].seq != 0:
            places[find_place(table, old[i].seq)] = old[i]
    free(old)
    return 0


cdef void clear_place(TimerTable* table, uint64_t place) noexcept nogil:
    """Empty a place and move up the entries that would no longer be found after it."""
    cdef uint64_t mask = table.capacity - 1
    cdef uint64_t next_place = place
    cdef uint64_t wanted
    while True:
        next_place = (next_place + 1) & mask
        if table.places[next_place].seq == 0:
            break
        wanted = first_slot(table, table.places[next_place].seq)
        if ((next_place - wanted) & mask) >= ((next_place - place) & mask):
            table.places[place] = table.places[next_place]
            place = next_place
    table.places[place].seq = 0
    table.count -= 1


# The heap by time.

cdef void sift_up(TimerTable* table, uint64_t index) noexcept nogil:
    cdef Timer timer = table.heap[index]
    cdef uint64_t parent
    while index:
        parent = (index - 1) >> 1
        if not is_before(&timer, &table.heap[parent]):
            break
        table.heap[index] = table.heap[parent]
        index = parent
    table.heap[index] = timer


cdef void sift_down(TimerTable* table, uint64_t index) noexcept nogil:
    cdef Timer timer = table.heap[index]
    cdef uint64_t child
    while 2 * index + 1 < table.heap_size:
        child = 2 * index + 1
        if child + 1 < table.heap_size and is_before(
                &table.heap[child + 1], &table.heap[child]):
            child += 1
        if not is_before(&table.heap[child], &timer):
            break
        table.heap[index] = table.heap[child]
        index = child
    table.heap[index] = timer


cdef int reserve_heap(TimerTable* table, uint64_t size) noexcept nogil:
    cdef uint64_t capacity = table.heap_capacity + (table.heap_capacity >> 1) + PLACES_MIN
    cdef Timer* heap
    if size <= table.heap_capacity:
        return 0
    heap = <Timer*>realloc(table.heap, (size if size > capacity else capacity) * sizeof(Timer))
    if heap == NULL:
        return -1
    table.heap = heap
    table.heap_capacity = size if size > capacity else capacity
    return 0


cdef void clean_heap(TimerTable* table) noexcept nogil:
    """Rebuild the heap from the table, which has no leftovers; the heap never grows by that."""
    cdef uint64_t i
    table.heap_size = 0
    for i in range(table.capacity):
        if table.places[i].seq != 0:
            table.heap[table.heap_size] = table.places[i]
            table.heap_size += 1
    i = table.heap_size >> 1
    while i:
        i -= 1
        sift_down(table, i)


cdef void shrink(TimerTable* table) noexcept nogil:
    """Release memory after most timers are gone; without memory to do so, nothing changes."""
    cdef Timer* heap
    if resize_table(table, table.capacity >> 1) != 0:
        return
    clean_heap(table)
    heap = <Timer*>realloc(table.heap, table.capacity * sizeof(Timer))
    if heap != NULL:
        table.heap = heap
        table.heap_capacity = table.capacity


cdef void drop_top(TimerTable* table) noexcept nogil:
    table.heap_size -= 1
    if table.heap_size:
        table.heap[0] = table.heap[table.heap_size]
        sift_down(table, 0)


# Timers.

cdef int timers_add(TimerTable* table, uint64_t seq, int64_t expires_ns) noexcept nogil:
    cdef uint64_t place
    if 4 * (table.count + 1) > 3 * table.capacity and resize_table(
            table, 2 * table.capacity if table.capacity else PLACES_MIN) != 0:
        return -1
    if reserve_heap(table, table.heap_size + 1) != 0:
        return -1
    place = find_place(table, seq)
    if table.places[place].seq == seq:
        if table.places[place].expires_ns == expires_ns:
            return 0
    else:
        table.count += 1
    table.places[place].seq = seq
    table.places[place].expires_ns = expires_ns
    table.heap[table.heap_size].seq = seq
    table.heap[table.heap_size].expires_ns = expires_ns
    table.heap_size += 1
    sift_up(table, table.heap_size - 1)
    if table.heap_size > 2 * table.count + HEAP_KEPT_MIN:
        clean_heap(table)
    return 0


cdef bint timers_remove(TimerTable* table, uint64_t seq, int64_t expires_ns) noexcept nogil:
    cdef uint64_t place
    if table.count == 0:
        return False
    place = find_place(table, seq)
    if table.places[place].seq != seq or table.places[place].expires_ns != expires_ns:
        return False
    return timers_forget(table, seq)


cdef bint timers_forget(TimerTable* table, uint64_t seq) noexcept nogil:
    cdef uint64_t place
    if table.count == 0:
        return False
    place = find_place(table, seq)
    if table.places[place].seq != seq:
        return False
    clear_place(table, place)
    if table.count == 0:
        timers_free(table)
    elif 8 * table.count < table.capacity and table.capacity > PLACES_KEPT_MIN:
        shrink(table)
    elif table.heap_size > 2 * table.count + HEAP_KEPT_MIN:
        clean_heap(table)
    return True


cdef bint timers_peek(TimerTable* table, Timer* found) noexcept nogil:
    cdef uint64_t place
    while table.heap_size:
        found[0] = table.heap[0]
        place = find_place(table, found.seq)
        if (table.places[place].seq == found.seq
                and table.places[place].expires_ns == found.expires_ns):
            return True
        drop_top(table)
    return False


cdef bint timers_pop(TimerTable* table, int64_t now_ns, Timer* found) noexcept nogil:
    if not timers_peek(table, found) or found.expires_ns > now_ns:
        return False
    drop_top(table)
    timers_remove(table, found.seq, found.expires_ns)
    return True


cdef inline uint64_t get_u64(const uint8_t* source) noexcept nogil:
    cdef uint64_t value = 0
    cdef int i
    for i in range(8):
        value |= <uint64_t>source[i] << (8 * i)
    return value


cdef class TimingWheel:
    """The timers of a stream: at most one per sequence, which is never 0.

    Without a `seed` their places in the table are unpredictable.
    """

    def __cinit__(self, seed=None):
        timers_init(&self.table, int.from_bytes(urandom(8), "little") if seed is None else seed)

    def __dealloc__(self):
        timers_free(&self.table)

    @staticmethod
    def decode(data: bytes, path: str = "thw.db") -> tuple:
        """The timers and the stamp of a thw.db; CorruptRecord if it is not one."""
        cdef const uint8_t* source = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = len(data)
        cdef Py_ssize_t offset = HEAD_BYTES
        cdef uint64_t count, stamp, folded, seq, _
        cdef int used
        cdef TimingWheel wheel = TimingWheel.__new__(TimingWheel)
        if size < HEAD_BYTES:
            raise CorruptRecord(path, 0, f"{size} bytes are too few, it has at least 17")
        if source[0] != VERSION:
            raise CorruptRecord(path, 0, f"version {source[0]} is not known, only 1 is")
        count = get_u64(source + 1)
        stamp = get_u64(source + 9)
        if count > <uint64_t>(size - HEAD_BYTES) // TIMER_BYTES_MIN:
            raise CorruptRecord(
                path, 1, f"{count} timers do not fit in {size - HEAD_BYTES} bytes")
        for _ in range(count):
            used = read_uvarint(source + offset, size - offset, &folded)
            if used == 0:
                raise CorruptRecord(path, offset, "an expiry is cut off or does not fit in 64 bits")
            offset += used
            used = read_uvarint(source + offset, size - offset, &seq)
            if used == 0 or seq == 0:
                raise CorruptRecord(path, offset, "a sequence is cut off, 0 or more than 64 bits")
            offset += used
            if timers_add(&wheel.table, seq, <int64_t>(folded >> 1) ^ -<int64_t>(folded & 1)) != 0:
                raise MemoryError
        if offset != size:
            raise CorruptRecord(path, offset, f"{size - offset} bytes follow the last timer")
        if wheel.table.count != count:
            raise CorruptRecord(path, 1, f"of {count} timers some are for the same sequence")
        return wheel, stamp

    def encode(self, uint64_t stamp) -> bytes:
        """The thw.db of these timers, complete for all sequences below `stamp`."""
        cdef uint8_t number[UVARINT_BYTES_MAX]
        cdef bytearray target = bytearray((VERSION,))
        cdef uint64_t i
        cdef Timer* timer
        target += self.table.count.to_bytes(8, "little")
        target += stamp.to_bytes(8, "little")
        for i in range(self.table.capacity):
            timer = &self.table.places[i]
            if timer.seq != 0:
                target += number[:write_uvarint(
                    number, (<uint64_t>timer.expires_ns << 1) ^ <uint64_t>(timer.expires_ns >> 63))]
                target += number[:write_uvarint(number, timer.seq)]
        return bytes(target)

    def add(self, uint64_t seq, int64_t expires_ns) -> None:
        """Start a timer, or change the time of the one of this sequence."""
        if seq == 0:
            raise ValueError("no message has the sequence 0")
        if timers_add(&self.table, seq, expires_ns) != 0:
            raise MemoryError

    def remove(self, uint64_t seq, int64_t expires_ns) -> bool:
        """Stop a timer; returns whether there was one with that time."""
        return timers_remove(&self.table, seq, expires_ns)

    def take_expired(self, int64_t now_ns, Py_ssize_t limit) -> list:
        """Stop up to `limit` timers that have ended; returns (seq, expires_ns), oldest first."""
        cdef list expired = []
        cdef Timer timer
        while len(expired) < limit and timers_pop(&self.table, now_ns, &timer):
            expired.append((timer.seq, timer.expires_ns))
        return expired

    def pending(self) -> list:
        """All timers as (seq, expires_ns), in any order."""
        cdef uint64_t i
        return [(self.table.places[i].seq, self.table.places[i].expires_ns)
                for i in range(self.table.capacity) if self.table.places[i].seq != 0]

    def clear(self) -> None:
        """Stop all timers."""
        timers_free(&self.table)

    @property
    def seed(self):
        """The secret that determines the places in the table."""
        return self.table.seed

    @property
    def next_expiry(self) -> int | None:
        """When the first timer ends, None if there is none."""
        cdef Timer timer
        return timer.expires_ns if timers_peek(&self.table, &timer) else None

    @property
    def count(self) -> int:
        """Number of timers."""
        return self.table.count

    @property
    def memory_bytes(self) -> int:
        """The memory held for the timers."""
        return (self.table.capacity + self.table.heap_capacity) * sizeof(Timer)

    def __len__(self) -> int:
        return self.table.count
