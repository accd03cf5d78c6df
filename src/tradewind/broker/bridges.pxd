"""State of the bridges between accounts; the code and the explanation are in bridges.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from tradewind.broker.accounts cimport Account
from tradewind.broker.router cimport Router
from tradewind.broker.state cimport Message
from tradewind.broker.turn cimport Turn
from tradewind.containers.buffer cimport Buffer
from tradewind.containers.table cimport Table
from tradewind.route.translator cimport Translator

cdef enum:
    # The limit for responses that an import expects; one more drops the oldest.
    RESPONSES_MAX = 262144
    # At most this many of them are visited in one step.
    LOOKED_AT_PER_STEP = 10000
    TOKEN_BYTES = 6

ctypedef struct Response:
    void* bridge            # the ServiceBridge it came over, which frees it; borrowed
    void* inbox             # the ResponseInbox that lists it; borrowed
    Response* older
    Response* newer
    int64_t since_ns        # monotonic
    uint32_t key_size
    uint32_t reply_size
    uint8_t is_backward     # a response to a response, from the importer to the exporter
    uint8_t is_sampled      # its bridge holds a latency sample for its subject
    uint8_t is_for_traces   # other servers send their traces here, one each
    char text[1]            # the generated reply subject, then the original reply


cdef class Dice:
    cdef object chance              # source of randomness
    cdef bytes drawn
    cdef Py_ssize_t used

    cdef int token(self, char* place) except -1


cdef class ResponseInbox:
    cdef Account account
    cdef Dice dice
    cdef readonly bytes start       # prefix of all its subjects
    cdef Table responses            # subject -> Response*

    cdef Response* expect(self, ServiceBridge bridge, const char* reply, uint32_t size,
                        bint is_backward, bytes suffix=*) except NULL
    cdef Response* find(self, const char* subject, uint32_t size) noexcept
    cdef uint32_t carry(self, Router router, const char* route, uint32_t route_size,
                        Message* message) except? 0xFFFFFFFF


cdef class ServiceBridge:
    cdef readonly Account importer
    cdef readonly Account exporter
    cdef readonly object wanted         # ServiceImport
    cdef readonly object offered        # ServiceExport
    cdef readonly object bridges        # Bridges: inboxes, deadlines, clock
    cdef readonly uint64_t number       # identifies its deadlines
    cdef Translator translator          # None: subjects stay unchanged
    cdef ResponseInbox inbox            # the exporter's, for responses; None until needed
    cdef ResponseInbox back_inbox       # the importer's, for responses to these; None until needed
    cdef bytes info_start               # the header field up to the round-trip time
    cdef bytes info_end                 # ... and the part after the round-trip time
    cdef Turn turn
    cdef object clock                   # returns monotonic nanoseconds
    cdef int64_t threshold_ns
    cdef bint is_single
    cdef bint is_busy                   # a message of it is in progress; no other is accepted
    cdef bint is_armed                  # one of its deadlines is set
    cdef size_t token                   # its subscription in the importer; 0 if none
    cdef readonly uint32_t pending
    cdef Response* oldest
    cdef Response* newest
    cdef Buffer subject
    cdef Buffer body
    cdef bytes stand_in                 # stands in for the current trace's destination; or None
    cdef object meter                   # LatencyMeter; None: latency is not measured
    cdef dict samples                   # generated reply subject -> LatencySample

    cdef uint32_t carry(self, Router router, const char* route, uint32_t route_size,
                        Message* message) except? 0xFFFFFFFF
    cdef ResponseInbox other_inbox(self, ResponseInbox inbox)
    cdef Response* _await_answer(self, Message* request, object sample) except NULL
    cdef ResponseInbox _inbox(self)
    cdef tuple _pass_trace(self, Router router, bytes local, Message* request, Message* bare)
    cdef bytes _stand_in(self, Message* request, object trace)
    cdef int _end_stand_in(self, bint is_needed) except -1
    cdef int _inform(self, Router router, Message* message) except -1
    cdef void link(self, Response* response, bint is_own) noexcept
    cdef void unlink(self, Response* response) noexcept
    cdef void forget(self, Response* response) noexcept
    cdef object _take_sample(self, Router router, Message* message)
    cdef object _sample_of(self, Response* response)
    cdef int _answered(self, Response* response, Message* message, int64_t arrived_ns) except -1
    cdef int _failed(self, Response* response, int status) except -1
    cdef uint64_t _rtt(self, Message* message) except? 0
    cdef bytes _info(self, Router router, Message* message)
    cdef int _arm(self) except -1
