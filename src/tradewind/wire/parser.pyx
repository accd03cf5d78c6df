"""Parse bytes from a client into operations, over one contiguous run of bytes.

Owns the grammar and its limits. It never owns bytes (an Operation points into the caller's buffer)
and never decides what an operation means. The caller stores unconsumed bytes and calls again with
more bytes appended. Work per byte is constant for any chunking: `scanned`, `argument_start` and
`need` record how far an unfinished operation has been examined.

The reactions are those of nats-server: an unknown verb is a fault at its first wrong byte, PING and
PONG ignore the rest of their line however long it is, all other lines are bounded, and a payload
that is too large is refused when its size is read, before any of its bytes is stored.
"""

from libc.string cimport memchr, memset

from tradewind.containers.buffer cimport (
    Buffer, buffer_append, buffer_clear, buffer_free, buffer_init, buffer_size)

from tradewind.errors import ProtocolError

cdef enum:
    DIGITS_MAX = 9
    # White space in front of the arguments does not count towards the line limit, but is bounded
    # too.
    PADDING_MAX = 16384


cdef void parser_init(ParserState* state, size_t control_line_max,
                      size_t payload_max) noexcept nogil:
    memset(state, 0, sizeof(ParserState))
    state.control_line_max = control_line_max
    state.payload_max = payload_max


cdef int verb_rest(const char* data, size_t size, const char* verb, size_t verb_size,
                   size_t start) noexcept nogil:
    """PARSE_DONE if data[start:verb_size] is the rest of the verb, PARSE_MORE if more bytes could
    complete it, otherwise PARSE_FAULT.
    """
    cdef size_t index = start
    while index < verb_size:
        if index == size:
            return PARSE_MORE
        if (data[index] | 0x20) != verb[index]:
            return PARSE_FAULT
        index += 1
    return PARSE_DONE


cdef int parse_verb(const char* data, size_t size, int* kind, size_t* verb_size) noexcept nogil:
    """Recognise the verb at data[0]; `verb_size` is where its arguments begin."""
    cdef int status = PARSE_FAULT
    cdef char first = data[0] | 0x20
    cdef char second
    if data[0] == 43:                                   # '+'
        kind[0] = OP_OK
        verb_size[0] = 3
        return verb_rest(data, size, b"+ok", 3, 1)
    if data[0] == 45:                                   # '-'
        kind[0] = OP_ERR
        verb_size[0] = 4
        return verb_rest(data, size, b"-err", 4, 1)
    if first == 112:                                    # p
        if size == 1:
            return PARSE_MORE
        second = data[1] | 0x20
        if second == 117:
            kind[0] = OP_PUB
            verb_size[0] = 3
            return verb_rest(data, size, b"pub", 3, 2)
        verb_size[0] = 4
        if second == 105:
            kind[0] = OP_PING
            return verb_rest(data, size, b"ping", 4, 2)
        kind[0] = OP_PONG
        return verb_rest(data, size, b"pong", 4, 1)
    if first == 104:
        kind[0] = OP_HPUB
        verb_size[0] = 4
        return verb_rest(data, size, b"hpub", 4, 1)
    if first == 115:
        kind[0] = OP_SUB
        verb_size[0] = 3
        return verb_rest(data, size, b"sub", 3, 1)
    if first == 117:
        kind[0] = OP_UNSUB
        verb_size[0] = 5
        return verb_rest(data, size, b"unsub", 5, 1)
    if first == 99:
        kind[0] = OP_CONNECT
        verb_size[0] = 7
        return verb_rest(data, size, b"connect", 7, 1)
    if first == 105:
        kind[0] = OP_INFO
        verb_size[0] = 4
        return verb_rest(data, size, b"info", 4, 1)
    return status


cdef int parse_fault(Operation* operation, int reason) noexcept nogil:
    operation.fault = reason
    return PARSE_FAULT


cdef int skip_line(ParserState* state, const char* data, size_t size, size_t start, int kind,
                   Operation* operation) noexcept nogil:
    """Ignore everything up to the LF, for PING, PONG and +OK: the bytes need not be stored."""
    cdef const char* newline = NULL
    if size > start:
        newline = <const char*>memchr(data + start, LF, size - start)
    operation.kind = kind
    if newline == NULL:
        state.skipping = <uint8_t>kind
        operation.consumed = size
        return PARSE_MORE
    state.skipping = 0
    operation.consumed = newline + 1 - data
    return PARSE_DONE


