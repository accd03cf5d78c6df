"""State of the router; the code is in router.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.broker.accounts cimport Account
from tradewind.broker.state cimport Message, SessionState
from tradewind.broker.turn cimport Turn
from tradewind.route.sublist cimport Match, Subscription, SubscriptionArray
from tradewind.route.watches cimport Changes
from tradewind.containers.buffer cimport Buffer

cdef enum:
    READ_AREA_BYTES = 262144
    # An outbox of this size is handed to its link before the turn is over.
    PRESSURE_BYTES = 524288
    # A request that has changed accounts this often is not forwarded any further.
    CROSSINGS_MAX = 64
    # Steps of walks through subscriptions in one turn, each some 50 ns: sessions that have caused
    # more than their share of them then wait for the next turn.
    TURN_STEPS_MAX = 100_000
    SESSION_STEPS_MIN = 4_000
    # The cost of adding or removing a subscription, besides its walk.
    SUBSCRIPTION_STEPS = 50
    # Subscriptions of closed sessions that are removed in one turn; others follow in later ones.
    DROPPED_AT_ONCE_MAX = 10_000
    # Sessions whose links write or close at the end of one turn; others follow in later ones.
    TOUCHED_AT_ONCE_MAX = 1024

cdef class Router:
    cdef list touched                   # sessions with output or a verdict in this turn
    cdef list resuming                  # sessions that may continue with their stored input
    cdef list waiting                   # ... from the next turn on: they were expensive in this one
    cdef list leaving                   # closed sessions that still have subscriptions to remove
    cdef uint32_t dropped               # subscriptions of closed sessions removed in this turn
    cdef uint64_t walked_before         # steps of all walks at the end of the last turn
    cdef list internal                  # (handler, InternalMessage) pairs still to be called
    cdef SubscriptionArray exhausted    # reached their maximum during the current publish
    cdef SubscriptionArray crossings    # found by the current publishes, not yet carried on
    cdef SubscriptionArray leaves       # one per leaf connection that receives the current message
    cdef const char* route              # ... which goes to the subscribers of this subject
    cdef uint32_t route_size
    cdef readonly list telling          # AccountLeaves that announce their account's interest
    cdef uint32_t depth                 # how often the current message has changed accounts
    cdef bint is_vouched                # the server itself makes the current request
    cdef bint is_answering              # the current message answers a request of another account
    cdef bint is_unvouched              # services do not accept the current message
    cdef bint is_rerouted               # it shows a subject other than its route
    cdef const Message* bare            # the message as it was before crossings, for hooks; or NULL
    cdef Buffer local_subject           # of the last message delivered through a shadow
    cdef const char* local_route        # the name of its route in the account of the receiver
    cdef uint32_t local_route_size
    cdef uint64_t random_state
    cdef char* read_area                # shared by all sessions: a read is parsed before the next
    cdef object read_view               # a view of all of it
    cdef size_t read_room               # how much of it one read may use
    cdef uint64_t in_bytes_before       # the count at the end of the last turn
    cdef uint64_t out_bytes_before
    cdef bint _pressure                 # some outbox grew large, so the turn should end early
    cdef bint is_crowded                # some outbox was still large after the turn had ended
    cdef readonly object faults         # Faults of hooks, and of every user of a router
    cdef public object trace            # MessageTrace of the current message, or None
    cdef public object spans            # SpanRecorder; None if spans are not recorded
    cdef public object on_trace         # None, or called for every delivery
    cdef readonly uint64_t crowded_count    # deliveries to crowded sessions; producers watch it
    cdef readonly size_t largest_pending    # of the fullest receiver of the last publish
    cdef readonly Turn turn
    cdef readonly Changes changes           # watched subjects whose subscriptions changed
    cdef readonly uint64_t in_msgs
    cdef readonly uint64_t in_bytes
    cdef readonly uint64_t out_msgs
    cdef readonly uint64_t out_bytes

    cdef int touch(self, SessionState* state) except -1
    cdef list take_touched(self)
    cdef void _fit_reads(self) noexcept
    cdef uint32_t publish(self, Account account, Message* message) except? 0xFFFFFFFF
    cdef uint32_t publish_as(self, Account account, const char* route, uint32_t route_size,
                             Message* message) except? 0xFFFFFFFF
    cdef size_t pending_at(self, Account account, const char* route, uint32_t route_size) noexcept
    cdef int _call_hook(self, Subscription* subscription, Message* message) except -1
    cdef int _deliver(self, Account account, Subscription* subscription, Message* message) except -1
    cdef int _deliver_traced(self, Account account, Subscription* subscription,
                             Message* message) except -1
    cdef int _deliver_shadow_traced(self, Account account, Subscription* shadow,
                                    Message* message) except -1
    cdef int _deliver_noted(self, Account account, Subscription* named,
                            Subscription* subscription, Message* message, const char* route,
                            uint32_t route_size) except -1
    cdef int _translate(self, Subscription* shadow, Message* message) except -1
    cdef str _obstacle(self, Subscription* subscription, SessionState* target, Message* message,
                       const char* route, uint32_t route_size)
    cdef bint _is_denied(self, const Subscription* subscription, const SessionState* target,
                         const Message* message, const char* route,
                         uint32_t route_size) noexcept
    cdef void _unmask(self, const Subscription* subscription, Message* message, const char* route,
                      uint32_t route_size, bint is_foreign) noexcept
    cdef bint _is_unproven(self, const Message* message, bint is_foreign) noexcept
    cdef int _append(self, Account account, Subscription* subscription, SessionState* target,
                     Message* message) except -1
    cdef int _put(self, Account account, Subscription* subscription, SessionState* target,
                  Message* message) except -1
    cdef int _deliver_unusual(self, Account account, Subscription* subscription,
                              Message* message) except -1
    cdef int _deliver_shadow(self, Account account, Subscription* shadow,
                             Message* message) except -1
    cdef uint32_t _carry_on(self, uint32_t first, const char* route, uint32_t route_size,
                            Message* message) except? 0xFFFFFFFF
    cdef bint _encode(self, Subscription* subscription, SessionState* target,
                      Message* message) noexcept
    cdef int _deliver_internal(self, Account account, Subscription* subscription,
                               Message* message) except -1
    cdef uint32_t _deliver_groups(self, Account account, Match* match,
                                  Message* message) except? 0xFFFFFFFF
    cdef uint32_t _deliver_groups_once(self, Account account, Match* match,
                                       Message* message) except? 0xFFFFFFFF
    cdef bint _leaf_takes(self, const Subscription* subscription, const Message* message,
                          const char* route, uint32_t route_size) noexcept
    cdef int _note_leaf(self, Subscription* subscription, const char* subject,
                        uint32_t size) except -1
    cdef int _send_to_leaves(self, Account account, Message* message) except -1
    cdef void _forget_leaves(self) noexcept
    cdef bint _encode_leaf(self, SessionState* target, Message* message) noexcept
    cdef void _exhaust(self, Subscription* subscription) noexcept
    cdef void _reap(self, Account account) noexcept
    cdef uint32_t _random_below(self, uint32_t bound) noexcept
