"""State of the direct gets of a stream; the code and the explanation are in direct_gets.pyx."""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.broker.accounts cimport Account
from tradewind.broker.router cimport Router
from tradewind.broker.state cimport Message
from tradewind.store.table.counts cimport CountSearch
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.table.newest cimport LastSearch
from tradewind.store.format.records cimport Record
from tradewind.store.table.subject_index cimport SubjectFilter
from tradewind.stream.get_replies cimport GetReplies
from tradewind.stream.get_request cimport GetRequest
from tradewind.stream.ingest cimport Ingest
from tradewind.containers.buffer cimport Buffer

cdef enum:
    NO_SUBJECT = 0xFFFFFFFF

# A request that waits for the end of the turn; its bytes follow in the order of the sizes.
ctypedef struct RequestHead:
    PyObject* session           # the requester, an owned reference; NULL: the server itself
    uint32_t reply_size
    uint32_t subject_size       # follows the name of the stream; NO_SUBJECT: none
    uint32_t header_size
    uint32_t body_size

# Where its bytes are.
ctypedef struct Request:
    const char* reply
    const char* subject
    const char* header
    const char* body
    RequestHead head


cdef class GetSubject:
    cdef DirectGet gets
    cdef bint is_stand_in       # it is that of the origin of a mirror
    cdef uint32_t skip          # bytes before the requested subject; 0: there is none


cdef class GetOrder:
    cdef readonly str subject   # for a log
    cdef readonly object session    # None: each request is counted by itself
    cdef uint64_t through       # requests that were queued up to this place among the services


cdef class GetBatch:
    cdef bytes reply
    cdef SubjectFilter chosen   # None: the messages are those that were searched for
    cdef LastSearch search      # looks for the newest messages; None: nothing is looked for
    cdef CountSearch counting   # counts what is pending; None: it is known
    cdef bint is_found          # there is nothing to search or count any more
    cdef bint is_single         # one message is the whole answer
    cdef bint is_late           # the step was used up before the next message was found
    cdef bint has_up_to         # the request names the newest message that it wants
    cdef uint64_t from_seq      # ... and the oldest
    cdef uint64_t seq           # lowest sequence of the next message
    cdef uint64_t visible       # highest one; both as of the request
    cdef int64_t left           # messages that may still be sent
    cdef int64_t bytes_max
    cdef int64_t sent_bytes
    cdef uint64_t pending
    cdef uint64_t last_seq      # of the message sent last; 0: none
    cdef uint64_t up_to
    cdef bint no_header
    cdef bint is_over           # everything requested is sent, except the end
    cdef bint is_crowded        # a receiver has too much unread output
    # For a request not begun because its sender has too much unread output; otherwise None.
    cdef object session
    cdef bytes waiting          # RequestHead and its bytes


cdef class DirectGet:
    cdef readonly Ingest ingest
    cdef MessageStore store
    cdef Router router
    cdef Account account
    cdef GetReplies replies
    cdef GetRequest request             # the one that is being answered
    cdef SubjectFilter filter           # of the last request that had one
    cdef str name
    cdef int64_t bytes_max              # for a batch that names no limit
    cdef list tokens                    # of its subscriptions; empty: not listening
    cdef list stand_in_tokens           # ... for the origin of a mirror
    cdef public DirectGet stood_for     # that of the origin, if it is there; None: it is not
    cdef Buffer arrived                 # RequestHead and bytes, oldest first
    cdef Buffer serving                 # the same; nothing is added, so that pointers stay valid
    cdef uint64_t queued                # requests ever queued
    cdef uint64_t served
    cdef GetOrder order                 # the last one queued among the services
    cdef object ready                   # deque of batches that can continue in the next turn
    cdef object crowded                 # ... that wait until their receivers have read
    cdef bint is_deferred
    cdef uint64_t work                  # what looking for messages and parsing has cost so far
    cdef uint64_t work_end              # ... and may cost in this turn
    cdef public int64_t next_deadline_ns    # when `tick` has something to do; 0: never

    cdef bint is_behind_origin(self) noexcept
    cdef int queue(self, Message* message, uint32_t skip) except -1
    cdef int line_up(self) except -1
    cdef int release(self) except -1
    cdef int serve_next(self) except -1
    cdef int answer(self, Request* request) except -1
    cdef int answer_request(self, Request* request) except -1
    cdef bint understand(self, Request* request) except -1
    cdef bint is_full(self) noexcept
    cdef int wait_for(self, uint64_t seq) except -1
    cdef uint64_t work_left(self) noexcept
    cdef int send_one(self, Request* request, uint64_t seq) except -1
    cdef int send_found(self, const char* reply, uint32_t reply_size, uint64_t seq,
                        bint no_header) except -1
    cdef int answer_last(self, Request* request, const char* subject, uint32_t size) except -1
    cdef int answer_one(self, Request* request) except -1
    cdef int answer_batch(self, Request* request) except -1
    cdef bint end_search(self, GetBatch batch) except -1
    cdef int answer_many(self, Request* request) except -1
    cdef SubjectFilter filter_for(self, tuple patterns)
    cdef int begin(self, GetBatch batch, Request* request) except -1
    cdef bint step(self, GetBatch batch) except -1
    cdef bint step_search(self, GetBatch batch) except -1
    cdef uint64_t find_next(self, GetBatch batch) except? 0
    cdef bint step_single(self, GetBatch batch) except -1
    cdef bint step_messages(self, GetBatch batch) except -1
    cdef bint send_next(self, GetBatch batch) except -1
    cdef int hold(self, Request* request) except -1
    cdef bint resume(self, GetBatch batch) except -1
    cdef int continue_later(self) except -1
    cdef int refuse(self, Request* request, bytes line) except -1
