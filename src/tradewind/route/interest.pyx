"""The interest of a whole subject space: each subject and queue group once, with its weight.

Owns the counts, by origin of the subscriptions, and the list of entries changed since it was last
taken. The module announces nothing itself: listeners take the list (`AccountLeaves` of
`broker.leaf_session`). Adding or removing a subscription costs one table lookup, however many
servers listen.

Invariants
- a key stays in the table while something is counted in it, or while it is in the list of changes,
  so listeners may refer to it;
- without listeners nothing is listed, and a key is removed with its last subscription;
- when an allocation fails, the counts are wrong from then on: `is_short` is set, and
  code that relies on them must give up.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from tradewind.containers.table cimport (
    table_find, table_free, table_hash, table_init, table_insert, table_remove)
from tradewind.route.members cimport SUB_LEAF


cdef class Interest:
    """The interest of one sublist."""

    def __cinit__(self, uint64_t seed):
        table_init(&self.table, seed)
        self.ring.before = self.ring.after = &self.ring

    def __dealloc__(self):
        cdef Wanted* wanted = self.ring.after
        cdef Wanted* following
        while wanted != &self.ring:
            following = wanted.after
            free(wanted)
            wanted = following
        table_free(&self.table)

    cdef Wanted* find(self, const char* key, uint32_t size) noexcept nogil:
        return <Wanted*>table_find(&self.table, table_hash(&self.table, key, size), key, size)

    cdef Wanted* _get(self, const Subscription* subscription) noexcept nogil:
        """The entry of a subscription, created if necessary; NULL without memory."""
        cdef uint32_t size = subscription.subject_size
        cdef Wanted* wanted
        if subscription.queue_size:
            size += 1 + subscription.queue_size
        wanted = self.find(subscription.subject, size)
        if wanted == NULL:
            wanted = self._make(subscription.subject, size, subscription.subject_size)
        return wanted

    cdef Wanted* _make(self, const char* key, uint32_t size, uint32_t subject_size) noexcept nogil:
        cdef Wanted* wanted = <Wanted*>malloc(sizeof(Wanted) + size)
        if wanted == NULL:
            self.is_short = True
            return NULL
        memcpy(&wanted.key[0], key, size)
        wanted.size = size
        wanted.subject_size = subject_size
        wanted.local = wanted.below = wanted.above = 0
        wanted.is_changed = 0
        wanted.next_changed = NULL
        if table_insert(&self.table, table_hash(&self.table, key, size), &wanted.key[0], size,
                        wanted) != 0:
            free(wanted)
            self.is_short = True
            return NULL
        wanted.before = self.ring.before
        wanted.after = &self.ring
        wanted.before.after = wanted
        self.ring.before = wanted
        return wanted

    cdef void add(self, const Subscription* subscription) noexcept nogil:
        """Count a subscription that was added."""
        cdef Wanted* wanted = self._get(subscription)
        if wanted == NULL:
            return
        if subscription.kind != SUB_LEAF:
            wanted.local += 1
        elif subscription.is_above:
            wanted.above += subscription.weight
        else:
            wanted.below += subscription.weight
        self._note(wanted)

    cdef void drop(self, const Subscription* subscription) noexcept nogil:
        """Count a subscription that was removed."""
        cdef Wanted* wanted
        if self.is_short:
            return
        wanted = self._get(subscription)
        if wanted == NULL:
            return
        # A subscription that has had its last message has changed its kind, but was never a leaf's.
        if subscription.kind != SUB_LEAF:
            wanted.local -= 1
        elif subscription.is_above:
            wanted.above -= subscription.weight
        else:
            wanted.below -= subscription.weight
        self._note(wanted)

    cdef void _note(self, Wanted* wanted) noexcept nogil:
        if self.listeners == 0:
            if self.is_over(wanted):
                self.remove(wanted)
        elif not wanted.is_changed:
            wanted.is_changed = 1
            wanted.next_changed = self.changed
            self.changed = wanted

    cdef Wanted* take_changed(self) noexcept nogil:
        """Take a changed entry, or NULL. The caller removes it if nothing is counted in it any
        more.
        """
        cdef Wanted* wanted = self.changed
        if wanted != NULL:
            self.changed = wanted.next_changed
            wanted.next_changed = NULL
            wanted.is_changed = 0
        return wanted

    cdef bint is_over(self, const Wanted* wanted) noexcept nogil:
        return wanted.local == 0 and wanted.below == 0 and wanted.above == 0

    cdef void remove(self, Wanted* wanted) noexcept nogil:
        """Free an entry in which nothing is counted and to which nothing refers."""
        table_remove(&self.table, table_hash(&self.table, &wanted.key[0], wanted.size),
                     &wanted.key[0], wanted.size)
        wanted.before.after = wanted.after
        wanted.after.before = wanted.before
        free(wanted)

    # -------------------------------------------------------------- for Python callers

    def hold(self, bytes subject not None):
        """Count interest in a subject that has no subscription."""
        cdef uint32_t size = <uint32_t>len(subject)
        cdef Wanted* wanted = self.find(subject, size)
        if wanted == NULL:
            wanted = self._make(subject, size, size)
            if wanted == NULL:
                raise MemoryError
        wanted.local += 1
        self._note(wanted)

    def release(self, bytes subject not None):
        """Undo `hold`."""
        cdef Wanted* wanted = self.find(subject, <uint32_t>len(subject))
        if wanted != NULL and wanted.local:
            wanted.local -= 1
            self._note(wanted)

    def __len__(self):
        """Number of subjects and groups with interest."""
        return self.table.count

    def counts(self):
        """key -> (this server, servers below it, servers above it), for tests."""
        result = {}
        cdef Wanted* wanted = self.ring.after
        while wanted != &self.ring:
            result[wanted.key[:wanted.size]] = (wanted.local, wanted.below, wanted.above)
            wanted = wanted.after
        return result
