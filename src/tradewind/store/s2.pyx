"""S2, the compression of block files and snapshots: bytes in, bytes out.

Owns the framed stream (chunks with checksums), the elements inside a chunk, the wrapper of a
compressed block file, and the limits on all of them. Knows nothing of records and never touches a
file.

A stream is an identifier chunk and then chunks of type (1 byte), length (3 bytes LE) and body.
Type 00 is a CRC, the decoded length as uvarint, and elements; 01 is a CRC and the bytes themselves.
Elements are Snappy's literals and copies, and a copy with a 1-byte offset of zero repeats the
offset of the copy before it.

Every size and offset in the input is checked before use, nothing is written beyond the given
output, and output is only made after the sizes that the chunks announce were held against the
caller's limit. So a hostile or damaged stream costs an S2Error that names the byte, and no more.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from tradewind.errors import StoreError

cdef extern from "<endian.h>" nogil:
    uint64_t le64toh(uint64_t value)

# CRC-32C has an instruction, but not on every processor that we run on.
cdef extern from * nogil:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <nmmintrin.h>
    static __attribute__((target("sse4.2"))) uint32_t tw_crc32c_sse42(
            const uint8_t *data, size_t size) {
        uint64_t crc = 0xffffffff, word;
        for (; size >= 8; size -= 8, data += 8) {
            memcpy(&word, data, 8);
            crc = _mm_crc32_u64(crc, word);
        }
        for (; size > 0; size--, data++)
            crc = _mm_crc32_u8((uint32_t)crc, *data);
        return ~(uint32_t)crc;
    }
    static int tw_has_sse42(void) { return __builtin_cpu_supports("sse4.2"); }
    #else
    static uint32_t tw_crc32c_sse42(const uint8_t *data, size_t size) { return 0; }
    static int tw_has_sse42(void) { return 0; }
    #endif
    """
    uint32_t tw_crc32c_sse42(const uint8_t* data, size_t size)
    bint tw_has_sse42()
    int __builtin_ctzll(unsigned long long value)

BLOCK_BYTES_MAX = 64 << 20
"""More than any block holds: the largest record is 32 MiB, and a block at most 8 MiB without it."""
OUTPUT_BYTES_PER_FEED = S2_CHUNK_BYTES_MAX
"""What one call of `Decompressor.feed` returns at most."""

cdef enum:
    CHUNK_PACKED = 0x00
    CHUNK_RAW = 0x01
    CHUNK_SKIP_FIRST = 0x80
    CHUNK_IDENTIFIER = 0xff
    HEADER_BYTES = 4
    CHECKSUM_BYTES = 4
    IDENTIFIER_BYTES = 10
    # A clumsy encoder may make a chunk larger than its content, but not by this much.
    CHUNK_BODY_BYTES_MAX = S2_CHUNK_BYTES_MAX + (S2_CHUNK_BYTES_MAX >> 2)
    LITERAL = 0
    COPY_1 = 1
    COPY_2 = 2
    COPY_4 = 3
    WIDE = 16                           # bytes moved at once while there is room on both sides
    TABLE_BITS = 15
    MATCH_BYTES_MIN = 4
    BLOCK_TAIL_BYTES = 8                # the checksum of a block's last record, never packed
    BLOCK_ALGORITHM_S2 = 1

cdef const char* IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"
cdef const char* IDENTIFIER_SNAPPY = b"\xff\x06\x00\x00sNaPpY"

cdef dict REASONS = {
    S2_NO_IDENTIFIER: "the stream does not start with an S2 identifier chunk",
    S2_BAD_IDENTIFIER: "the identifier chunk says neither S2sTwO nor sNaPpY",
    S2_RESERVED_CHUNK: "the chunk type is reserved (02 to 7f) and may not be skipped",
    S2_CHUNK_SIZE: "the chunk has an impossible length",
    S2_CHUNK_CUT: "the stream ends inside this chunk",
    S2_BAD_LENGTH: "the decoded length of the chunk is not a number up to 4 MiB",
    S2_ELEMENT_CUT: "the chunk ends inside this element",
    S2_COPY_BEFORE_START: "a copy reaches back beyond the start of its chunk",
    S2_COPY_WITHOUT_OFFSET: "a copy repeats an offset, but there was none before it",
    S2_OUTPUT_OVERRUN: "the chunk holds more than the decoded length it announced",
    S2_OUTPUT_SHORT: "the chunk holds less than the decoded length it announced",
    S2_CHECKSUM: "the decoded chunk does not have its checksum",
    S2_SIZE_LIMIT: "the decoded data is larger than allowed",
}


