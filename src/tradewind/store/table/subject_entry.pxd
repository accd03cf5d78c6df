"""The entry of one subject in the index of a stream."""

from libc.stdint cimport uint32_t, uint64_t

ctypedef struct SubjectEntry:
    uint64_t total              # live messages; 0: the entry is dead, its id is not used again
    uint64_t first_seq          # lowest live sequence; 0: not known, look from first_block on
    uint64_t last_seq           # highest live sequence; 0: not known, look from last_block back
    uint32_t first_block        # no live message is in a block below this one
    uint32_t last_block         # ... or above this one
    uint32_t id
    uint32_t name_size
    char name[1]                # name_size bytes
