"""The lengths inside a record, which its checksum does not cover, and how they are proved.

A flipped bit in the subject length of a message without headers, or in a header length, moves bytes
between subject, header and payload and leaves the checksum right. Two things reveal that:

- A *lengths* mark holds a sum over the lengths of all messages between it and the one before it, or
  the beginning of the block (value 0: the messages before it are not covered). The terms differ by
  sequence, so the difference of two sums reveals which message has another length than it was
  given. A sum that no single length explains belongs to a block that another program has rewritten,
  and proves nothing.
- Without such a mark, a subject that cannot be one, or a header that ends elsewhere than its length
  says, by one bit.

These functions own no memory, change nothing and read only the bytes they are given.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp
from tradewind.store.format.records cimport (
    RECORD_MIN, RECORD_OK, SUBJECT_MAX, Record, mark_kind, mark_value,
    parse_record)

cdef enum:
    MARK_LENGTHS = 7
    BLANK_LINE = 4                      # bytes of it, with the end of the line before
    HEADER_MIN = 12                     # the version and a blank line
    NOWHERE = 0xFFFFFFFF                # no offset of a block

ctypedef struct Segment:
    uint64_t end                        # after its mark; the end of the block if it has none
    uint64_t wrong                      # the offset of a record with a wrong length, or NOWHERE
    uint64_t sum
    bint is_proved                      # the mark says that every length in it is right
    bint is_open                        # there is no mark up to the end of the block
    bint is_rewritten                   # a message in it was erased or replaced


cdef inline uint64_t length_term(uint64_t seq, uint32_t subject_size,
                                 uint32_t header_size) noexcept nogil:
    """The term of one message in a sum."""
    cdef uint64_t value = seq * 0x9E3779B97F4A7C15ull \
        ^ (<uint64_t>subject_size << 32 | header_size) * 0xD1B54A32D192ED03ull
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBull
    return (value ^ (value >> 31)) >> 8


cdef inline uint64_t lengths_value(uint64_t sum) noexcept nogil:
    """The value of a mark; 0, which has another meaning, becomes 1."""
    return sum if sum else 1


cdef inline bint has_header_block(const Record* record) noexcept nogil:
    return record.header != record.subject + record.subject_size


cdef inline uint64_t wrong_length(const char* data, uint64_t start, uint64_t end,
                                  uint64_t difference) noexcept nogil:
    """Find the message whose length explains the difference of two sums; NOWHERE if none does."""
    cdef Record record
    cdef uint64_t own
    cdef uint32_t other, others
    while start < end and parse_record(data + start, end - start, &record) == RECORD_OK:
        if not record.tombstone and not record.erased:
            own = length_term(record.seq, record.subject_size, record.header_size)
            if has_header_block(&record):
                others = record.header_size + record.payload_size
            else:
                others = min(record.size - <uint32_t>RECORD_MIN, <uint32_t>SUBJECT_MAX)
            for other in range(1, others + 1):
                if (own ^ (length_term(record.seq, record.subject_size, other)
                           if has_header_block(&record)
                           else length_term(record.seq, other, 0))) == difference:
                    return start
        start += record.size
    return NOWHERE


cdef inline void read_segment(const char* data, uint64_t size, uint64_t start,
                              Segment* segment) noexcept nogil:
    """Walk from the beginning of a segment to its mark, or to the end of the block."""
    cdef Record record
    cdef uint64_t position = start, value
    segment.sum = 0
    segment.wrong = NOWHERE
    segment.is_proved = segment.is_open = segment.is_rewritten = False
    segment.end = size
    while position < size:
        if parse_record(data + position, size - position, &record) != RECORD_OK:
            return
        if not record.tombstone and not record.erased:
            segment.sum ^= length_term(record.seq, record.subject_size, record.header_size)
        elif record.size > RECORD_MIN:
            segment.is_rewritten = True         # a message was here
        elif record.tombstone and record.seq == 0 and mark_kind(record.timestamp) == MARK_LENGTHS:
            segment.end = position + record.size
            value = mark_value(record.timestamp)
            if value == lengths_value(segment.sum):
                segment.is_proved = True
            elif value and not segment.is_rewritten:
                segment.wrong = wrong_length(data, start, position, value ^ segment.sum)
            return
        position += record.size
    segment.is_open = True


cdef inline uint64_t header_end(const char* text, uint64_t size) noexcept nogil:
    """Find the end of the first blank line; 0 if there is none.

    Every fourth byte is examined: each byte of a blank line is a line ending.
    """
    cdef uint64_t at = BLANK_LINE - 1, start
    while at < size:
        if text[at] == 10 or text[at] == 13:
            for start in range(at - BLANK_LINE + 1, min(at, size - BLANK_LINE) + 1):
                if memcmp(text + start, b"\r\n\r\n", BLANK_LINE) == 0:
                    return start + BLANK_LINE
        at += BLANK_LINE
    return 0


cdef inline bint is_plain_header(const char* header, uint32_t size) noexcept nogil:
    """Whether a header ends with its first blank line. Neither server refuses others."""
    return size >= HEADER_MIN and memcmp(header, b"NATS/1.0", 8) == 0 \
        and header_end(header, size) == size


cdef inline bint is_possible_subject(const char* subject, uint32_t size) noexcept nogil:
    """Whether a message can have been published on this subject: no token is empty, and no byte
    ends the word on the wire.
    """
    cdef uint32_t index
    cdef char before = 46, byte
    for index in range(size):
        byte = subject[index]
        if byte == 32 or byte == 9 or byte == 10 or byte == 13 or (byte == 46 and before == 46):
            return False
        before = byte
    return before != 46


cdef inline bint has_possible_lengths(const Record* record) noexcept nogil:
    """Whether a message without a mark may have the right lengths: no single bit of a length is
    obviously wrong.

    A header that is not plain may have been sent so by a client, unless one bit makes it plain.
    """
    cdef uint64_t end, other
    if not is_possible_subject(record.subject, record.subject_size):
        return False
    if not has_header_block(record) or is_plain_header(record.header, record.header_size):
        return True
    end = <uint64_t>record.header_size + record.payload_size
    if end < HEADER_MIN or memcmp(record.header, b"NATS/1.0", 8) != 0:
        return True
    other = header_end(record.header, end) ^ record.header_size
    return header_end(record.header, end) == 0 or other & (other - 1) != 0
