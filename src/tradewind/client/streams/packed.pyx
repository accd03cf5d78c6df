"""Delivered messages in one piece of memory, for readers that want columns and not objects.

Owns the bytes of messages stored one after the other, and the parsing of reply subjects:

    $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>
    $JS.ACK.<domain>.<account>.<stream>.<consumer>. ... .<pending>[.<token>]

A message costs two copies here and no Python object. Readers walk from head to head.
"""

from libc.string cimport memcpy

from tradewind.containers.buffer cimport buffer_free, buffer_init, buffer_reserve

cdef enum:
    DOT = 46
    DIGIT_0 = 48
    DIGIT_9 = 57
    TOKENS_MAX = 16
    SHORT_TOKENS = 9
    LONG_TOKENS = 11
    STREAM_SEQUENCE_TOKEN = 5


cdef inline bint parse_number(const char* text, const char* end, uint64_t* value) noexcept nogil:
    value[0] = 0
    if text >= end:
        return False
    while text < end:
        if text[0] < DIGIT_0 or text[0] > DIGIT_9:
            return False
        value[0] = value[0] * 10 + <uint64_t>(text[0] - DIGIT_0)
        text += 1
    return True


cdef bint parse_delivery(const char* text, Py_ssize_t size, DeliveryFacts* delivery) noexcept nogil:
    """Parse the reply subject of a delivered message; False for any other."""
    cdef const char* starts[TOKENS_MAX]
    cdef const char** found
    cdef const char* end = text + size
    cdef Py_ssize_t index
    cdef int count = 1, first
    starts[0] = text
    for index in range(size):
        if text[index] == DOT:
            if count == TOKENS_MAX:
                break
            starts[count] = text + index + 1
            count += 1
    if count < SHORT_TOKENS:
        return False
    first = STREAM_SEQUENCE_TOKEN + (2 if count >= LONG_TOKENS else 0)
    found = &starts[first]
    if first + 4 < count:
        end = found[4] - 1
    return (parse_number(found[0], found[1] - 1, &delivery.stream_sequence)
            and parse_number(found[1], found[2] - 1, &delivery.consumer_sequence)
            and parse_number(found[2], found[3] - 1, &delivery.timestamp_ns)
            and parse_number(found[3], end, &delivery.pending_count))


cdef class PackedMessages:
    """Messages of one stream, in its order, from `first_seq` to `last_seq`."""

    def __cinit__(self):
        buffer_init(&self._bytes)

    def __dealloc__(self):
        buffer_free(&self._bytes)

    def __len__(self):
        return self.count

    cdef int add(self, const DeliveryFacts* delivery, const char* subject, uint32_t subject_size,
                 const char* body, uint32_t header_size, uint32_t payload_size) except -1:
        """Append a message; `body` holds its headers and its payload."""
        cdef size_t body_size = <size_t>header_size + payload_size
        cdef size_t stride = (sizeof(PackedHead) + subject_size + body_size + 7) & ~<size_t>7
        cdef PackedHead* head
        cdef char* at
        if buffer_reserve(&self._bytes, stride) != 0:
            raise MemoryError
        head = <PackedHead*>(self._bytes.data + self._bytes.end)
        head.seq = delivery.stream_sequence
        head.timestamp = <int64_t>delivery.timestamp_ns
        head.subject_size = subject_size
        head.header_size = header_size
        head.payload_size = payload_size
        head.stride = <uint32_t>stride
        at = <char*>head + sizeof(PackedHead)
        memcpy(at, subject, subject_size)
        memcpy(at + subject_size, body, body_size)
        self._bytes.end += stride
        if self.count == 0:
            self.first_seq = delivery.stream_sequence
        self.last_seq = delivery.stream_sequence
        self.pending_count = delivery.pending_count
        self.count += 1
        self.size += body_size
        return 0
