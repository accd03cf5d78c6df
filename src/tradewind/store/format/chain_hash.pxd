"""The hashes of tamper-proof streams, for compiled callers; see chain_hash.pyx.

A `ChainHash` lives on the stack of its caller: begin, add pieces, end. Nothing is allocated.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    CHAIN_SHA256 = 1
    CHAIN_BLAKE3 = 2
    CHAIN_HASH_BYTES = 32
    BLAKE3_LEVELS_MAX = 54
    SHORT_SPARE = 72                    # bytes after the data of `chain_hash_short`

ctypedef struct ChainHash:
    int algorithm
    uint64_t total                      # bytes added so far
    uint32_t used                       # bytes in `block` that are not hashed yet
    uint8_t block[64]
    uint32_t state[8]                   # SHA-256, or the chaining value of the BLAKE3 chunk
    uint64_t chunk                      # BLAKE3: the number of the chunk ...
    uint32_t chunk_blocks               # ... and how many of its blocks are hashed
    uint32_t depth
    uint32_t levels[BLAKE3_LEVELS_MAX][8]   # BLAKE3: subtrees to the left


cdef void chain_hash_begin(ChainHash* hash, int algorithm) noexcept nogil
cdef void chain_hash_add(ChainHash* hash, const void* data, size_t size) noexcept nogil
cdef void chain_hash_end(ChainHash* hash, uint8_t* digest) noexcept nogil
cdef void chain_hash_short(int algorithm, uint8_t* data, size_t size,
                           uint8_t* digest) noexcept nogil
cdef void chain_node(int algorithm, const uint8_t* left, const uint8_t* right,
                     uint8_t* digest) noexcept nogil
cdef bint hashes_side_by_side(int algorithm) noexcept nogil
cdef void chain_hash_beside_node(uint8_t* data, size_t size, uint8_t* digest, const uint8_t* left,
                                 const uint8_t* right, uint8_t* node) noexcept nogil
