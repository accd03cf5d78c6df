# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""One client connection: socket, input and output buffers, and the parser of server operations.

Owns the bytes of a connection. It never decides what to send and never measures; every failure
is a LoadError that says what the server did.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, strerror, strlen
from posix.fcntl cimport F_GETFL, F_SETFL, O_NONBLOCK, fcntl
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport close

cdef extern from "<sys/socket.h>" nogil:
    struct sockaddr:
        pass
    int AF_INET
    int SOCK_STREAM
    int MSG_NOSIGNAL
    int socket(int domain, int kind, int protocol)
    int connect(int fd, const sockaddr *address, unsigned int size)
    int setsockopt(int fd, int level, int option, const void *value, unsigned int size)
    ssize_t send(int fd, const void *data, size_t size, int flags)
    ssize_t recv(int fd, void *data, size_t size, int flags)

cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_TCP
    struct in_addr:
        pass
    struct sockaddr_in:
        short sin_family
        unsigned short sin_port
        in_addr sin_addr
    unsigned short htons(unsigned short value)

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_NODELAY

cdef extern from "<arpa/inet.h>" nogil:
    int inet_pton(int family, const char *text, void *address)

cdef enum:
    BUFFER_SIZE = 1 << 18
    READ_SIZE_MIN = 1 << 16
    TOKENS_MAX = 6
    RUN_MS_MAX = 120000  # a run that trickles on for longer than this has failed, too

GREETING = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,'
    b'"name":"bench","lang":"cython","version":"1","protocol":1}\r\nPING\r\n'
)


def greeting_of(bytes user not None):
    """The first lines of a client that logs in as `user`, with that as its password; empty: as
    nobody.
    """
    if not user:
        return GREETING
    return GREETING.replace(b"CONNECT {", b'CONNECT {"user":"%b","pass":"%b",' % (user, user))


class LoadError(Exception):
    """The server failed the workload; the text says how."""


cdef u64 stall_ns = 10 * 1000000000


def set_stall_s(double duration_s):
    """How long a server may make no progress before it has failed; ten seconds unless set."""
    global stall_ns
    stall_ns = <u64>(duration_s * 1e9)


cdef u64 now_ns() noexcept nogil:
    cdef timespec moment
    clock_gettime(CLOCK_MONOTONIC, &moment)
    return <u64>moment.tv_sec * 1000000000 + <u64>moment.tv_nsec


cdef int check_signals() except -1 nogil:
    """Lets Ctrl-C end a run: the loops hold no GIL, so nothing else would notice it."""
    with gil:
        if PyErr_CheckSignals() < 0:
            raise KeyboardInterrupt
    return 0


cdef void watch_start(Watch *watch, u64 done) noexcept nogil:
    watch.started_ns = watch.progress_ns = now_ns()
    watch.progress_done = done
    watch.turn_count = 0


cdef int watch_turn(Watch *watch, u64 done, u64 wanted) except -1 nogil:
    """Called once per turn of a loop: LoadError when the server stalls or only trickles."""
    cdef u64 now
    watch.turn_count += 1
    if done != watch.progress_done and watch.turn_count & 1023:
        watch.progress_done = done
        watch.progress_ns = 0  # unknown, but later than any stall: read the clock when idle
        return 0
    now = now_ns()
    if done != watch.progress_done or watch.progress_ns == 0:
        watch.progress_done, watch.progress_ns = done, now
    check_signals()
    if now - watch.progress_ns > stall_ns:
        with gil:
            raise LoadError(f"no progress for {stall_ns / 1e9:g} s: {done} of {wanted} arrived")
    if now - watch.started_ns > <u64>RUN_MS_MAX * 1000000:
        with gil:
            raise LoadError(f"only {done} of {wanted} arrived in {RUN_MS_MAX // 1000} s")
    return 0


cdef int raise_system(const char *what) except -1 nogil:
    cdef int code = errno
    with gil:
        raise LoadError(f"{what.decode()}: {strerror(code).decode()}")


cdef int raise_text(const char *what, const char *data, size_t size) except -1 nogil:
    with gil:
        text = data[:min(size, <size_t>200)].decode("utf-8", "backslashreplace")
        raise LoadError(f"{what.decode()}: {text.strip()}")


