"""Map subjects to subscribers: a trie (`subject_trie`) with a cache for literal subjects.

Owns the trie and the cache; never owns a Subscription (its creator frees it, after `remove`),
except those created by `keep`. The module knows nothing of sessions, permissions or delivery.

Invariants
- `subscription.position` is its index in the plain list of its node, or in the member list of its
  queue group;
- a cache entry is used only while its generation equals `generation`: adding or removing a wildcard
  increments it, a literal invalidates the one entry that it can affect. A temporary
  inbox therefore costs the cache nothing;
- the cache is bounded in bytes: neither long subjects nor large results are stored in it;
- a Match returned by `match` is valid until the next insert, remove or match;
- the last uncached lookup is reused for the same subject until something is inserted or removed: a
  pull request receives all its messages on one inbox;
- a watch is noted when its subject gains its first plain subscription or the first of a queue
  group, and when it loses the last one (`watches`); no other watch is examined.

Queue groups of equal name that match through different patterns count as one group, as in
nats-server.
"""

cimport cython
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset
from tradewind.route.members cimport (
    array_push, array_swap_remove, groups_find, groups_forget_names, groups_free,
    groups_name_last, groups_push, groups_remove_member, match_fanout, match_free)
from tradewind.containers.table cimport (
    hash_bytes, table_at, table_find, table_free, table_hash, table_init, table_room)
from tradewind.route.subject_trie cimport (
    DOT, STAR, TAIL, any_below, collect, node_at, node_detach, node_free, node_is_empty, node_join,
    node_new, node_reach, tree_free)
from tradewind.route.watches cimport Link, Watch

cdef const char* ANY_WILDCARD = b">"

cdef enum:
    CACHE_SLOTS_FIRST = 64
    # 8192 entries of at most this size stay below 64 MiB whatever a peer publishes. For a large
    # result, the lookup is cheap compared to its deliveries.
    CACHE_SUBJECT_BYTES_MAX = 512
    CACHE_FANOUT_MAX = 256


# ------------------------------------------------------------------ subjects

cdef bint subject_valid(const char* subject, uint32_t size, bint literal) noexcept nogil:
    """Whether a subject has no empty token, no white space, and '>' only as its last token;
    `literal` also refuses wildcards.
    """
    cdef uint32_t index, start = 0
    cdef char byte
    if size == 0:
        return False
    for index in range(size + 1):
        if index == size or subject[index] == DOT:
            if index == start:
                return False
            if index == start + 1:
                byte = subject[start]
                if byte == TAIL and (literal or index != size):
                    return False
                if byte == STAR and literal:
                    return False
            start = index + 1
        else:
            byte = subject[index]
            if byte == 32 or byte == 9 or byte == 10 or byte == 13 or byte == 12:
                return False
    return True


cdef bint subject_exceeds(const char* subject, uint32_t size, uint32_t tokens_max) noexcept nogil:
    """Whether a subject has more than `tokens_max` tokens; empty ones count."""
    cdef uint32_t index, tokens = 1
    if size < tokens_max:       # too short for so many dots
        return False
    for index in range(size):
        if subject[index] == DOT:
            tokens += 1
    return tokens > tokens_max


cdef bint subject_is_literal(const char* subject, uint32_t size) noexcept nogil:
    """Whether no token is a wildcard (a '*' inside a longer token is an ordinary byte)."""
    cdef uint32_t index
    for index in range(size):
        if subject[index] == STAR or subject[index] == TAIL:
            if (index == 0 or subject[index - 1] == DOT) and \
                    (index + 1 == size or subject[index + 1] == DOT):
                return False
    return True


cdef bint subject_matches(const char* subject, uint32_t subject_size, const char* pattern,
                          uint32_t pattern_size) noexcept nogil:
    """Whether a pattern matches a literal subject."""
    cdef uint32_t at = 0, place = 0, end, stop
    while True:
        end = at
        while end < subject_size and subject[end] != DOT:
            end += 1
        stop = place
        while stop < pattern_size and pattern[stop] != DOT:
            stop += 1
        if stop == place + 1 and pattern[place] == TAIL and stop == pattern_size:
            return end > at
        if not (stop == place + 1 and pattern[place] == STAR):
            if end - at != stop - place or memcmp(subject + at, pattern + place, end - at) != 0:
                return False
        if end == subject_size or stop == pattern_size:
            return end == subject_size and stop == pattern_size
        at = end + 1
        place = stop + 1


