# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Requests and replies: requesters that keep some requests outstanding, and one responder.

Each request has a reply subject of its own under the requester's inbox, as client libraries do it.
The responder echoes the payload. Replies are checked for subject, content and order, and the time
from the write of a request to the read of its reply is kept. Never measures CPU.
"""

from benchmarks.loadgen.link cimport (
    OP_MESSAGE, OP_NONE, POLLIN, POLLOUT, Link, Message, Watch, link_close, link_fill, link_flush,
    link_next, link_open_as, link_put, link_reserve, link_sync, now_ns, poll, pollfd, u64,
    watch_start, watch_turn,
)
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp

from benchmarks.loadgen.link import LoadError, greeting_of

cdef enum:
    LINE_SIZE_MAX = 128


cdef class RequestReply:
    """Link 0 is the responder, the others are requesters."""

    cdef Link *links
    cdef pollfd *polls
    cdef u64 *started_ns      # per requester a ring of `outstanding` start times
    cdef u64 *sent            # per requester: requests written
    cdef u64 *received        # per requester: replies read, the next one expected
    cdef u64 *latencies_ns
    cdef u64 arrived
    cdef u64 target           # per requester
    cdef int requester_count
    cdef u64 outstanding
    cdef bytes payload        # held for payload_data
    cdef const char *payload_data
    cdef size_t payload_size

    def __cinit__(self, bytes host, int port, *, int requesters, int outstanding,
                  int payload_size, bytes responder=b"", bytes requester=b""):
        cdef const char *address = host
        cdef const char *greeting
        cdef int index
        cdef bytes line, connect
        self.requester_count, self.outstanding = requesters, outstanding
        self.payload = b"q" * payload_size
        self.payload_data, self.payload_size = self.payload, payload_size
        self.links = <Link *>calloc(requesters + 1, sizeof(Link))
        self.polls = <pollfd *>calloc(requesters + 1, sizeof(pollfd))
        self.started_ns = <u64 *>calloc(requesters * outstanding, sizeof(u64))
        self.sent = <u64 *>calloc(requesters, sizeof(u64))
        self.received = <u64 *>calloc(requesters, sizeof(u64))
        if (self.links == NULL or self.polls == NULL or self.started_ns == NULL
                or self.sent == NULL or self.received == NULL):
            raise MemoryError
        for index in range(requesters + 1):
            connect = greeting_of(requester if index else responder)
            greeting = connect
            with nogil:
                link_open_as(&self.links[index], address, port, greeting)
            self.polls[index].fd = self.links[index].fd
            line = b"SUB _INBOX.c%d.* 1\r\n" % index if index else b"SUB service.echo 1\r\n"
            link_put(&self.links[index], line, len(line))
            with nogil:
                link_sync(&self.links[index])

    def __dealloc__(self):
        self.shut()
        free(self.links)
        free(self.polls)
        free(self.started_ns)
        free(self.sent)
        free(self.received)
        free(self.latencies_ns)

    cdef void shut(self) noexcept:
        cdef int index
        if self.links != NULL:
            for index in range(self.requester_count + 1):
                link_close(&self.links[index])

    def close(self):
        """Closes every connection; a second call does nothing."""
        self.shut()

    def run(self, u64 count):
        """Makes `count` requests in all; returns the round-trip times in ns in order of arrival."""
        cdef u64 share = count // self.requester_count
        cdef u64 index
        self.latencies_ns = <u64 *>realloc(
            self.latencies_ns, (share * self.requester_count + 1) * sizeof(u64))
        if self.latencies_ns == NULL:
            raise MemoryError
        self.arrived = 0
        self.target += share
        with nogil:
            self.drive(share * self.requester_count)
        return [self.latencies_ns[index] for index in range(self.arrived)]

    def finish(self):
        """Asks every connection for a last PONG: nothing else may still be on its way."""
        cdef int index
        with nogil:
            for index in range(self.requester_count + 1):
                link_sync(&self.links[index])

    cdef int drive(self, u64 wanted) except -1 nogil:
        cdef Watch watch
        cdef int index, ready
        watch_start(&watch, 0)
        while self.arrived < wanted:
            for index in range(self.requester_count):
                self.ask(index)
            for index in range(self.requester_count + 1):
                self.polls[index].events = POLLIN
                if self.links[index].output_end > self.links[index].output_begin:
                    self.polls[index].events |= POLLOUT
            ready = poll(self.polls, self.requester_count + 1, 100)
            for index in range(self.requester_count + 1):
                if ready > 0 and self.polls[index].revents:
                    self.serve(index)
            watch_turn(&watch, self.arrived, wanted)
        return 0

    cdef int ask(self, int requester) except -1 nogil:
        """Writes as many requests as may be outstanding."""
        cdef Link *link = &self.links[requester + 1]
        cdef u64 sequence = self.sent[requester]
        cdef u64 end = min(self.target, self.received[requester] + self.outstanding)
        if sequence >= end:
            return 0
        while sequence < end:
            link_reserve(link, LINE_SIZE_MAX)
            link.output_end += snprintf(
                link.output_data + link.output_end, LINE_SIZE_MAX,
                "PUB service.echo _INBOX.c%d.%llu %zu\r\n",
                requester + 1, sequence, self.payload_size)
            link_put(link, self.payload_data, self.payload_size)
            link_put(link, b"\r\n", 2)
            self.started_ns[requester * self.outstanding + sequence % self.outstanding] = now_ns()
            sequence += 1
        self.sent[requester] = sequence
        return link_flush(link)

    cdef int serve(self, int index) except -1 nogil:
        cdef Link *link = &self.links[index]
        cdef Message message
        cdef int operation
        cdef u64 arrived_ns
        link_fill(link)
        arrived_ns = now_ns()
        while True:
            operation = link_next(link, &message)
            if operation == OP_NONE:
                break
            if operation == OP_MESSAGE:
                if index == 0:
                    self.reply(link, &message)
                else:
                    self.check(index - 1, &message, arrived_ns)
        if link.output_end > link.output_begin:
            link_flush(link)
        return 0

    cdef int reply(self, Link *link, Message *message) except -1 nogil:
        if message.reply_size == 0:
            with gil:
                raise LoadError("a request arrived without its reply subject")
        # What crosses accounts has a header in front.
        if message.payload_size < self.payload_size:
            with gil:
                raise LoadError("a request arrived without its payload")
        link_reserve(link, LINE_SIZE_MAX + message.reply_size)
        link.output_end += snprintf(
            link.output_data + link.output_end, LINE_SIZE_MAX + message.reply_size,
            "PUB %.*s %zu\r\n", <int>message.reply_size, message.reply, self.payload_size)
        link_put(link, message.payload + message.payload_size - self.payload_size,
                 self.payload_size)
        return link_put(link, b"\r\n", 2)

    cdef int check(self, int requester, Message *message, u64 arrived_ns) except -1 nogil:
        cdef char inbox[LINE_SIZE_MAX]
        cdef u64 sequence = self.received[requester]
        cdef int size = snprintf(inbox, LINE_SIZE_MAX, "_INBOX.c%d.%llu", requester + 1, sequence)
        if <size_t>size != message.subject_size or memcmp(inbox, message.subject, size):
            with gil:
                subject = message.subject[:message.subject_size].decode("utf-8", "replace")
                raise LoadError(f"reply on {subject}, expected it on {inbox[:size].decode()}")
        if message.payload_size != self.payload_size \
                or memcmp(message.payload, self.payload_data, self.payload_size):
            with gil:
                raise LoadError(f"reply {sequence} does not have the payload of its request")
        self.latencies_ns[self.arrived] = (
            arrived_ns - self.started_ns[requester * self.outstanding
                                         + sequence % self.outstanding])
        self.received[requester] = sequence + 1
        self.arrived += 1
        return 0