cdef int link_open(Link *link, const char *host, int port) except -1 nogil:
    """Connects, sends CONNECT and waits for the PONG that ends the handshake."""
    return link_open_as(link, host, port, GREETING)


cdef int link_open_as(Link *link, const char *host, int port,
                      const char *greeting) except -1 nogil:
    """The same with a CONNECT of one's own."""
    cdef sockaddr_in address
    cdef int enabled = 1
    link.input_capacity = link.output_capacity = BUFFER_SIZE
    link.input_begin = link.input_end = link.output_begin = link.output_end = 0
    link.input_data = <char *>malloc(link.input_capacity)
    link.output_data = <char *>malloc(link.output_capacity)
    link.fd = socket(AF_INET, SOCK_STREAM, 0)
    if link.input_data == NULL or link.output_data == NULL or link.fd < 0:
        raise_system("socket")
    address.sin_family = <short>AF_INET
    address.sin_port = htons(<unsigned short>port)
    inet_pton(AF_INET, host, &address.sin_addr)
    if connect(link.fd, <sockaddr *>&address, sizeof(address)):
        raise_system("connect")
    setsockopt(link.fd, IPPROTO_TCP, TCP_NODELAY, &enabled, sizeof(enabled))
    fcntl(link.fd, F_SETFL, fcntl(link.fd, F_GETFL) | O_NONBLOCK)
    link_put(link, greeting, strlen(greeting))
    return link_await_pong(link)


cdef void link_close(Link *link) noexcept nogil:
    """Releases everything; a link that was zeroed and never opened is left alone."""
    if link.input_data == NULL and link.output_data == NULL:
        return
    if link.fd >= 0:
        close(link.fd)
    free(link.input_data)
    free(link.output_data)
    link.input_data = link.output_data = NULL
    link.fd = -1


cdef int link_reserve(Link *link, size_t size) except -1 nogil:
    """Makes room for `size` bytes at the end of the output."""
    cdef size_t pending = link.output_end - link.output_begin
    cdef char *grown
    if link.output_end + size <= link.output_capacity:
        return 0
    if link.output_begin:
        memmove(link.output_data, link.output_data + link.output_begin, pending)
        link.output_begin, link.output_end = 0, pending
    while link.output_end + size > link.output_capacity:
        grown = <char *>realloc(link.output_data, link.output_capacity * 2)
        if grown == NULL:
            raise_system("output buffer")
        link.output_data = grown
        link.output_capacity *= 2
    return 0


cdef int link_put(Link *link, const char *data, size_t size) except -1 nogil:
    link_reserve(link, size)
    memcpy(link.output_data + link.output_end, data, size)
    link.output_end += size
    return 0


cdef int link_flush(Link *link) except -1 nogil:
    """Sends what the socket takes; the rest stays in the output."""
    cdef ssize_t sent
    while link.output_begin < link.output_end:
        sent = send(link.fd, link.output_data + link.output_begin,
                    link.output_end - link.output_begin, MSG_NOSIGNAL)
        if sent < 0:
            if errno == EAGAIN:
                return 0
            if errno == EINTR:
                continue
            # The reason is usually an -ERR line that the server sent before it closed.
            link_fill(link)
            raise_text("send failed, the server's last words were",
                       link.input_data + link.input_begin, link.input_end - link.input_begin)
        link.output_begin += <size_t>sent
    link.output_begin = link.output_end = 0
    return 0


cdef int link_fill(Link *link) except -1 nogil:
    """Receives once. Returns 1 if bytes arrived, 0 if there were none."""
    cdef size_t pending = link.input_end - link.input_begin
    cdef ssize_t received
    cdef char *grown
    if pending == 0:
        link.input_begin = link.input_end = 0
    if link.input_capacity - link.input_end < READ_SIZE_MIN:
        memmove(link.input_data, link.input_data + link.input_begin, pending)
        link.input_begin, link.input_end = 0, pending
        if link.input_capacity - link.input_end < READ_SIZE_MIN:
            grown = <char *>realloc(link.input_data, link.input_capacity * 2)
            if grown == NULL:
                raise_system("input buffer")
            link.input_data = grown
            link.input_capacity *= 2
    received = recv(link.fd, link.input_data + link.input_end,
                    link.input_capacity - link.input_end, 0)
    if received > 0:
        link.input_end += <size_t>received
        return 1
    if received < 0 and (errno == EAGAIN or errno == EINTR):
        return 0
    if received < 0:
        raise_system("recv")
    raise_text("the server closed the connection, its last words were",
               link.input_data + link.input_begin, link.input_end - link.input_begin)
    return 0


