"""State of the intake of a stream; the code and the explanation are in ingest.pyx."""

from libc.stdint cimport int64_t, uint64_t
from tradewind.broker.accounts cimport Account
from tradewind.broker.router cimport Router
from tradewind.broker.state cimport Message
from tradewind.stream.fast_core cimport OpenFastBatch
from tradewind.stream.message_recorder cimport MessageRecorder
from tradewind.stream.publish_replies cimport ReplyQueue
from tradewind.stream.schedule_intake cimport ScheduleIntake
from tradewind.stream.staging cimport OpenBatch, Staging
from tradewind.containers.buffer cimport Buffer

ctypedef struct TurnMark:
    uint64_t seq                            # the last one that was stored in this turn or before
    uint64_t bytes                          # ever stored by then


cdef class Ingest(MessageRecorder):
    cdef readonly ReplyQueue replies        # wait until their message is acknowledged
    cdef readonly ReplyQueue refusals       # too much waits already: sent at the end of the turn
    cdef ReplyQueue reads                   # answers with messages that are not synced yet
    cdef public object slow_path            # that of the stream: a CloserLook
    cdef readonly Router router
    cdef Account account
    cdef bytes busy_body                    # the reply to a message that is one too many
    cdef bint acks                          # publishers get replies
    cdef bint is_plain                      # the configuration allows the fast path at all
    cdef bint counts                        # ... for increments of counters, and nothing else
    cdef bint takes_batches                 # atomic ones
    cdef public ScheduleIntake scheduling   # of plain schedules; or None
    cdef readonly bint waits                # for the disk: what waits is bounded
    cdef bint writes                        # acknowledges what the system has; not with `waits`
    cdef bint asks_interest                 # unwanted messages are not stored
    cdef bint discards_new
    cdef bint discards_new_per_subject
    cdef int64_t message_bytes_max          # header and payload; negative: no limit
    cdef readonly uint64_t waiting_msgs_max
    cdef readonly uint64_t waiting_bytes_max
    cdef public uint64_t acknowledged_seq       # everything up to it may be acknowledged
    cdef public uint64_t acknowledged_bytes     # ... of which so many may be acknowledged
    cdef Buffer marks                       # TurnMark of each turn that is not acknowledged yet
    # This message takes the place of others that are not gone yet: it is not seen, nor is what came
    # after it. 0: there is none.
    cdef public uint64_t hidden_from
    cdef public uint64_t discarded_from     # messages from here on are never shown; 0: none
    cdef bint has_deadline                  # the engine is to ask for the next deadline
    cdef public OpenFastBatch fast              # the one whose messages come just now, or None
    cdef public Staging staging             # atomic batches that are open

    cpdef uint64_t visible(self) noexcept
    cpdef uint64_t readable(self) noexcept
    cpdef int end_turn(self) except -1
    cdef int _check_acknowledged(self, uint64_t seq) except -1
    cpdef void acknowledge_through(self, uint64_t seq, bytes failure=*) except *
    cdef bint has_moved(self) except -1
    cdef int publish(self, Message* message) except -1
    cdef bint _count(self, Message* message) except -1
    cdef bint _schedule(self, Message* message) except -1
    cdef bint _last_sum(self, Message* message, int64_t* total) except -1
    cdef OpenFastBatch _next_of_fast(self, Message* message)
    cdef int _note_fast(self, OpenFastBatch fast, Message* message, uint64_t seq) except -1
    cdef bint _stage(self, Message* message) except -1
    cpdef int commit_batch(self, OpenBatch batch, bytes reply) except -1
    cdef bint _holds(self, OpenBatch batch) except -1
    cdef int _store_parts(self, OpenBatch batch) except -1
    cdef int _remember_ids(self, OpenBatch batch, uint64_t first_seq) except -1
    cdef bint _is_full(self) noexcept
    cdef bint _fits(self, Message* message, uint64_t size) noexcept
    cdef bint _is_sound(self, Message* message, uint64_t size) noexcept
    cdef int _refuse(self, Message* message) except -1
    cdef int _may_direct(self, Message* message) except -1
    cdef int _leave(self, Message* message) except -1
    cdef int _trace(self, Message* message) except -1
    cdef bint has_room_for_copies(self) noexcept
