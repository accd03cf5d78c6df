"""The tree of `sequence_set`: bitmaps of 2048 sequences in a balanced tree, without Python.

Owns the nodes, their balance, and every change and query. Never raises: a failed allocation is
reported as -1 and leaves the set unchanged.

An AVL tree in one array, about 290 bytes for up to 2048 members. Every node knows how many members
lie below it, so counting a range and skipping a long run of members take one walk from the root, as
insert, delete and contains do.
"""

from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

cdef extern from *:
    int __builtin_ctzll(unsigned long long) nogil
    int __builtin_clzll(unsigned long long) nogil


cdef inline uint64_t base_of(uint64_t seq) noexcept nogil:
    return seq & ~<uint64_t>(NODE_SEQUENCES - 1)


cdef inline uint64_t low_bits(int count) noexcept nogil:
    """A word with the lowest `count` bits set; count is 0 to 64."""
    return ~<uint64_t>0 if count == 64 else ((<uint64_t>1 << count) - 1)


cdef void sequences_init(SequenceTree* tree) noexcept nogil:
    memset(tree, 0, sizeof(SequenceTree))


cdef void sequences_free(SequenceTree* tree) noexcept nogil:
    free(tree.nodes)
    sequences_init(tree)


cdef uint64_t sequences_count(const SequenceTree* tree) noexcept nogil:
    return total_of(tree, tree.root)


# The tree: nodes, balance.

cdef int reserve_nodes(SequenceTree* tree, uint64_t capacity) noexcept nogil:
    """Reserve room for `capacity` nodes in all; -1 without memory."""
    cdef SequenceNode* nodes
    if capacity <= tree.capacity:
        return 0
    if capacity >> 32:
        return -1
    nodes = <SequenceNode*>realloc(tree.nodes, capacity * sizeof(SequenceNode))
    if nodes == NULL:
        return -1
    tree.nodes = nodes
    tree.capacity = <uint32_t>capacity
    return 0


cdef uint32_t new_node(SequenceTree* tree, uint64_t base) noexcept nogil:
    """Create an empty leaf; returns its link, 0 if there is no memory. May move all nodes."""
    cdef uint32_t link = tree.free
    cdef SequenceNode* node
    if link:
        tree.free = at(tree, link).left
    else:
        # Most sets are of one block and stay small; large ones grow by half.
        if tree.used == tree.capacity and reserve_nodes(
                tree, <uint64_t>tree.capacity + (tree.capacity >> 1) + 1) != 0:
            return 0
        tree.used += 1
        link = tree.used
    node = at(tree, link)
    memset(node, 0, sizeof(SequenceNode))
    node.base = base
    node.height = 1
    tree.node_count += 1
    return link


cdef void drop_node(SequenceTree* tree, uint32_t link) noexcept nogil:
    """Release a node that no link refers to; the last one releases all memory."""
    tree.node_count -= 1
    if tree.node_count == 0:
        sequences_free(tree)
        return
    at(tree, link).left = tree.free
    tree.free = link


cdef uint32_t rotate_left(SequenceTree* tree, uint32_t link) noexcept nogil:
    cdef SequenceNode* node = at(tree, link)
    cdef uint32_t top = node.right
    node.right = at(tree, top).left
    at(tree, top).left = link
    refresh(tree, node)
    refresh(tree, at(tree, top))
    return top


cdef uint32_t rotate_right(SequenceTree* tree, uint32_t link) noexcept nogil:
    cdef SequenceNode* node = at(tree, link)
    cdef uint32_t top = node.left
    node.left = at(tree, top).right
    at(tree, top).right = link
    refresh(tree, node)
    refresh(tree, at(tree, top))
    return top


cdef uint32_t balance(SequenceTree* tree, uint32_t link) noexcept nogil:
    """Restore the invariants of a node whose children hold theirs; returns the new top."""
    cdef SequenceNode* node = at(tree, link)
    cdef int leaning = lean(tree, link)
    if leaning > 1:
        if lean(tree, node.left) < 0:
            node.left = rotate_left(tree, node.left)
        return rotate_right(tree, link)
    if leaning < -1:
        if lean(tree, node.right) > 0:
            node.right = rotate_right(tree, node.right)
        return rotate_left(tree, link)
    refresh(tree, node)
    return link


