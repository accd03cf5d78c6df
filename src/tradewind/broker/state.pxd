"""The C side of one connection: the fields that routing uses for every message.

Owned by subscriber.pyx, explained there and in session.pyx.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from tradewind.containers.table cimport Table
from tradewind.containers.buffer cimport Buffer

cdef enum DoomReason:
    DOOM_NONE = 0
    DOOM_SLOW_PENDING = 1       # more output than max_pending
    DOOM_MEMORY = 2             # no memory for its output

ctypedef struct LeafState:
    void* outgoing              # Permissions for what may be sent, borrowed; NULL: everything
    Buffer chosen               # queue groups with a member there, each preceded by a space
    Buffer translated           # the current message's subject, if an import changes it
    const char* named           # queue groups named by the message that the peer sent
    uint32_t named_size
    uint32_t cluster            # number of its cluster's name; 0: none
    uint8_t is_listed           # among the receivers of the current message
    uint8_t tracks_acks         # the peer may only acknowledge messages of `consumers`
    Table consumers             # those whose messages it was sent, by the start of ack subjects
    uint8_t is_unproven         # the peer's message shows a subject it may not publish to

ctypedef struct SessionState:
    void* session               # the Session object, borrowed: it outlives every use of this struct
    void* permissions           # its Permissions, borrowed; NULL: none
    Buffer outbox               # encoded output that the link has not taken yet
    size_t link_pending         # output taken by the link and not yet written to the socket
    size_t pending_max
    Table sids                  # sid -> Subscription*
    uint64_t in_msgs
    uint64_t in_bytes
    uint64_t out_msgs
    uint64_t out_bytes
    uint32_t doom               # why it must be closed at the end of the turn
    uint8_t closed              # removed from routing for good
    uint8_t echo
    uint8_t headers
    uint8_t tracks_responses
    uint8_t filtered            # a deny rule covers a part of a subscription: check deliveries
    uint8_t dirty               # listed by the router for this turn
    uint8_t trace_only          # a message it publishes now must reach no receiver
    uint8_t has_shadows         # some of its subscriptions reach into other accounts
    LeafState* leaf             # of a leaf connection, which owns it; else NULL

ctypedef struct Message:
    SessionState* origin        # NULL: from the server itself
    const char* subject
    const char* reply
    const char* body            # header block, then payload
    uint32_t subject_size
    uint32_t reply_size
    size_t header_size
    size_t total_size

cdef inline bint is_trace_only(const Message* message) noexcept nogil:
    """Whether a message must reach no receiver, although it counts as received."""
    return message.origin != NULL and message.origin.trace_only


# How the server's own subscriptions treat a delivered message that shows another subject than its
# route. A request never does that. Services and most hooks refuse it: otherwise they would act on a
# subject without a permission check.
cdef enum TakesDeliveries:
    TAKES_NONE = 0
    TAKES_SHOWN = 1             # by the subject it shows: the inbox of a mirror or source
    TAKES_PERMITTED = 2         # by the subject it shows if the sender may use that, else the route

# Called for each message that reaches an attached subscription, in the middle of its delivery. The
# hook must not publish or change subscriptions, and must copy data that it stores. Returns 1 if it
# took the message and 0 if it is not a receiver.
ctypedef int (*Hook)(void* target, Message* message) except -1

# Called for each message that reaches a crossing subscription on `route`, once its delivery in the
# account is complete, so it may publish. Returns the number of receivers. The second argument is
# the Router.
ctypedef uint32_t (*Carry)(void* target, void* router, const char* route, uint32_t route_size,
                           Message* message) except? 0xFFFFFFFF