cdef int64_t parse_size(const char* data, uint32_t size) noexcept nogil:
    """Parse at most nine decimal digits; -1 for anything else."""
    cdef int64_t value = 0
    cdef uint32_t index
    if size == 0 or size > DIGITS_MAX:
        return -1
    for index in range(size):
        if data[index] < 48 or data[index] > 57:
            return -1
        value = value * 10 + (data[index] - 48)
    return value


cdef int split_words(const char* data, size_t size, bint split_at_cr, const char** tokens,
                     uint32_t* sizes, int token_max) noexcept nogil:
    """Split into tokens at spaces and tabs; returns token_max + 1 if there are too many."""
    cdef size_t index = 0, start
    cdef int count = 0
    cdef char byte
    while index < size:
        byte = data[index]
        if byte == SPACE or byte == TAB or (split_at_cr and byte == CR):
            index += 1
            continue
        start = index
        while index < size:
            byte = data[index]
            if byte == SPACE or byte == TAB or (split_at_cr and byte == CR):
                break
            index += 1
        if count == token_max:
            return token_max + 1
        tokens[count] = data + start
        sizes[count] = <uint32_t>(index - start)
        count += 1
    return count


cdef int parse_publish(ParserState* state, const char* data, size_t size, size_t line_size,
                       Operation* operation) noexcept nogil:
    """Parse the arguments and the payload of PUB and HPUB; `line_size` includes the LF."""
    cdef const char* tokens[4]
    cdef uint32_t sizes[4]
    cdef int count, expected = 3 if operation.kind == OP_PUB else 4
    cdef int64_t total, header = 0
    count = split_words(operation.argument, operation.argument_size, False, tokens, sizes, expected)
    if count < expected - 1 or count > expected:
        return parse_fault(operation, FAULT_ARGUMENTS)
    if operation.kind == OP_HPUB and not state.headers_allowed:
        return parse_fault(operation, FAULT_ARGUMENTS)
    total = parse_size(tokens[count - 1], sizes[count - 1])
    if operation.kind == OP_HPUB:
        header = parse_size(tokens[count - 2], sizes[count - 2])
    if total < 0 or header < 0 or header > total:
        return parse_fault(operation, FAULT_ARGUMENTS)
    operation.subject = tokens[0]
    operation.subject_size = sizes[0]
    operation.reply = tokens[1]
    operation.reply_size = sizes[1] if count == expected else 0
    return take_body(state, data, size, line_size, <size_t>header, <size_t>total, operation)


cdef int take_body(ParserState* state, const char* data, size_t size, size_t line_size,
                   size_t header_size, size_t total_size, Operation* operation) noexcept nogil:
    """Take the body of a message, which follows its line of `line_size` bytes including the LF."""
    cdef size_t end = line_size + total_size
    if total_size > state.payload_max:
        return parse_fault(operation, FAULT_PAYLOAD)
    if size > end and data[end] != CR:
        return parse_fault(operation, FAULT_UNKNOWN)
    if size < end + 2:
        state.need = end + 2
        return PARSE_MORE
    if data[end + 1] != LF:
        return parse_fault(operation, FAULT_UNKNOWN)
    operation.header_size = header_size
    operation.total_size = total_size
    operation.body = data + line_size
    operation.consumed = end + 2
    return PARSE_DONE


cdef int parse_arguments(Operation* operation) noexcept nogil:
    """Parse the arguments of SUB and UNSUB; those of other operations stay whole."""
    cdef const char* tokens[3]
    cdef uint32_t sizes[3]
    cdef int count
    cdef int64_t limit
    if operation.kind == OP_SUB:
        count = split_words(operation.argument, operation.argument_size, True, tokens, sizes, 3)
        if count < 2 or count > 3:
            return parse_fault(operation, FAULT_ARGUMENTS)
        operation.subject = tokens[0]
        operation.subject_size = sizes[0]
        operation.queue = tokens[1]
        operation.queue_size = sizes[1] if count == 3 else 0
        operation.sid = tokens[count - 1]
        operation.sid_size = sizes[count - 1]
    elif operation.kind == OP_UNSUB:
        count = split_words(operation.argument, operation.argument_size, True, tokens, sizes, 2)
        if count < 1 or count > 2:
            return parse_fault(operation, FAULT_ARGUMENTS)
        operation.sid = tokens[0]
        operation.sid_size = sizes[0]
        limit = parse_size(tokens[1], sizes[1]) if count == 2 else 0
        operation.count_max = limit if limit > 0 else 0
    return PARSE_DONE


