"""Decodes S2 streams in memory, for compiled callers.

Owns the checks: every size and offset in the input is checked against what is there before use, and
nothing is written beyond the given output, so a hostile or damaged stream causes a failure that
names the byte, and nothing else. The format is drawn in s2_format.pxd, the Python interface is
s2.pyx.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from tradewind.store.format.s2_format cimport (
    CHUNK_IDENTIFIER, CHUNK_PACKED, CHUNK_RAW, CHUNK_SKIP_FIRST, COPY_2, COPY_4, LITERAL,
    S2_CHECKSUM_BYTES, S2_CHUNK_BODY_BYTES_MAX, S2_CHUNK_BYTES_MAX, S2_HEADER_BYTES,
    S2_IDENTIFIER_BYTES, S2_WIDE_BYTES, load3, load4, load8, load_uvarint)

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

cdef const char* IDENTIFIER_S2 = b"S2sTwO"
cdef const char* IDENTIFIER_SNAPPY = b"sNaPpY"

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

cdef uint32_t masked_crc(const uint8_t* data, size_t size) noexcept nogil:
    """The CRC-32C as chunks carry it."""
    cdef uint32_t crc = crc32c(data, size)
    return (crc >> 15 | crc << 17) + 0xa282ead8U


# ------------------------------------------------------------------ chunks and elements

cdef inline int fail(S2Failure* failure, int fault, size_t offset) noexcept nogil:
    failure.fault = fault
    failure.offset = offset
    return fault


cdef int read_chunk(
        const uint8_t* data, size_t size, size_t position, bint identified, Chunk* chunk,
        S2Failure* failure) noexcept nogil:
    # Reads what stands before the content. After S2_CHUNK_CUT, `body_size` is what there is of it.
    cdef size_t length, left = size - position, length_bytes
    cdef uint64_t decoded
    memset(chunk, 0, sizeof(Chunk))
    chunk.end = size
    if not identified and left > 0 and data[position] != CHUNK_IDENTIFIER:
        return fail(failure, S2_NO_IDENTIFIER, position)
    if left < S2_HEADER_BYTES:
        return fail(failure, S2_CHUNK_CUT, position)
    chunk.kind = data[position]
    length = load3(data + position + 1)
    if CHUNK_RAW < chunk.kind < CHUNK_SKIP_FIRST:
        return fail(failure, S2_RESERVED_CHUNK, position)
    position += S2_HEADER_BYTES
    chunk.body = position
    chunk.body_size = min(length, left - S2_HEADER_BYTES)
    chunk.end = position + length
    if chunk.kind == CHUNK_IDENTIFIER:
        if length != S2_IDENTIFIER_BYTES - S2_HEADER_BYTES:
            return fail(failure, S2_BAD_IDENTIFIER, position)
        if chunk.body_size == length and (
                memcmp(data + position, IDENTIFIER_S2, length) != 0
                and memcmp(data + position, IDENTIFIER_SNAPPY, length) != 0):
            return fail(failure, S2_BAD_IDENTIFIER, position)
    elif chunk.kind <= CHUNK_RAW:
        if length < S2_CHECKSUM_BYTES or length > S2_CHUNK_BODY_BYTES_MAX:
            return fail(failure, S2_CHUNK_SIZE, position - 3)
        if chunk.body_size < S2_CHECKSUM_BYTES:
            chunk.body_size = 0
            return fail(failure, S2_CHUNK_CUT, position - S2_HEADER_BYTES)
        chunk.checksum = load4(data + position)
        chunk.body += S2_CHECKSUM_BYTES
        chunk.body_size -= S2_CHECKSUM_BYTES
        if chunk.kind == CHUNK_PACKED:
            length_bytes = load_uvarint(data + chunk.body, chunk.body_size, &decoded)
            if length_bytes == 0 and chunk.end > size:
                chunk.body_size = 0
                return fail(failure, S2_CHUNK_CUT, position - S2_HEADER_BYTES)
            if length_bytes == 0 or decoded > S2_CHUNK_BYTES_MAX:
                return fail(failure, S2_BAD_LENGTH, chunk.body)
            chunk.body += length_bytes
            chunk.body_size -= length_bytes
            chunk.decoded_size = decoded
        elif length - S2_CHECKSUM_BYTES > S2_CHUNK_BYTES_MAX:
            return fail(failure, S2_CHUNK_SIZE, position - 3)
        else:
            chunk.decoded_size = length - S2_CHECKSUM_BYTES
    if chunk.end > size:
        return fail(failure, S2_CHUNK_CUT, position - S2_HEADER_BYTES)
    return S2_OK


cdef inline uint8_t* copy_back(
        uint8_t* output, size_t offset, size_t length, size_t room) noexcept nogil:
    # Source and target may overlap, which repeats what lies between them.
    cdef uint8_t* end = output + length
    if offset >= S2_WIDE_BYTES and length + S2_WIDE_BYTES <= room:
        while output < end:
            memcpy(output, output - offset, S2_WIDE_BYTES)
            output += S2_WIDE_BYTES
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
            if length <= S2_WIDE_BYTES and (
                    source_end - element >= S2_WIDE_BYTES and end - output >= S2_WIDE_BYTES):
                memcpy(output, element, S2_WIDE_BYTES)
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
    """Check the chunk headers and add up their sizes; S2_OK if the sum is within the limit.

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
    """Decode a whole stream into exactly the room that `s2_measure` has computed."""
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
    if done < output_size:
        return fail(failure, S2_OUTPUT_SHORT, size)
    return S2_OK


cdef size_t s2_salvage(
        const uint8_t* data, size_t size, uint8_t* output, size_t output_size,
        S2Failure* failure) noexcept nogil:
    """Decode as much as possible; returns how much of the output is meaningful.

    Lost bytes inside a chunk are zero, so that all others are in their places. A chunk with a wrong
    checksum is used as it decodes: the records in it have checksums of their own. `failure` is the
    first one.
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
            position = S2_IDENTIFIER_BYTES     # whatever it says, that is its size
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
