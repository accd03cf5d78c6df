"""The parts of an operation; the parser itself is in parser.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef enum:
    LF = 10
    CR = 13
    SPACE = 32
    TAB = 9

cdef enum OperationKind:
    OP_NONE = 0
    OP_PUB = 1
    OP_HPUB = 2
    OP_PING = 3
    OP_PONG = 4
    OP_SUB = 5
    OP_UNSUB = 6
    OP_CONNECT = 7
    OP_INFO = 8
    OP_OK = 9
    OP_ERR = 10

cdef enum ParseStatus:
    PARSE_MORE = 0          # not enough bytes; `consumed` may still be > 0 (ignored bytes)
    PARSE_DONE = 1
    PARSE_FAULT = 2

cdef enum Fault:
    FAULT_NONE = 0
    FAULT_UNKNOWN = 1       # answered with -ERR 'Unknown Protocol Operation'
    FAULT_ARGUMENTS = 2     # a known verb with wrong arguments: closed without an answer
    FAULT_CONTROL_LINE = 3
    FAULT_PAYLOAD = 4

ctypedef struct Operation:
    int kind
    int fault
    size_t consumed
    const char* argument        # the whole argument part of the line
    size_t argument_size
    const char* subject         # pointers into the parsed bytes; size 0 if absent
    const char* reply
    const char* queue
    const char* sid
    const char* body
    uint32_t subject_size
    uint32_t reply_size
    uint32_t queue_size
    uint32_t sid_size
    size_t header_size
    size_t total_size
    int64_t count_max           # UNSUB; 0: none

ctypedef struct ParserState:
    size_t control_line_max
    size_t payload_max
    size_t scanned              # bytes of the unfinished line known to hold no LF
    size_t argument_start       # where the blanks after its verb end, as far as known
    size_t need                 # total size that an unfinished PUB needs; 0: unknown
    uint8_t skipping            # kind whose rest of line is being ignored (PING, PONG, +OK)
    uint8_t headers_allowed


cdef void parser_init(ParserState* state, size_t control_line_max,
                      size_t payload_max) noexcept nogil
cdef int parse_operation(ParserState* state, const char* data, size_t size,
                         Operation* operation) noexcept nogil
# For callers that check invariants: `data` holds the parsed bytes.
cdef int check_operation(const Operation* operation, const char* data, size_t size) except -1
cdef bint is_within(const char* part, size_t part_size, const char* whole,
                    size_t size) noexcept nogil

# Building blocks shared by the grammars.
cdef int verb_rest(const char* data, size_t size, const char* verb, size_t verb_size,
                   size_t start) noexcept nogil
cdef int parse_fault(Operation* operation, int reason) noexcept nogil
cdef int skip_line(ParserState* state, const char* data, size_t size, size_t start, int kind,
                   Operation* operation) noexcept nogil
cdef int64_t parse_size(const char* data, uint32_t size) noexcept nogil
cdef int split_words(const char* data, size_t size, bint split_at_cr, const char** tokens,
                     uint32_t* sizes, int token_max) noexcept nogil
cdef int find_line(ParserState* state, const char* data, size_t size, size_t start, int kind,
                   size_t* line_size, Operation* operation) noexcept nogil
cdef int take_body(ParserState* state, const char* data, size_t size, size_t line_size,
                   size_t header_size, size_t total_size, Operation* operation) noexcept nogil