class S2Error(StoreError):
    """Bytes that are no S2 stream or not a whole one; `offset` is the byte, `reason` what is wrong."""

    def __init__(self, offset, reason):
        self.offset = offset
        self.reason = reason
        super().__init__(f"S2 data: byte {offset}: {reason}")


cdef object error_of(S2Failure* failure, size_t base):
    return S2Error(base + failure.offset, REASONS[failure.fault])


cdef inline int fail(S2Failure* failure, int fault, size_t offset) noexcept nogil:
    failure.fault = fault
    failure.offset = offset
    return fault


# ------------------------------------------------------------------ checksums

cdef uint32_t[8][256] crc_tables


cdef void build_crc_tables() noexcept nogil:
    # Table k advances the CRC of a byte by k further zero bytes.
    cdef uint32_t value
    cdef int byte, _bit, table
    for byte in range(256):
        value = byte
        for _bit in range(8):
            value = value >> 1 ^ (0x82f63b78U if value & 1 else 0)
        crc_tables[0][byte] = value
    for byte in range(256):
        for table in range(1, 8):
            value = crc_tables[table - 1][byte]
            crc_tables[table][byte] = value >> 8 ^ crc_tables[0][value & 0xff]


build_crc_tables()
cdef bint use_crc_instruction = tw_has_sse42()


cdef uint32_t crc32c_tables(const uint8_t* data, size_t size) noexcept nogil:
    cdef uint64_t word
    cdef uint32_t crc = 0xffffffffU
    cdef int index
    while size >= 8:
        word = load8(data) ^ crc
        crc = 0
        for index in range(8):
            crc ^= crc_tables[7 - index][word >> (8 * index) & 0xff]
        data += 8
        size -= 8
    while size > 0:
        crc = crc >> 8 ^ crc_tables[0][(crc ^ data[0]) & 0xff]
        data += 1
        size -= 1
    return ~crc


cdef uint32_t crc32c(const uint8_t* data, size_t size) noexcept nogil:
    """The CRC-32C (Castagnoli) of these bytes, not masked."""
    if use_crc_instruction:
        return tw_crc32c_sse42(data, size)
    return crc32c_tables(data, size)


cdef inline uint32_t masked_crc(const uint8_t* data, size_t size) noexcept nogil:
    cdef uint32_t crc = crc32c(data, size)
    return (crc >> 15 | crc << 17) + 0xa282ead8U


# ------------------------------------------------------------------ numbers

cdef inline uint32_t load3(const uint8_t* data) noexcept nogil:
    return data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16


cdef inline uint32_t load4(const uint8_t* data) noexcept nogil:
    return load3(data) | <uint32_t>data[3] << 24


cdef inline uint64_t load8(const uint8_t* data) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, data, 8)
    return le64toh(value)


cdef inline void store3(uint8_t* output, uint32_t value) noexcept nogil:
    output[0] = <uint8_t>value
    output[1] = <uint8_t>(value >> 8)
    output[2] = <uint8_t>(value >> 16)


cdef inline void store4(uint8_t* output, uint32_t value) noexcept nogil:
    store3(output, value)
    output[3] = <uint8_t>(value >> 24)


cdef inline size_t store_uvarint(uint8_t* output, uint64_t value) noexcept nogil:
    cdef size_t size = 0
    while value >= 0x80:
        output[size] = <uint8_t>(value | 0x80)
        value >>= 7
        size += 1
    output[size] = <uint8_t>value
    return size + 1


cdef inline size_t load_uvarint(const uint8_t* data, size_t size, uint64_t* value) noexcept nogil:
    # Returns how many bytes it took; 0 if it is cut or longer than 63 bits.
    cdef size_t index
    value[0] = 0
    for index in range(min(size, <size_t>9)):
        value[0] |= <uint64_t>(data[index] & 0x7f) << (7 * index)
        if data[index] < 0x80:
            return index + 1
    return 0


