"""State of a subscriber; the code is in subscriber.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.broker.accounts cimport Account
from tradewind.broker.router cimport Router
from tradewind.broker.state cimport SessionState
from tradewind.route.permissions cimport Permissions
from tradewind.route.sublist cimport Subscription
from tradewind.wire.parser cimport Operation


cdef class Subscriber:
    cdef SessionState state
    cdef readonly object broker
    cdef Router router
    cdef Account _account
    cdef Permissions _permissions
    cdef dict shadows                       # subscription -> [(account, shadow, translator)]
    cdef uint32_t dropped_to                # slots of `sids` below this have been emptied
    cdef bint verbose
    cdef uint32_t subscriptions_max
    cdef uint32_t subscription_tokens_max
    cdef uint64_t subscribe_rules           # how many rules a SUB is compared with
    cdef readonly uint64_t cid

    cdef int _subscribe(self, Operation* operation) except -1
    cdef int _may_subscribe(self, Operation* operation) except -1
    cdef int _unsubscribe(self, Operation* operation) except -1
    cdef int _write(self, const char* data, size_t size) except -1
    cdef void drop_output(self, size_t size) noexcept
    cdef void _remove(self, Subscription* subscription) noexcept
    cdef int _remove_by_sid(self, bytes sid) except -1
    cdef void _free(self, Subscription* subscription) noexcept
    cdef int _tell_gone(self) except -1
    cdef int _add_shadows(self, Subscription* subscription) except -1
    cdef int _drop_shadows(self, Subscription* subscription) except -1
