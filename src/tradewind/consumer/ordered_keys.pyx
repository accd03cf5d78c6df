"""The keys of a consumer that delivers in order per key: which are busy, and what waits for them.

Owns, for each key that has a message in flight, how many it has, and the messages that are parked
until it has fewer: the consumer has passed them in the stream without sending them. It knows no
deadline, sends nothing, and never decides what a message is worth. Its caller, `AckState`, adds a
message when it is sent or parked, and removes it when it is acknowledged, given up or gone.

A key is known by a seeded hash of 64 bits. Two keys with the same hash would only wait for each
other, so the text of a key is not stored. A key without messages is forgotten.

Keys that may be served next form a queue: a key that was served moves to its end, so keys share
the messages that can be sent. All operations take constant time; the arrays grow by half, and are
released when the last message is gone, or built again smaller by the caller.
"""

from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset
from tradewind.containers.table cimport hash_bytes
from tradewind.store.format.records cimport header_value

cdef enum:
    NODES_MIN = 16
    # Below this size, empty arrays are kept.
    NODES_KEPT = 1024
    # Arrays with fewer than one of so many nodes in use are worth building again.
    USED_PART_MIN = 8


cdef OrderedKeys* new_ordered_keys(uint32_t limit, uint64_t seed) noexcept nogil:
    """Create an empty table; NULL without memory."""
    cdef OrderedKeys* table = <OrderedKeys*>calloc(1, sizeof(OrderedKeys))
    if table != NULL:
        table.limit = limit
        table.seed = seed
        table.keys_end = table.messages_end = 1
    return table


cdef void free_ordered_keys(OrderedKeys* table) noexcept nogil:
    if table != NULL:
        free(table.keys)
        free(table.messages)
        free(table.buckets)
        free(table)


cdef void clear_ordered_keys(OrderedKeys* table) noexcept nogil:
    """Forget all messages; large arrays are released."""
    table.keys_end = table.messages_end = 1
    table.keys_free = table.messages_free = NONE
    table.key_count = table.message_count = 0
    table.ready_first = table.ready_last = NONE
    if table.messages_capacity > NODES_KEPT:
        free(table.keys)
        free(table.messages)
        free(table.buckets)
        table.keys = NULL
        table.messages = NULL
        table.buckets = NULL
        table.keys_capacity = table.messages_capacity = table.bucket_count = 0
    elif table.bucket_count:
        memset(table.buckets, 0, table.bucket_count * sizeof(uint32_t))


cdef bint is_mostly_empty(const OrderedKeys* table) noexcept nogil:
    """Whether building the table again would release most of its memory."""
    return table.messages_capacity > NODES_KEPT \
        and table.message_count < table.messages_capacity // USED_PART_MIN


# ---------------------------------------------------------------------- the key of a message


cdef const char* key_text(const KeyRule* rule, const Record* record, size_t* size) noexcept nogil:
    """The key of a message; NULL if it has none, or an empty one."""
    cdef const char* at = record.subject
    cdef const char* end = at + record.subject_size
    cdef const char* start
    cdef uint32_t left = rule.token
    size[0] = 0
    if rule.kind == KEY_HEADER:
        at = header_value(record, rule.name, rule.name_size, size)
        return at if size[0] else NULL
    if rule.kind == KEY_SUBJECT:
        size[0] = record.subject_size
        return at if size[0] else NULL
    start = at
    while at < end:
        if at[0] == b".":
            left -= 1
            if left == 0:
                break
            start = at + 1
        at += 1
    if left > 1 or at == start:
        return NULL
    size[0] = at - start
    return start


cdef uint64_t key_hash(const OrderedKeys* table, const KeyRule* rule,
                       const Record* record) noexcept nogil:
    """The hash of a message's key; KEY_ABSENT if it has none."""
    cdef size_t size
    cdef uint64_t hash
    cdef const char* text = key_text(rule, record, &size)
    if text == NULL:
        return KEY_ABSENT
    hash = hash_bytes(table.seed, text, size)
    return hash if hash >= KEY_HASH_MIN else KEY_HASH_MIN


# ---------------------------------------------------------------------- keys


