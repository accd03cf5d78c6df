"""State of a tree of patterns; the code and the explanation are in pattern_tree.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

ctypedef struct PatternNode:
    uint32_t star               # the node behind `*`; 0: none
    uint8_t ends                # a pattern ends here
    uint8_t tail                # `>` follows

ctypedef struct PatternSlot:
    const char* token           # into the bytes of a pattern
    uint32_t size
    uint32_t parent
    uint32_t child              # 0: the slot is free


cdef class PatternTree:
    cdef tuple patterns             # bytes, kept because the slots point into them
    cdef PatternNode* nodes         # 0 is the root
    cdef uint32_t node_count
    cdef PatternSlot* slots
    cdef uint32_t slot_mask
    cdef uint64_t seed

    cdef PatternSlot* _slot(self, uint32_t parent, const char* token, uint32_t size) noexcept nogil
    cdef int _add(self, bytes pattern) except -1
    cdef bint matches(self, const char* subject, uint32_t size) noexcept nogil
    cdef bint _matches_below(self, uint32_t node, const char* at, const char* end) noexcept nogil
