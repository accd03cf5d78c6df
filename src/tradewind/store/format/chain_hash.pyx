"""SHA-256 and BLAKE3, the two hashes that a tamper-proof stream may choose.

Owns the hash functions. Knows nothing of entries: callers add pieces, which need not lie side by
side, and get 32 bytes. SHA-256 has two forms that give the same results: the SHA instructions of
x86 processors that have them, chosen when the module is loaded, and plain arithmetic. BLAKE3 is
plain arithmetic, one block at a time.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

# In C: only there can a single function be compiled for a processor that may be absent.
cdef extern from * nogil:
    """
    static const uint32_t TW_SHA256_K[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <cpuid.h>
    #include <immintrin.h>

    static int tw_has_sha(void) {
        unsigned int a, b, c, d;
        if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 19)) || !(c & (1u << 9))) return 0;
        if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
        return (b >> 29) & 1;
    }

    /* The registers hold the state as ABEF and CDGH, which is how the instructions want it. Four
       rounds a step; the words of a step are made of those of the four steps before it. */
    __attribute__((target("sha,sse4.1,ssse3")))
    static void tw_sha256_quick(uint32_t *state, const uint8_t *data, size_t blocks) {
        const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
        __m128i pair = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xB1);
        __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1B);
        __m128i abef = _mm_alignr_epi8(pair, high, 8);
        __m128i cdgh = _mm_blend_epi16(high, pair, 0xF0);
        while (blocks--) {
            const __m128i abef_before = abef, cdgh_before = cdgh;
            __m128i words[4];
            int step;
            for (step = 0; step < 4; step++)
                words[step] = _mm_shuffle_epi8(
                    _mm_loadu_si128((const __m128i *)(data + 16 * step)), order);
            #pragma GCC unroll 16
            for (step = 0; step < 16; step++) {
                __m128i now = words[step & 3];
                __m128i sum = _mm_add_epi32(
                    now, _mm_loadu_si128((const __m128i *)(TW_SHA256_K + 4 * step)));
                cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
                abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
                if (step < 12) {
                    __m128i next = _mm_sha256msg1_epu32(now, words[(step + 1) & 3]);
                    next = _mm_add_epi32(
                        next, _mm_alignr_epi8(words[(step + 3) & 3], words[(step + 2) & 3], 4));
                    words[step & 3] = _mm_sha256msg2_epu32(next, words[(step + 3) & 3]);
                }
            }
            abef = _mm_add_epi32(abef, abef_before);
            cdgh = _mm_add_epi32(cdgh, cdgh_before);
            data += 64;
        }
        pair = _mm_shuffle_epi32(abef, 0x1B);
        high = _mm_shuffle_epi32(cdgh, 0xB1);
        _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(pair, high, 0xF0));
        _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(high, pair, 8));
    }

    /* Two hashes at once: each waits for the results of its own rounds most of the time, so the
       second costs little. */
    __attribute__((target("sha,sse4.1,ssse3")))
    static void tw_sha256_both(uint32_t *state1, const uint8_t *data1, uint32_t *state2,
                               const uint8_t *data2, size_t blocks) {
        const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
        __m128i pair1 = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state1), 0xB1);
        __m128i pair2 = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state2), 0xB1);
        __m128i high1 = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state1 + 4)), 0x1B);
        __m128i high2 = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state2 + 4)), 0x1B);
        __m128i abef1 = _mm_alignr_epi8(pair1, high1, 8), abef2 = _mm_alignr_epi8(pair2, high2, 8);
        __m128i cdgh1 = _mm_blend_epi16(high1, pair1, 0xF0);
        __m128i cdgh2 = _mm_blend_epi16(high2, pair2, 0xF0);
        while (blocks--) {
            const __m128i abef1_before = abef1, cdgh1_before = cdgh1;
            const __m128i abef2_before = abef2, cdgh2_before = cdgh2;
            __m128i words1[4], words2[4];
            int step;
            for (step = 0; step < 4; step++) {
                words1[step] = _mm_shuffle_epi8(
                    _mm_loadu_si128((const __m128i *)(data1 + 16 * step)), order);
                words2[step] = _mm_shuffle_epi8(
                    _mm_loadu_si128((const __m128i *)(data2 + 16 * step)), order);
            }
            #pragma GCC unroll 16
            for (step = 0; step < 16; step++) {
                const __m128i key = _mm_loadu_si128((const __m128i *)(TW_SHA256_K + 4 * step));
                __m128i now1 = words1[step & 3], now2 = words2[step & 3];
                __m128i sum1 = _mm_add_epi32(now1, key), sum2 = _mm_add_epi32(now2, key);
                cdgh1 = _mm_sha256rnds2_epu32(cdgh1, abef1, sum1);
                cdgh2 = _mm_sha256rnds2_epu32(cdgh2, abef2, sum2);
                abef1 = _mm_sha256rnds2_epu32(abef1, cdgh1, _mm_shuffle_epi32(sum1, 0x0E));
                abef2 = _mm_sha256rnds2_epu32(abef2, cdgh2, _mm_shuffle_epi32(sum2, 0x0E));
                if (step < 12) {
                    __m128i next1 = _mm_sha256msg1_epu32(now1, words1[(step + 1) & 3]);
                    __m128i next2 = _mm_sha256msg1_epu32(now2, words2[(step + 1) & 3]);
                    next1 = _mm_add_epi32(
                        next1, _mm_alignr_epi8(words1[(step + 3) & 3], words1[(step + 2) & 3], 4));
                    next2 = _mm_add_epi32(
                        next2, _mm_alignr_epi8(words2[(step + 3) & 3], words2[(step + 2) & 3], 4));
                    words1[step & 3] = _mm_sha256msg2_epu32(next1, words1[(step + 3) & 3]);
                    words2[step & 3] = _mm_sha256msg2_epu32(next2, words2[(step + 3) & 3]);
                }
            }
            abef1 = _mm_add_epi32(abef1, abef1_before);
            cdgh1 = _mm_add_epi32(cdgh1, cdgh1_before);
            abef2 = _mm_add_epi32(abef2, abef2_before);
            cdgh2 = _mm_add_epi32(cdgh2, cdgh2_before);
            data1 += 64;
            data2 += 64;
        }
        pair1 = _mm_shuffle_epi32(abef1, 0x1B);
        high1 = _mm_shuffle_epi32(cdgh1, 0xB1);
        pair2 = _mm_shuffle_epi32(abef2, 0x1B);
        high2 = _mm_shuffle_epi32(cdgh2, 0xB1);
        _mm_storeu_si128((__m128i *)state1, _mm_blend_epi16(pair1, high1, 0xF0));
        _mm_storeu_si128((__m128i *)(state1 + 4), _mm_alignr_epi8(high1, pair1, 8));
        _mm_storeu_si128((__m128i *)state2, _mm_blend_epi16(pair2, high2, 0xF0));
        _mm_storeu_si128((__m128i *)(state2 + 4), _mm_alignr_epi8(high2, pair2, 8));
    }
    #else
    static int tw_has_sha(void) { return 0; }
    static void tw_sha256_both(uint32_t *state1, const uint8_t *data1, uint32_t *state2,
                               const uint8_t *data2, size_t blocks) {
        (void)state1; (void)data1; (void)state2; (void)data2; (void)blocks;
    }
    static void tw_sha256_quick(uint32_t *state, const uint8_t *data, size_t blocks) {
        (void)state; (void)data; (void)blocks;
    }
    #endif
    """
    const uint32_t TW_SHA256_K[64]
    bint tw_has_sha()
    void tw_sha256_quick(uint32_t* state, const uint8_t* data, size_t blocks)
    void tw_sha256_both(uint32_t* state1, const uint8_t* data1, uint32_t* state2,
                        const uint8_t* data2, size_t blocks)

cdef extern from "<endian.h>" nogil:
    uint32_t be32toh(uint32_t value)
    uint32_t htobe32(uint32_t value)
    uint32_t le32toh(uint32_t value)
    uint32_t htole32(uint32_t value)
    uint64_t htobe64(uint64_t value)

cdef enum:
    BLOCK = 64
    NODE_BYTES = 65             # 1, and two hashes
    CHUNK_BLOCKS = 16
    CHUNK_START = 1
    CHUNK_END = 2
    PARENT = 4
    ROOT = 8

# The first words of both: SHA-256 begins with them, BLAKE3 too.
cdef uint32_t* START = [
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19]
# The word of a block that each place of the seven rounds of BLAKE3 takes.
cdef uint8_t SCHEDULE[7][16]
cdef uint8_t* PERMUTATION = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]

cdef bint has_sha = tw_has_sha()
cdef bint is_quick = has_sha


cdef void fill_schedule() noexcept:
    cdef int turn, place
    for place in range(16):
        SCHEDULE[0][place] = <uint8_t>place
    for turn in range(1, 7):
        for place in range(16):
            SCHEDULE[turn][place] = SCHEDULE[turn - 1][PERMUTATION[place]]


fill_schedule()


cdef inline uint32_t rotated(uint32_t value, int count) noexcept nogil:
    return value >> count | value << (32 - count)


# ------------------------------------------------------------------ SHA-256

cdef void sha256_portable(uint32_t* state, const uint8_t* data, size_t blocks) noexcept nogil:
    cdef uint32_t words[64]
    cdef uint32_t a, b, c, d, e, f, g, h, one, two
    cdef int index
    while blocks:
        memcpy(words, data, BLOCK)
        for index in range(16):
            words[index] = be32toh(words[index])
        for index in range(16, 64):
            one, two = words[index - 15], words[index - 2]
            words[index] = words[index - 16] + words[index - 7] \
                + (rotated(one, 7) ^ rotated(one, 18) ^ one >> 3) \
                + (rotated(two, 17) ^ rotated(two, 19) ^ two >> 10)
        a, b, c, d = state[0], state[1], state[2], state[3]
        e, f, g, h = state[4], state[5], state[6], state[7]
        for index in range(64):
            one = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) \
                + (e & f ^ ~e & g) + TW_SHA256_K[index] + words[index]
            two = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + (a & b ^ a & c ^ b & c)
            h, g, f = g, f, e
            e = d + one
            d, c, b = c, b, a
            a = one + two
        state[0] += a
        state[1] += b
        state[2] += c
        state[3] += d
        state[4] += e
        state[5] += f
        state[6] += g
        state[7] += h
        data += BLOCK
        blocks -= 1


cdef inline void sha256_blocks(uint32_t* state, const uint8_t* data,
                               size_t blocks) noexcept nogil:
    if is_quick:
        tw_sha256_quick(state, data, blocks)
    else:
        sha256_portable(state, data, blocks)


cdef void sha256_end(ChainHash* hash, uint8_t* digest) noexcept nogil:
    cdef uint64_t bits = htobe64(hash.total * 8)
    cdef uint32_t words[8]
    cdef int index
    hash.block[hash.used] = 0x80
    hash.used += 1
    if hash.used > BLOCK - 8:
        memset(&hash.block[hash.used], 0, BLOCK - hash.used)
        sha256_blocks(hash.state, hash.block, 1)
        hash.used = 0
    memset(&hash.block[hash.used], 0, BLOCK - 8 - hash.used)
    memcpy(&hash.block[BLOCK - 8], &bits, 8)
    sha256_blocks(hash.state, hash.block, 1)
    for index in range(8):
        words[index] = htobe32(hash.state[index])
    memcpy(digest, words, CHAIN_HASH_BYTES)


# ------------------------------------------------------------------ BLAKE3

cdef inline void mix(uint32_t* state, int a, int b, int c, int d, uint32_t one,
                     uint32_t two) noexcept nogil:
    state[a] += state[b] + one
    state[d] = rotated(state[d] ^ state[a], 16)
    state[c] += state[d]
    state[b] = rotated(state[b] ^ state[c], 12)
    state[a] += state[b] + two
    state[d] = rotated(state[d] ^ state[a], 8)
    state[c] += state[d]
    state[b] = rotated(state[b] ^ state[c], 7)


cdef void blake3_compress(uint32_t* value, const uint8_t* block, uint32_t size, uint64_t counter,
                          uint32_t flags) noexcept nogil:
    """Compress one block; `value` is the chaining value before and after."""
    cdef uint32_t words[16]
    cdef uint32_t state[16]
    cdef const uint8_t* order
    cdef int turn, index
    memcpy(words, block, BLOCK)
    for index in range(16):
        words[index] = le32toh(words[index])
    memcpy(state, value, 32)
    memcpy(&state[8], START, 16)
    state[12] = <uint32_t>counter
    state[13] = <uint32_t>(counter >> 32)
    state[14] = size
    state[15] = flags
    for turn in range(7):
        order = SCHEDULE[turn]
        mix(state, 0, 4, 8, 12, words[order[0]], words[order[1]])
        mix(state, 1, 5, 9, 13, words[order[2]], words[order[3]])
        mix(state, 2, 6, 10, 14, words[order[4]], words[order[5]])
        mix(state, 3, 7, 11, 15, words[order[6]], words[order[7]])
        mix(state, 0, 5, 10, 15, words[order[8]], words[order[9]])
        mix(state, 1, 6, 11, 12, words[order[10]], words[order[11]])
        mix(state, 2, 7, 8, 13, words[order[12]], words[order[13]])
        mix(state, 3, 4, 9, 14, words[order[14]], words[order[15]])
    for index in range(8):
        value[index] = state[index] ^ state[index + 8]


cdef void blake3_parent(const uint32_t* left, const uint32_t* right, uint32_t flags,
                        uint32_t* value) noexcept nogil:
    cdef uint32_t words[16]
    cdef uint32_t result[8]
    cdef int index
    for index in range(8):
        words[index] = htole32(left[index])
        words[index + 8] = htole32(right[index])
    memcpy(result, START, 32)
    blake3_compress(result, <const uint8_t*>words, BLOCK, 0, PARENT | flags)
    memcpy(value, result, 32)


cdef void blake3_block(ChainHash* hash, uint32_t flags) noexcept nogil:
    """Compress the full block, or the last one of its chunk."""
    if hash.chunk_blocks == 0:
        flags |= CHUNK_START
    blake3_compress(hash.state, hash.block, hash.used, hash.chunk, flags)
    hash.chunk_blocks += 1
    hash.used = 0


cdef void blake3_next(ChainHash* hash) noexcept nogil:
    """Compress the full block, which is followed by more of the input."""
    cdef uint64_t chunks
    if hash.chunk_blocks < CHUNK_BLOCKS - 1:
        blake3_block(hash, 0)
        return
    blake3_block(hash, CHUNK_END)
    hash.chunk += 1
    chunks = hash.chunk
    # Two subtrees of a size make one; as many as the number of chunks has zeros at its end.
    while chunks & 1 == 0:
        hash.depth -= 1
        blake3_parent(hash.levels[hash.depth], hash.state, 0, hash.state)
        chunks >>= 1
    memcpy(hash.levels[hash.depth], hash.state, 32)
    hash.depth += 1
    memcpy(hash.state, START, 32)
    hash.chunk_blocks = 0


cdef void blake3_end(ChainHash* hash, uint8_t* digest) noexcept nogil:
    cdef uint32_t words[8]
    cdef int index
    memset(&hash.block[hash.used], 0, BLOCK - hash.used)
    blake3_block(hash, CHUNK_END | (0 if hash.depth else ROOT))
    while hash.depth:
        hash.depth -= 1
        blake3_parent(
            hash.levels[hash.depth], hash.state, 0 if hash.depth else ROOT, hash.state)
    for index in range(8):
        words[index] = htole32(hash.state[index])
    memcpy(digest, words, CHAIN_HASH_BYTES)


# ------------------------------------------------------------------ both

cdef void chain_hash_begin(ChainHash* hash, int algorithm) noexcept nogil:
    hash.algorithm = algorithm
    hash.total = 0
    hash.used = 0
    hash.chunk = 0
    hash.chunk_blocks = 0
    hash.depth = 0
    memcpy(hash.state, START, 32)


cdef void chain_hash_add(ChainHash* hash, const void* data, size_t size) noexcept nogil:
    """Add bytes, any number of them."""
    cdef const uint8_t* at = <const uint8_t*>data
    cdef size_t part
    hash.total += size
    while size:
        if hash.used == BLOCK:
            # A block of BLAKE3 waits until it is known whether it is the last one.
            if hash.algorithm == CHAIN_SHA256:
                sha256_blocks(hash.state, hash.block, 1)
                hash.used = 0
            else:
                blake3_next(hash)
        if hash.algorithm == CHAIN_SHA256 and hash.used == 0 and size >= BLOCK:
            part = size // BLOCK
            sha256_blocks(hash.state, at, part)
            part *= BLOCK
        else:
            part = min(size, <size_t>(BLOCK - hash.used))
            memcpy(&hash.block[hash.used], at, part)
            hash.used += <uint32_t>part
        at += part
        size -= part


cdef void chain_hash_end(ChainHash* hash, uint8_t* digest) noexcept nogil:
    """Finish the hash, 32 bytes; `hash` has to begin again."""
    if hash.algorithm == CHAIN_SHA256:
        if hash.used == BLOCK:
            sha256_blocks(hash.state, hash.block, 1)
            hash.used = 0
        sha256_end(hash, digest)
    else:
        blake3_end(hash, digest)


cdef inline size_t sha256_pad(uint8_t* data, size_t size) noexcept nogil:
    """Append the end of a SHA-256 input; returns its number of blocks."""
    cdef uint64_t bits = htobe64(<uint64_t>size * 8)
    cdef size_t blocks = (size + 9 + BLOCK - 1) // BLOCK
    memset(data + size, 0, blocks * BLOCK - size)
    data[size] = 0x80
    memcpy(data + blocks * BLOCK - 8, &bits, 8)
    return blocks


cdef inline void sha256_store(uint32_t* state, uint8_t* digest) noexcept nogil:
    cdef int index
    for index in range(8):
        state[index] = htobe32(state[index])
    memcpy(digest, state, CHAIN_HASH_BYTES)


cdef void chain_hash_short(int algorithm, uint8_t* data, size_t size,
                           uint8_t* digest) noexcept nogil:
    """The hash of contiguous bytes; SHORT_SPARE more after them are overwritten."""
    cdef ChainHash hash
    cdef uint32_t state[8]
    cdef size_t blocks
    if algorithm != CHAIN_SHA256:
        chain_hash_begin(&hash, algorithm)
        chain_hash_add(&hash, data, size)
        chain_hash_end(&hash, digest)
        return
    blocks = sha256_pad(data, size)
    memcpy(state, START, 32)
    sha256_blocks(state, data, blocks)
    sha256_store(state, digest)


cdef void chain_node(int algorithm, const uint8_t* left, const uint8_t* right,
                     uint8_t* digest) noexcept nogil:
    """The node of a Merkle tree above two others; `digest` may be one of them."""
    cdef uint8_t data[NODE_BYTES + SHORT_SPARE]
    data[0] = 1
    memcpy(&data[1], left, CHAIN_HASH_BYTES)
    memcpy(&data[1 + CHAIN_HASH_BYTES], right, CHAIN_HASH_BYTES)
    chain_hash_short(algorithm, data, NODE_BYTES, digest)


cdef bint hashes_side_by_side(int algorithm) noexcept nogil:
    """Whether `chain_hash_beside_node` is faster than the two calls that it stands for."""
    return is_quick and algorithm == CHAIN_SHA256


cdef void chain_hash_beside_node(uint8_t* data, size_t size, uint8_t* digest, const uint8_t* left,
                                 const uint8_t* right, uint8_t* node) noexcept nogil:
    """The SHA-256 of contiguous bytes as `chain_hash_short`, and a node as `chain_node`; neither
    depends on the other.
    """
    cdef uint8_t data2[NODE_BYTES + SHORT_SPARE]
    cdef uint32_t state[8]
    cdef uint32_t state2[8]
    cdef size_t blocks = sha256_pad(data, size), blocks2, common
    data2[0] = 1
    memcpy(&data2[1], left, CHAIN_HASH_BYTES)
    memcpy(&data2[1 + CHAIN_HASH_BYTES], right, CHAIN_HASH_BYTES)
    blocks2 = sha256_pad(data2, NODE_BYTES)
    memcpy(state, START, 32)
    memcpy(state2, START, 32)
    common = min(blocks, blocks2)
    tw_sha256_both(state, data, state2, data2, common)
    sha256_blocks(state, data + common * BLOCK, blocks - common)
    sha256_blocks(state2, data2 + common * BLOCK, blocks2 - common)
    sha256_store(state, digest)
    sha256_store(state2, node)


# ------------------------------------------------------------------ for tests and checks

def chain_digest(int algorithm, *pieces):
    """The hash of concatenated pieces."""
    cdef ChainHash hash
    cdef uint8_t digest[CHAIN_HASH_BYTES]
    cdef const uint8_t[::1] view
    chain_hash_begin(&hash, algorithm)
    for piece in pieces:
        view = piece
        if view.shape[0]:
            chain_hash_add(&hash, &view[0], <size_t>view.shape[0])
    chain_hash_end(&hash, digest)
    return (<const char*>digest)[:CHAIN_HASH_BYTES]


def use_sha_instructions(bint wanted):
    """Set whether SHA-256 uses the SHA instructions, if the machine has them; returns whether it
    does.
    """
    global is_quick
    is_quick = wanted and has_sha
    return is_quick