# ------------------------------------------------------------------ decoding

cdef struct Chunk:
    int kind
    uint32_t checksum
    size_t body                         # where the elements or the bytes start
    size_t body_size
    size_t decoded_size
    size_t end


cdef int read_chunk(
        const uint8_t* data, size_t size, size_t position, bint identified, Chunk* chunk,
        S2Failure* failure) noexcept nogil:
    # Reads what stands before the content. A chunk that is cut has `body_size` up to the cut.
    cdef size_t length, left = size - position, length_bytes
    cdef uint64_t decoded
    memset(chunk, 0, sizeof(Chunk))
    if not identified and left > 0 and data[position] != CHUNK_IDENTIFIER:
        return fail(failure, S2_NO_IDENTIFIER, position)
    if left < HEADER_BYTES:
        return fail(failure, S2_CHUNK_CUT, position)
    chunk.kind = data[position]
    length = load3(data + position + 1)
    if CHUNK_RAW < chunk.kind < CHUNK_SKIP_FIRST:
        return fail(failure, S2_RESERVED_CHUNK, position)
    position += HEADER_BYTES
    chunk.body = position
    chunk.body_size = min(length, left - HEADER_BYTES)
    chunk.end = position + length
    if chunk.kind == CHUNK_IDENTIFIER:
        if length != IDENTIFIER_BYTES - HEADER_BYTES:
            return fail(failure, S2_BAD_IDENTIFIER, position)
        if chunk.body_size == length and (
                memcmp(data + position, IDENTIFIER + HEADER_BYTES, length) != 0
                and memcmp(data + position, IDENTIFIER_SNAPPY + HEADER_BYTES, length) != 0):
            return fail(failure, S2_BAD_IDENTIFIER, position)
    elif chunk.kind <= CHUNK_RAW:
        if length < CHECKSUM_BYTES or length > CHUNK_BODY_BYTES_MAX:
            return fail(failure, S2_CHUNK_SIZE, position - 3)
        if chunk.body_size < CHECKSUM_BYTES:
            return fail(failure, S2_CHUNK_CUT, position - HEADER_BYTES)
        chunk.checksum = load4(data + position)
        chunk.body += CHECKSUM_BYTES
        chunk.body_size -= CHECKSUM_BYTES
        chunk.decoded_size = length - CHECKSUM_BYTES
        if chunk.kind == CHUNK_PACKED:
            length_bytes = load_uvarint(data + chunk.body, chunk.body_size, &decoded)
            if length_bytes == 0 and chunk.end > size:
                return fail(failure, S2_CHUNK_CUT, position - HEADER_BYTES)
            if length_bytes == 0 or decoded > S2_CHUNK_BYTES_MAX:
                return fail(failure, S2_BAD_LENGTH, chunk.body)
            chunk.body += length_bytes
            chunk.body_size -= length_bytes
            chunk.decoded_size = decoded
        elif chunk.decoded_size > S2_CHUNK_BYTES_MAX:
            return fail(failure, S2_CHUNK_SIZE, position - 3)
    if chunk.end > size:
        return fail(failure, S2_CHUNK_CUT, position - HEADER_BYTES)
    return S2_OK


cdef inline uint8_t* copy_back(
        uint8_t* output, size_t offset, size_t length, size_t room) noexcept nogil:
    # Source and target may overlap, which repeats what lies between them.
    cdef uint8_t* end = output + length
    if offset >= WIDE and length + WIDE <= room:
        while output < end:
            memcpy(output, output - offset, WIDE)
            output += WIDE
        return end
    if offset >= 8 and length + 8 <= room:
        while output < end:
            memcpy(output, output - offset, 8)
            output += 8
        return end
    while offset < length:
        memcpy(output, output - offset, offset)
        output += offset
        length -= offset
        offset *= 2
    memcpy(output, output - offset, length)
    return end


cdef inline const uint8_t* literal_length(
        const uint8_t* source, const uint8_t* source_end, size_t* length) noexcept nogil:
    # NULL if the element is cut. `source` points at the tag.
    cdef size_t extra, index, code = source[0] >> 2
    source += 1
    if code < 60:
        length[0] = code + 1
        return source
    extra = code - 59
    if <size_t>(source_end - source) < extra:
        return NULL
    code = 0
    for index in range(extra):
        code |= <size_t>source[index] << (8 * index)
    length[0] = code + 1
    return source + extra


