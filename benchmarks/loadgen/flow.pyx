# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Publish and subscribe: some publishers, some subscribers, a bounded number of messages between.

Every payload begins with the publisher's index and its sequence, so that each delivery is checked:
size, content, subject, order per publisher, and exactly once. A server that loses, repeats,
reorders or alters a message fails. Never measures time or CPU: the caller does, around run().
"""

from benchmarks.loadgen.link cimport (
    OP_MESSAGE, OP_NONE, OP_PONG, POLLIN, POLLOUT, Link, Message, Watch, link_close, link_fill,
    link_flush, link_next, link_open_as, link_put, link_reserve, link_sync, poll, pollfd, u64,
    watch_start, watch_turn,
)
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from benchmarks.loadgen.link import LoadError, greeting_of

cdef enum:
    HEAD_SIZE = 12             # u32 publisher index, u64 sequence
    BATCH_MAX = 256            # messages written per publisher and turn
    OUTPUT_SIZE_MAX = 1 << 18  # no more is encoded while this much waits for the socket


cdef void *allocate(size_t count, size_t size) except NULL:
    cdef void *memory = calloc(max(count, <size_t>1), size)
    if memory == NULL:
        raise MemoryError
    return memory


cdef class Flow:
    """Connections of one publish/subscribe load; run() may be called again and goes on counting."""

    cdef Link *links              # the publishers, then the subscribers
    cdef pollfd *polls            # one per link
    cdef u64 *sent                # per publisher: messages encoded, the next sequence
    cdef u64 *returned            # per publisher: messages delivered to all, or known processed
    cdef u64 *pings               # per publisher, only without deliveries
    cdef u64 *pongs
    cdef u64 *expected            # per subscriber and publisher: the next sequence (or the least)
    cdef unsigned char *seen      # queue group only: one flag per sequence and publisher
    cdef char *templates          # the encoded PUB of every subject, one after another
    cdef size_t *template_ends
    cdef size_t template_count
    cdef int publisher_count
    cdef int subscriber_count
    cdef bint queue
    cdef bint delivered           # False: nobody may receive, progress is seen by PING and PONG
    cdef size_t payload_size
    cdef u64 inflight_max         # per publisher
    cdef u64 batch
    cdef u64 target               # per publisher: the sequence at which the run ends
    cdef u64 arrived              # deliveries, or processed publishes without deliveries

    def __cinit__(self, bytes host, int port, *, int publishers, int subscribers,
                  int payload_size, int inflight_max, bint queue=False, int subscriber_port=0,
                  bytes publisher=b"", bytes subscriber=b""):
        cdef const char *address = host
        cdef const char *greeting
        cdef bytes connect
        cdef int index
        if payload_size < HEAD_SIZE:
            raise ValueError(f"payload_size must be at least {HEAD_SIZE}, not {payload_size}")
        self.publisher_count, self.subscriber_count = publishers, subscribers
        self.queue, self.payload_size = queue, payload_size
        self.inflight_max = max(inflight_max // publishers, 2)
        self.batch = min(<u64>BATCH_MAX, self.inflight_max // 2)
        self.links = <Link *>allocate(publishers + subscribers, sizeof(Link))
        self.polls = <pollfd *>allocate(publishers + subscribers, sizeof(pollfd))
        self.sent = <u64 *>allocate(publishers, sizeof(u64))
        self.returned = <u64 *>allocate(publishers, sizeof(u64))
        self.pings = <u64 *>allocate(publishers, sizeof(u64))
        self.pongs = <u64 *>allocate(publishers, sizeof(u64))
        self.expected = <u64 *>allocate(publishers * subscribers, sizeof(u64))
        for index in range(publishers + subscribers):
            if index == publishers and subscriber_port:
                port = subscriber_port
            connect = greeting_of(publisher if index < publishers else subscriber)
            greeting = connect
            with nogil:
                link_open_as(&self.links[index], address, port, greeting)
            self.polls[index].fd = self.links[index].fd

    def __dealloc__(self):
        self.shut()
        free(self.links)
        free(self.polls)
        free(self.sent)
        free(self.returned)
        free(self.pings)
        free(self.pongs)
        free(self.expected)
        free(self.seen)
        free(self.templates)
        free(self.template_ends)

    cdef void shut(self) noexcept:
        cdef int index
        if self.links != NULL:
            for index in range(self.publisher_count + self.subscriber_count):
                link_close(&self.links[index])

    def close(self):
        """Closes every connection; a second call does nothing."""
        self.shut()

    def subscribe(self, bytes lines):
        """Every subscriber sends these encoded SUB lines, and the server has taken them all."""
        cdef int index
        for index in range(self.publisher_count, self.publisher_count + self.subscriber_count):
            link_put(&self.links[index], lines, len(lines))
            with nogil:
                link_sync(&self.links[index])

    def set_subjects(self, list subjects, *, bint delivered):
        """Message n of a publisher goes to subject n modulo their number."""
        cdef bytes head = b"\0" * HEAD_SIZE + b"x" * (self.payload_size - HEAD_SIZE)
        cdef bytes subject
        cdef size_t index = 0, offset = 0
        cdef list encoded = [b"PUB %b %d\r\n%b\r\n" % (subject, self.payload_size, head)
                             for subject in subjects]
        cdef bytes joined = b"".join(encoded)
        free(self.templates)
        free(self.template_ends)
        self.templates, self.template_ends = NULL, NULL
        self.templates = <char *>allocate(len(joined), 1)
        memcpy(self.templates, <const char *>joined, len(joined))
        self.template_ends = <size_t *>allocate(len(encoded), sizeof(size_t))
        self.template_count = len(encoded)
        for index, line in enumerate(encoded):
            offset += len(line)
            self.template_ends[index] = offset
        self.delivered = delivered

    def run(self, u64 count):
        """Publishes `count` messages in all and returns when each has arrived as it must."""
        cdef u64 share = count // self.publisher_count
        cdef size_t old_size = self.target * self.publisher_count
        self.target += share
        if self.queue:
            self.seen = <unsigned char *>realloc(self.seen, self.target * self.publisher_count)
            if self.seen == NULL:
                raise MemoryError
            memset(self.seen + old_size, 0, self.target * self.publisher_count - old_size)
        with nogil:
            self.drive(share)

    def finish(self):
        """Asks every connection for a last PONG: nothing else may still be on its way."""
        cdef int index
        with nogil:
            for index in range(self.publisher_count + self.subscriber_count):
                link_sync(&self.links[index])

    cdef int drive(self, u64 share) except -1 nogil:
        cdef u64 fan = 1 if self.queue or not self.delivered else self.subscriber_count
        cdef u64 wanted = self.arrived + share * self.publisher_count * fan
        cdef Watch watch
        cdef int index, more, ready
        watch_start(&watch, self.arrived)
        while self.arrived < wanted:
            more = 0
            for index in range(self.publisher_count):
                more |= self.produce(index)
            for index in range(self.publisher_count + self.subscriber_count):
                self.polls[index].events = POLLIN
                if self.links[index].output_end > self.links[index].output_begin:
                    self.polls[index].events |= POLLOUT
            ready = poll(self.polls, self.publisher_count + self.subscriber_count,
                         0 if more else 100)
            for index in range(self.publisher_count + self.subscriber_count):
                if ready > 0 and self.polls[index].revents:
                    self.serve(index)
            watch_turn(&watch, self.arrived, wanted)
        return 0

    cdef int produce(self, int publisher) except -1 nogil:
        """Encodes one batch if the window and the output have room. 1: there is room for more."""
        cdef Link *link = &self.links[publisher]
        cdef u64 left = self.target - self.sent[publisher]
        cdef u64 room = self.inflight_max - (self.sent[publisher] - self.returned[publisher])
        cdef u64 count = min(self.batch, left)
        if count == 0 or room < count or link.output_end - link.output_begin >= OUTPUT_SIZE_MAX:
            return 0
        self.encode(link, publisher, count)
        if not self.delivered:
            link_put(link, b"PING\r\n", 6)
            self.pings[publisher] += 1
        link_flush(link)
        return left > count and room >= 2 * count and link.output_end == 0

    cdef int encode(self, Link *link, unsigned int publisher, u64 count) except -1 nogil:
        cdef u64 sequence = self.sent[publisher]
        cdef size_t index = sequence % self.template_count
        cdef size_t begin, size
        cdef char *line
        self.sent[publisher] += count
        while count:
            begin = self.template_ends[index - 1] if index else 0
            size = self.template_ends[index] - begin
            link_reserve(link, size)
            line = link.output_data + link.output_end
            memcpy(line, self.templates + begin, size)
            line += size - 2 - self.payload_size
            memcpy(line, &publisher, 4)
            memcpy(line + 4, &sequence, 8)
            link.output_end += size
            sequence += 1
            count -= 1
            index += 1
            if index == self.template_count:
                index = 0
        return 0

    cdef int serve(self, int index) except -1 nogil:
        """Reads what a ready link has and checks it; also sends what had to wait."""
        cdef Link *link = &self.links[index]
        cdef Message message
        cdef int operation
        cdef u64 returned
        link_fill(link)
        while True:
            operation = link_next(link, &message)
            if operation == OP_NONE:
                break
            if operation == OP_MESSAGE:
                self.check(index - self.publisher_count, &message)
            elif operation == OP_PONG and index < self.publisher_count:
                self.pongs[index] += 1
                returned = self.sent[index]
                if self.pongs[index] < self.pings[index]:
                    returned = self.returned[index] + self.batch
                self.arrived += returned - self.returned[index]
                self.returned[index] = returned
        if index >= self.publisher_count and not self.queue and self.delivered:
            self.update_returned()
        if link.output_end > link.output_begin:
            link_flush(link)
        return 0

    cdef void update_returned(self) noexcept nogil:
        """What the slowest subscriber of each publisher has: that alone opens the window."""
        cdef int publisher, subscriber
        cdef u64 least, value
        for publisher in range(self.publisher_count):
            least = self.expected[publisher]
            for subscriber in range(1, self.subscriber_count):
                value = self.expected[subscriber * self.publisher_count + publisher]
                least = min(least, value)
            self.returned[publisher] = least

    cdef int check(self, int subscriber, Message *message) except -1 nogil:
        """One delivery: the right bytes, in the right order, once."""
        cdef unsigned int publisher = 0
        cdef u64 sequence = 0
        cdef u64 *expected
        cdef size_t index, begin, head
        if message.payload_size != self.payload_size:
            self.refuse("payload has the wrong size", message)
        memcpy(&publisher, message.payload, 4)
        memcpy(&sequence, message.payload + 4, 8)
        if subscriber < 0 or not self.delivered:
            self.refuse("delivery that nobody subscribed to", message)
        if publisher >= <unsigned int>self.publisher_count or sequence >= self.sent[publisher]:
            self.refuse("payload was altered", message)
        index = sequence % self.template_count
        begin = self.template_ends[index - 1] if index else 0
        head = self.template_ends[index] - 2 - self.payload_size + HEAD_SIZE
        if memcmp(message.payload + HEAD_SIZE, self.templates + head,
                  self.payload_size - HEAD_SIZE):
            self.refuse("payload was altered", message)
        if (begin + 4 + message.subject_size >= self.template_ends[index]
                or memcmp(message.subject, self.templates + begin + 4, message.subject_size)
                or self.templates[begin + 4 + message.subject_size] != c' '):
            self.refuse("wrong subject", message)
        expected = &self.expected[subscriber * self.publisher_count + publisher]
        if self.queue:
            if sequence < expected[0] or self.seen[sequence * self.publisher_count + publisher]:
                self.refuse("message repeated or out of order", message)
            self.seen[sequence * self.publisher_count + publisher] = 1
            self.returned[publisher] += 1
        elif sequence != expected[0]:
            self.refuse("message lost, repeated or out of order", message)
        expected[0] = sequence + 1
        self.arrived += 1
        return 0

    cdef int refuse(self, const char *what, Message *message) except -1 nogil:
        with gil:
            subject = message.subject[:message.subject_size].decode("utf-8", "backslashreplace")
            raise LoadError(
                f"{what.decode()}: subject {subject}, {message.payload_size} bytes, "
                f"after {self.arrived} good deliveries"
            )
