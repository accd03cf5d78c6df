# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Publishers that each wait for their acknowledgement before they publish again.

Each has a connection of its own; all are driven by one thread. Every acknowledgement must come to
the publisher that waits for it, and no sequence of the stream may be acknowledged twice or left
out.
Never measures CPU, and makes no stream: the caller does.
"""

from benchmarks.loadgen.link cimport (
    OP_MESSAGE, OP_NONE, POLLIN, POLLOUT, Link, Message, Watch, link_close, link_fill, link_flush,
    link_next, link_open, link_put, link_reserve, link_sync, now_ns, poll, pollfd, u64,
    watch_start, watch_turn,
)
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memset

from benchmarks.loadgen.link import LoadError

cdef enum:
    LINE_SIZE_MAX = 128


cdef class Crowd:
    """`count` publishers to the subjects `bench.0`, `bench.1` and so on of one stream."""

    cdef Link *links
    cdef pollfd *polls
    cdef u64 *sent              # per publisher: messages written
    cdef bint *is_waiting       # ... whether the last one is not acknowledged
    cdef u64 *started_ns
    cdef u64 *times_ns
    cdef unsigned char *acked   # one flag per sequence of the run
    cdef u64 first              # the sequence before the first of the run
    cdef u64 arrived, written
    cdef int count
    cdef bytes payload          # held for payload_data
    cdef const char *payload_data
    cdef size_t payload_size
    cdef bytes ack_head
    cdef const char *ack_text
    cdef size_t ack_size

    def __cinit__(self, bytes host, int port, *, int count, bytes stream, int payload_size):
        cdef const char *address = host
        cdef int index
        cdef bytes line
        self.count = count
        self.payload = b"x" * payload_size
        self.payload_data, self.payload_size = self.payload, payload_size
        self.ack_head = b'{"stream":"%b","seq":' % stream
        self.ack_text, self.ack_size = self.ack_head, len(self.ack_head)
        self.links = <Link *>calloc(count, sizeof(Link))
        self.polls = <pollfd *>calloc(count, sizeof(pollfd))
        self.sent = <u64 *>calloc(count, sizeof(u64))
        self.is_waiting = <bint *>calloc(count, sizeof(bint))
        self.started_ns = <u64 *>calloc(count, sizeof(u64))
        if (self.links == NULL or self.polls == NULL or self.sent == NULL
                or self.is_waiting == NULL or self.started_ns == NULL):
            raise MemoryError
        for index in range(count):
            with nogil:
                link_open(&self.links[index], address, port)
            self.polls[index].fd = self.links[index].fd
            line = b"SUB _INBOX.p%d.* 1\r\n" % index
            link_put(&self.links[index], line, len(line))
            with nogil:
                link_sync(&self.links[index])

    def __dealloc__(self):
        self.shut()
        free(self.links)
        free(self.polls)
        free(self.sent)
        free(self.is_waiting)
        free(self.started_ns)
        free(self.times_ns)
        free(self.acked)

    cdef void shut(self) noexcept:
        cdef int index
        if self.links != NULL:
            for index in range(self.count):
                link_close(&self.links[index])

    def close(self):
        """Closes every connection; a second call does nothing."""
        self.shut()

    def publish(self, u64 count, u64 first, *, double time_limit_s):
        """Publishes `count` messages, or fewer if the time is over; how many it were.

        `first` is the last sequence that the stream has.
        """
        cdef u64 seq
        cdef u64 *times = <u64 *>realloc(self.times_ns, (count + 1) * sizeof(u64))
        if times == NULL:
            raise MemoryError
        self.times_ns = times
        cdef unsigned char *flags = <unsigned char *>realloc(self.acked, count + 1)
        if flags == NULL:
            raise MemoryError
        memset(flags, 0, count + 1)
        self.acked, self.first, self.arrived, self.written = flags, first, 0, 0
        with nogil:
            self.drive(count, <u64>(time_limit_s * 1e9))
        for seq in range(self.arrived):
            if not self.acked[seq]:
                raise LoadError(f"sequence {first + seq + 1} was acknowledged to nobody")
        return self.arrived

    def latencies_ns(self):
        """Of the last run: from the write of each message to the read of its answer."""
        cdef u64 index
        return [self.times_ns[index] for index in range(self.arrived)]

    cdef int drive(self, u64 wanted, u64 time_limit_ns) except -1 nogil:
        cdef Watch watch
        cdef int index, ready
        cdef u64 started_ns = now_ns()
        watch_start(&watch, 0)
        while self.arrived < wanted:
            if now_ns() - started_ns > time_limit_ns:
                wanted = self.written
            for index in range(self.count):
                if not self.is_waiting[index] and self.written < wanted:
                    self.send(index)
            for index in range(self.count):
                self.polls[index].events = POLLIN
                if self.links[index].output_end > self.links[index].output_begin:
                    self.polls[index].events |= POLLOUT
            ready = poll(self.polls, self.count, 100)
            for index in range(self.count):
                if ready > 0 and self.polls[index].revents:
                    self.receive(index)
            watch_turn(&watch, self.arrived, wanted)
        return 0

    cdef int send(self, int index) except -1 nogil:
        cdef Link *link = &self.links[index]
        link_reserve(link, LINE_SIZE_MAX)
        link.output_end += snprintf(
            link.output_data + link.output_end, LINE_SIZE_MAX,
            "PUB bench.%d _INBOX.p%d.%llu %zu\r\n", index, index, self.sent[index],
            self.payload_size)
        link_put(link, self.payload_data, self.payload_size)
        link_put(link, b"\r\n", 2)
        self.started_ns[index] = now_ns()
        self.is_waiting[index] = True
        self.written += 1
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
                self.check(index, &message)
        if link.output_end > link.output_begin:
            link_flush(link)
        return 0

    cdef int check(self, int index, Message *message) except -1 nogil:
        cdef char inbox[LINE_SIZE_MAX]
        cdef int size = snprintf(inbox, LINE_SIZE_MAX, "_INBOX.p%d.%llu", index, self.sent[index])
        cdef const char *at = message.payload + self.ack_size
        cdef const char *end = message.payload + message.payload_size
        cdef u64 seq = 0
        if (not self.is_waiting[index] or <size_t>size != message.subject_size
                or memcmp(inbox, message.subject, size) or at >= end
                or memcmp(message.payload, self.ack_text, self.ack_size)):
            self.refuse(message)
        while at < end and c'0' <= at[0] <= c'9':
            seq = seq * 10 + <u64>(at[0] - c'0')
            at += 1
        if not self.first < seq <= self.first + self.written or self.acked[seq - self.first - 1]:
            self.refuse(message)
        self.acked[seq - self.first - 1] = 1
        self.times_ns[self.arrived] = now_ns() - self.started_ns[index]
        self.arrived += 1
        self.sent[index] += 1
        self.is_waiting[index] = False
        return 0

    cdef int refuse(self, Message *message) except -1 nogil:
        with gil:
            subject = message.subject[:message.subject_size].decode("utf-8", "backslashreplace")
            text = message.payload[:min(message.payload_size, <size_t>200)]
            raise LoadError(f"not the acknowledgement that was waited for: {text!r} on {subject}")
