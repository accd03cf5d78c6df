"""Parse bytes from the server at the other end of a leaf connection into operations.

Owns the grammar that such servers use; what it shares with the grammar of clients (lines, sizes,
limits) belongs to the parser. It never owns bytes and never decides what an operation means.

The lines are drawn in `wire.ops`. LMSG names the queue groups for which the sender has chosen a
member here: they are given as one run of bytes, exactly as they stand in the line.
"""

from libc.stdint cimport int64_t, uint32_t
from tradewind.containers.buffer cimport (
    Buffer, buffer_append, buffer_clear, buffer_free, buffer_init, buffer_size)
from tradewind.wire.parser cimport (
    FAULT_ARGUMENTS, FAULT_NONE, FAULT_UNKNOWN, OP_CONNECT, OP_ERR, OP_INFO, OP_OK, OP_PING,
    OP_PONG, PARSE_DONE, PARSE_FAULT, PARSE_MORE, SPACE, TAB, find_line, is_within, parse_fault,
    parse_size, parser_init, skip_line, split_words, take_body, verb_rest)

from tradewind.errors import ProtocolError

cdef enum:
    WEIGHT_MAX = 1 << 30


cdef int parse_leaf_verb(const char* data, size_t size, int* kind,
                         size_t* verb_size) noexcept nogil:
    """Recognise the verb at data[0]; `verb_size` is where its arguments begin."""
    cdef char first = data[0] | 0x20
    cdef char second
    verb_size[0] = 4
    if first == 108:                                    # l
        if size == 1:
            return PARSE_MORE
        second = data[1] | 0x20
        if second == 109:
            kind[0] = OP_LMSG
            return verb_rest(data, size, b"lmsg", 4, 2)
        if second != 115:
            return PARSE_FAULT
        if size == 2:
            return PARSE_MORE
        verb_size[0] = 3
        kind[0] = OP_LS_ADD if data[2] == 43 else OP_LS_REMOVE
        return PARSE_DONE if data[2] == 43 or data[2] == 45 else PARSE_FAULT
    if first == 104:                                    # h
        kind[0] = OP_LHMSG
        return verb_rest(data, size, b"hmsg", 4, 1)
    if first == 112:                                    # p
        if size == 1:
            return PARSE_MORE
        if data[1] | 0x20 == 105:
            kind[0] = OP_PING
            return verb_rest(data, size, b"ping", 4, 2)
        kind[0] = OP_PONG
        return verb_rest(data, size, b"pong", 4, 1)
    if first == 99:                                     # c
        kind[0] = OP_CONNECT
        verb_size[0] = 7
        return verb_rest(data, size, b"connect", 7, 1)
    if first == 105:                                    # i
        kind[0] = OP_INFO
        return verb_rest(data, size, b"info", 4, 1)
    if data[0] == 43:                                   # '+'
        kind[0] = OP_OK
        verb_size[0] = 3
        return verb_rest(data, size, b"+ok", 3, 1)
    if data[0] == 45:                                   # '-'
        kind[0] = OP_ERR
        return verb_rest(data, size, b"-err", 4, 1)
    return PARSE_FAULT


cdef inline const char* next_word(const char** at, const char* end, uint32_t* size) noexcept nogil:
    """The next word from `at` on; `at` moves to its end. The size is 0 at the end."""
    cdef const char* start = at[0]
    while start < end and (start[0] == SPACE or start[0] == TAB):
        start += 1
    at[0] = start
    while at[0] < end and at[0][0] != SPACE and at[0][0] != TAB:
        at[0] += 1
    size[0] = <uint32_t>(at[0] - start)
    return start


cdef inline const char* last_word(const char* start, const char** end,
                                  uint32_t* size) noexcept nogil:
    """The last word before `end`; `end` moves to its start. The size is 0 if there is none."""
    cdef const char* stop
    while end[0] > start and ((end[0] - 1)[0] == SPACE or (end[0] - 1)[0] == TAB):
        end[0] -= 1
    stop = end[0]
    while end[0] > start and (end[0] - 1)[0] != SPACE and (end[0] - 1)[0] != TAB:
        end[0] -= 1
    size[0] = <uint32_t>(stop - end[0])
    return end[0]


