"""State of the subject trie; the code and the explanation are in sublist.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from tradewind.route.table cimport Table

cdef enum:
    SUB_CACHE_SLOTS_MAX = 8192

ctypedef struct Subscription:
    void* owner             # whoever receives: a SessionState of the broker; NULL: internal
    void* handler           # a borrowed Python object for an internal subscription, else NULL
    int64_t delivered
    int64_t delivered_max   # 0: no limit
    char* subject           # these three lie behind the struct in the same heap block
    char* queue
    char* sid
    uint32_t subject_size
    uint32_t queue_size     # 0: a plain subscription
    uint32_t sid_size
    uint32_t position       # index in the list of its node
    uint8_t filtered        # a deny rule may hit: check each concrete subject at delivery
    uint8_t removed         # out of the trie; freed when no delivery can see it any more

ctypedef struct SubscriptionArray:
    Subscription** items
    uint32_t count
    uint32_t capacity

ctypedef struct QueueGroup:
    SubscriptionArray members   # members[0].queue names the group

ctypedef struct GroupArray:
    QueueGroup* items
    uint32_t count
    uint32_t capacity

ctypedef struct Node:
    Table children          # token -> Node*
    Node* star              # '*'
    Node* tail              # '>'
    Node* parent
    SubscriptionArray plain
    GroupArray groups
    uint32_t token_size
    char token[1]           # token_size bytes

ctypedef struct Match:
    SubscriptionArray plain
    GroupArray groups       # arrays beyond `count` keep their memory for the next use

ctypedef struct CacheEntry:
    Match match
    char* subject
    uint64_t hash
    uint64_t generation     # valid while equal to the sublist's
    uint32_t subject_size
    uint32_t subject_capacity


cdef Subscription* subscription_new(const char* subject, uint32_t subject_size, const char* queue,
                                    uint32_t queue_size, const char* sid,
                                    uint32_t sid_size) noexcept nogil
cdef void subscription_free(Subscription* subscription) noexcept nogil
cdef void match_free(Match* match) noexcept nogil
cdef bint subject_valid(const char* subject, uint32_t size, bint literal) noexcept nogil
cdef bint subject_is_literal(const char* subject, uint32_t size) noexcept nogil
cdef bint subject_matches(const char* subject, uint32_t subject_size, const char* pattern,
                          uint32_t pattern_size) noexcept nogil


cdef class Sublist:
    cdef Node* root
    cdef CacheEntry* cache
    cdef uint32_t cache_slots
    cdef uint32_t cache_evictions
    cdef bint cache_enabled
    cdef Match scratch              # result of the last uncached lookup
    cdef SubscriptionArray kept     # made by `keep`: they live as long as the sublist
    cdef uint64_t generation
    cdef uint64_t seed
    cdef readonly uint64_t count
    cdef readonly uint64_t inserts
    cdef readonly uint64_t removes
    cdef readonly uint64_t matches
    cdef readonly uint64_t cache_hits

    cdef int insert(self, Subscription* subscription) noexcept nogil
    cdef void remove(self, Subscription* subscription) noexcept nogil
    cdef Match* match(self, const char* subject, uint32_t size) noexcept nogil
    cdef bint matches_any(self, const char* subject, uint32_t size) noexcept nogil
    cdef void _invalidate(self, const char* subject, uint32_t size) noexcept nogil
    cdef Match* _fill(self, CacheEntry* entry, uint64_t hash_value, const char* subject,
                      uint32_t size) noexcept nogil
    cdef Match* _lookup(self, const char* subject, uint32_t size) noexcept nogil
    cdef void _grow_cache(self) noexcept nogil
    cdef void _prune(self, Node* node) noexcept nogil
