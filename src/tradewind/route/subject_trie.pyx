"""The trie of a sublist: nodes for tokens, and the walks that find what matches a subject.

Owns the nodes, but not the subscriptions that they list. The module knows neither the cache nor
what a subscription is for.

A node stands for one or more tokens, its *label*: tokens that no other subscription shares, or that
all of them share, need no nodes of their own. So the number of nodes depends on the number of
subscriptions and hardly on their length, and comparing a label costs about as much as reading it.

Invariants
- a node is in the trie only while it, or a node below it, holds a subscription;
- a node other than the root that holds none has at least two branches, or '>', or a label that
  would be longer than LABEL_BYTES_MAX together with that of its only child;
- a label has at least one token; more than one only up to LABEL_BYTES_MAX, so dividing and joining
  labels costs little even beside very long ones;
- '>' has a node of its own;
- siblings differ in the first tokens of their labels, by which `children` finds them;
- `walked` counts what all walks have cost: one for each node, and one for each 16 bytes of a longer
  label, which is some 50 ns. The code that runs a peer's input checks how much it has risen.
"""

from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy
from tradewind.containers.table cimport (
    table_at, table_find, table_free, table_hash, table_init, table_insert, table_remove,
    table_replace, table_room)
from tradewind.route.members cimport (
    QueueGroup, array_extend, groups_find, groups_free, groups_name_last, groups_push)

cdef enum:
    LABEL_BYTES_MAX = 256
    LABEL_BYTES_PER_STEP_BITS = 4
    NO_MATCH = 0xFFFFFFFF
    # The cost for Python code of comparing a subject with a rule, in steps of a walk.
    RULE_STEPS = 12
    RULE_BYTES_PER_STEP_BITS = 3

walked = 0


cpdef void charge_rules(uint64_t count, uint32_t size) noexcept:
    """Count a comparison of a subject of `size` bytes with `count` rules by Python code."""
    global walked
    walked += count * (RULE_STEPS + (size >> RULE_BYTES_PER_STEP_BITS))


def steps():
    """The steps counted so far, for tests."""
    return walked


cdef inline uint32_t token_end(const char* subject, uint32_t start, uint32_t size) noexcept nogil:
    while start < size and subject[start] != DOT:
        start += 1
    return start


cdef bint label_has_star(const char* label, uint32_t size) noexcept nogil:
    """Whether a token after the first one is '*'."""
    cdef uint32_t index
    for index in range(2, size):
        if label[index] == STAR and label[index - 1] == DOT \
                and (index + 1 == size or label[index + 1] == DOT):
            return True
    return False


cdef Node* node_new(Node* parent, const char* label, uint32_t size, uint64_t seed) noexcept nogil:
    cdef Node* node = <Node*>calloc(1, sizeof(Node) + size)
    if node == NULL:
        return NULL
    table_init(&node.children, seed)
    node.parent = parent
    node.label = <char*>(node + 1)
    node.label_size = size
    node.has_star = label_has_star(label, size)
    memcpy(node.label, label, size)
    return node


cdef void node_free(Node* node) noexcept nogil:
    free(node.plain.items)
    groups_free(&node.groups)
    table_free(&node.children)
    free(node.block)
    free(node)


cdef bint node_is_empty(const Node* node) noexcept nogil:
    return (node.plain.count == 0 and node.groups.count == 0 and node.children.count == 0
            and node.star == NULL and node.tail == NULL)


cdef bint is_star(const char* label, uint32_t size) noexcept nogil:
    """Whether the first token of a label is '*'."""
    return label[0] == STAR and (size == 1 or label[1] == DOT)


cdef int node_attach(Node* parent, Node* child) noexcept nogil:
    """Enter a new child under the first token of its label; -1 without memory."""
    cdef uint32_t size
    if child.label_size == 1 and child.label[0] == TAIL:
        parent.tail = child
    elif is_star(child.label, child.label_size):
        parent.star = child
    else:
        size = token_end(child.label, 0, child.label_size)
        return table_insert(&parent.children, table_hash(&parent.children, child.label, size),
                            child.label, size, child)
    return 0


cdef void node_detach(Node* node) noexcept nogil:
    """Remove a node from its parent."""
    cdef Node* parent = node.parent
    cdef uint32_t size
    if parent.star == node:
        parent.star = NULL
    elif parent.tail == node:
        parent.tail = NULL
    else:
        size = token_end(node.label, 0, node.label_size)
        table_remove(&parent.children, table_hash(&parent.children, node.label, size), node.label,
                     size)


cdef void node_replace(Node* node, Node* other) noexcept nogil:
    """Replace a node in its parent by another one, whose label begins with the same token."""
    cdef Node* parent = node.parent
    cdef uint32_t size
    other.parent = parent
    if parent.star == node:
        parent.star = other
    else:
        size = token_end(other.label, 0, other.label_size)
        table_replace(&parent.children, table_hash(&parent.children, other.label, size),
                      other.label, size, other)