cdef int parse_message(ParserState* state, const char* data, size_t size, size_t line_size,
                       Operation* operation) noexcept nogil:
    """Parse the arguments and the payload of LMSG and HMSG; `line_size` includes the LF."""
    cdef const char* at = operation.argument
    cdef const char* end = operation.argument + operation.argument_size
    cdef const char* word
    cdef uint32_t word_size
    cdef int64_t total, header = 0
    word = last_word(at, &end, &word_size)
    total = parse_size(word, word_size)
    if operation.kind == OP_LHMSG:
        word = last_word(at, &end, &word_size)
        header = parse_size(word, word_size)
    operation.subject = next_word(&at, end, &operation.subject_size)
    if total < 0 or header < 0 or header > total or operation.subject_size == 0:
        return parse_fault(operation, FAULT_ARGUMENTS)
    operation.reply = next_word(&at, end, &operation.reply_size)
    operation.queue_size = 0
    if operation.reply_size == 1 and (operation.reply[0] == 43 or operation.reply[0] == 124):
        if operation.reply[0] == 43:
            operation.reply = next_word(&at, end, &operation.reply_size)
        else:
            operation.reply_size = 0
        operation.queue = next_word(&at, end, &operation.queue_size)
        if operation.queue_size == 0:
            return parse_fault(operation, FAULT_ARGUMENTS)
        operation.queue_size = <uint32_t>(end - operation.queue)
    else:
        next_word(&at, end, &word_size)
        if word_size:
            return parse_fault(operation, FAULT_ARGUMENTS)
    return take_body(state, data, size, line_size, <size_t>header, <size_t>total, operation)


cdef int parse_interest(Operation* operation) noexcept nogil:
    """Parse the arguments of LS+ and LS-."""
    cdef const char* tokens[3]
    cdef uint32_t sizes[3]
    cdef int64_t weight
    cdef int count = split_words(
        operation.argument, operation.argument_size, True, tokens, sizes, 3)
    operation.queue_size = 0
    operation.count_max = 1
    if count < 1 or count > 3 or count == 2 and operation.kind == OP_LS_ADD:
        return parse_fault(operation, FAULT_ARGUMENTS)
    operation.subject = tokens[0]
    operation.subject_size = sizes[0]
    if count == 1:
        return PARSE_DONE
    operation.queue = tokens[1]
    operation.queue_size = sizes[1]
    if operation.kind == OP_LS_ADD:
        weight = parse_size(tokens[2], sizes[2])
        if weight < 0:
            return parse_fault(operation, FAULT_ARGUMENTS)
        operation.count_max = min(max(weight, <int64_t>1), <int64_t>WEIGHT_MAX)
    elif count == 3:
        return parse_fault(operation, FAULT_ARGUMENTS)
    return PARSE_DONE


cdef int parse_leaf_operation(ParserState* state, const char* data, size_t size,
                              Operation* operation) noexcept nogil:
    """Parse the operation that starts at data[0]; see ParseStatus. `operation` is valid only for
    PARSE_DONE.
    """
    cdef size_t start = 0, line_size = 0
    cdef int kind = 0, status
    operation.consumed = 0
    operation.fault = FAULT_NONE
    if size == 0:
        return PARSE_MORE
    if state.skipping:
        return skip_line(state, data, size, 0, state.skipping, operation)
    if state.need > size + 1:
        return PARSE_MORE
    status = parse_leaf_verb(data, size, &kind, &start)
    if status == PARSE_MORE:
        return PARSE_MORE
    if status == PARSE_FAULT:
        return parse_fault(operation, FAULT_UNKNOWN)
    if kind == OP_PING or kind == OP_PONG or kind == OP_OK:
        return skip_line(state, data, size, start, kind, operation)
    status = find_line(state, data, size, start, kind, &line_size, operation)
    if status != PARSE_DONE:
        return status
    if kind == OP_LMSG or kind == OP_LHMSG:
        state.scanned = line_size
        status = parse_message(state, data, size, line_size + 1, operation)
    else:
        operation.consumed = line_size + 1
        if kind == OP_LS_ADD or kind == OP_LS_REMOVE:
            status = parse_interest(operation)
    if status == PARSE_DONE:
        state.scanned = 0
        state.argument_start = 0
        state.need = 0
    return status


