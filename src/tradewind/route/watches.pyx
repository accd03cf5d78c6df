"""Notify watchers when a subject gains its first subscription or loses its last one.

Owns the watches of a sublist, and the ring of those whose subject changed. The sublist links a
watch into the ring during a change, without allocating and without a call; the owner of the ring
takes the watches out at the end of the turn and calls their watchers, which check the state
themselves. A subscription therefore costs the same however many subjects are watched, and one that
is added and removed within a turn may cause a spurious call.
"""

cimport cython
from libc.stdint cimport uint32_t
from tradewind.containers.table cimport table_hash, table_insert, table_remove


cdef class Changes:
    """The changed watches of all sublists whose watchers are called together."""

    def __cinit__(self):
        self.ring.before = self.ring.after = &self.ring

    cdef bint is_empty(self) noexcept nogil:
        return self.ring.after == &self.ring

    cdef void note(self, Link* link) noexcept nogil:
        """Note that subscriptions of this watch have changed."""
        if link.after == NULL:
            link.before = self.ring.before
            link.after = &self.ring
            link.before.after = link
            self.ring.before = link

    def __bool__(self):
        """Whether anything has changed."""
        return not self.is_empty()

    def tell(self, on_error not None):
        """Call the watchers of everything that has changed so far; on_error(error) if one fails."""
        cdef Link* link
        cdef list changed = []
        while not self.is_empty():
            link = self.ring.after
            unlink(link)
            changed.extend((<Watch>link.watch).watchers)
        # Unlinked only now: watchers may change other watches, or these again.
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


@cython.no_gc_clear     # ring and table must be reachable until deallocation
cdef class Watch:
    """One watched key; owned by the sublist, which drops it with its last watcher.

    The garbage collector may clear it before the sublist, whose subscriptions are removed one by
    one after that, so it removes itself from the table.
    """

    def __cinit__(self, Changes changes not None, sublist not None, bytes key not None):
        self.changes = changes
        self.sublist = sublist
        self.key = key
        self.watchers = {}
        self.link.watch = <void*>self

    cdef int enter(self, Table* table) except -1:
        """Enter the table under its key."""
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