cdef Node* node_split(Node* node, uint32_t size) noexcept nogil:
    """Divide a node's label after its first `size` bytes, which end a token, and return the new
    node above it; NULL without memory, and then nothing has changed.
    """
    cdef Node* above = node_new(node.parent, node.label, size, node.children.seed)
    if above == NULL:
        return NULL
    node.label += size + 1
    node.label_size -= size + 1
    if node_attach(above, node) != 0:
        node.label -= size + 1
        node.label_size += size + 1
        node_free(above)
        return NULL
    node_replace(node, above)
    node.parent = above
    node.has_star = label_has_star(node.label, node.label_size)
    return above


cdef void node_join(Node* node) noexcept nogil:
    """Undo `node_split`: move the label of a node that holds nothing into its only child, unless it
    would become too long. Without memory the two stay separate.
    """
    cdef Node* child = node.star
    cdef uint32_t index, size
    cdef char* block
    if node.plain.count or node.groups.count or node.tail != NULL \
            or node.children.count + (node.star != NULL) != 1:
        return
    for index in range(table_room(&node.children)):
        if table_at(&node.children, index) != NULL:
            child = <Node*>table_at(&node.children, index)
    size = node.label_size + 1 + child.label_size
    if size > LABEL_BYTES_MAX:
        return
    block = <char*>malloc(size)
    if block == NULL:
        return
    memcpy(block, node.label, node.label_size)
    block[node.label_size] = DOT
    memcpy(block + node.label_size + 1, child.label, child.label_size)
    child.label = block
    child.label_size = size
    child.has_star = label_has_star(block, size)
    node_replace(node, child)
    free(child.block)
    child.block = block
    node_free(node)


cdef void tree_free(Node* node) noexcept nogil:
    """Free a whole tree without recursion, because a peer controls its depth."""
    cdef Node* stop = node.parent
    cdef Node* next_node
    while node != stop:
        next_node = NULL
        if node.star != NULL:
            next_node = node.star
            node.star = NULL
        elif node.tail != NULL:
            next_node = node.tail
            node.tail = NULL
        # The table is not used again, so visited slots can be dropped.
        while next_node == NULL and table_room(&node.children):
            next_node = <Node*>table_at(&node.children, table_room(&node.children) - 1)
            if node.children.old != NULL and node.children.old.capacity:
                node.children.old.capacity -= 1
            else:
                node.children.capacity -= 1
        if next_node == NULL:
            next_node = node.parent
            node_free(node)
        node = next_node


cdef int match_add_node(Match* match, Node* node) noexcept nogil:
    """Add all subscriptions of one node; queue groups merge by name."""
    cdef uint32_t index
    cdef bint is_new
    cdef QueueGroup* source
    cdef QueueGroup* target
    if node.plain.count and array_extend(&match.plain, &node.plain) != 0:
        return -1
    for index in range(node.groups.count):
        source = &node.groups.items[index]
        target = groups_find(&match.groups, source.members.items[0].queue,
                             source.members.items[0].queue_size)
        is_new = target == NULL
        if is_new:
            target = groups_push(&match.groups)
            if target == NULL:
                return -1
        if array_extend(&target.members, &source.members) != 0:
            if target.members.count == 0:
                match.groups.count -= 1
            return -1
        if is_new:
            groups_name_last(&match.groups, node.children.seed)
    return 0


cdef inline Node* child_for(const Node* node, const char* token, uint32_t size) noexcept nogil:
    """The child for a token of a published subject, where '*' and '>' are ordinary tokens."""
    if node.children.count == 0:
        return NULL
    return <Node*>table_find(&node.children, table_hash(&node.children, token, size), token, size)


cdef inline Node* child_of_pattern(const Node* node, const char* token,
                                   uint32_t size) noexcept nogil:
    """The child for a token of a subscription."""
    if size == 1 and token[0] == STAR:
        return node.star
    if size == 1 and token[0] == TAIL:
        return node.tail
    return child_for(node, token, size)


cdef uint32_t common_tokens(const char* label, uint32_t label_size, const char* pattern,
                            uint32_t size) noexcept nogil:
    """How many bytes of whole tokens a label and the rest of a pattern have in common; the first
    token is known to be the same.
    """
    cdef uint32_t index = 0, common = 0
    while index < label_size and index < size and label[index] == pattern[index]:
        if label[index] == DOT:
            common = index
        index += 1
    if (index == label_size or label[index] == DOT) and (index == size or pattern[index] == DOT):
        common = index
    return common


cdef uint32_t label_end(const char* pattern, uint32_t start, uint32_t size) noexcept nogil:
    """The end of the label of a new node that begins at `start`: before '>', which has a node of
    its own, and as late as a label may.
    """
    cdef uint32_t end = token_end(pattern, start, size), following
    while end < size:
        following = token_end(pattern, end + 1, size)
        if following - start > LABEL_BYTES_MAX \
                or (following == end + 2 and pattern[end + 1] == TAIL):
            break
        end = following
    return end


