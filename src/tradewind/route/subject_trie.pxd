"""The nodes of the subject trie; the code and the explanation are in subject_trie.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from tradewind.containers.table cimport Table
from tradewind.route.members cimport GroupArray, Match, SubscriptionArray

cdef enum:
    DOT = 46
    STAR = 42
    TAIL = 62

ctypedef struct Node:
    # The fields that every walk reads come first.
    Table children          # first token of the label -> Node*
    Node* star              # the child whose label begins with '*'
    Node* tail              # '>'
    char* label             # the tokens of this node: after the struct, or in `block`
    uint32_t label_size
    uint8_t has_star        # a token of the label after the first one is '*'
    SubscriptionArray plain
    GroupArray groups
    Node* parent
    char* block             # owned: memory for a label that has grown; NULL: it has not


# Steps of all walks so far, including those added for work whose cost also depends on the number of
# subscriptions or rules.
cdef uint64_t walked

cpdef void charge_rules(uint64_t count, uint32_t size) noexcept


cdef Node* node_new(Node* parent, const char* label, uint32_t size, uint64_t seed) noexcept nogil
cdef void node_free(Node* node) noexcept nogil
cdef bint node_is_empty(const Node* node) noexcept nogil
cdef void node_detach(Node* node) noexcept nogil
cdef void node_join(Node* node) noexcept nogil
cdef Node* node_reach(Node* node, const char* pattern, uint32_t size, Node** last) noexcept nogil
cdef Node* node_at(Node* node, const char* pattern, uint32_t size) noexcept nogil
cdef void tree_free(Node* node) noexcept nogil
cdef int collect(Node* node, const char* subject, uint32_t start, uint32_t size,
                 Match* match) noexcept nogil
cdef bint any_below(const Node* node, const char* subject, uint32_t start,
                    uint32_t size) noexcept nogil