cdef uint32_t find_key(const OrderedKeys* table, uint64_t hash) noexcept nogil:
    """The node of a key; NONE if it has no messages here."""
    cdef uint32_t index
    if table.bucket_count == 0:
        return NONE
    index = table.buckets[hash & (table.bucket_count - 1)]
    while index != NONE and table.keys[index].hash != hash:
        index = table.keys[index].next
    return index


cdef bint key_is_free(const OrderedKeys* table, uint64_t hash) noexcept nogil:
    """Whether the next message of a key in the stream may be sent."""
    cdef uint32_t index
    if hash == KEY_ABSENT:
        return True
    index = find_key(table, hash)
    return index == NONE or (
        table.keys[index].first == NONE and table.keys[index].in_flight < table.limit)


cdef int grow_buckets(OrderedKeys* table) noexcept nogil:
    cdef uint32_t count = max(table.bucket_count * 2, <uint32_t>NODES_MIN)
    cdef uint32_t* buckets = <uint32_t*>calloc(count, sizeof(uint32_t))
    cdef uint32_t old, index, following, bucket
    if buckets == NULL:
        return -1
    for old in range(table.bucket_count):
        index = table.buckets[old]
        while index != NONE:
            following = table.keys[index].next
            bucket = <uint32_t>(table.keys[index].hash & (count - 1))
            table.keys[index].next = buckets[bucket]
            buckets[bucket] = index
            index = following
    free(table.buckets)
    table.buckets = buckets
    table.bucket_count = count
    return 0


