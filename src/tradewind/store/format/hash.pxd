"""HighwayHash-64 for compiled callers; the explanation is in hash.pyx."""

from libc.stdint cimport uint8_t, uint64_t

# In C, because the vector code in hash.pyx uses both and is compiled before Cython's own structs.
cdef extern from *:
    """
    typedef struct { uint64_t v0[4], v1[4]; } TradewindHashKey;
    typedef struct { const char *data; size_t size; } TradewindHashPart;
    """
    # The state before the first byte, which is all that depends on the key.
    ctypedef struct HashKey "TradewindHashKey":
        uint64_t v0[4]
        uint64_t v1[4]
    ctypedef struct Part "TradewindHashPart":
        const char* data
        size_t size


cdef void hash_key_init(HashKey* key, const uint8_t* key_bytes) noexcept nogil
cdef uint64_t hash_bytes64(const HashKey* key, const char* data, size_t size) noexcept nogil
cdef uint64_t hash_parts(const HashKey* key, const Part* parts, int count) noexcept nogil


cdef class Key:
    cdef HashKey state

    cdef bytes _hash_parts(self, parts, bint vectored)
