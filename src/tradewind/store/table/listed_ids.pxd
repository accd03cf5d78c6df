"""A list of the ids of subjects, in a buffer."""

from libc.stdint cimport uint32_t
from libc.string cimport memcpy
from tradewind.containers.buffer cimport Buffer, buffer_append, buffer_size


cdef inline int listed_add(Buffer* ids, uint32_t subject_id) noexcept nogil:
    """Add an id; -1 without memory."""
    return buffer_append(ids, <const char*>&subject_id, sizeof(uint32_t))


cdef inline uint32_t listed_count(const Buffer* ids) noexcept nogil:
    return <uint32_t>(buffer_size(ids) // sizeof(uint32_t))


cdef inline uint32_t listed_at(const Buffer* ids, uint32_t number) noexcept nogil:
    """The id at a place in the list."""
    cdef uint32_t subject_id
    memcpy(&subject_id, ids.data + ids.begin + number * sizeof(uint32_t), sizeof(uint32_t))
    return subject_id