cdef int find_path(
    const SequenceTree* tree, uint64_t base, uint32_t* path
) noexcept nogil:
    """The links from the root to the node of `base`, or to where it belongs; returns their number.
    """
    cdef int depth = 0
    cdef uint32_t link = tree.root
    cdef SequenceNode* node
    while link:
        path[depth] = link
        depth += 1
        node = at(tree, link)
        if base == node.base:
            break
        link = node.left if base < node.base else node.right
    return depth


cdef void balance_path(SequenceTree* tree, const uint32_t* path, int depth) noexcept nogil:
    """Restore the invariants of all nodes on a path, from its end to the root."""
    cdef uint32_t old, top
    cdef SequenceNode* parent
    while depth > 0:
        depth -= 1
        old = path[depth]
        top = balance(tree, old)
        if depth == 0:
            tree.root = top
        else:
            parent = at(tree, path[depth - 1])
            if parent.left == old:
                parent.left = top
            else:
                parent.right = top


cdef uint32_t attach(
    SequenceTree* tree, uint32_t* path, int* depth, uint64_t base
) noexcept nogil:
    """A new leaf for `base` at the end of its path, which it joins; 0 if there is no memory."""
    cdef uint32_t link = new_node(tree, base)
    cdef SequenceNode* parent
    if link == 0:
        return 0
    if depth[0] == 0:
        tree.root = link
    else:
        parent = at(tree, path[depth[0] - 1])
        if base < parent.base:
            parent.left = link
        else:
            parent.right = link
    path[depth[0]] = link
    depth[0] += 1
    return link


cdef void detach(SequenceTree* tree, uint32_t* path, int depth) noexcept nogil:
    """Remove the node at the end of the path from the tree."""
    cdef uint32_t link = path[depth - 1]
    cdef SequenceNode* node = at(tree, link)
    cdef SequenceNode* heir
    cdef uint32_t heir_link, child
    cdef int position = depth - 1
    if node.left and node.right:
        # The next higher node takes its place; that one has no left child.
        heir_link = node.right
        path[depth] = heir_link
        depth += 1
        while at(tree, heir_link).left:
            heir_link = at(tree, heir_link).left
            path[depth] = heir_link
            depth += 1
        heir = at(tree, heir_link)
        memcpy(node.bits, heir.bits, sizeof(node.bits))
        node.base = heir.base
        node.count = heir.count
        position = depth - 1
        link = heir_link
        node = heir
    child = node.left if node.left else node.right
    if position == 0:
        tree.root = child
    elif at(tree, path[position - 1]).left == link:
        at(tree, path[position - 1]).left = child
    else:
        at(tree, path[position - 1]).right = child
    drop_node(tree, link)
    if tree.nodes != NULL:
        balance_path(tree, path, position)


# Changes.

cdef int sequences_insert(SequenceTree* tree, uint64_t seq) noexcept nogil:
    cdef uint32_t path[HEIGHT_MAX]
    cdef uint64_t base = base_of(seq)
    cdef uint64_t bit = <uint64_t>1 << (seq & 63)
    cdef int word = <int>((seq & (NODE_SEQUENCES - 1)) >> 6)
    cdef int depth = find_path(tree, base, path)
    cdef int i
    cdef SequenceNode* node
    if depth and at(tree, path[depth - 1]).base == base:
        node = at(tree, path[depth - 1])
        if node.bits[word] & bit:
            return 0
        node.bits[word] |= bit
        node.count += 1
        for i in range(depth):
            at(tree, path[i]).total += 1
        return 1
    if attach(tree, path, &depth, base) == 0:
        return -1
    node = at(tree, path[depth - 1])
    node.bits[word] = bit
    node.count = 1
    balance_path(tree, path, depth)
    return 1


