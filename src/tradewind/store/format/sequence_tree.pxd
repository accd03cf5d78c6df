"""The C interface of sets of sequences: what the store calls without holding the interpreter lock.

Declared as a struct inside its owner; `sequences_init` before use, `sequences_free` after.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

cdef enum:
    NODE_SEQUENCES = 2048           # sequences that one node stands for
    NODE_WORDS = 32
    # A tree of 2^32 nodes is at most 46 high.
    HEIGHT_MAX = 64

ctypedef struct SequenceNode:
    uint64_t bits[32]               # bit b of word w is the sequence base + 64 * w + b; never all 0
    uint64_t base                   # a multiple of 2048, unique in the tree
    uint64_t total                  # members in this node and everything below it
    uint32_t left                   # links are the index in `nodes` plus 1; 0 is none
    uint32_t right
    uint16_t count                  # members in this node
    uint16_t height                 # a leaf has 1; those of siblings differ by at most 1

ctypedef struct SequenceTree:
    SequenceNode* nodes             # NULL while capacity is 0
    uint32_t root
    uint32_t free                   # unused nodes below `used`, chained by `left`
    uint32_t used                   # nodes ever handed out
    uint32_t capacity
    uint32_t node_count

cdef void sequences_init(SequenceTree* tree) noexcept nogil
cdef void sequences_free(SequenceTree* tree) noexcept nogil
cdef uint64_t sequences_count(const SequenceTree* tree) noexcept nogil
# 1 if it was added, 0 if it was there, -1 if there is no memory (then nothing changed).
cdef int sequences_insert(SequenceTree* tree, uint64_t seq) noexcept nogil
# Adds first..last, both included; 0, or -1 if there is no memory (then a part may be there).
cdef int sequences_insert_range(
    SequenceTree* tree, uint64_t first, uint64_t last) noexcept nogil
# Whether it was there.
cdef bint sequences_delete(SequenceTree* tree, uint64_t seq) noexcept nogil
# How many members below `seq` there were; all of them are gone.
cdef uint64_t sequences_delete_below(SequenceTree* tree, uint64_t seq) noexcept nogil
cdef bint sequences_contains(const SequenceTree* tree, uint64_t seq) noexcept nogil
# Members below `seq`.
cdef uint64_t sequences_rank(const SequenceTree* tree, uint64_t seq) noexcept nogil
# Members in first..last, both included.
cdef uint64_t sequences_count_in(
    const SequenceTree* tree, uint64_t first, uint64_t last) noexcept nogil
# The lowest member >= seq, or the lowest number >= seq that is none; false if there is none.
cdef bint sequences_next_present(
    const SequenceTree* tree, uint64_t seq, uint64_t* found) noexcept nogil
cdef bint sequences_next_absent(
    const SequenceTree* tree, uint64_t seq, uint64_t* found) noexcept nogil
# False if the set is empty.
cdef bint sequences_last(const SequenceTree* tree, uint64_t* found) noexcept nogil

# Functions with which the codec links nodes itself.

cdef extern from *:
    int __builtin_popcountll(unsigned long long) nogil


cdef inline SequenceNode* at(const SequenceTree* tree, uint32_t link) noexcept nogil:
    return <SequenceNode*>&tree.nodes[link - 1]


cdef inline uint64_t total_of(const SequenceTree* tree, uint32_t link) noexcept nogil:
    return at(tree, link).total if link else 0


cdef inline int height_of(const SequenceTree* tree, uint32_t link) noexcept nogil:
    return at(tree, link).height if link else 0


cdef inline int lean(const SequenceTree* tree, uint32_t link) noexcept nogil:
    """The difference in height between the left and the right side."""
    return height_of(tree, at(tree, link).left) - height_of(tree, at(tree, link).right)


cdef inline void refresh(SequenceTree* tree, SequenceNode* node) noexcept nogil:
    """Recompute what a node knows about the nodes below it."""
    cdef int left = height_of(tree, node.left)
    cdef int right = height_of(tree, node.right)
    node.height = <uint16_t>((left if left > right else right) + 1)
    node.total = total_of(tree, node.left) + total_of(tree, node.right) + node.count


# Room for `capacity` nodes in all; -1 if there is none.
cdef int reserve_nodes(SequenceTree* tree, uint64_t capacity) noexcept nogil
# The link of an empty leaf that nothing links to yet, 0 if there is no memory. May move all nodes.
cdef uint32_t new_node(SequenceTree* tree, uint64_t base) noexcept nogil
# The links from the root to the node of `base`, or to where it belongs; gives their number.
cdef int find_path(const SequenceTree* tree, uint64_t base, uint32_t* path) noexcept nogil
# Restore the invariants of all nodes on a path, from its end to the root.
cdef void balance_path(SequenceTree* tree, const uint32_t* path, int depth) noexcept nogil
