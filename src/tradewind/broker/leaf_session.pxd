"""State of leaf connections; the code and the explanation are in leaf_session.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from tradewind.broker.accounts cimport Account
from tradewind.broker.router cimport Router
from tradewind.broker.session cimport Session
from tradewind.broker.state cimport LeafState, Message
from tradewind.containers.buffer cimport Buffer
from tradewind.containers.table cimport Table
from tradewind.route.interest cimport Interest, Wanted
from tradewind.route.permissions cimport Permissions
from tradewind.route.sublist cimport Subscription
from tradewind.wire.parser cimport Operation


cdef class LeafSession(Session):
    cdef LeafState leaf
    cdef Table told                         # key -> Wanted*: interest announced to the peer
    cdef Table weights                      # key -> queue weight announced to the peer
    cdef Wanted* cursor                     # the next to announce at the start; NULL: none left
    cdef Buffer scratch                     # a key, or a line
    cdef dict consumers                     # the keys of `leaf.consumers`
    cdef Permissions incoming               # what may arrive; None: everything
    cdef Permissions forbidden              # ... forbidden results of mappings; None: nothing
    cdef Permissions outgoing               # what may be sent; None: everything
    cdef Permissions subscribable           # what the peer may subscribe to; None: everything
    cdef readonly object decoder            # Decompressor; None: input is not compressed
    cdef object _encode                     # bytes -> bytes; None: output is not compressed
    cdef size_t plain_left                  # bytes of the outbox that leave uncompressed
    cdef int64_t decoded_ns
    cdef size_t undecoded_bytes             # input decoded before the peer has authenticated
    cdef readonly bint is_ready             # the handshake is over, so messages flow
    cdef readonly bint is_solicited         # this server has dialled
    cdef readonly bint is_spoke             # the peer is our hub
    cdef public bint is_isolated            # interest of other leaf connections is hidden from it
    cdef public object remote               # LeafPeer: the peer's announcements about itself
    cdef public object remote_urls          # other addresses of its cluster, or None
    cdef public str compression             # as monitoring shows it
    cdef public int64_t retry_ns            # when to dial again once it ends; 0: the default
    cdef public object settings             # LeafRemoteOptions of a dialled link, or None

    cdef int _decode(self, bytes data, int64_t now_ns) except -1
    cdef int _run_slice(self, bytes data, int64_t now_ns) except -1
    cdef int _take_rest(self, int64_t now_ns) except -1
    cdef void _show(self, Message* message, const char* subject, uint32_t size) noexcept
    cdef int _know_consumer(self, bytes name) except -1
    cdef int _is_asked_for(self, const char* subject, uint32_t size) except -1
    cdef int _refuse_message(self, const char* subject, uint32_t size, bytes meaning) except -1
    cdef int _add_interest(self, Operation* operation) except -1
    cdef int _drop_interest(self, Operation* operation) except -1
    cdef int _insert(self, Subscription* subscription) except -1
    cdef uint32_t _key(self, Operation* operation, const char** key) except? 0
    cdef Subscription* _find(self, const char* key, uint32_t size) noexcept
    cdef uint64_t _wanted(self, Wanted* wanted, list alike) noexcept
    cdef int tell(self, Wanted* wanted, list alike) except -1
    cdef int _may_ask(self, const Wanted* wanted) except -1


cdef class AccountLeaves:
    cdef readonly Account account
    cdef readonly Interest interest
    cdef Router router
    cdef readonly dict sessions             # cid -> LeafSession that is ready
    cdef dict clusters                      # cluster name's number -> list of its LeafSessions
    cdef uint32_t syncing                   # sessions to which not all interest has been announced

    cdef int _forget_interest(self, Wanted* wanted) except -1