cdef void fill_bits(SequenceNode* node, int low, int high) noexcept nogil:
    """Set the bits low..high of a node, both included, and recount."""
    cdef int word, begin, end
    for word in range(low >> 6, (high >> 6) + 1):
        begin = low - 64 * word if low > 64 * word else 0
        end = high - 64 * word + 1 if high < 64 * word + 63 else 64
        node.bits[word] |= low_bits(end) & ~low_bits(begin)
    node.count = 0
    for word in range(NODE_WORDS):
        node.count += <uint16_t>__builtin_popcountll(node.bits[word])


cdef int sequences_insert_range(
    SequenceTree* tree, uint64_t first, uint64_t last
) noexcept nogil:
    cdef uint32_t path[HEIGHT_MAX]
    cdef uint64_t base = base_of(first)
    cdef int depth, low, high
    if first > last:
        return 0
    while True:
        depth = find_path(tree, base, path)
        if depth == 0 or at(tree, path[depth - 1]).base != base:
            if attach(tree, path, &depth, base) == 0:
                return -1
        low = <int>(first - base) if first > base else 0
        high = <int>(last - base) if last - base < NODE_SEQUENCES else NODE_SEQUENCES - 1
        fill_bits(at(tree, path[depth - 1]), low, high)
        balance_path(tree, path, depth)
        if last - base < NODE_SEQUENCES:
            return 0
        base += NODE_SEQUENCES


cdef bint sequences_delete(SequenceTree* tree, uint64_t seq) noexcept nogil:
    cdef uint32_t path[HEIGHT_MAX]
    cdef uint64_t base = base_of(seq)
    cdef uint64_t bit = <uint64_t>1 << (seq & 63)
    cdef int word = <int>((seq & (NODE_SEQUENCES - 1)) >> 6)
    cdef int depth = find_path(tree, base, path)
    cdef int i
    cdef SequenceNode* node
    if depth == 0:
        return False
    node = at(tree, path[depth - 1])
    if node.base != base or not node.bits[word] & bit:
        return False
    if node.count == 1:
        detach(tree, path, depth)
        return True
    node.bits[word] &= ~bit
    node.count -= 1
    for i in range(depth):
        at(tree, path[i]).total -= 1
    return True


cdef uint64_t sequences_delete_below(SequenceTree* tree, uint64_t seq) noexcept nogil:
    cdef uint32_t path[HEIGHT_MAX]
    cdef uint64_t before = sequences_count(tree)
    cdef int depth, word, keep_from
    cdef SequenceNode* node
    while tree.root:
        depth = 0
        path[0] = tree.root
        while at(tree, path[depth]).left:
            path[depth + 1] = at(tree, path[depth]).left
            depth += 1
        node = at(tree, path[depth])
        if node.base >= seq:
            break
        if seq - node.base < NODE_SEQUENCES:
            keep_from = <int>(seq - node.base)
            for word in range(keep_from >> 6):
                node.bits[word] = 0
            node.bits[keep_from >> 6] &= ~low_bits(keep_from & 63)
            node.count = 0
            for word in range(NODE_WORDS):
                node.count += <uint16_t>__builtin_popcountll(node.bits[word])
            if node.count:
                balance_path(tree, path, depth + 1)
                break
        detach(tree, path, depth + 1)
    return before - sequences_count(tree)


# Questions.

cdef bint sequences_contains(const SequenceTree* tree, uint64_t seq) noexcept nogil:
    cdef uint32_t link = tree.root
    cdef uint64_t base = base_of(seq)
    cdef SequenceNode* node
    while link:
        node = at(tree, link)
        if node.base == base:
            return (node.bits[(seq & (NODE_SEQUENCES - 1)) >> 6] >> (seq & 63)) & 1
        link = node.left if base < node.base else node.right
    return False


cdef int count_below(const SequenceNode* node, int position) noexcept nogil:
    """Count the members of a node before bit `position`, which is 0 to 2047."""
    cdef int word, count = 0
    for word in range(position >> 6):
        count += __builtin_popcountll(node.bits[word])
    return count + __builtin_popcountll(
        node.bits[position >> 6] & low_bits(position & 63))