cdef int parse_message(Link *link, const char *line, size_t line_size,
                       Message *message) except -1 nogil:
    """Parses the MSG or HMSG line at `line` (without CR LF). OP_NONE until its payload is there."""
    cdef const char *tokens[TOKENS_MAX]
    cdef size_t sizes[TOKENS_MAX]
    cdef const char *position = line
    cdef const char *end = line + line_size
    cdef int count = 0, required = 5 if line[0] == c'H' else 4
    cdef size_t size = 0, index
    while position < end and count < TOKENS_MAX:
        tokens[count] = position
        while position < end and position[0] != c' ':
            position += 1
        sizes[count] = position - tokens[count]
        count += 1
        position += 1
    if count < required or count > required + 1:
        raise_text("malformed message line", line, line_size)
    for index in range(sizes[count - 1]):
        if not c'0' <= tokens[count - 1][index] <= c'9':
            raise_text("malformed payload size", line, line_size)
        size = size * 10 + <size_t>(tokens[count - 1][index] - c'0')
    position = line + line_size + 2
    if position + size + 2 > link.input_data + link.input_end:
        return OP_NONE
    if position[size] != c'\r' or position[size + 1] != c'\n':
        raise_text("payload is not followed by CR LF", line, line_size)
    message.subject, message.subject_size = tokens[1], sizes[1]
    message.reply, message.reply_size = NULL, 0
    if count > required:
        message.reply, message.reply_size = tokens[3], sizes[3]
    message.payload, message.payload_size = position, size
    link.input_begin = position + size + 2 - link.input_data
    return OP_MESSAGE


cdef int link_next(Link *link, Message *message) except -1 nogil:
    """Takes the next operation out of the input; a PING is answered into the output."""
    cdef const char *line = link.input_data + link.input_begin
    cdef size_t available = link.input_end - link.input_begin
    cdef const char *newline
    cdef size_t line_size
    if available == 0:
        return OP_NONE
    newline = <const char *>memchr(line, c'\n', available)
    if newline == NULL:
        return OP_NONE
    line_size = newline - line
    if line_size == 0 or line[line_size - 1] != c'\r':
        raise_text("line does not end in CR LF", line, line_size)
    line_size -= 1
    if line[0] == c'M' or line[0] == c'H':
        return parse_message(link, line, line_size, message)
    link.input_begin += line_size + 2
    if line_size == 4 and memcmp(line, b"PONG", 4) == 0:
        return OP_PONG
    if line_size == 4 and memcmp(line, b"PING", 4) == 0:
        link_put(link, b"PONG\r\n", 6)
    elif line[0] == c'-':
        raise_text("the server answered", line, line_size)
    elif memcmp(line, b"INFO", min(<size_t>4, line_size)) and line[0] != c'+':
        raise_text("unknown operation", line, line_size)
    return OP_OTHER


cdef int link_await_pong(Link *link) except -1 nogil:
    """Drives the link until a PONG; a message in between is more than the workload asked for."""
    cdef Message message
    cdef Watch watch
    cdef pollfd entry
    cdef int operation
    cdef u64 moved = 0
    entry.fd = link.fd
    watch_start(&watch, 0)
    while True:
        link_flush(link)
        operation = OP_OTHER
        while operation != OP_NONE:
            operation = link_next(link, &message)
            if operation == OP_PONG:
                return 0
            if operation == OP_MESSAGE:
                raise_text("unexpected extra message on", message.subject, message.subject_size)
        entry.events = POLLIN
        if link.output_end > link.output_begin:
            entry.events |= POLLOUT
        if poll(&entry, 1, 100) > 0:
            moved += 1
            link_fill(link)
        watch_turn(&watch, moved, moved + 1)


cdef int link_sync(Link *link) except -1 nogil:
    """PING, PONG: the server has then processed all that this link sent before."""
    link_put(link, b"PING\r\n", 6)
    return link_await_pong(link)