cdef int find_line(ParserState* state, const char* data, size_t size, size_t start, int kind,
                   size_t* line_size, Operation* operation) noexcept nogil:
    """Find the argument part of the line at data[0], whose verb ends at `start`; `line_size`
    excludes the LF.
    """
    cdef const char* newline
    if start == size:
        return PARSE_MORE
    if kind != OP_CONNECT and kind != OP_INFO and data[start] != SPACE and data[start] != TAB:
        return parse_fault(operation, FAULT_UNKNOWN)
    if start < state.argument_start:
        start = state.argument_start
    while start < size and (data[start] == SPACE or data[start] == TAB):
        start += 1
    state.argument_start = start
    if start > state.control_line_max + PADDING_MAX:
        return parse_fault(operation, FAULT_CONTROL_LINE)
    if state.scanned < start:
        state.scanned = start
    newline = NULL
    if size > state.scanned:
        newline = <const char*>memchr(data + state.scanned, LF, size - state.scanned)
    line_size[0] = size if newline == NULL else <size_t>(newline - data)
    operation.argument = data + start
    operation.argument_size = line_size[0] - start
    if operation.argument_size and operation.argument[operation.argument_size - 1] == CR:
        operation.argument_size -= 1
    if operation.argument_size > state.control_line_max:
        return parse_fault(operation, FAULT_CONTROL_LINE)
    if newline == NULL:
        state.scanned = size
        return PARSE_MORE
    operation.kind = kind
    return PARSE_DONE


cdef int parse_operation(ParserState* state, const char* data, size_t size,
                         Operation* operation) noexcept nogil:
    """Parse the operation that starts at data[0]; see ParseStatus. `operation` is valid only for
    PARSE_DONE.
    """
    cdef size_t start = 0, line_size = 0
    cdef int kind = OP_NONE, status
    operation.consumed = 0
    operation.fault = FAULT_NONE
    if size == 0:
        return PARSE_MORE
    if state.skipping:
        return skip_line(state, data, size, 0, state.skipping, operation)
    if state.need > size + 1:
        return PARSE_MORE
    status = parse_verb(data, size, &kind, &start)
    if status == PARSE_MORE:
        return PARSE_MORE
    if status == PARSE_FAULT:
        return parse_fault(operation, FAULT_UNKNOWN)
    if kind == OP_PING or kind == OP_PONG or kind == OP_OK:
        return skip_line(state, data, size, start, kind, operation)
    status = find_line(state, data, size, start, kind, &line_size, operation)
    if status != PARSE_DONE:
        return status
    if kind == OP_PUB or kind == OP_HPUB:
        # The LF is searched for again once the payload is complete; `need` prevents that more than
        # once or twice.
        state.scanned = line_size
        status = parse_publish(state, data, size, line_size + 1, operation)
    else:
        status = parse_arguments(operation)
        operation.consumed = line_size + 1
    if status == PARSE_DONE:
        state.scanned = 0
        state.argument_start = 0
        state.need = 0
    return status


# ---------------------------------------------------------------------- for Python callers

FAULT_NAMES = {FAULT_UNKNOWN: "unknown", FAULT_ARGUMENTS: "arguments",
               FAULT_CONTROL_LINE: "control line", FAULT_PAYLOAD: "payload"}
KIND_NAMES = {OP_PUB: "PUB", OP_HPUB: "HPUB", OP_PING: "PING", OP_PONG: "PONG", OP_SUB: "SUB",
              OP_UNSUB: "UNSUB", OP_CONNECT: "CONNECT", OP_INFO: "INFO", OP_OK: "+OK",
              OP_ERR: "-ERR"}


cdef bint is_within(const char* part, size_t part_size, const char* whole,
                    size_t size) noexcept nogil:
    return part_size == 0 or (whole <= part and part + part_size <= whole + size)