cdef int tree_count(Node* root, Interest interest) except -1:
    """Count all subscriptions of a tree in `interest`."""
    cdef Node* node
    cdef uint32_t index, member
    cdef list stack = [<size_t>root]
    while stack:
        node = <Node*><size_t>stack.pop()
        for index in range(node.plain.count):
            interest.add(node.plain.items[index])
        for index in range(node.groups.count):
            for member in range(node.groups.items[index].members.count):
                interest.add(node.groups.items[index].members.items[member])
        if node.star != NULL:
            stack.append(<size_t>node.star)
        if node.tail != NULL:
            stack.append(<size_t>node.tail)
        for index in range(table_room(&node.children)):
            if table_at(&node.children, index) != NULL:
                stack.append(<size_t>table_at(&node.children, index))
    return 0


cdef bint has_empty_token(const char* subject, uint32_t size) noexcept nogil:
    """Whether a published subject, which is not validated, has an empty token: it matches nothing,
    not even '>'.
    """
    cdef uint32_t index
    if size == 0 or subject[0] == DOT or subject[size - 1] == DOT:
        return True
    for index in range(1, size):
        if subject[index] == DOT and subject[index - 1] == DOT:
            return True
    return False


cdef bint never_repeats(const char* subject, uint32_t size) noexcept nogil:
    """Whether a subject is used once, like inboxes and ack subjects: caching it would only displace
    useful entries.
    """
    if size > 7 and subject[0] == 95 and (memcmp(subject, b"_INBOX.", 7) == 0
                                          or memcmp(subject, b"_R_.", 4) == 0):
        return True
    return size > 8 and subject[0] == 36 and memcmp(subject, b"$JS.ACK.", 8) == 0


# ------------------------------------------------------------------ the class

