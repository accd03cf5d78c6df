"""State of a delivery; the code and the explanation are in delivery.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from tradewind.broker.accounts cimport Account
from tradewind.broker.router cimport Router
from tradewind.broker.state cimport Message
from tradewind.broker.turn cimport Turn
from tradewind.consumer.ack_replies cimport AckReplies
from tradewind.consumer.cursor cimport Cursor
from tradewind.consumer.pending cimport AckState
from tradewind.consumer.ordered_keys cimport KeyRule
from tradewind.consumer.pace cimport Pace
from tradewind.consumer.pulls cimport Pulls
from tradewind.consumer.removals cimport Follower, RemovalFanOut
from tradewind.consumer.done_listener cimport DoneListener
from tradewind.consumer.taker cimport Taker, TakerPart
from tradewind.store.table.kept_record cimport KeptRecord
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.format.records cimport Record
from tradewind.containers.buffer cimport Buffer

# Why a consumer sends nothing at the moment.
cdef enum Wait:
    WAIT_NOTHING = 0            # it was interrupted and wants to continue
    WAIT_MESSAGES = 1           # the end of the stream
    WAIT_SYNC = 2               # ... of what is durable
    WAIT_DEMAND = 3             # no request, or no subscriber to the deliver subject
    WAIT_ACKS = 4               # max_ack_pending
    WAIT_FLOW = 5               # an answer to flow control
    WAIT_PACE = 6               # rate limit or replay; until pace_due_ns
    WAIT_RECEIVER = 7           # the receiver reads too slowly; until pace_due_ns
    WAIT_PAUSE = 8              # until it is over
    WAIT_DISK = 9               # a message could not be read; until pace_due_ns
    WAIT_KEYS = 10              # the keys of all messages that it may look at are busy


cdef class Delivery(TakerPart):
    cdef Taker owner                        # the consumer: a DeliveryOwner
    cdef readonly Turn turn
    cdef Router router
    cdef Account account
    cdef MessageStore store
    cdef readonly Cursor cursor
    cdef readonly AckState acks
    cdef readonly Pulls pulls               # None: it pushes
    cdef Follower follower
    cdef public DoneListener on_done             # None: the stream keeps its messages by limits
    cdef list tokens                        # of the attached subscriptions
    cdef readonly list requests             # (reply, header, payload) received in this turn
    cdef public list advisories             # those of the owner that wait for the end of the turn
    cdef bytes deliver_subject              # b"": it is a pull consumer
    cdef bytes deliver_group
    cdef char* reply                        # the ack subject of the message being sent
    cdef uint32_t prefix_size
    cdef Buffer body                        # of a message whose header is changed on the way
    cdef KeptRecord kept                    # the message that is being sent
    cdef readonly AckReplies replies        # to acknowledgements
    cdef public uint32_t max_ack_pending    # 0: no limit
    cdef public bint headers_only
    cdef public bint is_preview             # its ack subjects are those of the previews
    cdef public bint samples                # acknowledgements are measured
    cdef public bint paused
    cdef readonly bint closed
    cdef readonly bint is_bound             # the deliver subject has a subscriber
    cdef readonly uint32_t wait             # Wait
    cdef readonly uint64_t visible_seq      # as of the last `deliver`
    cdef readonly int64_t last_delivered_ns     # wall clock; 0: never
    cdef readonly int64_t last_acked_ns
    cdef public int64_t active_ns           # of the last request, ack or delivery
    cdef public int64_t save_due_ns         # 0: nothing has changed since the last save
    cdef public int64_t heartbeat_ns
    cdef public int64_t heartbeat_due_ns
    cdef int64_t pace_due_ns
    cdef public int64_t pause_due_ns        # end of a pause; 0: it is not paused
    # See `Inactivity`, which sets these.
    cdef int64_t inactive_threshold_ns      # 0: it stays for ever
    cdef int64_t inactive_looked_ns
    cdef int64_t inactive_due_ns
    # The message that is being sent.
    cdef uint64_t sending_seq
    cdef uint64_t sending_deliveries
    cdef bint sending_again
    # Flow control, in bytes.
    cdef bint flow_control
    cdef bint flow_acknowledges             # answers to flow control are the acknowledgements
    cdef int64_t window                     # 0: none
    cdef int64_t window_pending
    cdef int64_t window_asked               # how much the answer to `flow_subject` takes off
    cdef readonly bytes flow_subject        # b"": no request is open
    cdef Pace pace
    # Order per key.
    cdef KeyRule key_rule
    cdef bytes key_header                   # whose bytes the rule points to
    cdef uint32_t park_max                  # messages parked at a time
    cdef bint prefers_parked                # the next message is a parked one, if one may be sent
    cdef bint sending_parked
    cdef uint64_t sending_hash

    cpdef bint fill(self, uint64_t visible_seq) except -1
    cpdef bint deliver(self, uint64_t visible_seq) except -1
    cdef bint _take_plain_requests(self) except -1
    cpdef int64_t inactive_at_ns(self) except? -1
    cpdef int64_t next_deadline_ns(self) except? -1
    cdef int64_t _paced_until_ns(self) noexcept
    cdef int _changed(self) except -1
    cdef int _pick(self, Record* record) except -1
    cdef int _pick_by_key(self, Record* record) except -1
    cdef int _pick_parked(self, Record* record) except -1
    cdef int _pick_free(self, Record* record) except -1
    cdef bint _learn_keys(self) except -1
    cdef uint64_t left(self) except? 0xFFFFFFFFFFFFFFFF
    cdef size_t _prepare(self, Record* record, Message* message) except 0
    cdef int _set_body(self, Message* message, bytes line, bint with_payload) except -1
    cdef bint _may_send(self)
    cdef int _send_push(self, Record* record, Message* message, size_t size) except -1
    cdef int _send_pull(self, Record* record, Message* message, size_t size) except -1
    cdef bint _is_at_end(self) noexcept
    cdef bint _receiver_is_full(self) noexcept
    cdef int _commit(self, Record* record, size_t size) except -1
    cdef int _flow(self, size_t size) except -1
    cdef int _ack(self, Message* message) except -1
    cpdef bint acknowledge(self, uint64_t seq, uint64_t consumer_seq, uint64_t deliveries,
                           bint measures=*) except -1
    cdef int _flow_answer(self, Message* message) except -1
    cdef int _request(self, Message* message) except -1
    cpdef int queue_request(self, bytes reply, bytes header, bytes payload) except -1
