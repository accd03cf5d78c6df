"""Encodes S2 streams in memory, for compiled callers: a greedy search with one hash table.

Owns the choice of elements; all that it makes is decoded by s2_decode.pyx and by the official
server. It never fails: data that does not shrink becomes a raw chunk.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from tradewind.store.format.s2_decode cimport masked_crc
from tradewind.store.format.s2_format cimport (
    CHUNK_PACKED, CHUNK_RAW, COPY_1, COPY_2, COPY_4, LITERAL, S2_CHECKSUM_BYTES, S2_CHUNK_BYTES,
    S2_HEADER_BYTES, S2_WIDE_BYTES, load8, store3, store4, store_uvarint)

cdef extern from * nogil:
    int __builtin_ctzll(unsigned long long value)


cdef inline uint32_t slot_of(uint64_t word, int shift) noexcept nogil:
    # By the lowest 6 bytes: shorter matches cost more elements than they save bytes.
    return <uint32_t>(((word << 16) * 227718039650203ULL) >> shift)


cdef inline uint8_t* put_literal(
        uint8_t* output, const uint8_t* literal, size_t size, bint wide) noexcept nogil:
    # `wide` promises S2_WIDE_BYTES readable bytes at the literal and writable ones after the tag.
    cdef size_t code = size - 1
    if code < 60:
        output[0] = <uint8_t>(code << 2 | LITERAL)
        output += 1
        if wide and size <= S2_WIDE_BYTES:
            memcpy(output, literal, S2_WIDE_BYTES)
            return output + size
    elif code < 1 << 8:
        output[0] = 60 << 2 | LITERAL
        output[1] = <uint8_t>code
        output += 2
    elif code < 1 << 16:
        output[0] = 61 << 2 | LITERAL
        output[1] = <uint8_t>code
        output[2] = <uint8_t>(code >> 8)
        output += 3
    else:
        output[0] = 62 << 2 | LITERAL
        store3(output + 1, <uint32_t>code)
        output += 4
    memcpy(output, literal, size)
    return output + size


cdef inline uint8_t* put_repeat(uint8_t* output, size_t length) noexcept nogil:
    # At least 4 bytes with the offset of the copy before; at most 5 bytes long.
    output[1] = 0
    if length <= 8:
        output[0] = <uint8_t>((length - 4) << 2 | COPY_1)
        return output + 2
    if length < 8 + (1 << 8):
        output[0] = 5 << 2 | COPY_1
        output[2] = <uint8_t>(length - 8)
        return output + 3
    if length < 260 + (1 << 16):
        output[0] = 6 << 2 | COPY_1
        output[2] = <uint8_t>(length - 260)
        output[3] = <uint8_t>((length - 260) >> 8)
        return output + 4
    output[0] = 7 << 2 | COPY_1
    store3(output + 2, <uint32_t>(length - 65540))
    return output + 5


cdef inline uint8_t* put_copy(uint8_t* output, size_t offset, size_t length) noexcept nogil:
    # At least 4 bytes from another offset than the copy before; at most 10 bytes long.
    cdef size_t first
    if offset < 1 << 11:
        # Beyond 11 bytes, two bytes for eight of them and a repeat beat the wider copy.
        first = length if length < 12 else 8
        output[0] = <uint8_t>((offset >> 8) << 5 | (first - 4) << 2 | COPY_1)
        output[1] = <uint8_t>offset
        output += 2
    else:
        # A repeat is of four bytes or more.
        first = length if length <= 64 else 60
        output[1] = <uint8_t>offset
        output[2] = <uint8_t>(offset >> 8)
        if offset < 1 << 16:
            output[0] = <uint8_t>((first - 1) << 2 | COPY_2)
            output += 3
        else:
            output[0] = <uint8_t>((first - 1) << 2 | COPY_4)
            output[3] = <uint8_t>(offset >> 16)
            output[4] = <uint8_t>(offset >> 24)
            output += 5
    return put_repeat(output, length - first) if length > first else output


cdef inline size_t match_length(
        const uint8_t* data, size_t earlier, size_t later, size_t size) noexcept nogil:
    cdef size_t start = later
    cdef uint64_t difference
    while later + 8 <= size:
        difference = load8(data + earlier) ^ load8(data + later)
        if difference:
            return later - start + (__builtin_ctzll(difference) >> 3)
        earlier += 8
        later += 8
    while later < size and data[earlier] == data[later]:
        earlier += 1
        later += 1
    return later - start


cdef size_t encode_elements(
        const uint8_t* data, size_t size, uint8_t* output, size_t room,
        uint32_t* table) noexcept nogil:
    # Greedy: the first match found is taken. 0 if the result would not fit into `room`.
    cdef size_t position = 1, written_to = 0, candidate, length, step = 32
    cdef size_t search_end = size - S2_WIDE_BYTES if size > S2_WIDE_BYTES else 0
    cdef size_t offset = 0
    cdef uint8_t* start = output
    cdef uint8_t* end = output + room
    cdef uint64_t word
    cdef uint32_t slot
    cdef int bits = S2_TABLE_BITS
    while bits > 8 and <size_t>1 << (bits - 1) >= size:
        bits -= 1
    memset(table, 0, sizeof(uint32_t) << bits)
    output += store_uvarint(output, size)
    while position < search_end:
        word = load8(data + position)
        if offset and <uint32_t>word == <uint32_t>load8(data + position - offset):
            candidate = position - offset
        else:
            slot = slot_of(word, 64 - bits)
            candidate = table[slot]
            table[slot] = <uint32_t>position
            if <uint32_t>word != <uint32_t>load8(data + candidate):
                position += step >> 5
                step += 1
                continue
        while position > written_to and candidate > 0 and (
                data[position - 1] == data[candidate - 1]):
            position -= 1
            candidate -= 1
        length = match_length(data, candidate, position, size)
        # Tags of a literal and a copy, and the wide writes behind the end of a short literal.
        if <size_t>(end - output) < position - written_to + 14 + S2_WIDE_BYTES:
            return 0
        if position > written_to:
            output = put_literal(output, data + written_to, position - written_to, True)
        if position - candidate == offset:
            output = put_repeat(output, length)
        else:
            offset = position - candidate
            output = put_copy(output, offset, length)
        position += length
        written_to = position
        step = 32
        if position < search_end:
            table[slot_of(load8(data + position - 2), 64 - bits)] = <uint32_t>(position - 2)
    if written_to < size:
        if <size_t>(end - output) < size - written_to + 4:
            return 0
        output = put_literal(output, data + written_to, size - written_to, False)
    return output - start


cdef size_t encode_chunk(
        const uint8_t* data, size_t size, uint8_t* output, uint32_t* table) noexcept nogil:
    # Returns the size of the chunk, which never exceeds `size` by more than its 8 bytes of header.
    cdef size_t saved = size >> 5       # less is not worth the decoding
    cdef size_t packed = encode_elements(
        data, size, output + S2_HEADER_BYTES + S2_CHECKSUM_BYTES, size - saved, table)
    output[0] = CHUNK_PACKED
    if packed == 0:
        output[0] = CHUNK_RAW
        memcpy(output + S2_HEADER_BYTES + S2_CHECKSUM_BYTES, data, size)
        packed = size
    store3(output + 1, <uint32_t>(packed + S2_CHECKSUM_BYTES))
    store4(output + S2_HEADER_BYTES, masked_crc(data, size))
    return packed + S2_HEADER_BYTES + S2_CHECKSUM_BYTES


cdef size_t s2_encoded_bound(size_t size) noexcept nogil:
    """The room that `s2_encode` needs."""
    cdef size_t chunks = (size + S2_CHUNK_BYTES - 1) / S2_CHUNK_BYTES
    return chunks * (S2_HEADER_BYTES + S2_CHECKSUM_BYTES) + size


cdef size_t s2_encode(
        const uint8_t* data, size_t size, uint8_t* output, uint32_t* table) noexcept nogil:
    """Encode all of `data` as chunks, to follow an identifier; returns their size.

    `table` has S2_TABLE_ENTRIES of any content.
    """
    cdef uint8_t* start = output
    cdef size_t chunk_size
    while size > 0:
        chunk_size = min(size, <size_t>S2_CHUNK_BYTES)
        output += encode_chunk(data, chunk_size, output, table)
        data += chunk_size
        size -= chunk_size
    return output - start
