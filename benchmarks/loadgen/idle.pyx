# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Many connections that do nothing: opened with a bounded number of handshakes at a time.

Keeps a few bytes of state per connection, so that the server's memory is what fills the machine.
PINGs are answered. A connection that the server closes or refuses is a LoadError.
"""

from benchmarks.loadgen.link cimport GREETING, Watch, now_ns, u64, watch_start, watch_turn
from libc.errno cimport EAGAIN, EINPROGRESS, EINTR, errno
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, strerror, strlen
from posix.unistd cimport close

from benchmarks.loadgen.link import LoadError

cdef extern from "<sys/socket.h>" nogil:
    struct sockaddr:
        pass
    int AF_INET
    int SOCK_STREAM
    int SOCK_NONBLOCK
    int MSG_NOSIGNAL
    int socket(int domain, int kind, int protocol)
    int connect(int fd, const sockaddr *address, unsigned int size)
    ssize_t send(int fd, const void *data, size_t size, int flags)
    ssize_t recv(int fd, void *data, size_t size, int flags)

cdef extern from "<netinet/in.h>" nogil:
    struct in_addr:
        pass
    struct sockaddr_in:
        short sin_family
        unsigned short sin_port
        in_addr sin_addr
    unsigned short htons(unsigned short value)

cdef extern from "<arpa/inet.h>" nogil:
    int inet_pton(int family, const char *text, void *address)

cdef extern from "<sys/epoll.h>" nogil:
    union epoll_data_t:
        uint32_t u32
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    uint32_t EPOLLIN
    int EPOLL_CTL_ADD
    int epoll_create1(int flags)
    int epoll_ctl(int epoll_fd, int operation, int fd, epoll_event *event)
    int epoll_wait(int epoll_fd, epoll_event *events, int count, int timeout_ms)

cdef enum:
    WORD_SIZE = 4       # the operation's name; the rest of a line is of no interest
    EVENTS_MAX = 256
    READ_SIZE = 1 << 16

cdef struct Idler:
    int fd
    int line_size       # bytes of the current line so far
    char word[WORD_SIZE]
    bint greeted        # CONNECT has been sent, after the server's INFO
    bint open           # PONG has been received


cdef class IdleConnections:
    """A growing set of silent connections on one epoll."""

    cdef Idler *idlers
    cdef uint32_t capacity
    cdef uint32_t begun
    cdef u64 open_count
    cdef int epoll_fd
    cdef sockaddr_in address
    cdef char *buffer

    def __cinit__(self, bytes host, int port, *, uint32_t count_max):
        self.epoll_fd = -1
        self.capacity = count_max
        self.idlers = <Idler *>calloc(count_max, sizeof(Idler))
        self.buffer = <char *>calloc(READ_SIZE, 1)
        if self.idlers == NULL or self.buffer == NULL:
            raise MemoryError
        self.epoll_fd = epoll_create1(0)
        self.address.sin_family = <short>AF_INET
        self.address.sin_port = htons(<unsigned short>port)
        inet_pton(AF_INET, host, &self.address.sin_addr)

    def __dealloc__(self):
        self.shut()
        free(self.idlers)
        free(self.buffer)

    cdef void shut(self) noexcept:
        cdef uint32_t index
        for index in range(self.begun):
            close(self.idlers[index].fd)
        self.begun = 0
        if self.epoll_fd >= 0:
            close(self.epoll_fd)
            self.epoll_fd = -1

    def close(self):
        """Closes every connection; a second call does nothing."""
        self.shut()

    def open(self, uint32_t count, *, uint32_t handshakes_max):
        """Opens `count` more connections, each through CONNECT, PING and PONG."""
        cdef u64 wanted = self.open_count + count
        cdef Watch watch
        if self.begun + count > self.capacity:
            raise ValueError(f"{count} more connections exceed count_max {self.capacity}")
        with nogil:
            watch_start(&watch, self.open_count)
            while self.open_count < wanted:
                while self.begun < wanted and self.begun - self.open_count < handshakes_max:
                    self.begin()
                self.turn(100)
                watch_turn(&watch, self.open_count, wanted)

    def hold(self, double duration_s):
        """Keeps the connections open, answering PINGs only."""
        cdef u64 end_ns = now_ns() + <u64>(duration_s * 1e9)
        cdef Watch watch
        with nogil:
            watch_start(&watch, 0)
            while now_ns() < end_ns:
                self.turn(50)
                watch_turn(&watch, watch.turn_count, 0)

    cdef int begin(self) except -1 nogil:
        cdef Idler *idler = &self.idlers[self.begun]
        cdef epoll_event event
        idler.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)
        if idler.fd < 0:
            self.fail("socket")
        self.begun += 1
        if connect(idler.fd, <sockaddr *>&self.address, sizeof(self.address)) \
                and errno != EINPROGRESS:
            self.fail("connect")
        event.events = EPOLLIN
        event.data.u32 = self.begun - 1
        if epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, idler.fd, &event):
            self.fail("epoll")
        return 0

    cdef int turn(self, int timeout_ms) except -1 nogil:
        cdef epoll_event events[EVENTS_MAX]
        cdef int index, count = epoll_wait(self.epoll_fd, events, EVENTS_MAX, timeout_ms)
        for index in range(count):
            self.serve(&self.idlers[events[index].data.u32])
        return 0

    cdef int serve(self, Idler *idler) except -1 nogil:
        cdef ssize_t index, received = recv(idler.fd, self.buffer, READ_SIZE, 0)
        if received < 0 and (errno == EAGAIN or errno == EINTR):
            return 0
        if received < 0:
            self.fail("recv")
        if received == 0:
            self.fail_text("the server closed an idle connection", b"", 0)
        for index in range(received):
            if self.buffer[index] == c'\n':
                self.take_line(idler, self.buffer, received)
                idler.line_size = 0
                continue
            if idler.line_size < WORD_SIZE:
                idler.word[idler.line_size] = self.buffer[index]
            idler.line_size += 1
        return 0

    cdef int take_line(self, Idler *idler, const char *data, ssize_t size) except -1 nogil:
        if memcmp(idler.word, b"INFO", WORD_SIZE) == 0:
            if not idler.greeted:
                idler.greeted = True
                self.write(idler, GREETING)
        elif memcmp(idler.word, b"PING", WORD_SIZE) == 0:
            self.write(idler, b"PONG\r\n")
        elif memcmp(idler.word, b"PONG", WORD_SIZE) == 0:
            if not idler.open:
                idler.open = True
                self.open_count += 1
        else:
            self.fail_text("an idle connection received", data, size)
        return 0

    cdef int write(self, Idler *idler, const char *line) except -1 nogil:
        # A few bytes on an empty socket: a short write would mean that nothing is read for long.
        cdef size_t size = strlen(line)
        if send(idler.fd, line, size, MSG_NOSIGNAL) != <ssize_t>size:
            self.fail("send")
        return 0

    cdef int fail(self, const char *what) except -1 nogil:
        cdef int code = errno
        with gil:
            raise LoadError(f"{what.decode()}: {strerror(code).decode()}, "
                            f"with {self.open_count} connections open")

    cdef int fail_text(self, const char *what, const char *data, ssize_t size) except -1 nogil:
        with gil:
            text = data[:min(size, <ssize_t>200)].decode("utf-8", "backslashreplace").strip()
            raise LoadError(f"{what.decode()}: {text!r}, with {self.open_count} connections open")
