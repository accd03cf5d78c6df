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
    # Answers that an import may wait for; the oldest is given up for one more.
    RESPONSES_MAX = 262144
    # Of these so many are looked at in one go.
    LOOKED_AT_PER_STEP = 10000
    TOKEN_BYTES = 6

ctypedef struct Response:
    void* bridge            # the ServiceBridge that it came over, borrowed: that one frees it
    void* desk              # the ResponseDesk that it is listed at, borrowed
    Response* older
    Response* newer
    int64_t since_ns        # monotonic
    uint32_t key_size
    uint32_t reply_size
    uint8_t is_backward     # an answer to an answer: from the importer to the exporter
    char text[1]            # the subject that stands for it, then the reply that it stands for


cdef class Dice:
    cdef object chance              # where randomness comes from
    cdef bytes drawn
    cdef Py_ssize_t used

    cdef int token(self, char* place) except -1


cdef class ResponseDesk:
    cdef Account account
    cdef Dice dice
    cdef readonly bytes start       # what all its subjects begin with
    cdef Table responses            # subject -> Response*

    cdef Response* expect(self, ServiceBridge bridge, const char* reply, uint32_t size,
                        bint is_backward) except NULL
    cdef Response* find(self, const char* subject, uint32_t size) noexcept
    cdef uint32_t carry(self, Router router, const char* route, uint32_t route_size,
                        Message* message) except? 0xFFFFFFFF


cdef class ServiceBridge:
    cdef readonly Account importer
    cdef readonly Account exporter
    cdef readonly object wanted         # ServiceImport
    cdef readonly object offered        # ServiceExport
    cdef readonly object bridges        # Bridges: desks, deadlines, clock
    cdef readonly uint64_t number       # of its deadlines
    cdef Translator translator          # None: subjects stay as they are
    cdef ResponseDesk desk              # of the exporter, where answers arrive; None until needed
    cdef ResponseDesk back_desk         # of the importer, for answers to answers; None until needed
    cdef bytes info_start               # of the header field, up to the round trip time
    cdef bytes info_end                 # ... and what follows it
    cdef Turn turn
    cdef object clock                   # gives monotonic nanoseconds
    cdef int64_t threshold_ns
    cdef bint is_single
    cdef bint is_busy                   # something of it is on its way: nothing else is taken
    cdef bint is_armed                  # a deadline of it is set
    cdef size_t token                   # its subscription in the importer; 0: none
    cdef readonly uint32_t pending
    cdef Response* oldest
    cdef Response* newest
    cdef Buffer subject
    cdef Buffer body

    cdef uint32_t carry(self, Router router, const char* route, uint32_t route_size,
                        Message* message) except? 0xFFFFFFFF
    cdef ResponseDesk other_desk(self, ResponseDesk desk)
    cdef int _inform(self, Router router, Message* message) except -1
    cdef void link(self, Response* response, bint is_own) noexcept
    cdef void unlink(self, Response* response) noexcept
    cdef void forget(self, Response* response) noexcept
    cdef uint64_t _rtt(self, Message* message) except? 0
    cdef bytes _info(self, Router router, Message* message)
    cdef int _arm(self) except -1
