"""The grammar of leaf connections; the code is in leaf_parser.pyx."""

from tradewind.wire.parser cimport Operation, ParserState

# Kinds in addition to those of clients; PING, PONG, CONNECT, INFO, +OK and -ERR are shared.
cdef enum LeafOperationKind:
    OP_LS_ADD = 20          # LS+: subject; with a queue also its weight, in `count_max`
    OP_LS_REMOVE = 21       # LS-: subject, queue
    OP_LMSG = 22            # subject, reply, body; `queue` holds all group names as received
    OP_LHMSG = 23           # the same, with a header


cdef int parse_leaf_operation(ParserState* state, const char* data, size_t size,
                              Operation* operation) noexcept nogil
# For callers that check invariants: `data` holds the parsed bytes.
cdef int check_leaf_operation(const Operation* operation, const char* data, size_t size) except -1
