"""Subscriptions, lists of them, and queue groups: what a trie node holds and a match returns.

Owns the memory of the lists, never that of the subscriptions in them, except between
`subscription_new` and `subscription_free`. Never raises; -1 or NULL means out of memory.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset
from tradewind.containers.table cimport (
    Table, table_find, table_free, table_hash, table_init, table_insert, table_remove)

cdef enum:
    GROUPS_UNNAMED_MAX = 8

cdef enum SubscriptionKind:
    SUB_ORDINARY = 0
    SUB_REMOVED = 1         # out of the trie; freed once no delivery can see it any more
    # Stands in another account for a subscription of its owner: `hook` is that subscription,
    # `handler` a Translator (NULL: subjects stay unchanged).
    SUB_SHADOW = 2
    SUB_CROSSING = 3        # the message continues in another account; `hook` is a Carry
    SUB_LEAF = 4            # interest of the server at the other end of a leaf connection

ctypedef struct Subscription:
    void* owner             # the receiver: a SessionState of the broker; NULL: internal
    void* handler           # a borrowed Python object for an internal subscription, else NULL
    void* hook              # called with `handler` immediately (a broker Hook); NULL: queued
    int64_t delivered
    int64_t delivered_max   # 0: no limit
    char* subject           # these three follow the struct in the same heap block
    char* queue             # ... this one a space after the subject: together they form a key
    char* sid
    uint32_t subject_size
    uint32_t queue_size     # 0: a plain subscription
    uint32_t sid_size
    uint32_t position       # index in the list of its node
    uint8_t kind            # a SubscriptionKind
    uint8_t takes           # of an internal subscription: a broker TakesDeliveries
    uint8_t is_above        # SUB_LEAF: interest of this server's hub
    uint32_t weight         # SUB_LEAF: number of members its queue group has there
    uint8_t is_traceable    # for a shadow: its import lets traces through

ctypedef struct SubscriptionArray:
    Subscription** items
    uint32_t count
    uint32_t capacity

ctypedef struct QueueGroup:
    SubscriptionArray members   # members[0].queue names the group

ctypedef struct GroupArray:
    QueueGroup* items
    Table* names            # name -> index + 1; NULL while the groups are few
    uint32_t count
    uint32_t capacity

ctypedef struct Match:
    SubscriptionArray plain
    GroupArray groups       # arrays beyond `count` keep their memory for reuse


cdef inline Subscription* subscription_new(
        const char* subject, uint32_t subject_size, const char* queue, uint32_t queue_size,
        const char* sid, uint32_t sid_size) noexcept nogil:
    """Create a zeroed subscription with copies of its strings in one heap block; NULL without
    memory.
    """
    cdef size_t size = sizeof(Subscription) + subject_size + 1 + <size_t>queue_size + sid_size
    cdef char* block = <char*>malloc(size)
    cdef Subscription* subscription = <Subscription*>block
    if block == NULL:
        return NULL
    memset(block, 0, sizeof(Subscription))
    subscription.subject = block + sizeof(Subscription)
    subscription.subject[subject_size] = 32
    subscription.queue = subscription.subject + subject_size + 1
    subscription.sid = subscription.queue + queue_size
    subscription.subject_size = subject_size
    subscription.queue_size = queue_size
    subscription.sid_size = sid_size
    memcpy(subscription.subject, subject, subject_size)
    if queue_size:
        memcpy(subscription.queue, queue, queue_size)
    if sid_size:
        memcpy(subscription.sid, sid, sid_size)
    return subscription


cdef inline void subscription_free(Subscription* subscription) noexcept nogil:
    free(subscription)


cdef inline int array_push(SubscriptionArray* array, Subscription* subscription) noexcept nogil:
    cdef uint32_t capacity
    cdef Subscription** items
    if array.count == array.capacity:
        capacity = array.capacity * 2 if array.capacity else 2
        items = <Subscription**>realloc(array.items, capacity * sizeof(Subscription*))
        if items == NULL:
            return -1
        array.items = items
        array.capacity = capacity
    array.items[array.count] = subscription
    array.count += 1
    return 0


cdef inline int array_extend(SubscriptionArray* array,
                             const SubscriptionArray* more) noexcept nogil:
    cdef uint32_t index
    for index in range(more.count):
        if array_push(array, more.items[index]) != 0:
            return -1
    return 0


cdef inline void array_swap_remove(SubscriptionArray* array, uint32_t position) noexcept nogil:
    """Remove an entry: the last entry takes its place, because order within a node has no
    meaning.
    """
    array.count -= 1
    if position != array.count:
        array.items[position] = array.items[array.count]
        array.items[position].position = position
    if array.count == 0:
        free(array.items)
        array.items = NULL
        array.capacity = 0


cdef inline QueueGroup* groups_find(GroupArray* groups, const char* queue,
                                    uint32_t queue_size) noexcept nogil:
    cdef uint32_t index
    cdef size_t place
    cdef Subscription* first
    if groups.names != NULL:
        place = <size_t>table_find(groups.names, table_hash(groups.names, queue, queue_size), queue,
                                   queue_size)
        return NULL if place == 0 else &groups.items[place - 1]
    for index in range(groups.count):
        first = groups.items[index].members.items[0]
        if first.queue_size == queue_size and memcmp(first.queue, queue, queue_size) == 0:
            return &groups.items[index]
    return NULL


cdef inline void groups_forget_names(GroupArray* groups) noexcept nogil:
    """Fall back to searching the groups one by one: always correct, only slower."""
    if groups.names != NULL:
        table_free(groups.names)
        free(groups.names)
        groups.names = NULL


cdef inline void groups_name(GroupArray* groups, uint32_t index) noexcept nogil:
    """Enter the name of a group that has a member; without memory all names are dropped."""
    cdef Subscription* first = groups.items[index].members.items[0]
    if table_insert(groups.names, table_hash(groups.names, first.queue, first.queue_size),
                    first.queue, first.queue_size, <void*>(<size_t>index + 1)) != 0:
        groups_forget_names(groups)


cdef inline void groups_unname(GroupArray* groups, uint32_t index) noexcept nogil:
    cdef Subscription* first = groups.items[index].members.items[0]
    table_remove(groups.names, table_hash(groups.names, first.queue, first.queue_size),
                 first.queue, first.queue_size)


cdef inline void groups_name_last(GroupArray* groups, uint64_t seed) noexcept nogil:
    """Called when the last group has received its first member: index the names once there are
    many.
    """
    cdef uint32_t index
    if groups.names != NULL:
        groups_name(groups, groups.count - 1)
    elif groups.count > GROUPS_UNNAMED_MAX:
        groups.names = <Table*>malloc(sizeof(Table))
        if groups.names == NULL:
            return
        table_init(groups.names, seed)
        for index in range(groups.count):
            groups_name(groups, index)
            if groups.names == NULL:
                return


cdef inline void groups_remove_member(GroupArray* groups, QueueGroup* group,
                                      uint32_t position) noexcept nogil:
    """Remove a member, and the group with its last one. A group's name lives in its first member.
    """
    cdef uint32_t index = <uint32_t>(group - groups.items)
    cdef QueueGroup spare
    if groups.names != NULL and position == 0:
        groups_unname(groups, index)
    array_swap_remove(&group.members, position)
    if group.members.count == 0:
        groups.count -= 1
        if index != groups.count:
            if groups.names != NULL:
                groups_unname(groups, groups.count)
            spare = groups.items[index]
            groups.items[index] = groups.items[groups.count]
            groups.items[groups.count] = spare
            if groups.names != NULL:
                groups_name(groups, index)
    elif groups.names != NULL and position == 0:
        groups_name(groups, index)


cdef inline QueueGroup* groups_push(GroupArray* groups) noexcept nogil:
    """Append a group without members; reuses the memory of a former one."""
    cdef uint32_t capacity
    cdef QueueGroup* items
    if groups.count == groups.capacity:
        capacity = groups.capacity * 2 if groups.capacity else 1
        items = <QueueGroup*>realloc(groups.items, capacity * sizeof(QueueGroup))
        if items == NULL:
            return NULL
        memset(&items[groups.capacity], 0, (capacity - groups.capacity) * sizeof(QueueGroup))
        groups.items = items
        groups.capacity = capacity
    groups.count += 1
    groups.items[groups.count - 1].members.count = 0
    return &groups.items[groups.count - 1]


cdef inline void groups_free(GroupArray* groups) noexcept nogil:
    cdef uint32_t index
    groups_forget_names(groups)
    for index in range(groups.capacity):
        free(groups.items[index].members.items)
    free(groups.items)
    groups.items = NULL
    groups.count = 0
    groups.capacity = 0


cdef inline void match_free(Match* match) noexcept nogil:
    free(match.plain.items)
    match.plain.items = NULL
    match.plain.count = 0
    match.plain.capacity = 0
    groups_free(&match.groups)


cdef inline uint64_t match_fanout(const Match* match) noexcept nogil:
    """Number of subscriptions in a match, counting all members of its groups."""
    cdef uint64_t fanout = match.plain.count
    cdef uint32_t index
    for index in range(match.groups.count):
        fanout += match.groups.items[index].members.count
    return fanout
