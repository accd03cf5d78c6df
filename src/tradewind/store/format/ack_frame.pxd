"""Records of the log of acknowledgements, for compiled callers."""

from libc.stdint cimport uint64_t


cpdef bytes frame_record(uint64_t number, uint64_t offset, bytes prefix, bytes changes)
