"""Whether a subject matches one of many patterns, without asking each of them.

Owns a tree of the tokens of a set of patterns that does not change. A subject walks down the tokens
that it has itself, and through `*` where a pattern has one, so its cost depends on its own length
and on how many ways there are, not on the number of patterns.

The ways out of all nodes are in one table, by node and token. Clients choose both the patterns and
the subjects, so its hash is seeded.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp
from tradewind.containers.table cimport fold_multiply, hash_bytes


cdef class PatternTree:
    """Patterns are valid subjects with or without wildcards; the empty set matches nothing."""

    def __init__(self, tuple patterns not None, uint64_t seed):
        cdef bytes pattern
        cdef size_t tokens = 1, capacity = 4
        self.patterns = patterns
        self.seed = seed
        for pattern in patterns:
            tokens += pattern.count(b".") + 1
        while capacity < 2 * tokens:
            capacity *= 2
        if capacity > 0x80000000:
            raise MemoryError
        self.slot_mask = <uint32_t>(capacity - 1)
        self.nodes = <PatternNode*>calloc(tokens, sizeof(PatternNode))
        self.slots = <PatternSlot*>calloc(capacity, sizeof(PatternSlot))
        if self.nodes == NULL or self.slots == NULL:
            raise MemoryError
        self.node_count = 1
        for pattern in patterns:
            self._add(pattern)

    def __dealloc__(self):
        free(self.nodes)
        free(self.slots)

    cdef PatternSlot* _slot(self, uint32_t parent, const char* token,
                            uint32_t size) noexcept nogil:
        """The slot of a way out of a node, or the free one where it would be."""
        cdef uint64_t seed = fold_multiply(self.seed ^ parent, self.seed ^ 0x9E3779B97F4A7C15ull)
        cdef uint32_t index = <uint32_t>hash_bytes(seed, token, size) & self.slot_mask
        cdef PatternSlot* slot
        while True:
            slot = &self.slots[index]
            if slot.child == 0 or (slot.parent == parent and slot.size == size
                                   and memcmp(slot.token, token, size) == 0):
                return slot
            index = (index + 1) & self.slot_mask

    cdef int _add(self, bytes pattern) except -1:
        cdef const char* at = pattern
        cdef const char* end = at + len(pattern)
        cdef const char* dot
        cdef uint32_t node = 0, size
        cdef PatternSlot* slot
        while True:
            dot = <const char*>memchr(at, 46, end - at)
            size = <uint32_t>((end if dot == NULL else dot) - at)
            if size == 1 and at[0] == 62 and dot == NULL:
                self.nodes[node].tail = 1
                return 0
            if size == 1 and at[0] == 42:
                if self.nodes[node].star == 0:
                    self.nodes[node].star = self.node_count
                    self.node_count += 1
                node = self.nodes[node].star
            else:
                slot = self._slot(node, at, size)
                if slot.child == 0:
                    slot.token = at
                    slot.size = size
                    slot.parent = node
                    slot.child = self.node_count
                    self.node_count += 1
                node = slot.child
            if dot == NULL:
                self.nodes[node].ends = 1
                return 0
            at = dot + 1

    cdef bint matches(self, const char* subject, uint32_t size) noexcept nogil:
        """Whether a literal subject matches one of the patterns."""
        return self._matches_below(0, subject, subject + size)

    cdef bint _matches_below(self, uint32_t node, const char* at, const char* end) noexcept nogil:
        """The same for what is left of a subject, at a node. Goes deeper only where there are two
        ways, so no deeper than the patterns are long.
        """
        cdef const char* dot
        cdef uint32_t child, star
        while True:
            if self.nodes[node].tail:
                return True
            dot = <const char*>memchr(at, 46, end - at)
            child = self._slot(node, at, <uint32_t>((end if dot == NULL else dot) - at)).child
            star = self.nodes[node].star
            if dot == NULL:
                return (child != 0 and self.nodes[child].ends) \
                    or (star != 0 and self.nodes[star].ends)
            at = dot + 1
            if child != 0 and star != 0 and self._matches_below(child, at, end):
                return True
            node = star if star != 0 else child
            if node == 0:
                return False

    def accepts(self, bytes subject not None):
        """`matches` for Python callers."""
        return self.matches(subject, <uint32_t>len(subject))