cdef Node* node_reach(Node* node, const char* pattern, uint32_t size, Node** last) noexcept nogil:
    """The node below `node` for exactly this pattern, created if necessary; NULL without memory.
    `last` is then the last node on the way there.
    """
    cdef uint32_t start = 0, end, common
    cdef Node* child
    while True:
        last[0] = node
        end = token_end(pattern, start, size)
        child = child_of_pattern(node, pattern + start, end - start)
        if child == NULL:
            end = label_end(pattern, start, size)
            child = node_new(node, pattern + start, end - start, node.children.seed)
            if child == NULL:
                return NULL
            if node_attach(node, child) != 0:
                node_free(child)
                return NULL
        else:
            common = common_tokens(child.label, child.label_size, pattern + start, size - start)
            if common < child.label_size:
                child = node_split(child, common)
                if child == NULL:
                    return NULL
            end = start + common
        if end == size:
            return child
        node = child
        start = end + 1


cdef Node* node_at(Node* node, const char* pattern, uint32_t size) noexcept nogil:
    """The node below `node` that holds subscriptions to exactly this pattern; NULL if there is
    none.
    """
    cdef uint32_t start = 0, end
    while True:
        end = token_end(pattern, start, size)
        node = child_of_pattern(node, pattern + start, end - start)
        if node == NULL or node.label_size > size - start \
                or memcmp(node.label, pattern + start, node.label_size) != 0:
            return NULL
        start += node.label_size
        if start == size:
            return node
        if pattern[start] != DOT:
            return NULL
        start += 1


cdef inline uint32_t follow(const Node* node, uint32_t first, const char* subject, uint32_t end,
                            uint32_t size) noexcept nogil:
    """The end of the tokens of a subject that match a node's label, or NO_MATCH. The first token
    matches: it has `first` bytes in the label and ends at `end` in the subject.
    """
    if node.label_size == first:
        return end
    return follow_rest(node, first, subject, end, size)


cdef uint32_t follow_rest(const Node* node, uint32_t first, const char* subject, uint32_t end,
                          uint32_t size) noexcept nogil:
    global walked
    cdef const char* label = node.label
    cdef uint32_t at = first, stop = node.label_size
    walked += (stop - at) >> LABEL_BYTES_PER_STEP_BITS
    if not node.has_star:
        if stop - at > size - end or memcmp(label + at, subject + end, stop - at) != 0:
            return NO_MATCH
        end += stop - at
        return end if end == size or subject[end] == DOT else <uint32_t>NO_MATCH
    # Both are always at the end of a token here.
    while at < stop:
        if end == size:
            return NO_MATCH
        at += 1
        end += 1
        if is_star(label + at, stop - at):
            at += 1
            end = token_end(subject, end, size)
            continue
        while at < stop and label[at] != DOT:
            if end == size or subject[end] != label[at]:
                return NO_MATCH
            at += 1
            end += 1
        if end < size and subject[end] != DOT:
            return NO_MATCH
    return end


# Both walks below iterate and recurse only where both a token and '*' have a branch, so a peer that
# wants a deep C stack needs a long subject for every frame of it.

cdef int collect(Node* node, const char* subject, uint32_t start, uint32_t size,
                 Match* match) noexcept nogil:
    """Add everything below `node` that matches the tokens from `start` on; -1 without memory."""
    global walked
    cdef uint32_t end, child_end = NO_MATCH, star_end = NO_MATCH
    cdef Node* child
    cdef Node* star
    while True:
        walked += 1
        end = token_end(subject, start, size)
        if node.tail != NULL and match_add_node(match, node.tail) != 0:
            return -1
        child = child_for(node, subject + start, end - start)
        if child != NULL:
            child_end = follow(child, end - start, subject, end, size)
            if child_end >= size:
                if child_end == size and match_add_node(match, child) != 0:
                    return -1
                child = NULL
        star = node.star
        if star != NULL:
            star_end = follow(star, 1, subject, end, size)
            if star_end >= size:
                if star_end == size and match_add_node(match, star) != 0:
                    return -1
                star = NULL
        if child != NULL:
            if star == NULL:
                node = child
                start = child_end + 1
                continue
            if collect(child, subject, child_end + 1, size, match) != 0:
                return -1
        elif star == NULL:
            return 0
        node = star
        start = star_end + 1


cdef bint any_below(const Node* node, const char* subject, uint32_t start,
                    uint32_t size) noexcept nogil:
    """Whether at least one subscription below `node` matches; stops at the first."""
    global walked
    cdef uint32_t end, child_end = NO_MATCH, star_end = NO_MATCH
    cdef const Node* child
    cdef const Node* star
    while True:
        walked += 1
        if node.tail != NULL:
            return True
        end = token_end(subject, start, size)
        child = child_for(node, subject + start, end - start)
        if child != NULL:
            child_end = follow(child, end - start, subject, end, size)
            if child_end == size and (child.plain.count or child.groups.count):
                return True
            if child_end >= size:
                child = NULL
        star = node.star
        if star != NULL:
            star_end = follow(star, 1, subject, end, size)
            if star_end == size and (star.plain.count or star.groups.count):
                return True
            if star_end >= size:
                star = NULL
        if child != NULL:
            if star == NULL:
                node = child
                start = child_end + 1
                continue
            if any_below(child, subject, child_end + 1, size):
                return True
        elif star == NULL:
            return False
        node = star
        start = star_end + 1
