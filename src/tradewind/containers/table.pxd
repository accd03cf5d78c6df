"""An open-addressing hash table from byte strings to pointers, for the trie and the sid tables.

Owns its slot array only: keys and values belong to the caller, and a key must live as long as its
entry. The hash is seeded, so a peer that chooses the keys cannot choose the collisions. Never
raises; -1 means out of memory.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

cdef extern from *:
    # Cython has no 128-bit integer; knowing the C name is enough.
    ctypedef unsigned long long uint128_t "unsigned __int128"

ctypedef struct Slot:
    void* value         # NULL marks a free slot
    const char* key
    uint32_t size
    uint32_t hash

ctypedef struct Table:
    Slot* slots
    uint32_t capacity   # 0 or a power of two, at least twice `count`
    uint32_t count
    uint64_t seed


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


cdef inline void table_free(Table* table) noexcept nogil:
    free(table.slots)
    table.slots = NULL
    table.capacity = 0
    table.count = 0


cdef inline uint32_t table_hash(const Table* table, const char* key, size_t size) noexcept nogil:
    return <uint32_t>hash_bytes(table.seed, key, size)


cdef inline void* table_find(const Table* table, uint32_t hash, const char* key,
                             uint32_t size) noexcept nogil:
    cdef uint32_t index
    cdef Slot* slot
    if table.count == 0:
        return NULL
    index = hash & (table.capacity - 1)
    while True:
        slot = &table.slots[index]
        if slot.value == NULL:
            return NULL
        if slot.hash == hash and slot.size == size and memcmp(slot.key, key, size) == 0:
            return slot.value
        index = (index + 1) & (table.capacity - 1)


cdef inline int table_resize(Table* table, uint32_t capacity) noexcept nogil:
    cdef Slot* slots = <Slot*>calloc(capacity, sizeof(Slot))
    cdef uint32_t position, index
    if slots == NULL:
        return -1
    for position in range(table.capacity):
        if table.slots[position].value != NULL:
            index = table.slots[position].hash & (capacity - 1)
            while slots[index].value != NULL:
                index = (index + 1) & (capacity - 1)
            slots[index] = table.slots[position]
    free(table.slots)
    table.slots = slots
    table.capacity = capacity
    return 0


cdef inline int table_insert(Table* table, uint32_t hash, const char* key, uint32_t size,
                             void* value) noexcept nogil:
    """Add an entry whose key is not in the table yet. `key` is kept by reference."""
    cdef uint32_t index
    if (table.count + 1) * 2 > table.capacity:
        if table_resize(table, table.capacity * 2 if table.capacity else 4) != 0:
            return -1
    index = hash & (table.capacity - 1)
    while table.slots[index].value != NULL:
        index = (index + 1) & (table.capacity - 1)
    table.slots[index].value = value
    table.slots[index].key = key
    table.slots[index].size = size
    table.slots[index].hash = hash
    table.count += 1
    return 0


cdef inline void table_replace(Table* table, uint32_t hash, const char* key, uint32_t size,
                               void* value) noexcept nogil:
    """Change the value of an entry that is in the table, and the memory that its key is kept in."""
    cdef uint32_t index = hash & (table.capacity - 1)
    while not (table.slots[index].hash == hash and table.slots[index].size == size
               and memcmp(table.slots[index].key, key, size) == 0):
        index = (index + 1) & (table.capacity - 1)
    table.slots[index].key = key
    table.slots[index].value = value


cdef inline void* table_remove(Table* table, uint32_t hash, const char* key,
                               uint32_t size) noexcept nogil:
    """Remove an entry and return its value (NULL if absent); later entries of the run move back, so
    there are no tombstones.
    """
    cdef uint32_t mask, hole, index, home
    cdef void* value
    if table.count == 0:
        return NULL
    mask = table.capacity - 1
    hole = hash & mask
    while True:
        if table.slots[hole].value == NULL:
            return NULL
        if table.slots[hole].hash == hash and table.slots[hole].size == size \
                and memcmp(table.slots[hole].key, key, size) == 0:
            break
        hole = (hole + 1) & mask
    value = table.slots[hole].value
    index = hole
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
    table.count -= 1
    if table.count == 0:
        table_free(table)
    elif table.capacity > 64 and table.count * 16 < table.capacity:
        table_resize(table, table.capacity // 4)
    return value
