# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Tight loops over the codecs of the store."""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy
from tradewind.store.format.hash cimport Key, hash_two


def check_records(Key key, bytes block, int repetitions):
    """Checks every record of a block again and again, as recovery does; returns how many."""
    cdef const char *record
    cdef const char *end = <const char *>block + len(block)
    cdef uint32_t size
    cdef uint64_t stored
    cdef long count = 0
    cdef int _repetition
    for _repetition in range(repetitions):
        record = <const char *>block
        while record < end:
            memcpy(&size, record, 4)
            memcpy(&stored, record + size - 8, 8)
            if hash_two(&key.state, record + 4, 16, record + 22, size - 30) != stored:
                raise ValueError("a record does not have its checksum")
            record += size
            count += 1
    return count
