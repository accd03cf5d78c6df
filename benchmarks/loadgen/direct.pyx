# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A reader without a consumer: gets of single messages, batches and last messages.

The stream was filled by `Publisher`: message n is on subject `<prefix><n modulo the number of
subjects>`, carries n in its first eight bytes and has sequence n + 1. Every reply is checked for
that: the right message, with the right bytes and sequence, once, and in order within its request.
Never measures CPU, and makes no stream: the caller does.
"""

from benchmarks.loadgen.link cimport (
    OP_MESSAGE, OP_NONE, POLLIN, POLLOUT, Link, Message, Watch, link_close, link_fill, link_flush,
    link_next, link_open, link_put, link_reserve, link_sync, now_ns, poll, pollfd, u64,
    watch_start, watch_turn,
)
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset, strlen

from benchmarks.loadgen.link import LoadError

cdef extern from *:
    """
    #include <string.h>
    static const char *find(const char *data, size_t size, const char *text) {
        size_t length = strlen(text);
        const char *end = data + size;
        while (data + length <= end) {
            data = memchr(data, text[0], end - data - length + 1);
            if (data == NULL) return NULL;
            if (memcmp(data, text, length) == 0) return data + length;
            data += 1;
        }
        return NULL;
    }
    """
    const char *find(const char *data, size_t size, const char *text) nogil

cdef enum:
    HEAD_SIZE = 8              # u64: the number of the message
    LINE_SIZE_MAX = 512        # of a request
    OUTPUT_SIZE_MAX = 1 << 18  # no more is encoded while this much waits for the socket
    STRIDE = 7919              # between two gets of single messages: a prime

cdef enum Kind:
    BY_SEQUENCE = 0            # {"seq":7}
    BY_LAST = 1                # {"last_by_subj":"bench.7"}
    BY_SUBJECT = 2             # the subject is part of the request's, as for keys of buckets
    BATCH = 3                  # {"seq":7,"batch":500}
    LAST_OF_MANY = 4           # {"multi_last":["bench.*"]}
    BY_API = 5                 # STREAM.MSG.GET {"seq":7}

KINDS = {"sequence": BY_SEQUENCE, "last": BY_LAST, "subject": BY_SUBJECT, "batch": BATCH,
         "many": LAST_OF_MANY, "api": BY_API}

cdef const char *INBOX = "_INBOX.getter."


cdef char *put_text(char *at, const char *text) noexcept nogil:
    cdef size_t size = strlen(text)
    memcpy(at, text, size)
    return at + size


cdef char *put_number(char *at, u64 value) noexcept nogil:
    cdef char digits[20]
    cdef int count = 0
    while True:
        digits[count] = <char>(c'0' + value % 10)
        value //= 10
        count += 1
        if value == 0:
            break
    while count:
        count -= 1
        at[0] = digits[count]
        at += 1
    return at


cdef u64 number_at(const char *at, const char *end) noexcept nogil:
    cdef u64 value = 0
    while at < end and c'0' <= at[0] <= c'9':
        value = value * 10 + <u64>(at[0] - c'0')
        at += 1
    return value


cdef int refuse(const char *what, Message *message, u64 done) except -1 nogil:
    with gil:
        subject = message.subject[:message.subject_size].decode("utf-8", "backslashreplace")
        text = message.payload[:min(message.payload_size, <size_t>300)]
        shown = text.decode("utf-8", "backslashreplace").strip()
        raise LoadError(f"{what.decode()}: subject {subject}, {shown!r}, after {done} good ones")


cdef class Getter:
    """One connection with a bounded number of requests outstanding."""

    cdef Link link
    cdef bytes stream
    cdef bytes prefix           # of the subjects of the stream
    cdef const char *stream_text
    cdef const char *prefix_text
    cdef bytes payload          # held for payload_data
    cdef const char *payload_data
    cdef size_t payload_size
    cdef u64 subject_count
    cdef u64 total              # messages in the stream
    cdef int kind
    cdef u64 batch              # messages that a request gets
    cdef u64 asked              # requests of this run
    cdef u64 answered
    cdef u64 outstanding
    cdef u64 *started_ns        # rings, by the number of the request
    cdef u64 *received          # messages that the request got; ~0: it is answered
    cdef u64 *times_ns          # of each answered request of the last run
    cdef u64 times_count

    def __cinit__(self, bytes host, int port, *, bytes stream, bytes prefix, int payload_size,
                  u64 subject_count, u64 total):
        cdef const char *address = host
        memset(&self.link, 0, sizeof(Link))
        self.stream, self.prefix, self.payload = stream, prefix, b"x" * payload_size
        self.stream_text, self.prefix_text = self.stream, self.prefix
        self.payload_data, self.payload_size = self.payload, payload_size
        self.subject_count, self.total = subject_count, total
        with nogil:
            link_open(&self.link, address, port)
        line = b"SUB %b* 1\r\n" % INBOX
        link_put(&self.link, line, len(line))
        with nogil:
            link_sync(&self.link)

    def __dealloc__(self):
        link_close(&self.link)
        free(self.started_ns)
        free(self.received)
        free(self.times_ns)

    def close(self):
        """Closes the connection; a second call does nothing."""
        link_close(&self.link)

    def get(self, str kind, u64 requests, *, u64 outstanding=1, u64 batch=1):
        """Sends so many requests and checks all replies; gives the number of messages.

        `batch` is what a request of that kind asks for; the stream must hold a multiple of it.
        """
        cdef u64 *ring = <u64 *>realloc(self.started_ns, outstanding * sizeof(u64))
        if ring == NULL:
            raise MemoryError
        self.started_ns = ring
        ring = <u64 *>realloc(self.received, outstanding * sizeof(u64))
        if ring == NULL:
            raise MemoryError
        self.received = ring
        ring = <u64 *>realloc(self.times_ns, (requests + 1) * sizeof(u64))
        if ring == NULL:
            raise MemoryError
        self.times_ns = ring
        self.kind = KINDS[kind]
        self.batch = self.subject_count if self.kind == LAST_OF_MANY else batch
        if self.kind == BATCH and self.total % batch:
            raise ValueError(f"{self.total} messages are no multiple of {batch}")
        self.outstanding = outstanding
        self.asked = self.answered = self.times_count = 0
        with nogil:
            self.drive(requests)
            link_sync(&self.link)
        return requests * self.batch

    def latencies_ns(self):
        """Of the last run: from the encoding of each request to the read of its last reply."""
        cdef u64 index
        return [self.times_ns[index] for index in range(self.times_count)]

    cdef int drive(self, u64 requests) except -1 nogil:
        cdef Watch watch
        cdef pollfd entry
        cdef u64 moved = 0
        cdef u64 moment_ns
        entry.fd = self.link.fd
        watch_start(&watch, 0)
        while self.answered < requests:
            moment_ns = now_ns()
            # An answer may overtake another: the oldest that is under way bounds the ring.
            while (self.asked < requests and self.asked - self.answered < self.outstanding
                    and (self.asked < self.outstanding
                         or self.received[self.asked % self.outstanding] == <u64>-1)
                    and self.link.output_end - self.link.output_begin < OUTPUT_SIZE_MAX):
                self.started_ns[self.asked % self.outstanding] = moment_ns
                self.received[self.asked % self.outstanding] = 0
                self.ask(self.asked)
                self.asked += 1
            link_flush(&self.link)
            entry.events = POLLIN
            if self.link.output_end > self.link.output_begin:
                entry.events |= POLLOUT
            poll(&entry, 1, 100)
            moved += <u64>self.consume()
            watch_turn(&watch, moved, requests)
        return 0

    cdef u64 expected(self, u64 request, u64 index) noexcept nogil:
        """The number of the message that is the reply `index` to a request."""
        cdef u64 subject
        if self.kind == BATCH:
            return request * self.batch % self.total + index
        if self.kind == LAST_OF_MANY:
            return self.total - self.subject_count + index
        if self.kind == BY_SEQUENCE or self.kind == BY_API:
            return request * STRIDE % self.total
        subject = request * STRIDE % self.subject_count
        return (self.total - 1 - subject) // self.subject_count * self.subject_count + subject

    cdef int ask(self, u64 request) except -1 nogil:
        cdef Link *link = &self.link
        cdef char body[LINE_SIZE_MAX]
        cdef char *at = body
        cdef size_t body_size
        cdef u64 number = self.expected(request, 0)
        if self.kind == BY_LAST:
            at = put_text(put_text(at, '{"last_by_subj":"'), self.prefix_text)
            at = put_text(put_number(at, number % self.subject_count), '"}')
        elif self.kind == LAST_OF_MANY:
            at = put_text(put_text(put_text(at, '{"multi_last":["'), self.prefix_text), '*"]}')
        elif self.kind != BY_SUBJECT:
            at = put_number(put_text(at, '{"seq":'), number + 1)
            if self.kind == BATCH:
                at = put_number(put_text(at, ',"batch":'), self.batch)
            at = put_text(at, "}")
        body_size = at - body
        link_reserve(link, LINE_SIZE_MAX * 2)
        at = link.output_data + link.output_end
        at = put_text(at, "PUB $JS.API.STREAM.MSG.GET." if self.kind == BY_API
                      else "PUB $JS.API.DIRECT.GET.")
        at = put_text(at, self.stream_text)
        if self.kind == BY_SUBJECT:
            at = put_text(put_text(at, "."), self.prefix_text)
            at = put_number(at, number % self.subject_count)
        at = put_number(put_text(put_text(at, " "), INBOX), request)
        at = put_text(put_number(put_text(at, " "), body_size), "\r\n")
        memcpy(at, body, body_size)
        link.output_end = put_text(at + body_size, "\r\n") - link.output_data
        return 0

    cdef int consume(self) except -1 nogil:
        """Reads once; gives how many messages came."""
        cdef Message message
        cdef int operation, count = 0
        cdef u64 moment_ns
        link_fill(&self.link)
        moment_ns = now_ns()
        while True:
            operation = link_next(&self.link, &message)
            if operation == OP_NONE:
                return count
            if operation == OP_MESSAGE:
                self.take(&message, moment_ns)
                count += 1

    cdef int take(self, Message *message, u64 moment_ns) except -1 nogil:
        cdef size_t inbox_size = strlen(INBOX)
        cdef u64 request, index
        cdef bint is_last
        if message.subject_size <= inbox_size or memcmp(message.subject, INBOX, inbox_size):
            refuse("reply to nothing", message, self.answered)
        request = number_at(
            message.subject + inbox_size, message.subject + message.subject_size)
        if (request >= self.asked or self.asked - request > self.outstanding
                or self.received[request % self.outstanding] == <u64>-1):
            refuse("reply to a request that is not open", message, self.answered)
        index = self.received[request % self.outstanding]
        if self.kind == BATCH or self.kind == LAST_OF_MANY:
            is_last = index == self.batch
        else:
            is_last = True
        if is_last and (self.kind == BATCH or self.kind == LAST_OF_MANY):
            if message.payload_size < 16 or memcmp(message.payload, b"NATS/1.0 204 EOB", 16):
                refuse("no end of a batch", message, self.answered)
        elif self.kind == BY_API:
            self.check_document(message, self.expected(request, 0))
        else:
            self.check(message, self.expected(request, index))
        self.received[request % self.outstanding] = <u64>-1 if is_last else index + 1
        if is_last:
            self.times_ns[self.times_count] = (
                moment_ns - self.started_ns[request % self.outstanding])
            self.times_count += 1
            self.answered += 1
        return 0

    cdef int check(self, Message *message, u64 expected) except -1 nogil:
        cdef const char *end = message.payload + message.payload_size
        cdef const char *payload = end - self.payload_size
        cdef const char *at
        cdef u64 number = 0
        if message.payload_size < self.payload_size + 4 or memcmp(payload - 4, b"\r\n\r\n", 4):
            refuse("payload has the wrong size", message, self.answered)
        memcpy(&number, payload, HEAD_SIZE)
        if number != expected:
            refuse("another message than the one asked for", message, self.answered)
        if memcmp(payload + HEAD_SIZE, self.payload_data, self.payload_size - HEAD_SIZE):
            refuse("payload was altered", message, self.answered)
        at = find(message.payload, payload - message.payload, "\r\nNats-Sequence: ")
        if at == NULL or number_at(at, payload) != expected + 1:
            refuse("wrong sequence in the header", message, self.answered)
        return 0

    cdef int check_document(self, Message *message, u64 expected) except -1 nogil:
        cdef const char *at = find(message.payload, message.payload_size, '"seq":')
        if at == NULL or number_at(at, message.payload + message.payload_size) != expected + 1:
            refuse("another message than the one asked for", message, self.answered)
        return 0
