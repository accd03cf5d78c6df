"""State of the routing table; the code and the explanation are in sublist.pyx."""

from libc.stdint cimport uint32_t, uint64_t
from tradewind.route.members cimport (
    SUB_CROSSING, SUB_LEAF, SUB_REMOVED, SUB_SHADOW, GroupArray, Match, QueueGroup, Subscription,
    SubscriptionArray, subscription_free, subscription_new)
from tradewind.containers.table cimport Table
from tradewind.route.interest cimport Interest
from tradewind.route.subject_trie cimport Node
from tradewind.route.watches cimport Changes

cdef enum:
    SUB_CACHE_SLOTS_MAX = 8192
    SCRATCH_SUBJECT_BYTES_MAX = 128

ctypedef struct CacheEntry:
    Match match
    char* subject
    uint64_t hash
    uint64_t generation     # valid while equal to the sublist's
    uint32_t subject_size
    uint32_t subject_capacity


cdef bint subject_valid(const char* subject, uint32_t size, bint literal) noexcept nogil
cdef bint subject_exceeds(const char* subject, uint32_t size, uint32_t tokens_max) noexcept nogil
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
    cdef char scratch_subject[SCRATCH_SUBJECT_BYTES_MAX]    # ... of this subject
    cdef uint32_t scratch_size      # 0: unknown
    cdef uint64_t scratch_changes   # inserts and removes at that time
    cdef SubscriptionArray kept     # created by `keep`: they exist as long as the sublist
    cdef Table watched              # subject, or subject and queue -> Link* of a Watch
    cdef dict _watches              # the same keys -> Watch, owned here
    cdef Changes changes            # collects the watches that changed
    cdef readonly Interest interest     # interest for other servers; None: none is recorded
    cdef bint is_told               # `interest` is set
    cdef uint64_t generation
    cdef readonly uint64_t seed
    cdef readonly uint64_t count
    cdef readonly uint64_t inserts
    cdef readonly uint64_t removes
    cdef readonly uint64_t matches
    cdef readonly uint64_t cache_hits

    cdef int insert(self, Subscription* subscription) noexcept nogil
    cdef void remove(self, Subscription* subscription) noexcept nogil
    cdef Match* match(self, const char* subject, uint32_t size) noexcept nogil
    cdef int check_match(self, const Match* match, const char* subject, uint32_t size) except -1
    cdef bint matches_any(self, const char* subject, uint32_t size) noexcept nogil
    cdef bint has_subscription(self, const char* subject, uint32_t size, const char* queue,
                               uint32_t queue_size) noexcept nogil
    cdef void _note(self, const Subscription* subscription) noexcept nogil
    cdef void _note_key(self, const char* key, uint32_t size) noexcept nogil
    cdef void _invalidate(self, const char* subject, uint32_t size) noexcept nogil
    cdef Match* _fill(self, CacheEntry* entry, uint64_t hash_value, const char* subject,
                      uint32_t size) noexcept nogil
    cdef Match* _lookup(self, const char* subject, uint32_t size) noexcept nogil
    cdef void _grow_cache(self) noexcept nogil
    cdef void _prune(self, Node* node) noexcept nogil
