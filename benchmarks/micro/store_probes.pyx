# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Tight loops over the codecs of the store."""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy
from tradewind.store.format.hash cimport Key, Part, hash_parts


def check_records(Key key, bytes block, int repetitions):
    """Checks every record of a block again and again, as recovery does; returns how many."""
    cdef const char *record
    cdef const char *end = <const char *>block + len(block)
    cdef uint32_t size
    cdef uint64_t stored
    cdef Part[2] parts  # of a record without message headers
    cdef long count = 0
    cdef int _repetition
    for _repetition in range(repetitions):
        record = <const char *>block
        while record < end:
            memcpy(&size, record, 4)
            memcpy(&stored, record + size - 8, 8)
            parts[0].data = record + 4
            parts[0].size = 16
            parts[1].data = record + 22
            parts[1].size = size - 30
            if hash_parts(&key.state, parts, 2) != stored:
                raise ValueError("a record does not have its checksum")
            record += size
            count += 1
    return count
