"""State of an account; the code is in accounts.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp
from tradewind.broker.state cimport Carry, Hook
from tradewind.containers.table cimport Table
from tradewind.route.sublist cimport Sublist, Subscription
from tradewind.route.translator cimport Translator


cdef class Account:
    cdef readonly str name
    cdef readonly Sublist sublist
    cdef object router                      # publishes for the server's own services
    cdef public object limits               # AccountLimits
    cdef public object mappings             # AccountMappings, or None
    cdef bytes domain_prefix                # `$JS.<domain>.API.`, which reaches it too, or b""
    cdef uint32_t domain_size               # of the prefix
    cdef dict domain_words                  # first word of the API -> whether others follow it
    cdef public object bridge               # AccountBridge: its imports, or None
    cdef public object leaves               # AccountLeaves: its leaf connections, or None
    cdef public object trace_rule           # TraceRule: where traces go, or None
    cdef public bint traces_parents         # a traceparent header can start a trace
    cdef public uint64_t shadow_count       # subscriptions that members of other accounts have here
    cdef readonly dict sessions             # cid -> Session
    cdef dict _internal                     # handle -> InternalSubscription
    cdef dict _reaching                     # handle -> [(exporter, shadow, its translator)]
    cdef public uint64_t total_connections
    cdef public uint64_t slow_consumers
    cdef public uint64_t in_msgs
    cdef public uint64_t in_bytes
    cdef public uint64_t out_msgs
    cdef public uint64_t out_bytes

    cdef size_t attach(self, bytes subject, Hook hook, object target, bytes group=*,
                       uint8_t takes=*) except 0
    cdef int reach_out(self, size_t token) except -1
    cdef int _add_shadows(self, size_t token) except -1
    cdef int _drop_shadows(self, size_t token) except -1
    cdef size_t attach_crossing(self, bytes subject, Carry carry, object target) except 0
    cdef size_t _add_internal(self, bytes name, void* hook, object handler, bytes group) except 0
    cdef bytes meaning_of(self, const char* subject, uint32_t size)


cdef inline bint may_mean_another(Account account, const char* subject, uint32_t size) noexcept:
    """Whether the subject of an incoming message may stand for another one (`meaning_of`)."""
    return account.mappings is not None or (
        account.domain_size and size > account.domain_size
        and memcmp(subject, <const char*>account.domain_prefix, account.domain_size) == 0)


# Subscriptions in a table, by their ids, as a list of SubscriptionInfo.
cdef list described(const Table* subscriptions, uint32_t limit, uint32_t offset, uint64_t cid,
                    str account)

cdef size_t add_shadow(Account exporter, bytes remote, const Subscription* subscription,
                       Translator translator, bint is_traceable) except 0
cdef int drop_shadow(Account exporter, size_t handle) except -1
