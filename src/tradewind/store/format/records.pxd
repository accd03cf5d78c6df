"""One record of a block: written and parsed in place, without copies.

The layout is drawn in `layout.py`. These functions own no memory; a Record points into the bytes it
was parsed from.
"""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy
from tradewind.store.format.hash cimport HashKey, Part, hash_parts

cdef enum:
    RECORD_HEAD = 22                    # length, sequence, timestamp, subject length
    RECORD_HASH = 8
    RECORD_MIN = 30
    RECORD_MAX = 33554432               # 32 MiB, in a file
    MEMORY_RECORD_MAX = 0x7FFFFFFF      # what its length can say
    HEADER_FLAG = 0x80000000            # bit 31 of the length: has a header block
    SUBJECT_MAX = 65535

cdef enum RecordStatus:
    RECORD_OK = 0
    RECORD_SHORT = 1                    # runs past the end of the bytes
    RECORD_BAD = 2                      # impossible lengths, or a checksum that does not match

ctypedef struct Record:
    uint64_t seq                        # without the flag bits
    int64_t timestamp
    bint erased                         # bit 63: erased or skipped
    bint tombstone                      # bit 62
    uint32_t size                       # of the whole record
    const char* start
    const char* subject
    const char* header
    const char* payload
    uint32_t subject_size
    uint32_t header_size
    uint32_t payload_size
    uint32_t subject_id                 # in the index of its store; only `Block.read` sets it


cdef inline int64_t mark_time(uint64_t kind, uint64_t value) noexcept nogil:
    """The time field of Tradewind's marks: the kind in its highest byte, then the value.

    Values with more than 56 bits have kinds of their own, none of which occurs in the time of a
    real record: 4 and 5 are 1 and 3 with a block number of 32 and an offset of 24 bits (an offset
    smaller than the true one only states less), and from 0x80 on the kind is 2, with six bits of
    the value. Values of kind 6 are small, those of kind 7 have 56 bits.
    """
    if value >> 56 == 0:
        return <int64_t>(kind << 56 | value)
    if kind == 2:
        return <int64_t>((0x80 | (value >> 56)) << 56 | (value & 0xFFFFFFFFFFFFFFull))
    return <int64_t>(((kind + 7) >> 1) << 56 | (value >> 32) << 24
                     | min(value & 0xFFFFFFFFull, <uint64_t>0xFFFFFF))


cdef inline uint64_t mark_kind(int64_t timestamp) noexcept nogil:
    """The kind of a mark; 0: the record is not one of Tradewind's marks."""
    cdef uint64_t kind = <uint64_t>timestamp >> 56
    if kind == 4 or kind == 5:
        return 2 * kind - 7
    if 0x80 <= kind < 0xC0:
        return 2
    return kind if kind <= 3 or kind == 6 or kind == 7 else 0


cdef inline uint64_t mark_value(int64_t timestamp) noexcept nogil:
    cdef uint64_t kind = <uint64_t>timestamp >> 56
    cdef uint64_t value = <uint64_t>timestamp & 0xFFFFFFFFFFFFFFull
    if kind == 4 or kind == 5:
        return (value >> 24) << 32 | (value & 0xFFFFFF)
    return (kind & 0x3F) << 56 | value if kind >= 0x80 else value


cdef inline uint64_t record_size(uint64_t subject_size, uint64_t header_size,
                                 uint64_t payload_size) noexcept nogil:
    return (RECORD_HEAD + subject_size + (header_size + 4 if header_size else 0)
            + payload_size + RECORD_HASH)


cdef inline uint64_t record_hash(const HashKey* key, const Record* record) noexcept nogil:
    """The checksum of a record, which covers sequence, timestamp, subject, header and payload, but
    none of the lengths.
    """
    cdef Part parts[3]
    parts[0].data = record.start + 4
    parts[0].size = 16
    parts[1].data = record.subject
    if record.header_size == 0:
        # Subject and payload are adjacent.
        parts[1].size = <size_t>record.subject_size + record.payload_size
        return hash_parts(key, parts, 2)
    parts[1].size = record.subject_size
    parts[2].data = record.header
    parts[2].size = <size_t>record.header_size + record.payload_size
    return hash_parts(key, parts, 3)


