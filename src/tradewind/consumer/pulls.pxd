"""State of the waiting pull requests; the code and the explanation are in pulls.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from tradewind.broker.accounts cimport Account
from tradewind.broker.router cimport Router
from tradewind.broker.turn cimport Turn
from tradewind.consumer.cursor cimport Cursor
from tradewind.consumer.pending cimport AckState
from tradewind.consumer.taker cimport Taker

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

cdef uint32_t publish_header(Router router, Account account, const char* subject,
                             uint32_t subject_size, const char* reply, uint32_t reply_size,
                             bytes header) except? 0xFFFFFFFF
cdef object receiver_at(Account account, const char* route, uint32_t route_size)
cdef bytes heartbeat_header(Cursor cursor, AckState acks)


cdef class Pulls:
    cdef Taker _owner                   # the consumer: a DeliveryOwner
    cdef Router _router
    cdef Turn _turn
    cdef Account _account
    cdef Cursor _cursor
    cdef AckState _acks
    cdef PullRequest* head
    cdef PullRequest* tail
    cdef readonly uint32_t count
    cdef readonly uint32_t count_max
    cdef readonly uint32_t no_wait_count
    cdef readonly int64_t due_ns        # no request expires or beats before; 0: never
    cdef readonly bint prioritized
    cdef public bint has_rules          # also a plain request may break one: the owner takes all
    # Priority groups.
    cdef bint overflow
    cdef bint pins
    cdef readonly bytes pin_id          # b"": no client is pinned
    cdef public int64_t pin_due_ns      # when it has to have asked again; 0: no client is pinned

    cdef int serve(self, Taker owner, Router router, Account account, Cursor cursor,
                   AckState acks) except -1
    cdef PullRequest* add(self, bytes reply) except NULL
    cdef void enter(self, PullRequest* request) noexcept nogil
    cdef void _insert(self, PullRequest* request) noexcept nogil
    cdef void _unlink(self, PullRequest* request) noexcept nogil
    cdef void remove(self, PullRequest* request) noexcept nogil
    cdef void to_tail(self, PullRequest* request) noexcept nogil
    cdef void plan(self, PullRequest* request) noexcept nogil
    cdef PullRequest* new_plain(self, bytes reply, int64_t batch, int64_t expires_ns) except NULL
    cdef PullRequest* next_request(self, size_t size) except? NULL
    cdef int _admits(self, PullRequest* request) except -1
    cdef int answered(self, PullRequest* request, size_t size) except -1
    cdef int _end(self, PullRequest* request, bytes status, bint counts) except -1
    cdef uint32_t _beat(self, PullRequest* request) except? 0xFFFFFFFF
    cdef int sweep(self, bint at_end, bint check_interest) except -1