cdef inline const uint8_t* repeat_length(
        const uint8_t* source, const uint8_t* source_end, size_t* length) noexcept nogil:
    # NULL if the element is cut. `source` points behind the tag and its zero offset, and `length`
    # comes with the three bits of the tag.
    cdef size_t left = source_end - source, code = length[0]
    if code < 5:
        length[0] = code + 4
        return source
    if left < code - 4:
        return NULL
    if code == 5:
        length[0] = <size_t>source[0] + 8
    elif code == 6:
        length[0] = (<size_t>source[0] | <size_t>source[1] << 8) + 260
    else:
        length[0] = <size_t>load3(source) + 65540
    return source + code - 4


cdef inline const uint8_t* read_copy(
        const uint8_t* tag, const uint8_t* source_end, size_t* offset, size_t* length,
        int* fault) noexcept nogil:
    # Returns what follows the element, or NULL. `offset` comes with that of the copy before.
    cdef size_t left = source_end - tag, near
    cdef int kind = tag[0] & 3
    fault[0] = S2_ELEMENT_CUT
    if kind == COPY_2:
        if left < 3:
            return NULL
        length[0] = (tag[0] >> 2) + 1
        offset[0] = tag[1] | <size_t>tag[2] << 8
        return tag + 3
    if kind == COPY_4:
        if left < 5:
            return NULL
        length[0] = (tag[0] >> 2) + 1
        offset[0] = load4(tag + 1)
        return tag + 5
    if left < 2:
        return NULL
    length[0] = tag[0] >> 2 & 7
    near = <size_t>(tag[0] & 0xe0) << 3 | tag[1]
    if near != 0:
        offset[0] = near
        length[0] += 4
        return tag + 2
    if offset[0] == 0:
        fault[0] = S2_COPY_WITHOUT_OFFSET
        return NULL
    return repeat_length(tag + 2, source_end, length)


cdef int decode_elements(
        const uint8_t* source, size_t source_size, uint8_t* output, size_t output_size,
        size_t* produced, S2Failure* failure) noexcept nogil:
    # `produced` counts good output even when the rest is not. The failure's offset is relative.
    cdef const uint8_t* tag = source
    cdef const uint8_t* element = source
    cdef const uint8_t* source_end = source + source_size
    cdef uint8_t* start = output
    cdef uint8_t* end = output + output_size
    cdef size_t length = 0, offset = 0
    cdef int fault = S2_OK
    while element < source_end:
        tag = element
        if tag[0] & 3 == LITERAL:
            element = literal_length(tag, source_end, &length)
            if element == NULL or length > <size_t>(source_end - element):
                fault = S2_ELEMENT_CUT
                break
            if length > <size_t>(end - output):
                fault = S2_OUTPUT_OVERRUN
                break
            if length <= WIDE and source_end - element >= WIDE and end - output >= WIDE:
                memcpy(output, element, WIDE)
            else:
                memcpy(output, element, length)
            output += length
            element += length
            continue
        element = read_copy(tag, source_end, &offset, &length, &fault)
        if element == NULL:
            break
        fault = S2_OK
        if offset == 0 or offset > <size_t>(output - start):
            fault = S2_COPY_BEFORE_START
            break
        if length > <size_t>(end - output):
            fault = S2_OUTPUT_OVERRUN
            break
        output = copy_back(output, offset, length, end - output)
    produced[0] = output - start
    if fault != S2_OK:
        return fail(failure, fault, tag - source)
    if output != end:
        return fail(failure, S2_OUTPUT_SHORT, source_size)
    return S2_OK