cdef int check_operation(const Operation* operation, const char* data, size_t size) except -1:
    """Assert that the parts of this kind of operation lie within the bytes the parser has
    consumed.
    """
    cdef size_t consumed = operation.consumed
    assert 0 < consumed <= size, (operation.kind, consumed, size)
    if operation.kind == OP_PING or operation.kind == OP_PONG or operation.kind == OP_OK:
        return 0
    assert is_within(operation.argument, operation.argument_size, data, consumed)
    if operation.kind == OP_PUB or operation.kind == OP_HPUB:
        assert is_within(operation.subject, operation.subject_size, data, consumed)
        assert is_within(operation.reply, operation.reply_size, data, consumed)
        assert is_within(operation.body, operation.total_size, data, consumed)
        assert operation.header_size <= operation.total_size
    elif operation.kind == OP_SUB or operation.kind == OP_UNSUB:
        assert is_within(operation.sid, operation.sid_size, data, consumed)
    if operation.kind == OP_SUB:
        assert is_within(operation.subject, operation.subject_size, data, consumed)
        assert is_within(operation.queue, operation.queue_size, data, consumed)
    return 0


cdef tuple describe(const Operation* operation):
    """The operation as Python values: (verb, arguments, ...)."""
    cdef str name = KIND_NAMES[operation.kind]
    cdef size_t header_size = operation.header_size
    if operation.kind == OP_PUB or operation.kind == OP_HPUB:
        return (name, operation.subject[:operation.subject_size],
                operation.reply[:operation.reply_size], operation.body[:header_size],
                operation.body[header_size:operation.total_size])
    if operation.kind == OP_SUB:
        return (name, operation.subject[:operation.subject_size],
                operation.queue[:operation.queue_size], operation.sid[:operation.sid_size])
    if operation.kind == OP_UNSUB:
        return name, operation.sid[:operation.sid_size], operation.count_max
    if operation.kind == OP_CONNECT or operation.kind == OP_INFO or operation.kind == OP_ERR:
        return name, operation.argument[:operation.argument_size]
    return (name,)


cdef class Parser:
    """The parser with a buffer of its own, for tests and tools: accepts any chunks and returns
    tuples.

    Sessions use the C function instead. `fault` names what was wrong, or is None; `before_fault`
    holds the operations that the failing call completed; `position` counts the bytes of finished
    and ignored operations.
    """

    cdef ParserState state
    cdef Buffer pending
    cdef readonly str fault
    cdef readonly list before_fault
    cdef readonly size_t position

    def __cinit__(self):
        buffer_init(&self.pending)

    def __init__(self, size_t control_line_max=4096, size_t payload_max=1048576, bint headers=True):
        parser_init(&self.state, control_line_max, payload_max)
        self.state.headers_allowed = headers
        self.before_fault = []

    def __dealloc__(self):
        buffer_free(&self.pending)

    @property
    def pending_bytes(self):
        """Number of bytes stored of an unfinished operation."""
        return buffer_size(&self.pending)

    def feed(self, bytes data not None):
        """Return all operations that are now complete; ProtocolError at the first wrong byte."""
        cdef Operation operation
        cdef int status
        cdef list result = []
        if self.fault is not None:
            raise ProtocolError(f"{self.fault}: nothing can follow a fault", self.fault)
        if buffer_append(&self.pending, data, len(data)) != 0:
            raise MemoryError
        while True:
            status = parse_operation(&self.state, self.pending.data + self.pending.begin,
                                     buffer_size(&self.pending), &operation)
            if status == PARSE_FAULT:
                break
            if status == PARSE_DONE:
                check_operation(&operation, self.pending.data + self.pending.begin,
                                buffer_size(&self.pending))
            self.pending.begin += operation.consumed
            self.position += operation.consumed
            if status == PARSE_MORE:
                break
            result.append(describe(&operation))
        if buffer_size(&self.pending) == 0:
            buffer_clear(&self.pending)
        if status == PARSE_FAULT:
            self.fault = FAULT_NAMES[operation.fault]
            self.before_fault = result
            raise ProtocolError(
                f"{self.fault} in the operation that begins at byte {self.position}", self.fault)
        return result
