"""State of a session; the code is in session.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from tradewind.broker.allowed_responses cimport AllowedResponses
from tradewind.broker.subscriber cimport Subscriber
from tradewind.containers.buffer cimport Buffer
from tradewind.wire.parser cimport Operation, ParserState

cdef enum Blocked:
    BLOCKED_AUTHENTICATION = 1      # a worker thread is checking a password
    BLOCKED_STALL = 2               # a receiver is crowded, so this producer waits briefly
    BLOCKED_SERVICE = 4             # many of its requests are still with the server's services
    # 8 is BLOCKED_DECODING of leaf sessions.
    BLOCKED_TURN = 16               # its input was expensive in this turn, so the rest waits


cdef class Session(Subscriber):
    cdef ParserState parser
    cdef Buffer partial                     # an unfinished operation, or input stored while blocked
    cdef size_t offered                     # bytes in front of the last offered buffer
    cdef size_t offered_room
    cdef uint8_t offer_kind
    cdef AllowedResponses responses         # for allow_responses, or None
    cdef public object request_info         # None, or (rtt, its details for services)
    cdef uint32_t services_pending
    cdef bint awaiting_auth                 # only CONNECT is accepted
    cdef bint is_running                    # its input is being run: it cannot be entered again
    cdef bint is_resuming                   # the end of the turn runs its stored input
    cdef bint stall_spent
    cdef readonly uint32_t blocked
    cdef bint pedantic
    cdef bint no_responders
    cdef bint connected                     # a CONNECT was accepted
    cdef bint first_pong_sent
    cdef bint _trace
    cdef bint stall_enabled
    cdef readonly bint is_coded             # output is encoded, so it differs from the outbox
    # Identity and times: for INFO, monitoring and events
    cdef public object link                 # the I/O side; the broker never touches it
    cdef public str remote_ip
    cdef public int remote_port
    cdef public str connection_type         # STANDARD or WEBSOCKET: which listener and gate
    cdef public object tls                  # TlsFacts, or None
    cdef public object complete_credentials  # None, or adds what CONNECT lacks (WebSocket cookies)
    cdef public object options              # ConnectOptions, as merged from all CONNECTs
    cdef public str user
    cdef public str close_reason            # empty while open
    cdef public int64_t start_ns
    cdef public int64_t last_activity_ns
    cdef public int64_t rtt_ns
    cdef public int64_t ping_sent_ns
    cdef public int64_t rtt_measured_ns
    cdef public int64_t write_blocked_ns
    cdef public bint write_deadline_armed
    cdef public int pings_outstanding
    cdef public bint active                 # a non-PONG operation arrived since the last ping
    cdef public uint64_t stalls
    cdef public bytes nonce

    cdef char* offer(self) except NULL
    cdef int run_read(self, size_t size, int64_t now_ns) except -1
    cdef int clean(self) except -1
    cpdef int service_queued(self) except -1
    cpdef int service_done(self) except -1
    cdef int _begin_turn(self, int64_t now_ns) except -1
    cdef int _check_idle(self) except -1
    cdef int _enter(self, const char* data, size_t size, size_t* consumed) except -1
    cdef int _run_partial(self) except -1
    cdef int _give_way(self) except -1
    cdef int _run(self, const char* data, size_t size, size_t* consumed) except -1
    cdef int _dispatch(self, Operation* operation) except -1
    cdef int publish(self, Operation* operation, bint is_examined) except -1
    cdef int _may_publish(self, Operation* operation) except -1
    cdef int _may_use(self, const char* subject, uint32_t size) except -1
    cdef int _may_publish_to(self, const char* subject, uint32_t size) except -1
    cdef int _answer_no_responders(self, Operation* operation) except -1
    cdef int _fail(self, const Operation* operation, const char* data, size_t size) except -1
    cdef int _response_allowed(self, const char* subject, uint32_t size) except -1
    cdef int _keep(self, const char* data, size_t size) except -1