cdef int decode_chunk(
        const uint8_t* data, const Chunk* chunk, uint8_t* output, size_t* produced,
        S2Failure* failure) noexcept nogil:
    # `output` has room for `decoded_size`; `produced` is right even after a failure.
    cdef int fault
    produced[0] = 0
    if chunk.kind == CHUNK_RAW:
        memcpy(output, data + chunk.body, chunk.body_size)
        produced[0] = chunk.body_size
    elif chunk.kind == CHUNK_PACKED:
        fault = decode_elements(
            data + chunk.body, chunk.body_size, output, chunk.decoded_size, produced, failure)
        if fault:
            failure.offset += chunk.body
            return fault
    else:
        return S2_OK
    if produced[0] < chunk.decoded_size:
        return fail(failure, S2_CHUNK_CUT, chunk.body)
    if masked_crc(output, chunk.decoded_size) != chunk.checksum:
        return fail(failure, S2_CHECKSUM, chunk.body)
    return S2_OK


cdef int s2_measure(
        const uint8_t* data, size_t size, size_t size_limit, size_t* decoded_size,
        S2Failure* failure) noexcept nogil:
    """Check the chunk headers and add up what they announce; S2_OK if it is within the limit.

    After a failure `decoded_size` is that of the whole chunks before it.
    """
    cdef size_t position = 0
    cdef Chunk chunk
    decoded_size[0] = 0
    while position < size:
        if read_chunk(data, size, position, position > 0, &chunk, failure) != S2_OK:
            return failure.fault
        if chunk.decoded_size > size_limit - decoded_size[0]:
            return fail(failure, S2_SIZE_LIMIT, position)
        decoded_size[0] += chunk.decoded_size
        position = chunk.end
    return S2_OK


cdef int s2_decode(
        const uint8_t* data, size_t size, uint8_t* output, size_t output_size,
        S2Failure* failure) noexcept nogil:
    """Decode a whole stream into exactly the room that `s2_measure` found necessary."""
    cdef size_t position = 0, done = 0, produced = 0
    cdef Chunk chunk
    while position < size:
        if read_chunk(data, size, position, position > 0, &chunk, failure) != S2_OK:
            return failure.fault
        if chunk.decoded_size > output_size - done:
            return fail(failure, S2_SIZE_LIMIT, position)
        if decode_chunk(data, &chunk, output + done, &produced, failure) != S2_OK:
            return failure.fault
        done += produced
        position = chunk.end
    return S2_OK


cdef size_t s2_salvage(
        const uint8_t* data, size_t size, uint8_t* output, size_t output_size,
        S2Failure* failure) noexcept nogil:
    """Decode what can be decoded; returns how much of the output is meaningful.

    Bytes that are lost inside a chunk are zero, so that all others are where they belong. A chunk
    with a wrong checksum is kept as it decodes: what lies in it has checksums of its own.
    `failure` is the first one.
    """
    cdef size_t position = 0, done = 0, produced = 0
    cdef Chunk chunk
    cdef S2Failure latest
    cdef int fault
    failure.fault = S2_OK
    while position < size:
        fault = read_chunk(data, size, position, position > 0, &chunk, &latest)
        if failure.fault == S2_OK and fault != S2_OK:
            failure[0] = latest
        if position == 0 and fault in (S2_NO_IDENTIFIER, S2_BAD_IDENTIFIER):
            position = IDENTIFIER_BYTES     # whatever it says, that is its size
            continue
        if fault != S2_OK and fault != S2_CHUNK_CUT:
            break
        if chunk.decoded_size > output_size - done:
            fail(failure, S2_SIZE_LIMIT, position)
            break
        if decode_chunk(data, &chunk, output + done, &produced, &latest) != S2_OK:
            if failure.fault == S2_OK:
                failure[0] = latest
            memset(output + done + produced, 0, chunk.decoded_size - produced)
        done += produced if fault == S2_CHUNK_CUT else chunk.decoded_size
        position = chunk.end
    return done


# ------------------------------------------------------------------ encoding

cdef inline uint32_t slot_of(uint64_t word, int shift) noexcept nogil:
    # By the lowest 6 bytes: shorter matches cost more elements than they save bytes.
    return <uint32_t>(((word << 16) * 227718039650203ULL) >> shift)


