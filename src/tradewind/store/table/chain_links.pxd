"""The chain of a tamper-proof stream in memory; the code is in chain_links.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from tradewind.containers.buffer cimport Buffer
from tradewind.store.files.open_files cimport BlockFile
from tradewind.store.format.chain_hash cimport CHAIN_HASH_BYTES

cdef enum:
    PEAKS_MAX = 64
    LEAVES_MAX = 64


cdef class ChainLinks:
    cdef readonly int algorithm
    cdef readonly uint64_t size             # entries so far
    cdef readonly uint64_t last_seq         # of the last message among them; 0: there is none
    cdef readonly uint64_t segment_entries  # so many are in one file
    cdef readonly list begins               # (offset in `pending`, index, link before): new files
    cdef object _clock                      # the time of removals, ns
    cdef uint8_t _link[CHAIN_HASH_BYTES]    # of the last entry
    # The roots of the complete subtrees over all links, the largest first.
    cdef uint8_t _peaks[PEAKS_MAX][CHAIN_HASH_BYTES]
    cdef uint32_t _depth
    # Links that are not in the tree yet, by their number; each entry adds a node at most, so there
    # are no more than the tree has levels.
    cdef uint8_t _leaves[LEAVES_MAX][CHAIN_HASH_BYTES]
    cdef uint64_t _pushed                   # so many links are in the tree, or on their way
    cdef uint8_t _node[CHAIN_HASH_BYTES]    # on its way, if `_has_node`
    cdef bint _has_node
    cdef uint64_t _carry                    # a bit for each subtree that it may complete
    cdef Buffer _pending                    # records that no file has yet
    cdef Buffer _removed                    # pairs of sequences that no entry names yet ...
    cdef int _reason                        # ... and why they went

    cdef int add(self, uint64_t seq, int64_t timestamp, const char* subject,
                 uint32_t subject_size, const char* header, uint32_t header_size,
                 const char* payload, uint32_t payload_size) except -1
    cpdef int remove(self, uint64_t first, uint64_t last, int reason) except -1
    cdef int _begin_entry(self, size_t size) except -1
    cdef int _other(self, uint8_t kind, const char* body, uint32_t size) except -1
    cdef void _push(self) noexcept nogil
    cdef bint _next_node(self) noexcept nogil
    cdef void _settle_tree(self) noexcept nogil
    cpdef bint is_waiting(self) noexcept
