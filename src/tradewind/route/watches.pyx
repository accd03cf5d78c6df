"""Who wants to know when the first subscription of a subject comes or the last one goes.

Owns the watches of a sublist, and the ring of those whose subject changed. The sublist links a
watch into the ring while it changes, without memory and without a call; whoever owns the ring takes
them out at the end of the turn and calls their watchers, who look for themselves. So a subscription
costs the same however many subjects are watched, and one that comes and goes within a turn may be
noted for nothing.
"""

cimport cython
from libc.stdint cimport uint32_t
from tradewind.containers.table cimport table_hash, table_insert, table_remove


cdef class Changes:
    """One for all sublists whose watchers are called together."""

    def __cinit__(self):
        self.ring.before = self.ring.after = &self.ring

    cdef bint is_empty(self) noexcept nogil:
        return self.ring.after == &self.ring

    cdef void note(self, Link* link) noexcept nogil:
        """Something came or went at this watch."""
        if link.after == NULL:
            link.before = self.ring.before
            link.after = &self.ring
            link.before.after = link
            self.ring.before = link

    def __bool__(self):
        """Whether something has changed."""
        return not self.is_empty()

    def tell(self, on_error not None):
        """Call the watchers of everything that changed until now; on_error(error) if one fails.
        """
        cdef Link* link
        cdef list changed = []
        while not self.is_empty():
            link = self.ring.after
            unlink(link)
            changed.extend((<Watch>link.watch).watchers)
        # Only now: what they do may change other watches, or these ones again.
        for watcher in changed:
            try:
                watcher()
            except Exception as error:
                on_error(error)


cdef void unlink(Link* link) noexcept nogil:
    if link.after != NULL:
        link.before.after = link.after
        link.after.before = link.before
        link.before = link.after = NULL


@cython.no_gc_clear     # ring and table are reached from here to the very end
cdef class Watch:
    """One key that is watched; owned by the sublist, which drops it with its last watcher.

    The garbage collector may take it before the sublist, whose subscriptions then go one by one: so
    it leaves the table by itself.
    """

    def __cinit__(self, Changes changes not None, sublist not None, bytes key not None):
        self.changes = changes
        self.sublist = sublist
        self.key = key
        self.watchers = {}
        self.link.watch = <void*>self

    cdef int enter(self, Table* table) except -1:
        """Be found by its key."""
        cdef const char* key = self.key
        cdef uint32_t size = <uint32_t>len(self.key)
        if table_insert(table, table_hash(table, key, size), key, size, &self.link) != 0:
            raise MemoryError
        self.table = table
        return 0

    def __dealloc__(self):
        cdef const char* key
        cdef uint32_t size
        unlink(&self.link)
        if self.table != NULL:
            key = self.key
            size = <uint32_t>len(self.key)
            table_remove(self.table, table_hash(self.table, key, size), key, size)
