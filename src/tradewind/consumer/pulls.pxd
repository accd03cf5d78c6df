"""State of the waiting pull requests; the code and the explanation are in pulls.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef enum:
    PIN_BYTES_MAX = 40

ctypedef struct PullRequest:
    PullRequest* next
    PullRequest* previous
    int64_t batch               # messages still wanted
    int64_t delivered           # messages given so far
    int64_t bytes_left          # 0: no limit
    int64_t expires_ns          # 0: never
    int64_t heartbeat_ns        # 0: none
    int64_t heartbeat_due_ns
    int64_t min_pending         # these two: an overflow group
    int64_t min_ack_pending
    int32_t priority            # lower is served first, in a prioritized group
    uint8_t no_wait
    uint8_t has_group           # false: it states no priority, and comes after those that do
    uint32_t reply_size
    uint32_t pin_size
    char pin[PIN_BYTES_MAX]     # the client id it presents, in a group of pinned clients
    char reply[1]


cdef int set_pin(PullRequest* request, bytes pin) except -1
cdef bint read_plain_pull(const char* data, size_t size, int64_t* batch,
                          int64_t* expires_ns) noexcept nogil


cdef class Pulls:
    cdef PullRequest* head
    cdef PullRequest* tail
    cdef readonly uint32_t count
    cdef readonly uint32_t count_max
    cdef readonly uint32_t no_wait_count
    cdef readonly int64_t due_ns        # no request expires or beats before; 0: never
    cdef readonly bint prioritized

    cdef PullRequest* add(self, bytes reply) except NULL
    cdef void enter(self, PullRequest* request) noexcept nogil
    cdef void _insert(self, PullRequest* request) noexcept nogil
    cdef void _unlink(self, PullRequest* request) noexcept nogil
    cdef void remove(self, PullRequest* request) noexcept nogil
    cdef void to_tail(self, PullRequest* request) noexcept nogil
    cdef void plan(self, PullRequest* request) noexcept nogil