# ---------------------------------------------------------------------- for Python callers

LEAF_KIND_NAMES = {OP_LS_ADD: "LS+", OP_LS_REMOVE: "LS-", OP_LMSG: "LMSG", OP_LHMSG: "HMSG",
                   OP_PING: "PING", OP_PONG: "PONG", OP_CONNECT: "CONNECT", OP_INFO: "INFO",
                   OP_OK: "+OK", OP_ERR: "-ERR"}


cdef int check_leaf_operation(const Operation* operation, const char* data,
                              size_t size) except -1:
    """Assert that the parts of this kind of operation lie within the bytes the parser has
    consumed.
    """
    cdef size_t consumed = operation.consumed
    assert 0 < consumed <= size, (operation.kind, consumed, size)
    if operation.kind == OP_PING or operation.kind == OP_PONG or operation.kind == OP_OK:
        return 0
    assert is_within(operation.argument, operation.argument_size, data, consumed)
    if operation.kind >= OP_LS_ADD:
        assert is_within(operation.subject, operation.subject_size, data, consumed)
        assert is_within(operation.queue, operation.queue_size, data, consumed)
    if operation.kind >= OP_LMSG:
        assert is_within(operation.reply, operation.reply_size, data, consumed)
        assert is_within(operation.body, operation.total_size, data, consumed)
        assert operation.header_size <= operation.total_size
    return 0


cdef tuple describe(const Operation* operation):
    """The operation as Python values: (verb, arguments, ...)."""
    cdef str name = LEAF_KIND_NAMES[operation.kind]
    cdef size_t header_size = operation.header_size
    if operation.kind == OP_LMSG or operation.kind == OP_LHMSG:
        return (name, operation.subject[:operation.subject_size],
                operation.reply[:operation.reply_size],
                operation.queue[:operation.queue_size].split(),
                operation.body[:header_size], operation.body[header_size:operation.total_size])
    if operation.kind == OP_LS_ADD or operation.kind == OP_LS_REMOVE:
        return (name, operation.subject[:operation.subject_size],
                operation.queue[:operation.queue_size], operation.count_max)
    if operation.kind == OP_CONNECT or operation.kind == OP_INFO or operation.kind == OP_ERR:
        return name, operation.argument[:operation.argument_size]
    return (name,)


cdef class LeafParser:
    """The grammar with a buffer of its own, for tests: accepts any chunks and returns tuples."""

    cdef ParserState state
    cdef Buffer pending

    def __cinit__(self):
        buffer_init(&self.pending)

    def __init__(self, size_t control_line_max=65536, size_t payload_max=1048576):
        parser_init(&self.state, control_line_max, payload_max)
        self.state.headers_allowed = True

    def __dealloc__(self):
        buffer_free(&self.pending)

    def feed(self, bytes data not None):
        """Return all operations that are now complete; ProtocolError at the first wrong byte."""
        cdef Operation operation
        cdef int status
        cdef list result = []
        if buffer_append(&self.pending, data, len(data)) != 0:
            raise MemoryError
        while True:
            status = parse_leaf_operation(&self.state, self.pending.data + self.pending.begin,
                                          buffer_size(&self.pending), &operation)
            if status == PARSE_FAULT:
                raise ProtocolError(f"fault {operation.fault} in an operation of a leaf node")
            if status == PARSE_DONE:
                check_leaf_operation(&operation, self.pending.data + self.pending.begin,
                                     buffer_size(&self.pending))
            self.pending.begin += operation.consumed
            if status == PARSE_MORE:
                break
            result.append(describe(&operation))
        if buffer_size(&self.pending) == 0:
            buffer_clear(&self.pending)
        return result