cdef uint64_t sequences_rank(const SequenceTree* tree, uint64_t seq) noexcept nogil:
    cdef uint32_t link = tree.root
    cdef uint64_t base = base_of(seq)
    cdef uint64_t rank = 0
    cdef SequenceNode* node
    while link:
        node = at(tree, link)
        if base < node.base:
            link = node.left
            continue
        rank += total_of(tree, node.left)
        if base == node.base:
            return rank + count_below(node, <int>(seq - base))
        rank += node.count
        link = node.right
    return rank


cdef uint64_t sequences_count_in(
    const SequenceTree* tree, uint64_t first, uint64_t last
) noexcept nogil:
    if first > last:
        return 0
    return (sequences_rank(tree, last) + sequences_contains(tree, last)
            - sequences_rank(tree, first))


cdef int next_bit(const SequenceNode* node, int position, bint wanted) noexcept nogil:
    """The first position from `position` on whose bit is `wanted`, 2048 if there is none."""
    cdef int word = position >> 6
    cdef uint64_t flip = 0 if wanted else ~<uint64_t>0
    cdef uint64_t bits = (node.bits[word] ^ flip) & ~low_bits(position & 63)
    while bits == 0:
        word += 1
        if word == NODE_WORDS:
            return NODE_SEQUENCES
        bits = node.bits[word] ^ flip
    return 64 * word + __builtin_ctzll(bits)


cdef bint sequences_next_present(
    const SequenceTree* tree, uint64_t seq, uint64_t* found
) noexcept nogil:
    cdef uint32_t link = tree.root
    cdef uint32_t higher = 0
    cdef uint64_t base = base_of(seq)
    cdef SequenceNode* node
    cdef int position
    while link:
        node = at(tree, link)
        if base == node.base:
            position = next_bit(node, <int>(seq - base), True)
            if position < NODE_SEQUENCES:
                found[0] = base + position
                return True
        if base < node.base:
            higher = link
            link = node.left
        else:
            link = node.right
    if higher == 0:
        return False
    node = at(tree, higher)
    found[0] = node.base + next_bit(node, 0, True)
    return True


cdef bint sequences_next_absent(
    const SequenceTree* tree, uint64_t seq, uint64_t* found
) noexcept nogil:
    """Find the first absent number by a walk to the first node where fewer members lie between than
    there is room for.

    Everything from `seq` to the start of a node is in the set exactly if as many members lie there
    as there are numbers; so each step knows on which side the first gap is.
    """
    cdef uint32_t link = tree.root
    cdef uint64_t before = 0
    cdef uint64_t rank = sequences_rank(tree, seq)
    cdef uint64_t run_end = seq     # nothing is absent from `seq` up to here, excluded
    cdef SequenceNode* node
    cdef int position
    while link:
        node = at(tree, link)
        if node.base > seq and before + total_of(tree, node.left) - rank != node.base - seq:
            link = node.left
            continue
        before += total_of(tree, node.left) + node.count
        if node.base >= seq or seq - node.base < NODE_SEQUENCES:
            position = <int>(seq - node.base) if node.base < seq else 0
            position = next_bit(node, position, False)
            if position < NODE_SEQUENCES:
                found[0] = node.base + position
                return True
            if node.base == base_of(~<uint64_t>0):
                return False
            run_end = node.base + NODE_SEQUENCES
        link = node.right
    found[0] = run_end
    return True


cdef bint sequences_last(const SequenceTree* tree, uint64_t* found) noexcept nogil:
    cdef uint32_t link = tree.root
    cdef SequenceNode* node
    cdef int word = NODE_WORDS - 1
    if link == 0:
        return False
    while at(tree, link).right:
        link = at(tree, link).right
    node = at(tree, link)
    while node.bits[word] == 0:
        word -= 1
    found[0] = node.base + 64 * word + 63 - __builtin_clzll(node.bits[word])
    return True