cdef inline uint8_t* put_literal(
        uint8_t* output, const uint8_t* literal, size_t size, bint wide) noexcept nogil:
    # `wide` promises WIDE readable bytes at the literal and writable ones behind the tag.
    cdef size_t code = size - 1
    if code < 60:
        output[0] = <uint8_t>(code << 2 | LITERAL)
        output += 1
        if wide and size <= WIDE:
            memcpy(output, literal, WIDE)
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
    cdef size_t search_end = size - WIDE if size > WIDE else 0
    cdef size_t offset = 0
    cdef uint8_t* start = output
    cdef uint8_t* end = output + room
    cdef uint64_t word
    cdef uint32_t slot
    cdef int bits = TABLE_BITS
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
        if <size_t>(end - output) < position - written_to + 14 + WIDE:
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
        data, size, output + HEADER_BYTES + CHECKSUM_BYTES, size - saved, table)
    output[0] = CHUNK_PACKED
    if packed == 0:
        output[0] = CHUNK_RAW
        memcpy(output + HEADER_BYTES + CHECKSUM_BYTES, data, size)
        packed = size
    store3(output + 1, <uint32_t>(packed + CHECKSUM_BYTES))
    store4(output + HEADER_BYTES, masked_crc(data, size))
    return packed + HEADER_BYTES + CHECKSUM_BYTES


cdef size_t s2_encoded_bound(size_t size) noexcept nogil:
    """How much room `s2_encode` needs."""
    cdef size_t chunks = (size + S2_CHUNK_BYTES - 1) / S2_CHUNK_BYTES
    return IDENTIFIER_BYTES + chunks * (HEADER_BYTES + CHECKSUM_BYTES) + size


cdef size_t encode_chunks(
        const uint8_t* data, size_t size, uint8_t* output, uint32_t* table) noexcept nogil:
    cdef uint8_t* start = output
    cdef size_t chunk_size
    while size > 0:
        chunk_size = min(size, <size_t>S2_CHUNK_BYTES)
        output += encode_chunk(data, chunk_size, output, table)
        data += chunk_size
        size -= chunk_size
    return output - start


cdef size_t s2_encode(
        const uint8_t* data, size_t size, uint8_t* output, uint32_t* table) noexcept nogil:
    """Encode a whole stream; returns its size. `table` has S2_TABLE_ENTRIES of any content."""
    memcpy(output, IDENTIFIER, IDENTIFIER_BYTES)
    return IDENTIFIER_BYTES + encode_chunks(data, size, output + IDENTIFIER_BYTES, table)


# ------------------------------------------------------------------ the interface in Python

cdef bytes encoded(const uint8_t* data, size_t size, bytes head, bytes tail):
    # head ++ chunks of `data` ++ tail, made in one piece.
    cdef size_t head_size = len(head), tail_size = len(tail), done
    cdef size_t room = head_size + s2_encoded_bound(size) + tail_size
    cdef uint32_t* table = <uint32_t*>malloc(S2_TABLE_ENTRIES * sizeof(uint32_t) + room)
    if table == NULL:
        raise MemoryError
    cdef uint8_t* output = <uint8_t*>(table + S2_TABLE_ENTRIES)
    try:
        memcpy(output, PyBytes_AS_STRING(head), head_size)
        with nogil:
            done = head_size + encode_chunks(data, size, output + head_size, table)
        memcpy(output + done, PyBytes_AS_STRING(tail), tail_size)
        return PyBytes_FromStringAndSize(<const char*>output, done + tail_size)
    finally:
        free(table)


cdef bytes decoded(const uint8_t* data, size_t size, size_t size_limit, size_t base, bytes tail):
    # The content of a stream ++ tail; `base` is added to the byte that an error names.
    cdef S2Failure failure
    cdef size_t content_size
    cdef size_t tail_size = len(tail)
    cdef uint8_t* output
    cdef int fault
    with nogil:
        fault = s2_measure(data, size, size_limit, &content_size, &failure)
    if fault != S2_OK:
        raise error_of(&failure, base)
    result = PyBytes_FromStringAndSize(NULL, content_size + tail_size)
    output = <uint8_t*>PyBytes_AS_STRING(result)
    with nogil:
        fault = s2_decode(data, size, output, content_size, &failure)
    if fault != S2_OK:
        raise error_of(&failure, base)
    memcpy(output + content_size, PyBytes_AS_STRING(tail), tail_size)
    return result


