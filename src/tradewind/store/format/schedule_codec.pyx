"""The times in a sched.db, without an object per schedule.

Owns reading a well-formed file; `side_files` describes the form, and names what is wrong in any
other.
"""

from array import array

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy
from tradewind.store.format.index_codec cimport read_uvarint

from tradewind.store.format.side_files import VERSION, decode_schedules

cdef enum:
    HEAD_BYTES = 17             # version, count and stamp
    SCHEDULE_BYTES_MIN = 4      # subject length, time and sequence


def decode_times(bytes data not None, str path="sched.db"):
    """The sequences, their times and the stamp; CorruptRecord as from `decode_schedules`."""
    cdef const uint8_t* at = data
    cdef size_t size = len(data), offset = HEAD_BYTES
    cdef uint64_t count = 0, stamp = 0, folded = 0, seq = 0, index
    cdef int taken
    cdef uint64_t[::1] sequences
    cdef int64_t[::1] times
    if size < HEAD_BYTES or at[0] != VERSION:
        return _carefully(data, path)
    memcpy(&count, at + 1, 8)
    memcpy(&stamp, at + 9, 8)
    if count > (size - HEAD_BYTES) // SCHEDULE_BYTES_MIN:
        return _carefully(data, path)
    found_sequences = array("Q", bytes(8 * count))
    found_times = array("q", bytes(8 * count))
    if count == 0:
        return (found_sequences, found_times, stamp) if size == HEAD_BYTES \
            else _carefully(data, path)
    sequences, times = found_sequences, found_times
    for index in range(count):
        if size - offset < 2:
            return _carefully(data, path)
        offset += 2 + (at[offset] | at[offset + 1] << 8)
        if offset >= size:
            return _carefully(data, path)
        taken = read_uvarint(at + offset, size - offset, &folded)
        if taken <= 0:
            return _carefully(data, path)
        offset += taken
        taken = read_uvarint(at + offset, size - offset, &seq)
        if taken <= 0:
            return _carefully(data, path)
        offset += taken
        sequences[index] = seq
        times[index] = <int64_t>(folded >> 1) ^ -<int64_t>(folded & 1)
    return (found_sequences, found_times, stamp) if offset == size else _carefully(data, path)


cdef tuple _carefully(bytes data, str path):
    schedules, stamp = decode_schedules(data, path)
    return (array("Q", [schedule.seq for schedule in schedules]),
            array("q", [schedule.fire_ns for schedule in schedules]), stamp)