cdef int reserve_keyed(OrderedKeys* table) noexcept nogil:
    """Make room for one more message with a new key; -1 without memory."""
    cdef uint32_t capacity
    cdef KeyNode* keys
    cdef KeyedMessage* messages
    if table.keys_free == NONE and table.keys_end >= table.keys_capacity:
        capacity = max(table.keys_capacity + table.keys_capacity // 2, <uint32_t>NODES_MIN)
        keys = <KeyNode*>realloc(table.keys, capacity * sizeof(KeyNode))
        if keys == NULL:
            return -1
        table.keys = keys
        table.keys_capacity = capacity
    if table.messages_free == NONE and table.messages_end >= table.messages_capacity:
        capacity = max(table.messages_capacity + table.messages_capacity // 2,
                       <uint32_t>NODES_MIN)
        messages = <KeyedMessage*>realloc(table.messages, capacity * sizeof(KeyedMessage))
        if messages == NULL:
            return -1
        table.messages = messages
        table.messages_capacity = capacity
    if table.key_count >= table.bucket_count:
        return grow_buckets(table)
    return 0


cdef uint32_t add_key(OrderedKeys* table, uint64_t hash) noexcept nogil:
    """Add a key that has no node; there is room."""
    cdef uint32_t index = table.keys_free
    cdef uint32_t bucket = <uint32_t>(hash & (table.bucket_count - 1))
    if index != NONE:
        table.keys_free = table.keys[index].next
    else:
        index = table.keys_end
        table.keys_end += 1
    memset(&table.keys[index], 0, sizeof(KeyNode))
    table.keys[index].hash = hash
    table.keys[index].next = table.buckets[bucket]
    table.buckets[bucket] = index
    table.key_count += 1
    return index


cdef void remove_key(OrderedKeys* table, uint32_t index) noexcept nogil:
    """Remove a key without messages."""
    cdef uint32_t* link = &table.buckets[table.keys[index].hash & (table.bucket_count - 1)]
    while link[0] != index:
        link = &table.keys[link[0]].next
    link[0] = table.keys[index].next
    table.keys[index].next = table.keys_free
    table.keys_free = index
    table.key_count -= 1


cdef void unready(OrderedKeys* table, uint32_t index) noexcept nogil:
    """Take a key out of the queue of those that may be served."""
    cdef KeyNode* key = &table.keys[index]
    if not key.is_ready:
        return
    if key.ready_previous == NONE:
        table.ready_first = key.ready_next
    else:
        table.keys[key.ready_previous].ready_next = key.ready_next
    if key.ready_next == NONE:
        table.ready_last = key.ready_previous
    else:
        table.keys[key.ready_next].ready_previous = key.ready_previous
    key.is_ready = 0


cdef void settle_key(OrderedKeys* table, uint32_t index) noexcept nogil:
    """Update whether a key may be served; forget it if it has no messages."""
    cdef KeyNode* key = &table.keys[index]
    if key.first == NONE or key.in_flight >= table.limit:
        unready(table, index)
        if key.first == NONE and key.in_flight == 0:
            remove_key(table, index)
    elif not key.is_ready:
        key.is_ready = 1
        key.ready_next = NONE
        key.ready_previous = table.ready_last
        if table.ready_last == NONE:
            table.ready_first = index
        else:
            table.keys[table.ready_last].ready_next = index
        table.ready_last = index


# ---------------------------------------------------------------------- messages


cdef uint32_t add_keyed(OrderedKeys* table, uint64_t hash, uint64_t seq,
                        bint parked) noexcept nogil:
    """Add a message, for which there is room; returns its place. A parked one comes after those
    that are parked already.
    """
    cdef uint32_t place, index
    cdef KeyedMessage* message
    cdef KeyNode* key
    if hash < KEY_HASH_MIN:
        return UNORDERED if hash == KEY_ABSENT else NONE
    index = find_key(table, hash)
    if index == NONE:
        index = add_key(table, hash)
    key = &table.keys[index]
    place = table.messages_free
    if place != NONE:
        table.messages_free = table.messages[place].next
    else:
        place = table.messages_end
        table.messages_end += 1
    message = &table.messages[place]
    message.seq = seq
    message.key = index
    message.next = message.previous = NONE
    message.is_parked = parked
    if parked:
        message.previous = key.last
        if key.last == NONE:
            key.first = place
        else:
            table.messages[key.last].next = place
        key.last = place
    else:
        key.in_flight += 1
    table.message_count += 1
    settle_key(table, index)
    return place


cdef void unpark(OrderedKeys* table, uint32_t place) noexcept nogil:
    """Take a message out of those that its key has parked."""
    cdef KeyedMessage* message = &table.messages[place]
    cdef KeyNode* key = &table.keys[message.key]
    if message.previous == NONE:
        key.first = message.next
    else:
        table.messages[message.previous].next = message.next
    if message.next == NONE:
        key.last = message.previous
    else:
        table.messages[message.next].previous = message.previous
    message.next = message.previous = NONE
    message.is_parked = 0


cdef void start_keyed(OrderedKeys* table, uint32_t place) noexcept nogil:
    """Record that a parked message is being sent; its key moves to the end of the queue."""
    cdef uint32_t index = table.messages[place].key
    unpark(table, place)
    table.keys[index].in_flight += 1
    unready(table, index)
    settle_key(table, index)


cdef void remove_keyed(OrderedKeys* table, uint32_t place) noexcept nogil:
    """Remove a message, parked or in flight; its key may be served again."""
    cdef uint32_t index = table.messages[place].key
    if table.messages[place].is_parked:
        unpark(table, place)
    else:
        table.keys[index].in_flight -= 1
    table.messages[place].next = table.messages_free
    table.messages_free = place
    table.message_count -= 1
    settle_key(table, index)


cdef uint64_t ready_seq(const OrderedKeys* table) noexcept nogil:
    """The parked message that may be sent next; 0 if there is none."""
    if table.ready_first == NONE:
        return 0
    return table.messages[table.keys[table.ready_first].first].seq


cdef OrderedKeys* rebuilt_keys(const OrderedKeys* old, uint32_t* places, uint32_t begin,
                               uint32_t end) noexcept nogil:
    """Build the table of the messages at `places` again, in as much memory as they need, and
    replace their places; NULL without memory, and nothing has changed.
    """
    cdef OrderedKeys* table = new_ordered_keys(old.limit, old.seed)
    cdef const KeyedMessage* message
    cdef uint32_t index
    if table == NULL:
        return NULL
    table.keys_capacity = old.key_count + 1
    table.messages_capacity = old.message_count + 1
    table.keys = <KeyNode*>malloc(table.keys_capacity * sizeof(KeyNode))
    table.messages = <KeyedMessage*>malloc(table.messages_capacity * sizeof(KeyedMessage))
    while table.bucket_count < old.key_count:
        if grow_buckets(table) != 0:
            break
    if table.keys == NULL or table.messages == NULL or table.bucket_count < old.key_count:
        free_ordered_keys(table)
        return NULL
    for index in range(begin, end):
        if places[index] != NONE and places[index] != UNORDERED:
            message = &old.messages[places[index]]
            places[index] = add_keyed(
                table, old.keys[message.key].hash, message.seq, message.is_parked)
    return table
