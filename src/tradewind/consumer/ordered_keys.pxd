"""State of the keys of a consumer; the code and the explanation are in ordered_keys.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from tradewind.store.format.records cimport Record

cdef enum:
    # The index of no key and of no message.
    NONE = 0
    # The place of a message that belongs to no key.
    UNORDERED = 0xFFFFFFFF
    # Hashes with a meaning of their own; no key has them.
    KEY_UNKNOWN = 0
    KEY_ABSENT = 1
    KEY_HASH_MIN = 2

cdef enum KeyKind:
    KEY_SUBJECT = 0
    KEY_TOKEN = 1
    KEY_HEADER = 2

# Which part of a message is its key.
ctypedef struct KeyRule:
    uint32_t kind                   # KeyKind
    uint32_t token                  # counted from 1
    const char* name                # of the header, with its colon; belongs to the delivery
    size_t name_size

# A key with at least one message in flight or parked.
ctypedef struct KeyNode:
    uint64_t hash
    uint32_t in_flight
    uint32_t first                  # parked messages, in the order of the stream
    uint32_t last
    uint32_t next                   # in the same bucket, or among the free nodes
    uint32_t ready_next             # keys whose first parked message may be sent
    uint32_t ready_previous
    uint8_t is_ready

# A message of a key.
ctypedef struct KeyedMessage:
    uint64_t seq
    uint32_t key
    uint32_t next                   # parked messages of the key; or among the free ones
    uint32_t previous
    uint8_t is_parked

ctypedef struct OrderedKeys:
    KeyNode* keys
    uint32_t keys_end               # nodes from here on were never used
    uint32_t keys_capacity
    uint32_t keys_free
    uint32_t key_count
    KeyedMessage* messages
    uint32_t messages_end
    uint32_t messages_capacity
    uint32_t messages_free
    uint32_t message_count
    uint32_t* buckets               # the first key of each
    uint32_t bucket_count           # a power of two, or 0
    uint32_t ready_first
    uint32_t ready_last
    uint32_t limit                  # messages of one key in flight
    uint64_t seed


cdef OrderedKeys* new_ordered_keys(uint32_t limit, uint64_t seed) noexcept nogil
cdef void free_ordered_keys(OrderedKeys* table) noexcept nogil
cdef void clear_ordered_keys(OrderedKeys* table) noexcept nogil
cdef uint64_t key_hash(const OrderedKeys* table, const KeyRule* rule,
                       const Record* record) noexcept nogil
cdef const char* key_text(const KeyRule* rule, const Record* record, size_t* size) noexcept nogil
cdef uint32_t find_key(const OrderedKeys* table, uint64_t hash) noexcept nogil
cdef bint key_is_free(const OrderedKeys* table, uint64_t hash) noexcept nogil
cdef int reserve_keyed(OrderedKeys* table) noexcept nogil
cdef uint32_t add_keyed(OrderedKeys* table, uint64_t hash, uint64_t seq, bint parked) noexcept nogil
cdef void start_keyed(OrderedKeys* table, uint32_t place) noexcept nogil
cdef void remove_keyed(OrderedKeys* table, uint32_t place) noexcept nogil
cdef uint64_t ready_seq(const OrderedKeys* table) noexcept nogil
cdef OrderedKeys* rebuilt_keys(const OrderedKeys* old, uint32_t* places, uint32_t begin,
                               uint32_t end) noexcept nogil
cdef bint is_mostly_empty(const OrderedKeys* table) noexcept nogil
