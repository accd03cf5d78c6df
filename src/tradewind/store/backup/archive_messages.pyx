"""The messages of an archive: packed from a store, and stored as they arrive.

Owns the loops that run once per message. The format is drawn in archive.py, and so is every check
whose result a user reads; what is rare (entries that are not messages, times to live) is left to
the caller. Nothing is kept between two calls.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.format.records cimport SUBJECT_MAX, Record
from tradewind.store.table.subject_index cimport SubjectFilter
from tradewind.containers.buffer cimport (
    Buffer, buffer_append, buffer_free, buffer_init, buffer_reserve)

from tradewind.errors import StoreError
from tradewind.store.backup.archive import ArchiveError

cdef enum:
    NUMBERS_BYTES_MAX = 50      # five numbers of ten bytes
    NUMBER_BITS_MAX = 63
    SEQUENCE_BITS = 62

cdef enum ReadStatus:
    NUMBER_READ = 0
    NUMBER_CUT = 1
    NUMBER_TOO_LARGE = 2


cdef inline size_t write_uvarint(uint8_t* target, uint64_t value) noexcept nogil:
    cdef size_t size = 0
    while value >= 0x80:
        target[size] = <uint8_t>(value | 0x80)
        value >>= 7
        size += 1
    target[size] = <uint8_t>value
    return size + 1


def pack_messages(MessageStore store not None, SubjectFilter everything not None, uint64_t seq,
                  uint64_t last_seq, size_t bytes_max):
    """Pack the entries from `seq` on, up to `last_seq` or until they are `bytes_max` long.

    Returns them and where to continue, 0 at the end. StoreError if a message cannot be read.
    """
    cdef Buffer packed
    cdef uint64_t found
    buffer_init(&packed)
    try:
        while packed.end < bytes_max:
            found = store.next_matching(seq, everything)
            if found == 0 or found > last_seq:
                return PyBytes_FromStringAndSize(packed.data, packed.end), 0
            pack_message(store, found, &packed)
            seq = found + 1
        return PyBytes_FromStringAndSize(packed.data, packed.end), seq
    finally:
        buffer_free(&packed)


cdef int pack_message(MessageStore store, uint64_t seq, Buffer* packed) except -1:
    cdef Record record
    cdef uint8_t* at
    cdef int64_t time
    if store.read(seq, &record) != 0:
        raise StoreError(f"message {seq} cannot be read")
    if buffer_reserve(packed, NUMBERS_BYTES_MAX + <size_t>record.subject_size + record.header_size
                      + record.payload_size) != 0:
        raise MemoryError
    at = <uint8_t*>packed.data + packed.end
    time = record.timestamp
    at += write_uvarint(at, record.subject_size)
    at += write_uvarint(at, (<uint64_t>time << 1) ^ <uint64_t>(time >> 63))
    at += write_uvarint(at, seq)
    at += write_uvarint(at, record.header_size)
    at += write_uvarint(at, record.payload_size)
    packed.end = at - <uint8_t*>packed.data
    buffer_append(packed, record.subject, record.subject_size)
    # The payload follows the header.
    buffer_append(packed, record.header, <size_t>record.header_size + record.payload_size)
    return 0


ctypedef struct EntryHead:
    uint64_t name_size
    uint64_t folded_time
    uint64_t seq
    uint64_t header_size
    uint64_t payload_size


cdef inline int read_uvarint(const uint8_t** at, const uint8_t* end,
                             uint64_t* value) noexcept nogil:
    cdef uint32_t shift = 0
    cdef uint8_t byte
    value[0] = 0
    while at[0] < end:
        byte = at[0][0]
        at[0] += 1
        if shift == NUMBER_BITS_MAX and byte > 1:
            return NUMBER_TOO_LARGE
        value[0] |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return NUMBER_READ
        shift += 7
    return NUMBER_CUT


cdef inline int read_head(const uint8_t** at, const uint8_t* end, EntryHead* head) noexcept nogil:
    cdef int status = read_uvarint(at, end, &head.name_size)
    if status == NUMBER_READ:
        status = read_uvarint(at, end, &head.folded_time)
    if status == NUMBER_READ:
        status = read_uvarint(at, end, &head.seq)
    if status == NUMBER_READ:
        status = read_uvarint(at, end, &head.header_size)
    if status == NUMBER_READ:
        status = read_uvarint(at, end, &head.payload_size)
    return status


cdef bint is_subject(const char* name, size_t size) noexcept nogil:
    """Whether a message can be published on it: no blanks, no empty token, no wildcard."""
    cdef size_t index, token = 0
    cdef char character
    if size == 0 or size > SUBJECT_MAX:
        return False
    for index in range(size + 1):
        character = name[index] if index < size else 46
        if character == 32 or 9 <= character <= 10 or 12 <= character <= 13:
            return False
        if character != 46:
            continue
        if index == token or index == token + 1 and (name[token] == 42 or name[token] == 62):
            return False
        token = index + 1
    return True


def store_messages(MessageStore store not None, bytearray data not None, size_t offset,
                   uint64_t bytes_max, uint64_t count_max, uint64_t bytes_allowed,
                   bint leaves_headers):
    """Store up to `count_max` messages that are complete in `data`; returns where it stopped.

    It stops before anything but a plain message of at most `bytes_max` bytes, with `leaves_headers`
    also before one that has a header, and after the message with which the store has more than
    `bytes_allowed`. ArchiveError if a message cannot be stored.
    """
    cdef const uint8_t* start = <const uint8_t*>PyByteArray_AS_STRING(data)
    cdef const uint8_t* end = start + PyByteArray_GET_SIZE(data)
    cdef const uint8_t* at
    cdef const char* body
    cdef EntryHead head
    cdef uint64_t size
    if offset > <size_t>PyByteArray_GET_SIZE(data):
        raise ValueError("the offset is behind the data")
    while count_max and store.bytes <= bytes_allowed:
        count_max -= 1
        at = start + offset
        if read_head(&at, end, &head) != NUMBER_READ or head.seq == 0 \
                or leaves_headers and head.header_size or head.name_size > SUBJECT_MAX \
                or head.header_size > bytes_max or head.payload_size > bytes_max - head.header_size:
            return offset
        size = head.name_size + head.header_size + head.payload_size
        if size > <uint64_t>(end - at):
            return offset
        if head.seq <= store.last_seq or head.seq >> SEQUENCE_BITS:
            raise ArchiveError(f"message sequence {head.seq} out of order")
        body = <const char*>at
        if not is_subject(body, head.name_size):
            raise ArchiveError(f"message sequence {head.seq} has no valid subject")
        if head.seq > store.last_seq + 1:
            store.skip(head.seq - 1, store.last_timestamp)
        store.append(
            body, <uint32_t>head.name_size,
            body + head.name_size, <uint32_t>head.header_size,
            body + head.name_size + head.header_size, <uint32_t>head.payload_size,
            <int64_t>(head.folded_time >> 1) ^ -<int64_t>(head.folded_time & 1), 0)
        offset = at + size - start
    return offset