def compress(data):
    """`data` as a whole S2 stream."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return encoded(<const uint8_t*>view.buf, view.len, IDENTIFIER[:IDENTIFIER_BYTES], b"")
    finally:
        PyBuffer_Release(&view)


def decompress(data, size_t size_limit):
    """The content of a whole S2 or framed Snappy stream; S2Error if it is bad or above the limit."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return decoded(<const uint8_t*>view.buf, view.len, size_limit, 0, b"")
    finally:
        PyBuffer_Release(&view)


def crc32c_portable(bytes data not None):
    """The CRC-32C by tables, whatever instructions the machine has."""
    return crc32c_tables(<const uint8_t*><const char*>data, len(data))


# ------------------------------------------------------------------ block files

cdef size_t block_head(bytes data, uint64_t* size) except? 0:
    # Returns where the stream starts in a compressed block file.
    cdef const uint8_t* start = <const uint8_t*><const char*>data
    cdef size_t head_size
    if not data.startswith(b"cmp"):
        raise S2Error(0, 'a compressed block starts with "cmp"')
    if len(data) < 4 or start[3] != BLOCK_ALGORITHM_S2:
        raise S2Error(3, "the compression of the block is not 1, which is S2")
    head_size = load_uvarint(start + 4, len(data) - 4, size)
    if head_size == 0:
        raise S2Error(4, "the size of the block is not a number")
    if len(data) < 4 + head_size + BLOCK_TAIL_BYTES or size[0] < BLOCK_TAIL_BYTES:
        raise S2Error(4 + head_size, "the block is too short for the checksum at its end")
    return 4 + head_size


def is_compressed(bytes head not None):
    """True if a block file that starts like this (24 bytes suffice) is compressed.

    "cmp" alone could be the length of a large plain record, so the stream's identifier must follow;
    one damaged half of it does not matter.
    """
    cdef uint64_t _size
    cdef const uint8_t* start = <const uint8_t*><const char*>head
    if len(head) < 5 or not head.startswith(b"cmp\x01"):
        return False
    identifier = head[4 + load_uvarint(start + 4, len(head) - 4, &_size):][:IDENTIFIER_BYTES]
    return identifier.startswith(b"\xff\x06\x00\x00") or identifier[4:] in (b"S2sTwO", b"sNaPpY")


def encode_block(bytes plain not None):
    """A plain block as a compressed block file; the checksum at its end stays as it is."""
    cdef uint8_t[10] size
    cdef Py_ssize_t body_size = len(plain) - BLOCK_TAIL_BYTES
    if body_size < 0:
        raise ValueError(f"a block has at least {BLOCK_TAIL_BYTES} bytes, not {len(plain)}")
    head = b"cmp\x01" + (<const char*>size)[:store_uvarint(size, len(plain))]
    return encoded(
        <const uint8_t*><const char*>plain, body_size, head + IDENTIFIER[:IDENTIFIER_BYTES],
        plain[body_size:])


def decode_block(bytes data not None, size_t size_limit=BLOCK_BYTES_MAX):
    """The plain block of a compressed block file; S2Error if any byte of it is wrong."""
    cdef uint64_t size
    cdef size_t head_size = block_head(data, &size)
    cdef size_t body_size = len(data) - head_size - BLOCK_TAIL_BYTES
    if size > size_limit:
        raise S2Error(4, f"the block is of {size} bytes, above the {size_limit} allowed")
    plain = decoded(
        <const uint8_t*><const char*>data + head_size, body_size, size - BLOCK_TAIL_BYTES,
        head_size, data[head_size + body_size:])
    if <uint64_t>len(plain) != size:
        raise S2Error(4, f"the block is of {len(plain)} bytes, but announces {size}")
    return plain


def salvage_block(bytes data not None, size_t size_limit=BLOCK_BYTES_MAX):
    """What can still be read of a damaged compressed block file, and the first fault or None.

    Bytes that are lost are zero where others follow them, so every record that is whole is found at
    its place, with its own checksum.
    """
    cdef S2Failure failure
    cdef uint64_t size
    cdef size_t head_size = block_head(data, &size), done
    cdef size_t body_size = len(data) - head_size - BLOCK_TAIL_BYTES
    cdef const uint8_t* body = <const uint8_t*><const char*>data + head_size
    cdef uint8_t* output = <uint8_t*>malloc(size_limit)
    if output == NULL:
        raise MemoryError
    try:
        with nogil:
            done = s2_salvage(body, body_size, output, size_limit, &failure)
        plain = PyBytes_FromStringAndSize(<const char*>output, done)
    finally:
        free(output)
    if done + BLOCK_TAIL_BYTES == size:
        plain += data[head_size + body_size:]
    elif failure.fault == S2_OK:
        return plain, S2Error(4, f"the block is of {done + 8} bytes, but announces {size}")
    return plain, None if failure.fault == S2_OK else error_of(&failure, head_size)


