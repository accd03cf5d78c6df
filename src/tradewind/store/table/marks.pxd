"""Records of removals; the code and the explanation are in marks.pyx."""

from libc.stdint cimport uint64_t
from tradewind.store.table.message_store cimport MessageStore

cdef enum MarkKind:
    MARK_SYNCED = 1         # value: block number << 32 | offset; everything before that was synced
    MARK_FLOOR = 2          # value: all sequences below it are removed
    MARK_PREVIOUS = 3       # value: block number << 32 | size of the block before this one
    MARK_UNIT = 6           # value: this many following messages belong together; 0: end
    # MARK_LENGTHS = 7, in `tradewind.store.format.lengths`

cpdef int write_mark(MessageStore store, uint64_t kind, uint64_t value) except -1
cdef int mark_floor(MessageStore store) except -1
cpdef int write_floor(MessageStore store) except -1
cdef int write_last_seq(MessageStore store) except -1
cpdef int write_lengths(MessageStore store, uint64_t bytes_min=*) except -1
