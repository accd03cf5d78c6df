"""The frame around a record of `tradewind.acks.<N>`, which is drawn in `ack_log`.

Owns its size, and the hash that binds a record to its log and its place there. Compiled, because
every acknowledgement that a client waits for makes one.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy
from tradewind.store.format.hash cimport Key, Part, hash_parts

from tradewind.store.format.hash import key_for

cdef extern from "<endian.h>" nogil:
    uint64_t htole64(uint64_t)
    uint32_t htole32(uint32_t)

cdef enum:
    SIZE_BYTES = 4
    HASH_BYTES = 8

FRAME_BYTES = SIZE_BYTES + HASH_BYTES
KEY = key_for("tradewind acks")
cdef Key _key = KEY


cdef uint64_t body_hash(uint64_t number, uint64_t offset, const Part* body,
                        int count) noexcept nogil:
    """The hash of a record whose body is in at most two parts, as it is stored."""
    cdef uint64_t[2] place
    cdef Part[3] parts
    place[0] = htole64(number)
    place[1] = htole64(offset)
    parts[0].data = <const char*>place
    parts[0].size = sizeof(place)
    memcpy(&parts[1], body, count * sizeof(Part))
    return htole64(hash_parts(&_key.state, parts, 1 + count))


def record_hash(uint64_t number, uint64_t offset, bytes body not None):
    """The hash of a record that begins at `offset` of the log `number`, as it is stored."""
    cdef Part part
    cdef uint64_t value
    part.data = body
    part.size = len(body)
    value = body_hash(number, offset, &part, 1)
    return (<const char*>&value)[:HASH_BYTES]


cpdef bytes frame_record(uint64_t number, uint64_t offset, bytes prefix, bytes changes):
    """A record that begins at `offset` of the log `number`, with a body of these two parts."""
    cdef Part[2] body
    cdef uint32_t size
    cdef uint64_t value
    body[0].data = prefix
    body[0].size = len(prefix)
    body[1].data = changes
    body[1].size = len(changes)
    size = htole32(<uint32_t>(body[0].size + body[1].size))
    value = body_hash(number, offset, body, 2)
    return (<const char*>&size)[:SIZE_BYTES] + (<const char*>&value)[:HASH_BYTES] + prefix + changes
