# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Publishers to streams and readers of consumers, each on a connection of its own.

Message n goes to subject `bench.<n modulo the number of subjects>`, or another prefix, carries n in
its first eight bytes, and must get sequence n + 1 of its stream. Every acknowledgement and every
delivery is checked for that: a server that loses, repeats, reorders or alters one fails. Never
measures CPU, and makes no stream or consumer: the caller does.
"""

from benchmarks.loadgen.link cimport (
    OP_MESSAGE, OP_NONE, POLLIN, POLLOUT, Link, Message, Watch, link_close, link_fill, link_flush,
    link_next, link_open, link_put, link_reserve, link_sync, now_ns, poll, pollfd, u64,
    watch_start, watch_turn,
)
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset, strlen

from benchmarks.loadgen.link import LoadError

cdef enum:
    HEAD_SIZE = 8              # u64: the number of the message
    LINE_SIZE_MAX = 256        # of a PUB or HPUB line with its header
    OUTPUT_SIZE_MAX = 1 << 18  # no more is encoded while this much waits for the socket
    DIGITS_MAX = 20

cdef const char *INBOX = "_INBOX.publisher."
cdef const char *SUBJECT = "bench."
cdef const char *ID_HEAD = "NATS/1.0\r\nNats-Msg-Id: id-"
cdef const char *PULL_HEAD = "PUB $JS.API.CONSUMER.MSG.NEXT."


cdef char *put_text(char *at, const char *text) noexcept nogil:
    cdef size_t size = strlen(text)
    memcpy(at, text, size)
    return at + size


cdef char *put_number(char *at, u64 value) noexcept nogil:
    cdef char digits[DIGITS_MAX]
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


cdef bint take_number(const char **at, const char *end, u64 *value) noexcept nogil:
    """Reads digits from `at` on; False if there is none."""
    cdef const char *start = at[0]
    value[0] = 0
    while at[0] < end and c'0' <= at[0][0] <= c'9':
        value[0] = value[0] * 10 + <u64>(at[0][0] - c'0')
        at[0] += 1
    return at[0] > start


cdef bint take_text(const char **at, const char *end, const char *text) noexcept nogil:
    cdef size_t size = strlen(text)
    if <size_t>(end - at[0]) < size or memcmp(at[0], text, size):
        return False
    at[0] += size
    return True


cdef const char *find_text(const char *at, const char *end, const char *text) noexcept nogil:
    """Behind the first place where the text is; NULL if it is not there."""
    cdef size_t size = strlen(text)
    while at + size <= end:
        if memcmp(at, text, size) == 0:
            return at + size
        at += 1
    return NULL


cdef int refuse(const char *what, Message *message, u64 done) except -1 nogil:
    with gil:
        subject = message.subject[:message.subject_size].decode("utf-8", "backslashreplace")
        text = message.payload[:min(message.payload_size, <size_t>200)]
        shown = text.decode("utf-8", "backslashreplace").strip()
        raise LoadError(f"{what.decode()}: subject {subject}, {shown!r}, after {done} good ones")


cdef int wait(Link *link) except -1 nogil:
    """Until the link can be read or, if something waits to be sent, written."""
    cdef pollfd entry
    entry.fd = link.fd
    entry.events = POLLIN
    if link.output_end > link.output_begin:
        entry.events |= POLLOUT
    poll(&entry, 1, 100)
    return 0


cdef class Publisher:
    """One connection that publishes with a bounded number of acknowledgements outstanding."""

    cdef Link link
    cdef bytes ack_head         # how every acknowledgement begins; empty with several streams
    cdef const char *ack_text
    cdef bytes prefix           # of every subject
    cdef const char *prefix_text
    cdef bytes payload          # held for payload_data
    cdef const char *payload_data
    cdef size_t payload_size
    cdef u64 subject_count
    cdef u64 stream_count       # message n goes to stream n modulo this
    cdef u64 sent               # the number of the next message
    cdef u64 received           # the number of the next acknowledgement
    cdef bint ids
    cdef bint duplicate         # whether acknowledgements must say so
    cdef u64 window
    cdef u64 *started_ns        # a ring with the time of each message under way
    cdef u64 *times_ns          # of each acknowledged message of the last run
    cdef u64 times_count
    cdef u64 first              # the first message of the run
    cdef unsigned char *answered  # several streams only: one flag per message of the run

    def __cinit__(self, bytes host, int port, *, bytes stream, int payload_size,
                  u64 subject_count, u64 stream_count=1, bytes prefix=SUBJECT):
        cdef const char *address = host
        if payload_size < HEAD_SIZE:
            raise ValueError(f"payload_size must be at least {HEAD_SIZE}, not {payload_size}")
        memset(&self.link, 0, sizeof(Link))
        self.ack_head = b'{"stream":"%b","seq":' % stream if stream_count == 1 else b""
        self.ack_text = self.ack_head
        self.prefix = prefix
        self.prefix_text = self.prefix
        self.payload = b"x" * payload_size
        self.payload_data, self.payload_size = self.payload, payload_size
        self.subject_count, self.stream_count = subject_count, stream_count
        with nogil:
            link_open(&self.link, address, port)
        line = b"SUB %b* 1\r\n" % INBOX
        link_put(&self.link, line, len(line))
        with nogil:
            link_sync(&self.link)

    def __dealloc__(self):
        link_close(&self.link)
        free(self.started_ns)
        free(self.times_ns)
        free(self.answered)

    def close(self):
        """Closes the connection; a second call does nothing."""
        link_close(&self.link)

    def publish(self, u64 count, *, u64 window, bint ids=False, double time_limit_s=0.0):
        """Publishes the next `count` messages, or fewer if the time is over; how many it were."""
        cdef u64 first = self.sent
        self.ids, self.duplicate = ids, False
        self.prepare(count, window)
        with nogil:
            self.drive(first + count, <u64>(time_limit_s * 1e9))
        return self.received - first

    def repeat(self, u64 first, u64 count, *, u64 window):
        """Publishes messages again that had ids; each must be acknowledged as a duplicate."""
        cdef u64 next_number = self.sent
        self.ids, self.duplicate = True, True
        self.sent = self.received = first
        self.prepare(count, window)
        with nogil:
            self.drive(first + count, 0)
        self.sent = self.received = next_number

    def latencies_ns(self):
        """Of the last run: from the encoding of each message to the read of its answer."""
        cdef u64 index
        return [self.times_ns[index] for index in range(self.times_count)]

    cdef int prepare(self, u64 count, u64 window) except -1:
        cdef u64 *ring = <u64 *>realloc(self.started_ns, window * sizeof(u64))
        if ring == NULL:
            raise MemoryError
        self.started_ns = ring
        cdef u64 *times = <u64 *>realloc(self.times_ns, (count + 1) * sizeof(u64))
        if times == NULL:
            raise MemoryError
        self.times_ns = times
        cdef unsigned char *flags = <unsigned char *>realloc(self.answered, count + 1)
        if flags == NULL:
            raise MemoryError
        memset(flags, 0, count + 1)
        self.answered = flags
        self.window, self.times_count, self.first = window, 0, self.sent
        return 0

    cdef int drive(self, u64 end, u64 time_limit_ns) except -1 nogil:
        cdef Watch watch
        cdef u64 started_ns = now_ns()
        watch_start(&watch, self.received)
        while self.received < end:
            if time_limit_ns and now_ns() - started_ns > time_limit_ns:
                end = self.sent
            self.produce(end)
            link_flush(&self.link)
            if self.received < end:
                wait(&self.link)
                self.consume()
            watch_turn(&watch, self.received, end)
        return 0

    cdef int produce(self, u64 end) except -1 nogil:
        cdef u64 moment_ns = now_ns()
        while (self.sent < end and self.sent - self.received < self.window
                and self.link.output_end - self.link.output_begin < OUTPUT_SIZE_MAX):
            self.started_ns[self.sent % self.window] = moment_ns
            self.encode(self.sent)
            self.sent += 1
        return 0

    cdef int encode(self, u64 number) except -1 nogil:
        cdef Link *link = &self.link
        cdef char header[LINE_SIZE_MAX]
        cdef size_t header_size = 0
        cdef char *at
        link_reserve(link, LINE_SIZE_MAX * 2 + self.payload_size)
        at = link.output_data + link.output_end
        at = put_text(at, "HPUB " if self.ids else "PUB ")
        at = put_number(put_text(at, self.prefix_text), number % self.subject_count)
        at[0] = c' '
        at = put_number(put_text(at + 1, INBOX), number)
        at[0] = c' '
        at += 1
        if self.ids:
            header_size = put_text(put_number(put_text(header, ID_HEAD), number), "\r\n\r\n") \
                - header
            at = put_number(at, header_size)
            at[0] = c' '
            at += 1
        at = put_text(put_number(at, header_size + self.payload_size), "\r\n")
        memcpy(at, header, header_size)
        at += header_size
        memcpy(at, self.payload_data, self.payload_size)
        memcpy(at, &number, HEAD_SIZE)
        at = put_text(at + self.payload_size, "\r\n")
        link.output_end = at - link.output_data
        return 0

    cdef int consume(self) except -1 nogil:
        cdef Message message
        cdef int operation
        cdef u64 moment_ns
        link_fill(&self.link)
        moment_ns = now_ns()
        while True:
            operation = link_next(&self.link, &message)
            if operation == OP_NONE:
                return 0
            if operation == OP_MESSAGE:
                self.check(&message)
                self.times_ns[self.times_count] = (
                    moment_ns - self.started_ns[self.received % self.window])
                self.times_count += 1
                self.received += 1

    cdef int check(self, Message *message) except -1 nogil:
        """One acknowledgement, in the order of the stream, with the sequence of its message."""
        cdef const char *at = message.subject
        cdef const char *end = message.subject + message.subject_size
        cdef u64 number = 0, sequence = 0
        if (not take_text(&at, end, INBOX) or not take_number(&at, end, &number)
                or number < self.first or number >= self.sent):
            refuse("acknowledgement of nothing", message, self.received)
        if (self.answered[number - self.first]
                or (self.stream_count == 1 and number != self.received)):
            refuse("acknowledgement lost, repeated or out of order", message, self.received)
        self.answered[number - self.first] = 1
        at, end = message.payload, message.payload + message.payload_size
        if self.stream_count == 1:
            if not take_text(&at, end, self.ack_text):
                refuse("not an acknowledgement", message, self.received)
        else:
            at = find_text(at, end, '"seq":')
        if at == NULL or not take_number(&at, end, &sequence):
            refuse("not an acknowledgement", message, self.received)
        if sequence != number // self.stream_count + 1:
            refuse("acknowledgement with a wrong sequence", message, self.received)
        if (find_text(at, end, '"duplicate"') != NULL) != self.duplicate:
            refuse("wrong about a duplicate", message, self.received)
        return 0


cdef class Reader:
    """One connection that gets the messages of consumers."""

    cdef Link link
    cdef readonly u64 received
    cdef bytes payload          # held for payload_data
    cdef const char *payload_data
    cdef size_t payload_size
    cdef u64 subject_count
    cdef u64 next_number        # expected next, unless every subject has an order of its own
    cdef u64 step
    cdef bint by_subject
    cdef u64 *next_of_subject
    cdef bint acknowledge
    cdef volatile bint stopping
    cdef u64 asked              # messages that pull requests have asked for

    def __cinit__(self, bytes host, int port, *, int payload_size, u64 subject_count):
        cdef const char *address = host
        if payload_size < HEAD_SIZE:
            raise ValueError(f"payload_size must be at least {HEAD_SIZE}, not {payload_size}")
        memset(&self.link, 0, sizeof(Link))
        self.payload = b"x" * payload_size
        self.payload_data, self.payload_size = self.payload, payload_size
        self.subject_count, self.step = subject_count, 1
        self.next_of_subject = <u64 *>calloc(subject_count, sizeof(u64))
        if self.next_of_subject == NULL:
            raise MemoryError
        with nogil:
            link_open(&self.link, address, port)

    def __dealloc__(self):
        link_close(&self.link)
        free(self.next_of_subject)

    def close(self):
        """Closes the connection; a second call does nothing."""
        link_close(&self.link)

    def subscribe(self, bytes subject):
        """What comes on this subject is a message of a consumer."""
        line = b"SUB %b 1\r\n" % subject
        link_put(&self.link, line, len(line))
        with nogil:
            link_sync(&self.link)

    def expect(self, *, u64 first=0, u64 step=1, bint by_subject=False):
        """Which messages come from now on: every `step`th from `first` on, in order.

        With `by_subject` all from `first` on, and only those of one subject among themselves are in
        order.
        """
        cdef u64 index, subject
        self.next_number, self.step, self.by_subject = first, step, by_subject
        for index in range(self.subject_count):
            subject = (first + index) % self.subject_count
            self.next_of_subject[subject] = first + index

    def send(self, bytes lines):
        """Sends encoded operations, such as pull requests, and waits until the server has them."""
        link_put(&self.link, lines, len(lines))
        with nogil:
            while self.link.output_end > self.link.output_begin:
                link_flush(&self.link)
                if self.link.output_end > self.link.output_begin:
                    wait(&self.link)

    def pull(self, bytes consumer, u64 count, *, u64 batch, u64 outstanding, bint acknowledge):
        """Asks `<stream>.<consumer>` for `count` messages in requests of `batch`, and gets them."""
        cdef const char *name = consumer
        self.acknowledge = acknowledge
        with nogil:
            self.drive(count, name, batch, outstanding)
            if acknowledge:
                link_sync(&self.link)

    def receive(self, u64 count):
        """Gets `count` messages that come without being asked for."""
        self.acknowledge = False
        with nogil:
            self.drive(count, NULL, 0, 0)

    def stop(self):
        """Ends a receive in another thread."""
        self.stopping = True

    cdef int drive(self, u64 count, const char *consumer, u64 batch,
                   u64 outstanding) except -1 nogil:
        cdef Watch watch
        cdef u64 end = self.received + count
        self.asked = self.received
        watch_start(&watch, self.received)
        while self.received < end and not self.stopping:
            if consumer != NULL:
                while self.asked < end and self.asked - self.received <= (outstanding - 1) * batch:
                    self.ask(consumer, min(batch, end - self.asked))
            link_flush(&self.link)
            wait(&self.link)
            self.consume()
            watch_turn(&watch, self.received, end)
        return link_flush(&self.link)

    cdef int ask(self, const char *consumer, u64 batch) except -1 nogil:
        cdef Link *link = &self.link
        cdef char body[LINE_SIZE_MAX]
        cdef size_t body_size
        cdef char *at = put_number(put_text(body, '{"batch":'), batch)
        body_size = put_text(at, ',"expires":30000000000}') - body
        link_reserve(link, LINE_SIZE_MAX * 2 + strlen(consumer))
        at = link.output_data + link.output_end
        at = put_text(put_text(put_text(at, PULL_HEAD), consumer), " _INBOX.reader.1 ")
        at = put_text(put_number(at, body_size), "\r\n")
        memcpy(at, body, body_size)
        link.output_end = put_text(at + body_size, "\r\n") - link.output_data
        self.asked += batch
        return 0

    cdef int consume(self) except -1 nogil:
        cdef Message message
        cdef int operation
        link_fill(&self.link)
        while True:
            operation = link_next(&self.link, &message)
            if operation == OP_NONE:
                return 0
            if operation == OP_MESSAGE:
                self.check(&message)
                self.received += 1
                if self.acknowledge:
                    link_put(&self.link, b"PUB ", 4)
                    link_put(&self.link, message.reply, message.reply_size)
                    link_put(&self.link, b" 4\r\n+ACK\r\n", 10)

    cdef int check(self, Message *message) except -1 nogil:
        """One delivery: the right message, with the right bytes."""
        cdef const char *at = message.subject
        cdef u64 subject = 0, number = 0, expected
        if message.reply_size == 0:
            refuse("not a delivery", message, self.received)
        if (not take_text(&at, message.subject + message.subject_size, SUBJECT)
                or not take_number(&at, message.subject + message.subject_size, &subject)
                or at != message.subject + message.subject_size
                or subject >= self.subject_count):
            refuse("wrong subject", message, self.received)
        if message.payload_size != self.payload_size:
            refuse("payload has the wrong size", message, self.received)
        memcpy(&number, message.payload, HEAD_SIZE)
        if number % self.subject_count != subject or memcmp(
                message.payload + HEAD_SIZE, self.payload_data, self.payload_size - HEAD_SIZE):
            refuse("payload was altered", message, self.received)
        expected = self.next_of_subject[subject] if self.by_subject else self.next_number
        if number != expected:
            refuse("message lost, repeated or out of order", message, self.received)
        self.next_of_subject[subject] = number + self.subject_count
        self.next_number = number + self.step
        return 0