# ------------------------------------------------------------------ streams in pieces

cdef class Compressor:
    """Makes one S2 stream of all that is written to it; holds less than one chunk."""

    def __cinit__(self):
        self._held = bytearray()

    def write(self, data):
        """Take `data`; returns the chunks that are complete now."""
        cdef size_t whole
        self._held += data
        whole = len(self._held) // S2_CHUNK_BYTES * S2_CHUNK_BYTES
        return self._take(whole) if whole else b""

    def flush(self):
        """The rest as a last, shorter chunk; more may be written after it."""
        return self._take(len(self._held)) if self._held else b""

    def _take(self, size_t size):
        head = b"" if self._started else IDENTIFIER[:IDENTIFIER_BYTES]
        result = encoded(<const uint8_t*>PyByteArray_AS_STRING(self._held), size, head, b"")
        self._started = True
        del self._held[:size]
        return result


cdef class Decompressor:
    """Decodes one stream that arrives in any pieces; holds at most one chunk and what was fed.

    `decoded_bytes` never exceeds `size_limit`. While `pending` is True there is more to fetch with
    `feed(b"")`: each call returns at most OUTPUT_BYTES_PER_FEED.
    """

    def __cinit__(self, size_t size_limit):
        self.size_limit = size_limit
        self._held = bytearray()

    def feed(self, data):
        """Take `data`; returns what could be decoded. After an S2Error there is only that error."""
        cdef size_t used = 0, budget = OUTPUT_BYTES_PER_FEED
        if self._error is not None:
            raise self._error
        self._held += data
        pieces = []
        try:
            while (piece := self._next(&used, budget)) is not None:
                budget -= len(piece)
                pieces.append(piece)
        except S2Error as error:
            self._error = error
            self._held = bytearray()
            raise
        del self._held[:used]
        self._position += used
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def finish(self):
        """Must be called when the input has ended: S2Error if that was inside a chunk."""
        if self._error is not None:
            raise self._error
        if self._skip_left or (self._held and not self.pending):
            raise S2Error(self._position, REASONS[S2_CHUNK_CUT])

    cdef bytes _next(self, size_t* used, size_t budget):
        # The content of the next chunk, or None if it is not there yet or above the budget.
        cdef Chunk chunk
        cdef S2Failure failure
        cdef size_t produced, size = len(self._held), skipped = min(self._skip_left, size - used[0])
        cdef const uint8_t* data = <const uint8_t*>PyByteArray_AS_STRING(self._held)
        cdef int fault
        self.pending = False
        self._skip_left -= skipped
        used[0] += skipped
        if used[0] == size:
            return None
        fault = read_chunk(data, size, used[0], self._identified, &chunk, &failure)
        if fault == S2_CHUNK_CUT:
            if CHUNK_SKIP_FIRST <= chunk.kind < CHUNK_IDENTIFIER:
                self._skip_left = chunk.end - used[0]
                return self._next(used, budget)
            return None
        if fault == S2_OK and chunk.decoded_size > self.size_limit - self.decoded_bytes:
            fault = fail(&failure, S2_SIZE_LIMIT, used[0])
        if fault != S2_OK:
            raise error_of(&failure, self._position)
        if chunk.decoded_size > budget:
            self.pending = True
            return None
        piece = PyBytes_FromStringAndSize(NULL, chunk.decoded_size)
        fault = decode_chunk(data, &chunk, <uint8_t*>PyBytes_AS_STRING(piece), &produced, &failure)
        if fault != S2_OK:
            raise error_of(&failure, self._position)
        self._identified = True
        self.decoded_bytes += chunk.decoded_size
        used[0] = chunk.end
        return piece