@cython.no_gc_clear     # a watch must reach its table until the last subscription is gone
cdef class Sublist:
    """All subscriptions of one subject space. The Python methods are for tests, monitoring and the
    control plane.
    """

    def __cinit__(self, uint64_t seed, bint cache=True, Changes changes=None):
        self.seed = seed
        self._watches = {}
        self.changes = Changes() if changes is None else changes
        table_init(&self.watched, seed)
        self.generation = 1
        self.cache_enabled = cache
        memset(&self.scratch, 0, sizeof(Match))
        self.root = node_new(NULL, b"", 0, seed)
        if self.root == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef uint32_t index
        if self.root != NULL:
            tree_free(self.root)
        for index in range(self.cache_slots):
            free(self.cache[index].subject)
            match_free(&self.cache[index].match)
        free(self.cache)
        match_free(&self.scratch)
        table_free(&self.watched)
        for index in range(self.kept.count):
            subscription_free(self.kept.items[index])
        free(self.kept.items)

    cdef int insert(self, Subscription* subscription) noexcept nogil:
        """Add to the trie; the subject must be valid. Returns -1 without memory and then changes
        nothing.
        """
        cdef Node* last = NULL
        cdef Node* node = node_reach(
            self.root, subscription.subject, subscription.subject_size, &last)
        cdef QueueGroup* group = NULL
        cdef SubscriptionArray* array
        if node == NULL:
            self._prune(last)
            return -1
        array = &node.plain
        if subscription.queue_size:
            group = groups_find(&node.groups, subscription.queue, subscription.queue_size)
            if group == NULL:
                group = groups_push(&node.groups)
                if group == NULL:
                    self._prune(node)
                    return -1
            array = &group.members
        subscription.position = array.count
        if array_push(array, subscription) != 0:
            if subscription.queue_size and array.count == 0:
                node.groups.count -= 1
            self._prune(node)
            return -1
        if subscription.queue_size and array.count == 1:
            groups_name_last(&node.groups, self.seed)
        self.count += 1
        self.inserts += 1
        self._invalidate(subscription.subject, subscription.subject_size)
        if self.watched.count and array.count == 1:
            self._note(subscription)
        if self.is_told:
            self.interest.add(subscription)
        return 0

    cdef void remove(self, Subscription* subscription) noexcept nogil:
        """Remove a subscription that `insert` added."""
        cdef Node* node = self.root
        cdef QueueGroup* group
        cdef bint is_last
        node = node_at(node, subscription.subject, subscription.subject_size)
        if node == NULL:
            return
        if subscription.queue_size:
            group = groups_find(&node.groups, subscription.queue, subscription.queue_size)
            if group == NULL:
                return
            is_last = group.members.count == 1
            groups_remove_member(&node.groups, group, subscription.position)
        else:
            is_last = node.plain.count == 1
            array_swap_remove(&node.plain, subscription.position)
        self.count -= 1
        self.removes += 1
        self._invalidate(subscription.subject, subscription.subject_size)
        if self.watched.count and is_last:
            self._note(subscription)
        if self.is_told:
            self.interest.drop(subscription)
        self._prune(node)

    cdef void _prune(self, Node* node) noexcept nogil:
        """Free `node` and its ancestors as long as they hold nothing, and join the labels they
        divided.
        """
        cdef Node* parent
        while node != self.root and node_is_empty(node):
            parent = node.parent
            node_detach(node)
            node_free(node)
            node = parent
        if node != self.root:
            node_join(node)

    cdef void _invalidate(self, const char* subject, uint32_t size) noexcept nogil:
        cdef uint64_t hash_value
        cdef CacheEntry* entry
        if self.cache_slots == 0:
            return
        if not subject_is_literal(subject, size):
            self.generation += 1
            return
        hash_value = hash_bytes(self.seed, subject, size)
        entry = &self.cache[hash_value & (self.cache_slots - 1)]
        if entry.hash == hash_value and entry.subject_size == size:
            entry.generation = 0

    cdef Match* match(self, const char* subject, uint32_t size) noexcept nogil:
        """All subscribers of a subject; NULL only without memory. For its lifetime see the module's
        invariants.
        """
        cdef uint64_t hash_value
        cdef CacheEntry* entry
        self.matches += 1
        if not self.cache_enabled or size == 0 or size > CACHE_SUBJECT_BYTES_MAX \
                or never_repeats(subject, size):
            return self._lookup(subject, size)
        if self.cache_slots == 0 or (self.cache_evictions > self.cache_slots
                                     and self.cache_slots < SUB_CACHE_SLOTS_MAX):
            self._grow_cache()
            if self.cache_slots == 0:
                return self._lookup(subject, size)
        hash_value = hash_bytes(self.seed, subject, size)
        entry = &self.cache[hash_value & (self.cache_slots - 1)]
        if entry.generation == self.generation:
            if entry.hash == hash_value and entry.subject_size == size \
                    and memcmp(entry.subject, subject, size) == 0:
                self.cache_hits += 1
                return &entry.match
            self.cache_evictions += 1
        return self._fill(entry, hash_value, subject, size)

    cdef Match* _fill(self, CacheEntry* entry, uint64_t hash_value, const char* subject,
                      uint32_t size) noexcept nogil:
        """Look up a subject and store the result in a cache entry, unless it is too large."""
        entry.generation = 0
        if size > entry.subject_capacity:
            free(entry.subject)
            entry.subject = <char*>malloc(size)
            entry.subject_capacity = size if entry.subject != NULL else 0
            if entry.subject == NULL:
                return self._lookup(subject, size)
        memcpy(entry.subject, subject, size)
        entry.subject_size = size
        entry.hash = hash_value
        entry.match.plain.count = 0
        # Groups are not reused: over time each would grow to the size of the largest one.
        groups_free(&entry.match.groups)
        if not has_empty_token(subject, size) and \
                collect(self.root, subject, 0, size, &entry.match) != 0:
            return NULL
        if match_fanout(&entry.match) > CACHE_FANOUT_MAX:
            match_free(&self.scratch)
            self.scratch_size = 0
            self.scratch = entry.match
            memset(&entry.match, 0, sizeof(Match))
            return &self.scratch
        entry.generation = self.generation
        return &entry.match

    cdef Match* _lookup(self, const char* subject, uint32_t size) noexcept nogil:
        if size == self.scratch_size and self.scratch_changes == self.inserts + self.removes \
                and memcmp(self.scratch_subject, subject, size) == 0 and size:
            return &self.scratch
        self.scratch_size = 0
        self.scratch.plain.count = 0
        self.scratch.groups.count = 0
        groups_forget_names(&self.scratch.groups)
        if not has_empty_token(subject, size) and \
                collect(self.root, subject, 0, size, &self.scratch) != 0:
            return NULL
        if size <= SCRATCH_SUBJECT_BYTES_MAX:
            memcpy(self.scratch_subject, subject, size)
            self.scratch_size = size
            self.scratch_changes = self.inserts + self.removes
        return &self.scratch

    cdef int check_match(self, const Match* match, const char* subject, uint32_t size) except -1:
        """Assert that a result, wherever it was stored, equals the trie's result at this moment."""
        cdef Match fresh
        cdef uint32_t index
        memset(&fresh, 0, sizeof(Match))
        try:
            if not has_empty_token(subject, size) \
                    and collect(self.root, subject, 0, size, &fresh) != 0:
                raise MemoryError
            assert match.plain.count == fresh.plain.count, subject[:size]
            for index in range(fresh.plain.count):
                assert match.plain.items[index] == fresh.plain.items[index], subject[:size]
            assert match.groups.count == fresh.groups.count, subject[:size]
            assert match_fanout(match) == match_fanout(&fresh), subject[:size]
        finally:
            match_free(&fresh)
        assert self.count == self.inserts - self.removes, (self.count, self.inserts, self.removes)
        return 0

    cdef bint has_subscription(self, const char* subject, uint32_t size, const char* queue,
                               uint32_t queue_size) noexcept nogil:
        """Whether there is a subscription to exactly this subject, in this group or without one."""
        cdef Node* node = node_at(self.root, subject, size)
        if node == NULL:
            return False
        if queue_size == 0:
            return node.plain.count != 0
        return groups_find(&node.groups, queue, queue_size) != NULL

    cdef void _note(self, const Subscription* subscription) noexcept nogil:
        """Note a watch: the first subscription of its kind was added, or the last one removed."""
        self._note_key(subscription.subject, subscription.subject_size)
        if not subject_is_literal(subscription.subject, subscription.subject_size):
            self._note_key(ANY_WILDCARD, 1)
        if subscription.queue_size:
            self._note_key(subscription.subject,
                           subscription.subject_size + 1 + subscription.queue_size)

    cdef void _note_key(self, const char* key, uint32_t size) noexcept nogil:
        cdef Link* link = <Link*>table_find(
            &self.watched, table_hash(&self.watched, key, size), key, size)
        if link != NULL:
            self.changes.note(link)

    cdef bint matches_any(self, const char* subject, uint32_t size) noexcept nogil:
        return not has_empty_token(subject, size) and any_below(self.root, subject, 0, size)

    cdef void _grow_cache(self) noexcept nogil:
        """Enlarge the cache: it starts small and doubles while distinct subjects displace each
        other; old entries are dropped.
        """
        cdef uint32_t slots = self.cache_slots * 2 if self.cache_slots else CACHE_SLOTS_FIRST
        cdef CacheEntry* cache = <CacheEntry*>calloc(slots, sizeof(CacheEntry))
        cdef uint32_t index
        self.cache_evictions = 0
        if cache == NULL:
            return
        for index in range(self.cache_slots):
            free(self.cache[index].subject)
            match_free(&self.cache[index].match)
        free(self.cache)
        self.cache = cache
        self.cache_slots = slots

    # -------------------------------------------------------------- for Python callers

    def add(self, bytes subject not None, bytes queue not None=b"", bytes sid not None=b""):
        """Insert a subscription and return a handle for `discard`; ValueError for an invalid
        subject.
        """
        cdef Subscription* subscription
        if not subject_valid(subject, <uint32_t>len(subject), False):
            raise ValueError(f"invalid subject {subject!r}")
        subscription = subscription_new(subject, <uint32_t>len(subject), queue,
                                        <uint32_t>len(queue), sid, <uint32_t>len(sid))
        if subscription == NULL or self.insert(subscription) != 0:
            subscription_free(subscription)
            raise MemoryError
        return <size_t>subscription

    def keep(self, bytes subject not None, bytes queue not None=b""):
        """Insert a subscription that stays as long as the sublist, which frees it."""
        cdef Subscription* subscription = <Subscription*><size_t>self.add(subject, queue)
        if array_push(&self.kept, subscription) != 0:
            self.discard(<size_t>subscription)
            raise MemoryError

    def discard(self, size_t handle):
        """Remove and free a subscription made by `add`."""
        cdef Subscription* subscription = <Subscription*>handle
        self.remove(subscription)
        subscription_free(subscription)

    def find(self, bytes subject not None):
        """Return (plain handles, {queue: handles}) of the subscriptions that match a literal
        subject.
        """
        cdef Match* match = self.match(subject, <uint32_t>len(subject))
        cdef QueueGroup* group
        cdef uint32_t index, member
        if match == NULL:
            raise MemoryError
        plain = [<size_t>match.plain.items[index] for index in range(match.plain.count)]
        groups = {}
        for index in range(match.groups.count):
            group = &match.groups.items[index]
            name = group.members.items[0].queue[:group.members.items[0].queue_size]
            groups[name] = [<size_t>group.members.items[member]
                            for member in range(group.members.count)]
        return plain, groups

    def has_interest(self, bytes subject not None):
        """Whether any subscription matches a literal subject."""
        return self.matches_any(subject, <uint32_t>len(subject))

    def is_subscribed(self, bytes subject not None, bytes queue not None=b""):
        """Whether there is a subscription to exactly this subject, in this group or without one."""
        return self.has_subscription(subject, <uint32_t>len(subject), queue, <uint32_t>len(queue))

    def watch(self, bytes subject not None, bytes queue not None, watcher not None):
        """Let `changes.tell` call `watcher()` when `is_subscribed` may have changed; without a
        queue also when the first member of a group was added or the last one removed. A watcher of
        ">" is called for all wildcards.
        """
        cdef bytes key = subject + b" " + queue if queue else subject
        cdef Watch watch = self._watches.get(key)
        if watch is None:
            watch = Watch(self.changes, self, key)
            watch.enter(&self.watched)
            self._watches[key] = watch
        watch.watchers[watcher] = None

    def unwatch(self, bytes subject not None, bytes queue not None, watcher not None):
        """Undo `watch`; an unknown watcher is ignored."""
        cdef bytes key = subject + b" " + queue if queue else subject
        cdef Watch watch = self._watches.get(key)
        if watch is None:
            return
        watch.watchers.pop(watcher, None)
        if not watch.watchers:
            del self._watches[key]      # deallocation, in this call, removes it from the table

    def tell_interest(self, Interest interest not None):
        """Count all present and future subscriptions in `interest`."""
        self.interest = interest
        self.is_told = True
        tree_count(self.root, interest)

    def node_count(self):
        """Number of trie nodes without the root; 0 for an empty sublist, whatever it held
        before.
        """
        cdef size_t total = 0
        cdef Node* node
        cdef uint32_t index
        stack = [<size_t>self.root]
        while stack:
            node = <Node*><size_t>stack.pop()
            total += 1
            if node.star != NULL:
                stack.append(<size_t>node.star)
            if node.tail != NULL:
                stack.append(<size_t>node.tail)
            for index in range(table_room(&node.children)):
                if table_at(&node.children, index) != NULL:
                    stack.append(<size_t>table_at(&node.children, index))
        return total - 1

    def cache_stats(self):
        """(valid entries, largest fan-out, sum of fan-outs) over the cache."""
        cdef uint32_t index, entries = 0
        cdef uint64_t fanout, largest = 0, total = 0
        for index in range(self.cache_slots):
            if self.cache[index].generation != self.generation:
                continue
            fanout = match_fanout(&self.cache[index].match)
            entries += 1
            total += fanout
            largest = max(largest, fanout)
        return entries, largest, total


def is_valid_subject(bytes subject not None, bint literal=False):
    """Whether a subject may be subscribed to (`literal`: published to in pedantic mode)."""
    return subject_valid(subject, <uint32_t>len(subject), literal)


def subject_match(bytes subject not None, bytes pattern not None):
    """Whether one pattern matches a literal subject; for tests of `subject_matches`."""
    return subject_matches(subject, <uint32_t>len(subject), pattern, <uint32_t>len(pattern))