cdef inline int parse_limited(const char* data, size_t available, uint32_t size_max,
                              Record* record) noexcept nogil:
    """Parse the record at data[0]; lengths are checked, the checksum is not."""
    cdef uint32_t length
    cdef uint64_t sequence
    cdef uint16_t subject_size
    cdef uint32_t header_size = 0
    cdef uint64_t fixed
    if available < RECORD_MIN:
        return RECORD_SHORT
    memcpy(&length, data, 4)
    memcpy(&sequence, data + 4, 8)
    memcpy(&record.timestamp, data + 12, 8)
    memcpy(&subject_size, data + 20, 2)
    record.size = length & 0x7FFFFFFF
    if record.size < RECORD_MIN or record.size > size_max:
        return RECORD_BAD
    fixed = <uint64_t>RECORD_MIN + subject_size
    if length & HEADER_FLAG:
        if fixed + 4 > record.size:
            return RECORD_BAD
    elif fixed > record.size:
        return RECORD_BAD
    if record.size > available:
        return RECORD_SHORT
    if length & HEADER_FLAG:
        memcpy(&header_size, data + RECORD_HEAD + subject_size, 4)
        fixed += 4
        if header_size > record.size - fixed:
            return RECORD_BAD
    record.start = data
    record.erased = (sequence >> 63) & 1
    record.tombstone = (sequence >> 62) & 1
    record.seq = sequence & 0x3FFFFFFFFFFFFFFFull
    record.subject = data + RECORD_HEAD
    record.subject_size = subject_size
    record.header_size = header_size
    record.header = data + RECORD_HEAD + subject_size + (4 if length & HEADER_FLAG else 0)
    record.payload = record.header + header_size
    record.payload_size = <uint32_t>(record.size - fixed - header_size)
    return RECORD_OK


cdef inline int parse_record(const char* data, size_t available, Record* record) noexcept nogil:
    """Parse a record that may be in a file."""
    return parse_limited(data, available, RECORD_MAX, record)


cdef inline const char* header_value(const Record* record, const char* name, size_t name_size,
                                     size_t* value_size) noexcept nogil:
    """The value of the first header line `name` (which ends with a colon); NULL if there is none.
    """
    cdef const char* at = record.header
    cdef const char* end = record.header + record.header_size
    cdef const char* value
    while at + 2 + name_size <= end:
        if at[0] == 13 and at[1] == 10 and memcmp(at + 2, name, name_size) == 0:
            value = at + 2 + name_size
            while value < end and value[0] == 32:
                value += 1
            at = value
            while at < end and at[0] != 13:
                at += 1
            value_size[0] = at - value
            return value
        at += 1
    return NULL


cdef inline bint record_is_intact(const HashKey* key, const Record* record) noexcept nogil:
    cdef uint64_t stored
    memcpy(&stored, record.start + record.size - RECORD_HASH, 8)
    return stored == record_hash(key, record)


cdef inline void write_record(char* target, const HashKey* key, uint64_t sequence,
                              int64_t timestamp, const char* subject, uint32_t subject_size,
                              const char* header, uint32_t header_size,
                              const char* payload, uint32_t payload_size) noexcept nogil:
    """Write a record of `record_size(...)` bytes; `sequence` includes its flag bits."""
    cdef uint32_t size = <uint32_t>record_size(subject_size, header_size, payload_size)
    cdef uint32_t length = size | (<uint32_t>HEADER_FLAG if header_size else 0)
    cdef uint16_t subject_size16 = <uint16_t>subject_size
    cdef char* at = target + RECORD_HEAD
    cdef Record record
    cdef uint64_t checksum
    memcpy(target, &length, 4)
    memcpy(target + 4, &sequence, 8)
    memcpy(target + 12, &timestamp, 8)
    memcpy(target + 20, &subject_size16, 2)
    record.start = target
    record.subject = at
    record.subject_size = subject_size
    record.header_size = header_size
    record.payload_size = payload_size
    if subject_size:
        memcpy(at, subject, subject_size)
    at += subject_size
    if header_size:
        memcpy(at, &header_size, 4)
        memcpy(at + 4, header, header_size)
        record.header = at + 4
        at += 4 + header_size
    if payload_size:
        memcpy(at, payload, payload_size)
    at += payload_size
    checksum = record_hash(key, &record)
    memcpy(at, &checksum, 8)


cdef inline int erase_record(char* target, const HashKey* key, uint32_t size,
                             uint64_t seq) noexcept nogil:
    """Overwrite a record by one of the same size that only states that the sequence is used; -1
    without memory.

    The filling looks random and is unrelated to the old content. The time stays, as in the
    tombstone: the official server takes the time of its last record as that of the stream.
    """
    cdef uint32_t noise_size = size - RECORD_MIN, done = 0, part
    cdef uint64_t state = seq, value
    cdef int64_t timestamp
    cdef char* noise = <char*>malloc(noise_size + 1)
    if noise == NULL:
        return -1
    while done < noise_size:
        state += 0x9E3779B97F4A7C15ull
        value = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ull
        value = (value ^ (value >> 27)) * 0x94D049BB133111EBull
        value ^= value >> 31
        part = min(noise_size - done, <uint32_t>8)
        memcpy(noise + done, &value, part)
        done += part
    memcpy(&timestamp, target + 12, 8)
    write_record(target, key, seq | (<uint64_t>1 << 63), timestamp, NULL, 0, NULL, 0, noise,
                 noise_size)
    free(noise)
    return 0
