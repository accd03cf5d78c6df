"""An open-addressing hash table from byte strings to pointers, for subjects, tokens and sids.

Owns its slot arrays only: keys and values belong to the caller, and a key must live as long as its
entry. The hash is seeded, so a peer that chooses the keys cannot choose the collisions. Never
raises; -1 means out of memory.

A large table grows and shrinks in small steps, so that no caller waits until millions of entries
have moved: the old slots stay beside the new ones for a while, and each change moves the entries of
the next few. Every entry is in one of both. A slot whose entry has left the old ones is crossed out
there, because the runs behind it must stay searchable.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

cdef extern from *:
    # Cython has no 128-bit integer; knowing the C name is enough.
    ctypedef unsigned long long uint128_t "unsigned __int128"

cdef enum:
    # Slots of the old ones that each change looks at: all of them before the table is full, when it
    # has become twice as large (2 would do), and when a quarter as large (16 would). Not many more,
    # because almost every entry that is moved into a large table touches a new page.
    MOVED_GROWING = 8
    MOVED_SHRINKING = 32
    # A table up to this size is changed at once, which is simpler and takes no time.
    MOVED_AT_ONCE_MAX = 1024
    # The size of a key that is crossed out. No key is as long.
    CROSSED_OUT = 0xFFFFFFFF

ctypedef struct Slot:
    void* value         # NULL marks a free slot
    const char* key
    uint32_t size
    uint32_t hash

ctypedef struct OldSlots:
    Slot* slots
    uint32_t capacity
    uint32_t moved      # slots before this one have no entries any more

ctypedef struct Table:
    Slot* slots
    uint32_t capacity   # 0 or a power of two, at least twice `count`
    uint32_t count      # of all entries, moved or not
    uint64_t seed
    OldSlots* old       # NULL, except while entries move


cdef inline uint64_t fold_multiply(uint64_t a, uint64_t b) noexcept nogil:
    cdef uint128_t product = <uint128_t>a * b
    return <uint64_t>product ^ <uint64_t>(product >> 64)


cdef inline uint64_t hash_bytes(uint64_t seed, const char* data, size_t size) noexcept nogil:
    """A 64-bit hash built on folded 128-bit products, 16 bytes per step.

    Both factors of every product contain a secret: if a peer could make one factor zero, the other
    would have no effect, and keys that collide under every seed could be prepared in advance.
    """
    cdef uint64_t mask = seed ^ 0xE7037ED1A0B428DBull
    cdef uint64_t state = fold_multiply(seed ^ 0x9E3779B97F4A7C15ull,
                                        <uint64_t>size ^ 0xA0761D6478BD642Full)
    cdef uint64_t first = 0, second = 0
    cdef uint32_t low = 0, high = 0
    while size > 16:
        memcpy(&first, data, 8)
        memcpy(&second, data + 8, 8)
        state = fold_multiply(first ^ state, second ^ mask)
        data += 16
        size -= 16
    if size >= 8:
        memcpy(&first, data, 8)
        memcpy(&second, data + size - 8, 8)
    elif size >= 4:
        memcpy(&low, data, 4)
        memcpy(&high, data + size - 4, 4)
        first = low
        second = high
    elif size > 0:
        first = (<uint64_t><uint8_t>data[0] << 16) | (<uint64_t><uint8_t>data[size >> 1] << 8) | \
            <uint64_t><uint8_t>data[size - 1]
        second = 0
    else:
        first = 0
        second = 0
    return fold_multiply(first ^ state, second ^ mask)


cdef inline void table_init(Table* table, uint64_t seed) noexcept nogil:
    table.slots = NULL
    table.capacity = 0
    table.count = 0
    table.seed = seed
    table.old = NULL


cdef inline void old_free(Table* table) noexcept nogil:
    if table.old != NULL:
        free(table.old.slots)
        free(table.old)
        table.old = NULL


cdef inline void table_free(Table* table) noexcept nogil:
    free(table.slots)
    table.slots = NULL
    table.capacity = 0
    table.count = 0
    old_free(table)


cdef inline uint32_t table_hash(const Table* table, const char* key, size_t size) noexcept nogil:
    return <uint32_t>hash_bytes(table.seed, key, size)


cdef inline Slot* slot_among(Slot* slots, uint32_t capacity, uint32_t hash, const char* key,
                             uint32_t size) noexcept nogil:
    """The slot of an entry, or NULL; there are slots, and one of them is free."""
    cdef uint32_t index = hash & (capacity - 1)
    cdef Slot* slot
    while True:
        slot = &slots[index]
        if slot.value == NULL:
            return NULL
        if slot.hash == hash and slot.size == size and memcmp(slot.key, key, size) == 0:
            return slot
        index = (index + 1) & (capacity - 1)


cdef inline Slot* table_place(const Table* table, uint32_t hash, const char* key,
                              uint32_t size) noexcept nogil:
    """The slot of an entry, or NULL."""
    cdef Slot* slot
    if table.count == 0:
        return NULL
    slot = slot_among(table.slots, table.capacity, hash, key, size)
    if slot == NULL and table.old != NULL:
        slot = slot_among(table.old.slots, table.old.capacity, hash, key, size)
    return slot


cdef inline void* table_find(const Table* table, uint32_t hash, const char* key,
                             uint32_t size) noexcept nogil:
    cdef Slot* slot = table_place(table, hash, key, size)
    return NULL if slot == NULL else slot.value


cdef inline uint32_t table_room(const Table* table) noexcept nogil:
    """The number of places for `table_at`. Entries keep their places until the next change."""
    return table.capacity + (0 if table.old == NULL else table.old.capacity)


cdef inline Slot* slot_at(const Table* table, uint32_t place) noexcept nogil:
    if place < table.capacity:
        return &table.slots[place]
    return &table.old.slots[place - table.capacity]


cdef inline void* table_at(const Table* table, uint32_t place) noexcept nogil:
    """The value at a place below `table_room`; NULL if there is none."""
    cdef Slot* slot = slot_at(table, place)
    return NULL if slot.size == CROSSED_OUT else slot.value


cdef inline void* table_take_at(Table* table, uint32_t place) noexcept nogil:
    """Take the value from a place, or NULL if there is none. The slot stays crossed out: for a
    table whose entries are all taken out, one place after the other.
    """
    cdef void* value = table_at(table, place)
    if value != NULL:
        slot_at(table, place).size = CROSSED_OUT
        table.count -= 1
    return value


cdef inline void slot_fill(Table* table, const Slot* entry) noexcept nogil:
    """Put an entry into the first free slot of its run."""
    cdef uint32_t index = entry.hash & (table.capacity - 1)
    while table.slots[index].value != NULL:
        index = (index + 1) & (table.capacity - 1)
    table.slots[index] = entry[0]


cdef inline void table_move(Table* table) noexcept nogil:
    """Move the entries of the next few old slots."""
    cdef OldSlots* old = table.old
    cdef uint32_t count = MOVED_GROWING if old.capacity < table.capacity else MOVED_SHRINKING
    cdef Slot* slot
    while old.moved < old.capacity and count:
        slot = &old.slots[old.moved]
        if slot.value != NULL and slot.size != CROSSED_OUT:
            slot_fill(table, slot)
            slot.size = CROSSED_OUT
        old.moved += 1
        count -= 1
    if old.moved == old.capacity:
        old_free(table)


cdef inline int table_resize(Table* table, uint32_t capacity) noexcept nogil:
    """Continue with so many slots; the system supplies the pages of many as they are used."""
    cdef OldSlots* old = NULL
    cdef Slot* before = table.slots
    cdef uint32_t index, count = table.capacity
    cdef Slot* slots = <Slot*>calloc(capacity, sizeof(Slot))
    if slots == NULL:
        return -1
    if count > MOVED_AT_ONCE_MAX:
        old = <OldSlots*>malloc(sizeof(OldSlots))
        if old == NULL:
            free(slots)
            return -1
        old.slots = before
        old.capacity = count
        old.moved = 0
    table.old = old
    table.slots = slots
    table.capacity = capacity
    if old == NULL:
        for index in range(count):
            if before[index].value != NULL:
                slot_fill(table, &before[index])
        free(before)
    return 0


cdef inline int table_insert(Table* table, uint32_t hash, const char* key, uint32_t size,
                             void* value) noexcept nogil:
    """Add an entry whose key is not in the table yet. `key` is kept by reference."""
    cdef Slot entry
    if table.old != NULL:
        table_move(table)
    elif (table.count + 1) * 2 > table.capacity:
        if table_resize(table, table.capacity * 2 if table.capacity else 4) != 0:
            return -1
    entry.value = value
    entry.key = key
    entry.size = size
    entry.hash = hash
    slot_fill(table, &entry)
    table.count += 1
    return 0


cdef inline void table_replace(Table* table, uint32_t hash, const char* key, uint32_t size,
                               void* value) noexcept nogil:
    """Change the value of an entry in the table, and the memory of its key."""
    cdef Slot* slot = table_place(table, hash, key, size)
    slot.key = key
    slot.value = value


cdef inline void* table_take_out(Table* table, uint32_t hash, const char* key,
                                 uint32_t size) noexcept nogil:
    """Remove an entry and return its value (NULL if absent); later entries of the run move back.
    The table keeps its size.
    """
    cdef Slot* slot = table_place(table, hash, key, size)
    cdef uint32_t mask, hole, index, home
    cdef void* value
    if slot == NULL:
        return NULL
    value = slot.value
    table.count -= 1
    if slot < table.slots or slot >= table.slots + table.capacity:
        slot.size = CROSSED_OUT
        return value
    mask = table.capacity - 1
    hole = index = <uint32_t>(slot - table.slots)
    while True:
        index = (index + 1) & mask
        if table.slots[index].value == NULL:
            break
        home = table.slots[index].hash & mask
        # An entry may fill the hole only if its home position is not between the hole and itself.
        if ((index - home) & mask) >= ((index - hole) & mask):
            table.slots[hole] = table.slots[index]
            hole = index
    table.slots[hole].value = NULL
    return value


cdef inline void* table_remove(Table* table, uint32_t hash, const char* key,
                               uint32_t size) noexcept nogil:
    """Remove an entry and return its value; a table that has become much too large is replaced.
    Without memory for a smaller one, it keeps its size.
    """
    cdef void* value = table_take_out(table, hash, key, size)
    if value == NULL:
        return NULL
    if table.count == 0:
        table_free(table)
    elif table.old != NULL:
        table_move(table)
    elif table.capacity > 64 and table.count * 16 < table.capacity:
        table_resize(table, table.capacity // 4)
    return value
