"""State of a set of patterns; the code and the explanation are in pattern_set.pyx."""

from libc.stdint cimport uint32_t, uint64_t

# A token that patterns have in one place.
ctypedef struct PatternToken:
    const char* text            # into the bytes of a pattern; NULL: the slot is free
    uint32_t size
    uint32_t place              # tokens before it
    uint32_t count              # patterns that have it there
    uint32_t first              # the newest of its links plus 1; 0: none
    uint64_t* bits              # of these patterns, if they are many; otherwise NULL

# One pattern that has a token; `next` is the one before it in the list of the token.
ctypedef struct PatternLink:
    uint32_t pattern
    uint32_t next


cdef class PatternSet:
    cdef tuple patterns             # bytes, kept because the tokens point into them
    cdef uint32_t places            # tokens of the longest pattern
    cdef uint32_t* widths           # by place: patterns that have a token there; then a 0
    cdef uint64_t** stars           # by place: which have `*` there
    cdef uint64_t** tails           # by place: which have `>` there
    cdef PatternToken* tokens       # open addressing, by place and text
    cdef uint32_t token_mask
    cdef PatternLink* links
    cdef uint32_t link_count
    cdef uint64_t* rows             # what `stars` and `tails` point into
    cdef uint64_t* frequent         # what the bits of tokens point into
    cdef uint64_t* active           # which match the tokens so far
    cdef uint64_t* following        # room for those that match one token more
    cdef uint32_t* numbers          # by place: the number of the next pattern that ends there
    cdef Py_ssize_t added           # patterns whose tokens are entered
    cdef bint is_complete           # ... all of them, and frequent tokens have their rows
    cdef uint64_t seed
    cdef uint64_t work              # words and links that all subjects together took

    cdef uint64_t _count_widths(self) except? 0xFFFFFFFFFFFFFFFF
    cdef int _make_rows(self) except -1
    cdef bint build(self, uint64_t tokens_max) except -1
    cdef void _add(self, const char* at, size_t size, uint32_t number) noexcept nogil
    cdef int _make_frequent(self) except -1
    cdef bint _is_frequent(self, const PatternToken* token) noexcept nogil
    cdef PatternToken* _token(self, uint32_t place, const char* text, uint32_t size) noexcept nogil
    cdef bint matches(self, const char* subject, uint32_t size) noexcept nogil
    cdef bint _has_tail(self, uint32_t place) noexcept nogil
    cdef bint _keep(self, uint32_t place, const char* text, uint32_t size) noexcept nogil
    cdef bint _has_ended(self, uint32_t place) noexcept nogil
