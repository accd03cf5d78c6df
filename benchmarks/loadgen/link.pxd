"""One client connection over a non-blocking socket, as C structs that need no GIL."""

ctypedef unsigned long long u64

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    short POLLIN
    short POLLOUT
    int poll(pollfd *entries, unsigned long count, int timeout_ms)

cdef enum:
    OP_NONE = 0      # the buffer holds no complete operation
    OP_MESSAGE = 1   # MSG or HMSG; the Message is valid until the next link_fill
    OP_PONG = 2
    OP_OTHER = 3     # INFO, +OK, or a PING that has been answered


cdef struct Link:
    int fd
    char *input_data
    size_t input_capacity
    size_t input_begin
    size_t input_end
    char *output_data
    size_t output_capacity
    size_t output_begin
    size_t output_end


cdef struct Message:
    const char *subject
    size_t subject_size
    const char *reply
    size_t reply_size
    const char *payload
    size_t payload_size


cdef struct Watch:
    u64 started_ns
    u64 progress_ns
    u64 progress_done
    u64 turn_count


cdef const char *GREETING  # CONNECT and the PING whose PONG ends the handshake

cdef u64 now_ns() noexcept nogil
cdef int check_signals() except -1 nogil
cdef void watch_start(Watch *watch, u64 done) noexcept nogil
cdef int watch_turn(Watch *watch, u64 done, u64 wanted) except -1 nogil
cdef int link_open(Link *link, const char *host, int port) except -1 nogil
cdef int link_open_as(Link *link, const char *host, int port,
                      const char *greeting) except -1 nogil
cdef void link_close(Link *link) noexcept nogil
cdef int link_reserve(Link *link, size_t size) except -1 nogil
cdef int link_put(Link *link, const char *data, size_t size) except -1 nogil
cdef int link_flush(Link *link) except -1 nogil
cdef int link_fill(Link *link) except -1 nogil
cdef int link_next(Link *link, Message *message) except -1 nogil
cdef int link_sync(Link *link) except -1 nogil
