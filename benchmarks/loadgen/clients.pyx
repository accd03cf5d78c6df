# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Clients that are threads of their own: one publisher, and subscribers that each get everything.

Unlike in `flow` nobody waits for anybody, as programs do not that know nothing of each other: the
publisher sends as fast as the server reads, and each subscriber reads as fast as it can. Only a
window of many megabytes keeps a server from giving up a subscriber. Every delivery is checked:
size, content, order, exactly once. Never measures time or CPU: the caller does.
"""

from benchmarks.loadgen.link cimport (
    OP_MESSAGE, OP_NONE, POLLIN, POLLOUT, Link, Message, Watch, link_close, link_fill, link_flush,
    link_next, link_open, link_put, link_reserve, link_sync, poll, pollfd, u64, watch_start,
    watch_turn,
)
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from benchmarks.loadgen.link import LoadError

cdef extern from *:
    """
    typedef volatile unsigned long long volatile_u64;
    """
    ctypedef u64 volatile_u64

cdef enum:
    HEAD_SIZE = 8              # u64 sequence
    BATCH_MAX = 256            # messages written in one go
    WINDOW_BYTES = 1 << 25     # on their way to the slowest subscriber: half of max_pending
    FRAME_BYTES = 64           # of one message on the wire, besides its payload


cdef class Clients:
    """The connections; for each subscriber one thread calls receive(), and one calls publish()."""

    cdef Link *links           # the publisher, then the subscribers
    cdef u64 *arrived          # per subscriber; the publisher reads what others write
    cdef bytes line            # PUB with its payload; the sequence is put in
    cdef const char *line_data
    cdef size_t line_size
    cdef int subscriber_count
    cdef size_t payload_size
    cdef u64 sent
    cdef u64 window

    def __cinit__(self, bytes host, int port, *, int subscribers, int payload_size):
        cdef const char *address = host
        cdef int index
        if payload_size < HEAD_SIZE:
            raise ValueError(f"payload_size must be at least {HEAD_SIZE}, not {payload_size}")
        self.subscriber_count, self.payload_size = subscribers, payload_size
        self.window = WINDOW_BYTES // (payload_size + FRAME_BYTES)
        self.line = b"PUB clients.all %d\r\n%b\r\n" % (payload_size, b"x" * payload_size)
        self.line_data, self.line_size = self.line, len(self.line)
        self.links = <Link *>calloc(subscribers + 1, sizeof(Link))
        self.arrived = <u64 *>calloc(subscribers + 1, sizeof(u64))
        if self.links == NULL or self.arrived == NULL:
            raise MemoryError
        for index in range(subscribers + 1):
            with nogil:
                link_open(&self.links[index], address, port)
            if index:
                link_put(&self.links[index], b"SUB clients.> 1\r\n", 17)
                with nogil:
                    link_sync(&self.links[index])

    def __dealloc__(self):
        self.shut()
        free(self.links)
        free(self.arrived)

    cdef void shut(self) noexcept:
        cdef int index
        if self.links != NULL:
            for index in range(self.subscriber_count + 1):
                link_close(&self.links[index])

    def close(self):
        """Closes every connection; a second call does nothing."""
        self.shut()

    def publish(self, u64 count):
        """Sends `count` more messages."""
        with nogil:
            self.send_all(self.sent + count)

    def receive(self, int subscriber, u64 count):
        """Returns when `count` more messages have arrived at this subscriber as they must."""
        if not 0 <= subscriber < self.subscriber_count:
            raise ValueError(f"subscriber must be below {self.subscriber_count}, not {subscriber}")
        with nogil:
            self.take_all(subscriber, self.arrived[subscriber] + count)

    def finish(self):
        """Asks every connection for a last PONG: nothing else may still be on its way."""
        cdef int index
        with nogil:
            for index in range(self.subscriber_count + 1):
                link_sync(&self.links[index])

    cdef u64 slowest(self) noexcept nogil:
        cdef u64 least = self.sent
        cdef int index
        for index in range(self.subscriber_count):
            least = min(least, (<volatile_u64 *>self.arrived)[index])
        return least

    cdef int send_all(self, u64 wanted) except -1 nogil:
        cdef Link *link = &self.links[0]
        cdef Message message
        cdef Watch watch
        cdef pollfd entry
        cdef u64 moved = 0
        entry.fd = link.fd
        watch_start(&watch, moved)
        while self.sent < wanted or link.output_end:
            if link.output_end == 0 and self.sent - self.slowest() < self.window:
                self.encode(link, min(<u64>BATCH_MAX, wanted - self.sent))
            if link.output_end:
                link_flush(link)
            if link.output_end == 0 and self.sent - self.slowest() < self.window:
                moved += 1
            else:
                entry.events = POLLIN | (POLLOUT if link.output_end else 0)
                if poll(&entry, 1, 100 if link.output_end else 1) > 0:
                    moved += 1
                    if entry.revents & POLLIN:
                        link_fill(link)
                        while link_next(link, &message) != OP_NONE:
                            pass
            watch_turn(&watch, moved + self.slowest(), wanted)
        return 0

    cdef int encode(self, Link *link, u64 count) except -1 nogil:
        cdef size_t size = self.line_size
        cdef size_t head = size - 2 - self.payload_size
        link_reserve(link, size * count)
        while count:
            memcpy(link.output_data + link.output_end, self.line_data, size)
            memcpy(link.output_data + link.output_end + head, &self.sent, HEAD_SIZE)
            link.output_end += size
            self.sent += 1
            count -= 1
        return 0

    cdef int take_all(self, int subscriber, u64 wanted) except -1 nogil:
        cdef Link *link = &self.links[subscriber + 1]
        cdef Message message
        cdef Watch watch
        cdef pollfd entry
        cdef int operation
        entry.fd = link.fd
        watch_start(&watch, self.arrived[subscriber])
        while self.arrived[subscriber] < wanted:
            entry.events = POLLIN
            if poll(&entry, 1, 100) > 0:
                link_fill(link)
                while True:
                    operation = link_next(link, &message)
                    if operation == OP_NONE:
                        break
                    if operation == OP_MESSAGE:
                        self.check(subscriber, &message)
                if link.output_end:
                    link_flush(link)
            watch_turn(&watch, self.arrived[subscriber], wanted)
        return 0

    cdef int check(self, int subscriber, Message *message) except -1 nogil:
        """One delivery: the right bytes, in the right order, once."""
        cdef u64 sequence = 0
        if message.payload_size != self.payload_size:
            self.refuse("payload has the wrong size", subscriber, message)
        if message.subject_size != 11 or memcmp(message.subject, b"clients.all", 11):
            self.refuse("wrong subject", subscriber, message)
        memcpy(&sequence, message.payload, HEAD_SIZE)
        if sequence != self.arrived[subscriber]:
            self.refuse("message lost, repeated or out of order", subscriber, message)
        if message.payload_size > HEAD_SIZE and (
                message.payload[HEAD_SIZE] != c'x' or memcmp(
                    message.payload + HEAD_SIZE, message.payload + HEAD_SIZE + 1,
                    message.payload_size - HEAD_SIZE - 1)):
            self.refuse("payload was altered", subscriber, message)
        self.arrived[subscriber] += 1
        return 0

    cdef int refuse(self, const char *what, int subscriber, Message *message) except -1 nogil:
        with gil:
            subject = message.subject[:message.subject_size].decode("utf-8", "backslashreplace")
            raise LoadError(
                f"{what.decode()}: subject {subject}, {message.payload_size} bytes, subscriber "
                f"{subscriber}, after {self.arrived[subscriber]} good deliveries"
            )
