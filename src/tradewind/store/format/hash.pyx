"""HighwayHash-64, the checksum of every record, meta.sum and index.db of the file store.

Owns the hash function in two forms that give the same results: AVX2 for the machines that have it,
chosen when the module is loaded, and plain C arithmetic for all others. Knows nothing of records:
callers pass the pieces to be hashed, which need not lie side by side (a record's checksum leaves
out its length fields).

The state is four rows of four 64-bit lanes: v0, v1, m0, m1. Every 32 bytes of input are one packet
and one round. The remaining bytes are spread over a last packet, and four more rounds without input
finish. Hashes are numbers here, and 8 bytes little-endian on disk.
"""

import hashlib

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

cdef extern from "<endian.h>" nogil:
    uint64_t le64toh(uint64_t value)
    uint64_t htole64(uint64_t value)

# AVX2 in C: only there can a single function be compiled for a processor that may be absent.
# One register holds a row of the state. `tw_avx2_parts` mirrors `parts_portable` below.
cdef extern from * nogil:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define TW_AVX2 static inline __attribute__((always_inline, target("avx2")))

    typedef struct { __m256i v0, v1, m0, m1; } tw_rows;

    TW_AVX2 __m256i tw_zipper(__m256i row) {
        const __m256i order = _mm256_setr_epi8(
            3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7,
            3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7);
        return _mm256_shuffle_epi8(row, order);
    }

    TW_AVX2 void tw_round(tw_rows *s, __m256i packet) {
        s->v1 = _mm256_add_epi64(s->v1, _mm256_add_epi64(s->m0, packet));
        s->m0 = _mm256_xor_si256(s->m0, _mm256_mul_epu32(s->v1, _mm256_srli_epi64(s->v0, 32)));
        s->v0 = _mm256_add_epi64(s->v0, s->m1);
        s->m1 = _mm256_xor_si256(s->m1, _mm256_mul_epu32(s->v0, _mm256_srli_epi64(s->v1, 32)));
        s->v0 = _mm256_add_epi64(s->v0, tw_zipper(s->v1));
        s->v1 = _mm256_add_epi64(s->v1, tw_zipper(s->v0));
    }

    TW_AVX2 void tw_last_packet(tw_rows *s, const uint8_t *rest, int size) {
        const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        const __m256i amount = _mm256_set1_epi32(size);
        const __m256i mask = _mm256_cmpgt_epi32(_mm256_srli_epi32(amount, 2), lanes);
        __m256i packet = _mm256_maskload_epi32((const int *)rest, mask);
        if (size & 16) {
            int tail;
            memcpy(&tail, rest + size - 4, 4);
            packet = _mm256_blend_epi32(packet, _mm256_set1_epi32(tail), 0x80);
        } else if (size & 3) {
            const uint8_t *tail = rest + (size & ~3);
            int odd = size & 3;
            packet = _mm256_blend_epi32(packet, _mm256_set1_epi32(
                tail[0] | tail[odd >> 1] << 8 | tail[odd - 1] << 16), 0x10);
        }
        s->v0 = _mm256_add_epi64(s->v0, amount);
        s->v1 = _mm256_or_si256(_mm256_sllv_epi32(s->v1, amount),
            _mm256_srlv_epi32(s->v1, _mm256_sub_epi32(_mm256_set1_epi32(32), amount)));
        tw_round(s, packet);
    }

    static __attribute__((target("avx2"))) uint64_t tw_avx2_parts(
            const TradewindHashKey *key, const TradewindHashPart *part, int count,
            const uint64_t *m0, const uint64_t *m1) {
        const __m256i crossed = _mm256_setr_epi32(5, 4, 7, 6, 1, 0, 3, 2);
        const __m256i *words = (const __m256i *)key;
        tw_rows s = {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1),
            _mm256_loadu_si256((const __m256i *)m0), _mm256_loadu_si256((const __m256i *)m1)};
        uint8_t carry[32];
        size_t carried = 0;
        for (; count > 0; count--, part++) {
            const uint8_t *data = (const uint8_t *)part->data, *end = data + part->size;
            if (part->size == 0)
                continue;
            if (carried) {
                if (carried + part->size < 32) {
                    memcpy(carry + carried, data, part->size);
                    carried += part->size;
                    continue;
                }
                if (carried == 16) {
                    tw_round(&s, _mm256_loadu2_m128i(
                        (const __m128i *)data, (const __m128i *)carry));
                } else {
                    memcpy(carry + carried, data, 32 - carried);
                    tw_round(&s, _mm256_loadu_si256((const __m256i *)carry));
                }
                data += 32 - carried;
                carried = 0;
            }
            for (; end - data >= 32; data += 32)
                tw_round(&s, _mm256_loadu_si256((const __m256i *)data));
            if (data < end && count == 1) {
                tw_last_packet(&s, data, (int)(end - data));
            } else {
                carried = end - data;
                memcpy(carry, data, carried);
            }
        }
        if (carried)
            tw_last_packet(&s, carry, (int)carried);
        for (int extra = 0; extra < 4; extra++)
            tw_round(&s, _mm256_permutevar8x32_epi32(s.v0, crossed));
        return _mm_cvtsi128_si64(_mm256_castsi256_si128(_mm256_add_epi64(
            _mm256_add_epi64(s.v0, s.v1), _mm256_add_epi64(s.m0, s.m1))));
    }
    static int tw_has_avx2(void) { return __builtin_cpu_supports("avx2"); }
    #else
    static uint64_t tw_avx2_parts(
            const TradewindHashKey *key, const TradewindHashPart *part, int count,
            const uint64_t *m0, const uint64_t *m1) { return 0; }
    static int tw_has_avx2(void) { return 0; }
    #endif
    """
    uint64_t tw_avx2_parts(
        const HashKey* key, const Part* part, int count, const uint64_t* m0, const uint64_t* m1)
    bint tw_has_avx2()

cdef bint use_vectors = tw_has_avx2()
VECTORED = bool(use_vectors)

cdef uint64_t[4] START_M0 = [
    0xdbe6d5d5fe4cce2fULL, 0xa4093822299f31d0ULL, 0x13198a2e03707344ULL, 0x243f6a8885a308d3ULL]
cdef uint64_t[4] START_M1 = [
    0x3bd39e10cb0ef593ULL, 0xc0acf169b5f18a8cULL, 0xbe5466cf34e90c6cULL, 0x452821e638d01377ULL]

cdef enum:
    PACKET_BYTES = 32
    KEY_BYTES = 32


cdef struct HashState:
    uint64_t v0[4]
    uint64_t v1[4]
    uint64_t m0[4]
    uint64_t m1[4]


cdef inline uint64_t swap_halves(uint64_t lane) noexcept nogil:
    return lane >> 32 | lane << 32


cdef inline uint64_t zip_even(uint64_t even, uint64_t odd) noexcept nogil:
    # Bytes 3 12 2 5 14 1 15 0 of the pair, lowest first.
    return (
        (even >> 24 & 0xff) | (odd >> 24 & 0xff00) | (even & 0xff0000)
        | (even >> 16 & 0xff000000ULL) | (odd >> 16 & 0xff00000000ULL)
        | (even << 32 & 0xff0000000000ULL) | (odd >> 8 & 0xff000000000000ULL) | even << 56)


cdef inline uint64_t zip_odd(uint64_t even, uint64_t odd) noexcept nogil:
    # Bytes 11 4 10 13 9 6 8 7 of the pair, lowest first.
    return (
        (odd >> 24 & 0xff) | (even >> 24 & 0xff00) | (odd & 0xff0000)
        | (odd >> 16 & 0xff000000ULL) | (odd << 24 & 0xff00000000ULL)
        | (even >> 8 & 0xff0000000000ULL) | (odd << 48 & 0xff000000000000ULL)
        | (even & 0xff00000000000000ULL))


cdef inline void mix(HashState* s, const uint64_t* packet) noexcept nogil:
    cdef int lane
    for lane in range(4):
        s.v1[lane] += s.m0[lane] + packet[lane]
        s.m0[lane] ^= (s.v1[lane] & 0xffffffffULL) * (s.v0[lane] >> 32)
        s.v0[lane] += s.m1[lane]
        s.m1[lane] ^= (s.v0[lane] & 0xffffffffULL) * (s.v1[lane] >> 32)
    for lane in range(0, 4, 2):
        s.v0[lane] += zip_even(s.v1[lane], s.v1[lane + 1])
        s.v0[lane + 1] += zip_odd(s.v1[lane], s.v1[lane + 1])
    for lane in range(0, 4, 2):
        s.v1[lane] += zip_even(s.v0[lane], s.v0[lane + 1])
        s.v1[lane + 1] += zip_odd(s.v0[lane], s.v0[lane + 1])


cdef inline void mix_bytes(HashState* s, const uint8_t* data) noexcept nogil:
    cdef uint64_t packet[4]
    cdef int lane
    memcpy(packet, data, PACKET_BYTES)
    for lane in range(4):
        packet[lane] = le64toh(packet[lane])
    mix(s, packet)


cdef void mix_rest(HashState* s, const uint8_t* rest, int size) noexcept nogil:
    # The last 1 to 31 bytes; their number is mixed in as well.
    cdef uint8_t packet[PACKET_BYTES]
    cdef uint32_t low, high
    cdef int lane, odd = size & 3
    cdef const uint8_t* tail = rest + (size & ~3)
    memset(packet, 0, PACKET_BYTES)
    memcpy(packet, rest, size & ~3)
    if size & 16:
        memcpy(packet + 28, rest + size - 4, 4)
    elif odd:
        packet[16] = tail[0]
        packet[17] = tail[odd >> 1]
        packet[18] = tail[odd - 1]
    for lane in range(4):
        s.v0[lane] += (<uint64_t>size << 32) + <uint64_t>size
        low = <uint32_t>s.v1[lane]
        high = <uint32_t>(s.v1[lane] >> 32)
        low = low << size | low >> (32 - size)
        high = high << size | high >> (32 - size)
        s.v1[lane] = <uint64_t>high << 32 | low
    mix_bytes(s, packet)


cdef uint64_t finish(HashState* s) noexcept nogil:
    cdef uint64_t packet[4]
    cdef int _extra, lane
    for _extra in range(4):
        for lane in range(4):
            packet[lane] = swap_halves(s.v0[lane ^ 2])
        mix(s, packet)
    return s.v0[0] + s.v1[0] + s.m0[0] + s.m1[0]


cdef uint64_t parts_portable(const HashKey* key, const Part* parts, int count) noexcept nogil:
    cdef HashState s
    cdef uint8_t carry[PACKET_BYTES]
    cdef const uint8_t* data
    cdef size_t left, taken, carried = 0
    cdef int index
    memcpy(s.v0, key.v0, sizeof(s.v0))
    memcpy(s.v1, key.v1, sizeof(s.v1))
    memcpy(s.m0, START_M0, sizeof(s.m0))
    memcpy(s.m1, START_M1, sizeof(s.m1))
    for index in range(count):
        data = <const uint8_t*>parts[index].data
        left = parts[index].size
        if left == 0:
            continue
        if carried:
            taken = min(left, PACKET_BYTES - carried)
            memcpy(carry + carried, data, taken)
            carried += taken
            data += taken
            left -= taken
            if carried < PACKET_BYTES:
                continue
            mix_bytes(&s, carry)
            carried = 0
        while left >= PACKET_BYTES:
            mix_bytes(&s, data)
            data += PACKET_BYTES
            left -= PACKET_BYTES
        memcpy(carry, data, left)
        carried = left
    if carried:
        mix_rest(&s, carry, <int>carried)
    return finish(&s)


# ------------------------------------------------------------------ the interface in C

cdef void hash_key_init(HashKey* key, const uint8_t* key_bytes) noexcept nogil:
    """Prepare a key from 32 bytes."""
    cdef uint64_t words[4]
    cdef int lane
    memcpy(words, key_bytes, KEY_BYTES)
    for lane in range(4):
        words[lane] = le64toh(words[lane])
        key.v0[lane] = START_M0[lane] ^ words[lane]
        key.v1[lane] = START_M1[lane] ^ swap_halves(words[lane])


cdef uint64_t hash_parts(const HashKey* key, const Part* parts, int count) noexcept nogil:
    """The hash of all parts as if they lay side by side; an empty part may have any pointer."""
    if use_vectors:
        return tw_avx2_parts(key, parts, count, START_M0, START_M1)
    return parts_portable(key, parts, count)


cdef uint64_t hash_bytes64(const HashKey* key, const char* data, size_t size) noexcept nogil:
    """The hash of one run of bytes."""
    cdef Part part
    part.data = data
    part.size = size
    return hash_parts(key, &part, 1)


# ------------------------------------------------------------------ the interface in Python

cdef bytes stored(uint64_t value):
    cdef uint64_t little = htole64(value)
    return (<const char*>&little)[:8]


cdef class Key:
    """A 32-byte key, ready to hash with."""

    def __cinit__(self, bytes key_bytes not None):
        if len(key_bytes) != KEY_BYTES:
            raise ValueError(f"a hash key has {KEY_BYTES} bytes, not {len(key_bytes)}")
        hash_key_init(&self.state, <const uint8_t*><const char*>key_bytes)

    def hash(self, data):
        """The hash of `data` as the 8 bytes that are stored."""
        cdef Py_buffer view
        cdef uint64_t value
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                value = hash_bytes64(&self.state, <const char*>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
        return stored(value)

    def hash_parts(self, parts):
        """The hash of the joined `parts` as the 8 bytes that are stored."""
        return self._hash_parts(parts, use_vectors)

    def hash_parts_portable(self, parts):
        """The same as `hash_parts`, without vector instructions whatever the machine has."""
        return self._hash_parts(parts, False)

    cdef bytes _hash_parts(self, parts, bint vectored):
        cdef tuple kept = tuple(parts)
        cdef int index, count = <int>len(kept)
        cdef bytes part
        cdef uint64_t value
        cdef Part* pieces = <Part*>malloc(max(1, count) * sizeof(Part))
        if pieces == NULL:
            raise MemoryError
        try:
            for index, part in enumerate(kept):
                pieces[index].data = <const char*>part
                pieces[index].size = len(part)
            if vectored:
                value = hash_parts(&self.state, pieces, count)
            else:
                value = parts_portable(&self.state, pieces, count)
        finally:
            free(pieces)
        return stored(value)


def key_for(text):
    """The key that the file store derives from a name such as "ORDERS-1": its SHA-256."""
    return Key(hashlib.sha256(text.encode()).digest())
