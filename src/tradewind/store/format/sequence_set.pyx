"""A set of sequences: which messages inside a stream or block are deleted.

Owns the set as Python sees it and its official encoding (the deletes of a block in index.db); the
structure is `sequence_tree`. Never touches the disk and knows nothing of messages.

    encoded:  22, version 2 | u32 LE nodes | u32 LE members | nodes
    a node:   u64 LE base | 32 x u64 LE bitmap | u16 LE height         (266 bytes)

Nodes are written in pre-order (node, left, right), because the official server rebuilds the tree
from that order without balancing it. Version 1, which is only read, has 64 words per bitmap.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from tradewind.store.format.sequence_tree cimport (
    HEIGHT_MAX,
    NODE_SEQUENCES,
    NODE_WORDS,
    SequenceNode,
    __builtin_popcountll,
    at,
    balance_path,
    find_path,
    height_of,
    lean,
    new_node,
    refresh,
    reserve_nodes,
    sequences_contains,
    sequences_count,
    sequences_count_in,
    sequences_delete,
    sequences_delete_below,
    sequences_free,
    sequences_init,
    sequences_insert,
    sequences_insert_range,
    sequences_last,
    sequences_next_absent,
    sequences_next_present,
    total_of,
)

from tradewind.errors import CorruptRecord

cdef extern from *:
    int __builtin_ctzll(unsigned long long) nogil

cdef enum:
    MAGIC = 22
    VERSION_1 = 1
    VERSION_2 = 2
    VERSION_1_NODE_BYTES = 522


cdef inline void put_little(uint8_t* target, uint64_t value, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        target[i] = <uint8_t>(value >> (8 * i))


cdef inline uint64_t get_little(const uint8_t* source, int size) noexcept nogil:
    cdef uint64_t value = 0
    cdef int i
    for i in range(size):
        value |= <uint64_t>source[i] << (8 * i)
    return value


cdef size_t sequences_encoded_bytes(const SequenceTree* tree) noexcept nogil:
    return ENCODED_HEAD_BYTES + <size_t>ENCODED_NODE_BYTES * tree.node_count


cdef void sequences_encode(const SequenceTree* tree, uint8_t* target) noexcept nogil:
    cdef uint32_t waiting[HEIGHT_MAX]
    cdef uint32_t link = tree.root
    cdef SequenceNode* node
    cdef int depth = 0
    cdef int word
    target[0] = MAGIC
    target[1] = VERSION_2
    put_little(target + 2, tree.node_count, 4)
    put_little(target + 6, sequences_count(tree), 4)
    target += ENCODED_HEAD_BYTES
    while link or depth:
        if link == 0:
            depth -= 1
            link = waiting[depth]
        node = at(tree, link)
        put_little(target, node.base, 8)
        for word in range(NODE_WORDS):
            put_little(target + 8 + 8 * word, node.bits[word], 8)
        put_little(target + 264, node.height, 2)
        target += ENCODED_NODE_BYTES
        if node.right:
            waiting[depth] = node.right
            depth += 1
        link = node.left


cdef bint keep_shape(SequenceTree* tree) noexcept nogil:
    """Link the nodes, stored in pre-order, in their old shape; false if they are not in such an
    order.

    Also false if the tree would not be balanced: then it is rebuilt.
    """
    cdef uint32_t open_links[HEIGHT_MAX]
    cdef int depth = 0
    cdef uint32_t link, parent
    cdef uint64_t base, above = 0
    cdef bint has_above = False
    for link in range(1, tree.used + 1):
        base = at(tree, link).base
        if has_above and base <= above:
            return False
        parent = 0
        if depth and base > at(tree, open_links[depth - 1]).base:
            while depth and base > at(tree, open_links[depth - 1]).base:
                depth -= 1
                parent = open_links[depth]
            above = at(tree, parent).base
            has_above = True
            at(tree, parent).right = link
        elif depth:
            if base == at(tree, open_links[depth - 1]).base:
                return False
            at(tree, open_links[depth - 1]).left = link
        if depth == HEIGHT_MAX:
            return False
        open_links[depth] = link
        depth += 1
    # Children come after their parent, so this goes from the leaves to the root.
    for link in range(tree.used, 0, -1):
        refresh(tree, at(tree, link))
        if not -1 <= lean(tree, link) <= 1:
            return False
    tree.root = 1
    return True


cdef int rebuild(SequenceTree* tree) noexcept nogil:
    """Insert nodes in any order one by one; -1 if a base occurs twice."""
    cdef uint32_t path[HEIGHT_MAX]
    cdef uint32_t link
    cdef int depth
    cdef SequenceNode* node
    cdef SequenceNode* parent
    tree.root = 0
    for link in range(1, tree.used + 1):
        node = at(tree, link)
        node.left = 0
        node.right = 0
        refresh(tree, node)
        depth = find_path(tree, node.base, path)
        if depth == 0:
            tree.root = link
            continue
        parent = at(tree, path[depth - 1])
        if parent.base == node.base:
            return -1
        if node.base < parent.base:
            parent.left = link
        else:
            parent.right = link
        balance_path(tree, path, depth)
    return 0


cdef int decode_aligned(
    SequenceTree* tree, const uint8_t* source, uint32_t nodes
) noexcept nogil:
    """Read version 2 nodes with proper bases; -1 no memory, -2 a base twice."""
    cdef uint32_t _, link
    cdef int word
    cdef SequenceNode* node
    if reserve_nodes(tree, nodes) != 0:
        return -1
    for _ in range(nodes):
        link = new_node(tree, get_little(source, 8))
        node = at(tree, link)
        for word in range(NODE_WORDS):
            node.bits[word] = get_little(source + 8 + 8 * word, 8)
            node.count += <uint16_t>__builtin_popcountll(node.bits[word])
        source += ENCODED_NODE_BYTES
    if tree.used and not keep_shape(tree) and rebuild(tree) != 0:
        return -2
    return 0


cdef int decode_by_member(
    SequenceTree* tree, const uint8_t* source, uint32_t nodes, int words
) noexcept nogil:
    """Read nodes of any base and width one member at a time; -1 no memory, -2 one occurs twice."""
    cdef uint32_t _
    cdef uint64_t base, bits, offset
    cdef int word, added
    for _ in range(nodes):
        base = get_little(source, 8)
        source += 8
        for word in range(words):
            bits = get_little(source, 8)
            source += 8
            while bits:
                offset = 64 * <uint64_t>word + __builtin_ctzll(bits)
                if offset > ~<uint64_t>0 - base:
                    return -2
                added = sequences_insert(tree, base + offset)
                if added < 0:
                    return -1
                if added == 0:
                    return -2
                bits &= bits - 1
        source += 2
    return 0


cdef bint is_aligned(const uint8_t* source, uint32_t nodes) noexcept nogil:
    """Whether every base is a multiple of 2048 and no node is empty, as all recent writers do."""
    cdef uint32_t _
    cdef int word
    cdef uint64_t any_bit
    for _ in range(nodes):
        if get_little(source, 8) & (NODE_SEQUENCES - 1):
            return False
        any_bit = 0
        for word in range(NODE_WORDS):
            any_bit |= get_little(source + 8 + 8 * word, 8)
        if any_bit == 0:
            return False
        source += ENCODED_NODE_BYTES
    return True


cdef int sequences_decode(
    SequenceTree* tree, const uint8_t* source, uint32_t nodes, int version
) noexcept nogil:
    """Fill an empty tree from encoded nodes; 0, -1 no memory, -2 they contradict each other."""
    if version == VERSION_1:
        return decode_by_member(tree, source, nodes, 2 * NODE_WORDS)
    if is_aligned(source, nodes):
        return decode_aligned(tree, source, nodes)
    return decode_by_member(tree, source, nodes, NODE_WORDS)


cdef class SequenceSet:
    """A set of numbers from 0 to 2^64 - 1; see the module for its costs.

    Iteration returns ascending sequences; changes made meanwhile are reflected.
    """

    def __cinit__(self):
        sequences_init(&self.tree)

    def __dealloc__(self):
        sequences_free(&self.tree)

    @staticmethod
    def decode(data: bytes, offset: int = 0, end=None, path: str = "sequence set") -> tuple:
        """Decode the set that starts at byte `offset`; returns it and the offset after it.

        Nothing from byte `end` on is read. CorruptRecord if it is truncated or contradicts itself;
        nothing is allocated before the sizes are known to fit.
        """
        cdef const uint8_t* source = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef Py_ssize_t start = offset
        cdef Py_ssize_t left = (len(data) if end is None else end) - start
        cdef Py_ssize_t node_bytes
        cdef uint32_t nodes
        cdef uint64_t members
        cdef int version, outcome
        cdef SequenceSet result = SequenceSet.__new__(SequenceSet)
        if not 0 <= start <= start + left <= len(data):
            raise ValueError(f"bytes {start} to {start + left} of {len(data)}")
        if left < ENCODED_HEAD_BYTES:
            raise CorruptRecord(
                path, start, f"a sequence set has at least 10 bytes, here are {left}")
        source += start
        version = source[1]
        if source[0] != MAGIC or not (version == VERSION_1 or version == VERSION_2):
            raise CorruptRecord(
                path, start,
                f"a sequence set starts with 22 and 1 or 2, not with {source[0]} and {version}")
        nodes = <uint32_t>get_little(source + 2, 4)
        members = get_little(source + 6, 4)
        node_bytes = VERSION_1_NODE_BYTES if version == VERSION_1 else ENCODED_NODE_BYTES
        if nodes > (left - ENCODED_HEAD_BYTES) // node_bytes:
            raise CorruptRecord(
                path, start + 2, f"{nodes} nodes of a sequence set do not fit in {left} bytes")
        with nogil:
            outcome = sequences_decode(&result.tree, source + ENCODED_HEAD_BYTES, nodes, version)
        if outcome == -1:
            raise MemoryError
        if outcome == -2:
            raise CorruptRecord(
                path, start, "nodes of a sequence set overlap or lie beyond 64 bits")
        if sequences_count(&result.tree) & 0xFFFFFFFF != members:
            raise CorruptRecord(
                path, start + 6,
                f"a sequence set says it has {members} members, its bitmaps have "
                f"{sequences_count(&result.tree)}")
        return result, start + ENCODED_HEAD_BYTES + nodes * node_bytes

    def encode(self) -> bytes:
        """The set in version 2 of the official format."""
        cdef bytes encoded = PyBytes_FromStringAndSize(
            NULL, sequences_encoded_bytes(&self.tree))
        sequences_encode(&self.tree, <uint8_t*>PyBytes_AS_STRING(encoded))
        return encoded

    def insert(self, uint64_t seq) -> bool:
        """Add a member; returns whether it was new."""
        cdef int added = sequences_insert(&self.tree, seq)
        if added < 0:
            raise MemoryError
        return added == 1

    def insert_range(self, uint64_t first, uint64_t last) -> None:
        """Add first..last, both included; costs memory and time for every 2048 of them.

        For tests, as `delete_below` and `count_in`: blocks call the functions of `sequence_tree`.
        """
        if sequences_insert_range(&self.tree, first, last) != 0:
            raise MemoryError

    def delete(self, uint64_t seq) -> bool:
        """Remove a member; returns whether it was present."""
        return sequences_delete(&self.tree, seq)

    def delete_below(self, uint64_t seq) -> int:
        """Remove everything lower than `seq`; returns the number of members removed."""
        return sequences_delete_below(&self.tree, seq)

    def clear(self) -> None:
        """Remove everything."""
        sequences_free(&self.tree)

    def __contains__(self, uint64_t seq) -> bool:
        return sequences_contains(&self.tree, seq)

    def __len__(self) -> int:
        return sequences_count(&self.tree)

    def __iter__(self):
        cdef uint64_t seq = 0
        while sequences_next_present(&self.tree, seq, &seq):
            yield seq
            if seq == ~<uint64_t>0:
                return
            seq += 1

    def __eq__(self, other) -> bool:
        if not isinstance(other, SequenceSet):
            return NotImplemented
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other))

    def __repr__(self) -> str:
        return f"SequenceSet({self.count} from {self.first} to {self.last})"

    @property
    def count(self) -> int:
        """Number of members."""
        return sequences_count(&self.tree)

    @property
    def first(self) -> int | None:
        """The lowest member, None if there is none."""
        return self.next_present(0)

    @property
    def last(self) -> int | None:
        """The highest member, None if there is none."""
        cdef uint64_t found
        return found if sequences_last(&self.tree, &found) else None

    @property
    def node_count(self) -> int:
        """Number of bitmaps."""
        return self.tree.node_count

    @property
    def memory_bytes(self) -> int:
        """Memory held for the bitmaps."""
        return self.tree.capacity * sizeof(SequenceNode)

    def count_in(self, uint64_t first, uint64_t last) -> int:
        """Number of members in first..last, both included."""
        return sequences_count_in(&self.tree, first, last)

    def next_present(self, uint64_t seq) -> int | None:
        """The lowest member that is `seq` or higher, None if there is none."""
        cdef uint64_t found
        return found if sequences_next_present(&self.tree, seq, &found) else None

    def next_absent(self, uint64_t seq) -> int | None:
        """The lowest number from `seq` on that is not a member; None if all up to 2^64 - 1 are."""
        cdef uint64_t found
        return found if sequences_next_absent(&self.tree, seq, &found) else None

    def check(self) -> None:
        """Assert every invariant of the tree; for tests."""
        assert self._check_below(self.tree.root, None, None) == self.tree.node_count
        assert self.tree.node_count <= self.tree.used <= self.tree.capacity

    def _check_below(self, uint32_t link, lowest, highest) -> int:
        """Assert the invariants of a subtree whose bases lie strictly between the limits."""
        cdef SequenceNode* node
        cdef int word
        cdef int count = 0
        if link == 0:
            return 0
        assert link <= self.tree.used
        node = at(&self.tree, link)
        assert node.base % NODE_SEQUENCES == 0
        assert lowest is None or node.base > lowest
        assert highest is None or node.base < highest
        for word in range(NODE_WORDS):
            count += __builtin_popcountll(node.bits[word])
        assert node.count == count > 0
        assert -1 <= lean(&self.tree, link) <= 1
        assert node.height == 1 + max(
            height_of(&self.tree, node.left), height_of(&self.tree, node.right))
        assert node.total == count + total_of(&self.tree, node.left) + total_of(
            &self.tree, node.right)
        return (1 + self._check_below(node.left, lowest, node.base)
                + self._check_below(node.right, node.base, highest))
