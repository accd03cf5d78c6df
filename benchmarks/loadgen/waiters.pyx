# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Clients that each do one thing at a time and wait for its end, as most programs do.

Each has a connection of its own; all are driven by one thread. An answer must come to the client
that waits for it and say what it waits for. Never measures CPU, and makes no stream, bucket or
consumer: the caller does.
"""

from benchmarks.loadgen.link cimport (
    OP_MESSAGE, OP_NONE, POLLIN, POLLOUT, Link, Message, Watch, link_close, link_fill, link_flush,
    link_next, link_open, link_put, link_reserve, link_sync, now_ns, poll, pollfd, u64,
    watch_start, watch_turn,
)
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

from benchmarks.loadgen.link import LoadError

cdef enum:
    LINE_SIZE_MAX = 512
    SUBJECT_SIZE_MAX = 256
    KEYS = 64
    PUBLISH = 0         # to a stream, and its acknowledgement
    ACK_SYNC = 1        # a pull of one message, an ack with a reply, and the answer to it
    PUT_GET = 2         # a value of a bucket is written, then read
    REQUEST = 3         # a request to another client, which answers it
    KINDS = 4

KIND_NAMES = ("publish", "acksync", "putget", "request")


cdef struct Waiter:
    int kind
    int step                        # of what it does at the moment
    bint is_waiting
    u64 number                      # of the request that is waited for
    u64 started_ns
    char[SUBJECT_SIZE_MAX] ack      # where the message that came is acknowledged


cdef class Waiters:
    """Clients of these kinds, named as in KIND_NAMES. One stream takes `fresh.>`, and `BENCH` has
    messages and the consumers `c0`, `c1` and so on, by the place of the client; the bucket is `B`.
    """

    cdef Link *links                # one per client, and that of the one who answers requests
    cdef pollfd *polls
    cdef Waiter *waiters
    cdef u64 *times_ns
    cdef unsigned char *kinds
    cdef u64 arrived, begun
    cdef int count, link_count
    cdef bytes payload              # held for payload_data
    cdef const char *payload_data
    cdef size_t payload_size

    def __cinit__(self, bytes host, int port, *, kinds, int payload_size):
        cdef const char *address = host
        cdef int index
        cdef bytes line
        self.count, self.link_count = len(kinds), len(kinds) + 1
        self.payload = b"x" * payload_size
        self.payload_data, self.payload_size = self.payload, payload_size
        self.links = <Link *>calloc(self.link_count, sizeof(Link))
        self.polls = <pollfd *>calloc(self.link_count, sizeof(pollfd))
        self.waiters = <Waiter *>calloc(max(self.count, 1), sizeof(Waiter))
        if self.links == NULL or self.polls == NULL or self.waiters == NULL:
            raise MemoryError
        for index in range(self.link_count):
            with nogil:
                link_open(&self.links[index], address, port)
            self.polls[index].fd = self.links[index].fd
            if index < self.count:
                self.waiters[index].kind = KIND_NAMES.index(kinds[index])
                line = b"SUB _INBOX.w%d.* 1\r\n" % index
            else:
                line = b"SUB service 1\r\n"
            link_put(&self.links[index], line, len(line))
            with nogil:
                link_sync(&self.links[index])

    def __dealloc__(self):
        self.shut()
        free(self.links)
        free(self.polls)
        free(self.waiters)
        free(self.times_ns)
        free(self.kinds)

    cdef void shut(self) noexcept:
        cdef int index
        if self.links != NULL:
            for index in range(self.link_count):
                link_close(&self.links[index])

    def close(self):
        """Closes every connection; a second call does nothing."""
        self.shut()

    def run(self, u64 count, *, double time_limit_s):
        """Does `count` things, or fewer if the time is over; how many it were."""
        cdef u64 *times = <u64 *>realloc(self.times_ns, (count + 1) * sizeof(u64))
        if times == NULL:
            raise MemoryError
        self.times_ns = times
        cdef unsigned char *kinds = <unsigned char *>realloc(self.kinds, count + 1)
        if kinds == NULL:
            raise MemoryError
        self.kinds, self.arrived, self.begun = kinds, 0, 0
        with nogil:
            self.drive(count, <u64>(time_limit_s * 1e9))
        return self.arrived

    def latencies_ns(self):
        """Of the last run, by the name of the kind: from the first write to the last read."""
        cdef u64 index
        found = {}
        for index in range(self.arrived):
            found.setdefault(KIND_NAMES[self.kinds[index]], []).append(self.times_ns[index])
        return found

    cdef int drive(self, u64 wanted, u64 time_limit_ns) except -1 nogil:
        cdef Watch watch
        cdef int index, ready
        cdef u64 started_ns = now_ns()
        watch_start(&watch, 0)
        while self.arrived < wanted:
            if now_ns() - started_ns > time_limit_ns:
                wanted = self.begun
            for index in range(self.count):
                if not self.waiters[index].is_waiting and self.begun < wanted:
                    self.begin(index)
            for index in range(self.link_count):
                self.polls[index].events = POLLIN
                if self.links[index].output_end > self.links[index].output_begin:
                    self.polls[index].events |= POLLOUT
            ready = poll(self.polls, self.link_count, 100)
            for index in range(self.link_count):
                if ready > 0 and self.polls[index].revents:
                    self.receive(index)
            watch_turn(&watch, self.arrived, wanted)
        return 0

    cdef int begin(self, int index) except -1 nogil:
        cdef Waiter *waiter = &self.waiters[index]
        waiter.step = 0
        waiter.is_waiting = True
        waiter.started_ns = now_ns()
        self.begun += 1
        return self.send(index)

    cdef int send(self, int index) except -1 nogil:
        """Sends what the step asks for."""
        cdef Waiter *waiter = &self.waiters[index]
        cdef char subject[LINE_SIZE_MAX]
        if waiter.kind == PUBLISH:
            snprintf(subject, LINE_SIZE_MAX, "fresh.%d", index)
            return self.put(index, subject, self.payload_data, self.payload_size)
        if waiter.kind == REQUEST:
            return self.put(index, "service", self.payload_data, self.payload_size)
        if waiter.kind == PUT_GET:
            if waiter.step == 0:
                snprintf(subject, LINE_SIZE_MAX, "$KV.B.k%llu",
                         (<u64>index * 31 + waiter.number) % KEYS)
                return self.put(index, subject, self.payload_data, self.payload_size)
            snprintf(subject, LINE_SIZE_MAX, "$JS.API.DIRECT.GET.KV_B.$KV.B.k%llu",
                     (<u64>index * 31 + waiter.number - 1) % KEYS)
            return self.put(index, subject, "", 0)
        if waiter.step == 0:
            snprintf(subject, LINE_SIZE_MAX, "$JS.API.CONSUMER.MSG.NEXT.BENCH.c%d", index)
            return self.put(index, subject, b'{"batch":1,"expires":5000000000}', 32)
        return self.put(index, waiter.ack, "+ACK", 4)

    cdef int put(self, int index, const char *subject, const char *body,
                 size_t size) except -1 nogil:
        cdef Link *link = &self.links[index]
        link_reserve(link, LINE_SIZE_MAX)
        link.output_end += snprintf(
            link.output_data + link.output_end, LINE_SIZE_MAX, "PUB %s _INBOX.w%d.%llu %zu\r\n",
            subject, index, self.waiters[index].number, size)
        link_put(link, body, size)
        link_put(link, b"\r\n", 2)
        return link_flush(link)

    cdef int receive(self, int index) except -1 nogil:
        cdef Link *link = &self.links[index]
        cdef Message message
        cdef int operation
        link_fill(link)
        while True:
            operation = link_next(link, &message)
            if operation == OP_NONE:
                break
            if operation == OP_MESSAGE:
                if index < self.count:
                    self.check(index, &message)
                else:
                    self.answer(&message)
        if link.output_end > link.output_begin:
            link_flush(link)
        return 0

    cdef int answer(self, Message *message) except -1 nogil:
        cdef Link *link = &self.links[self.count]
        link_reserve(link, LINE_SIZE_MAX)
        link.output_end += snprintf(
            link.output_data + link.output_end, LINE_SIZE_MAX, "PUB %.*s %zu\r\n",
            <int>message.reply_size, message.reply, message.payload_size)
        link_put(link, message.payload, message.payload_size)
        return link_put(link, b"\r\n", 2)

    cdef int check(self, int index, Message *message) except -1 nogil:
        """The answer to the step of a client: go on with the next one, or be done."""
        cdef Waiter *waiter = &self.waiters[index]
        cdef char inbox[SUBJECT_SIZE_MAX]
        cdef int size
        cdef bint is_message = waiter.kind == ACK_SYNC and waiter.step == 0
        if not waiter.is_waiting:
            self.refuse(message)
        if not is_message:  # a message comes with its own subject
            size = snprintf(inbox, SUBJECT_SIZE_MAX, "_INBOX.w%d.%llu", index, waiter.number)
            if message.subject_size != <size_t>size or memcmp(inbox, message.subject, size):
                self.refuse(message)
        if not self.is_expected(waiter, message):
            self.refuse(message)
        waiter.number += 1
        if is_message:
            if message.reply_size >= SUBJECT_SIZE_MAX:
                self.refuse(message)
            memcpy(waiter.ack, message.reply, message.reply_size)
            waiter.ack[message.reply_size] = 0
        if waiter.step == 0 and waiter.kind in (ACK_SYNC, PUT_GET):
            waiter.step = 1
            return self.send(index)
        self.times_ns[self.arrived] = now_ns() - waiter.started_ns
        self.kinds[self.arrived] = <unsigned char>waiter.kind
        self.arrived += 1
        waiter.is_waiting = False
        return 0

    cdef bint is_expected(self, Waiter *waiter, Message *message) noexcept nogil:
        if waiter.kind == PUBLISH or waiter.kind == PUT_GET and waiter.step == 0:
            return message.payload_size > 10 and memcmp(message.payload, b'{"stream":', 10) == 0
        if waiter.kind == ACK_SYNC and waiter.step == 1:
            return message.payload_size == 0
        if waiter.kind == ACK_SYNC:
            return message.reply_size > 0 and message.payload_size == self.payload_size
        # What is read from a bucket has headers in front.
        return message.payload_size >= self.payload_size and memcmp(
            message.payload + message.payload_size - self.payload_size,
            self.payload_data, self.payload_size) == 0

    cdef int refuse(self, Message *message) except -1 nogil:
        with gil:
            subject = message.subject[:message.subject_size].decode("utf-8", "backslashreplace")
            text = message.payload[:min(message.payload_size, <size_t>200)]
            raise LoadError(f"not the answer that was waited for: {text!r} on {subject}")
