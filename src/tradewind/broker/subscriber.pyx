"""The receiving half of a connection: its subscriptions, and the outbox their messages go to.

Owns what the peer is subscribed to, in the account and, through imports, in other accounts: SUB,
UNSUB, their limits and permissions, and their removal, which takes several turns if there are very
many. The router encodes messages straight into the outbox, from which the link takes them.
`Session` adds the input.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcmp, memset
from tradewind.broker.accounts cimport add_shadow, described, drop_shadow
from tradewind.broker.router cimport DROPPED_AT_ONCE_MAX, SUBSCRIPTION_STEPS
from tradewind.broker.state cimport DOOM_NONE, DOOM_SLOW_PENDING
from tradewind.containers.buffer cimport (
    Buffer, buffer_append, buffer_clear, buffer_free, buffer_init, buffer_size)
from tradewind.containers.table cimport (
    table_at, table_find, table_free, table_hash, table_init, table_insert, table_remove,
    table_room, table_take_at)
from tradewind.route cimport subject_trie
from tradewind.route.sublist cimport (
    subject_exceeds, subject_valid, subscription_free, subscription_new)

from tradewind.wire import ops

cdef enum:
    OUTBOX_KEEP_BYTES = 4096


@cython.no_gc_clear     # __dealloc__ needs the account, even in a garbage cycle
cdef class Subscriber:
    """The base of every session; a member of one account at a time."""

    def __cinit__(self):
        memset(&self.state, 0, sizeof(SessionState))

    def __init__(self, broker, Router router not None, Account account not None, uint64_t cid,
                 uint64_t seed):
        self.state.session = <void*>self
        self.state.echo = 1
        buffer_init(&self.state.outbox)
        table_init(&self.state.sids, seed)
        self.broker = broker
        self.router = router
        self._account = account
        self.cid = cid
        self.verbose = True

    def __dealloc__(self):
        cdef uint32_t index
        # A session that was never closed (an aborted test) still owns its subscriptions; closed
        # ones have none.
        for index in range(table_room(&self.state.sids)):
            if table_at(&self.state.sids, index) != NULL:
                self._free(<Subscription*>table_at(&self.state.sids, index))
        table_free(&self.state.sids)
        buffer_free(&self.state.outbox)

    # -------------------------------------------------------------- SUB and UNSUB

    cdef int _subscribe(self, Operation* operation) except -1:
        cdef Subscription* subscription
        cdef uint32_t hash_value
        subject_trie.walked += SUBSCRIPTION_STEPS
        if not self._may_subscribe(operation):
            return 0
        hash_value = table_hash(&self.state.sids, operation.sid, operation.sid_size)
        if table_find(&self.state.sids, hash_value, operation.sid, operation.sid_size) == NULL:
            if not subject_valid(operation.subject, operation.subject_size, False):
                self.send_error(ops.ERROR_INVALID_SUBJECT)
                return 0
            subscription = subscription_new(
                operation.subject, operation.subject_size, operation.queue, operation.queue_size,
                operation.sid, operation.sid_size)
            if subscription == NULL:
                raise MemoryError
            subscription.owner = &self.state
            if table_insert(&self.state.sids, hash_value, subscription.sid, subscription.sid_size,
                            subscription) != 0:
                subscription_free(subscription)
                raise MemoryError
            if self._account.sublist.insert(subscription) != 0:
                table_remove(&self.state.sids, hash_value, subscription.sid, subscription.sid_size)
                subscription_free(subscription)
                raise MemoryError
            if self._account.bridge is not None:
                self._add_shadows(subscription)
        if self.verbose:
            self._write(b"+OK\r\n", 5)
        return 0

    cdef int _may_subscribe(self, Operation* operation) except -1:
        """Check permissions and limits, nearly in nats-server's order; a refusal is sent to the
        peer. The number of tokens comes first: it bounds the cost of comparing with the rules.
        """
        cdef int64_t account_max = self._account.limits.subscriptions_max
        cdef bint allowed = not (
            operation.queue_size == 5 and memcmp(operation.queue, b"_sys_", 5) == 0)
        if self.subscription_tokens_max and subject_exceeds(
                operation.subject, operation.subject_size, self.subscription_tokens_max):
            self.send_error(
                'Permissions Violation for Subscription to "%s", too many tokens'
                % operation.subject[:operation.subject_size].decode("utf-8", "replace"))
            return False
        if allowed and self._permissions is not None:
            subject_trie.charge_rules(self.subscribe_rules, operation.subject_size)
            allowed, filtered = self._permissions.may_subscribe(
                operation.subject[:operation.subject_size].decode("utf-8", "surrogateescape"),
                operation.queue[:operation.queue_size].decode("utf-8", "surrogateescape"))
            if filtered:
                # Applies to everything that it receives from now on, as on nats-server.
                self.state.filtered = 1
        if not allowed:
            self.broker.subscribe_denied(self, operation.subject[:operation.subject_size],
                                         operation.queue[:operation.queue_size],
                                         operation.sid[:operation.sid_size])
            return False
        if (self.subscriptions_max and self.state.sids.count >= self.subscriptions_max) or (
                account_max >= 0 and self.state.sids.count >= account_max):
            self.send_error(ops.ERROR_MAX_SUBSCRIPTIONS)
            return False
        return True

    cdef int _unsubscribe(self, Operation* operation) except -1:
        cdef uint32_t hash_value = table_hash(&self.state.sids, operation.sid, operation.sid_size)
        cdef Subscription* subscription = <Subscription*>table_find(
            &self.state.sids, hash_value, operation.sid, operation.sid_size)
        subject_trie.walked += SUBSCRIPTION_STEPS
        if subscription != NULL:
            if operation.count_max > subscription.delivered:
                subscription.delivered_max = operation.count_max
            else:
                self._remove(subscription)
                self._tell_gone()
        if self.verbose:
            self._write(b"+OK\r\n", 5)
        return 0

    # -------------------------------------------------------------- leaving routing

    cdef void _remove(self, Subscription* subscription) noexcept:
        table_remove(&self.state.sids,
                     table_hash(&self.state.sids, subscription.sid, subscription.sid_size),
                     subscription.sid, subscription.sid_size)
        self._free(subscription)

    cdef void _free(self, Subscription* subscription) noexcept:
        """Remove a subscription from routing that is no longer in the table of ids."""
        if self.state.has_shadows:
            self._drop_shadows(subscription)
        self._account.sublist.remove(subscription)
        subscription_free(subscription)

    cdef int _tell_gone(self) except -1:
        """Stop expecting responses without a subscriber."""
        if self._account.bridge is not None:
            subject_trie.walked += len(self._account.bridge.services)
            self._account.bridge.subscription_gone()
        return 0

    def drop_exhausted(self, size_t handle):
        """Remove a subscription that has received its last message."""
        self._remove(<Subscription*>handle)
        self._tell_gone()

    def drop_subscriptions(self):
        """Remove all subscriptions, for a repeated CONNECT or the end of the session."""
        cdef uint32_t index
        cdef Subscription* subscription
        for index in range(table_room(&self.state.sids)):
            subscription = <Subscription*>table_at(&self.state.sids, index)
            if subscription != NULL:
                self._free(subscription)
        table_free(&self.state.sids)
        self._tell_gone()

    def drop_some(self):
        """Remove as many of a closed session's subscriptions as may go in this turn; False if there
        are more.
        """
        cdef Subscription* subscription
        while self.dropped_to < table_room(&self.state.sids):
            if self.router.dropped >= DROPPED_AT_ONCE_MAX:
                return False
            subscription = <Subscription*>table_take_at(&self.state.sids, self.dropped_to)
            if subscription != NULL:
                self._free(subscription)
                self.router.dropped += 1
            self.dropped_to += 1
        table_free(&self.state.sids)
        self._tell_gone()
        return True

    def recheck_subscriptions(self):
        """After a change of permissions, remove the subscriptions that are no longer allowed and
        return them as SubscriptionInfo.
        """
        removed = []
        is_filtered = False
        if self._permissions is not None:
            for info in self.subscriptions():
                allowed, filtered = self._permissions.may_subscribe(info.subject, info.queue)
                is_filtered |= filtered
                if not allowed:
                    self._remove_by_sid(info.sid.encode("utf-8", "surrogateescape"))
                    removed.append(info)
        self.state.filtered = is_filtered
        return removed

    cdef int _remove_by_sid(self, bytes sid) except -1:
        cdef Subscription* subscription = <Subscription*>table_find(
            &self.state.sids, table_hash(&self.state.sids, sid, len(sid)), sid, <uint32_t>len(sid))
        if subscription != NULL:
            self._remove(subscription)
        return 0

    def _move_subscriptions(self, Account account):
        """Move the subscriptions made before the first CONNECT into the account."""
        cdef uint32_t index
        cdef Subscription* subscription
        if account is self._account:
            return
        for index in range(table_room(&self.state.sids)):
            subscription = <Subscription*>table_at(&self.state.sids, index)
            if subscription != NULL:
                self._drop_shadows(subscription)
                self._account.sublist.remove(subscription)
                if account.sublist.insert(subscription) != 0:
                    raise MemoryError

    # -------------------------------------------------------------- reaching into other accounts

    def reshadow(self):
        """Rebuild the shadows of subscriptions. Called when the account's imports have changed."""
        cdef uint32_t index
        cdef Subscription* subscription
        if self._account.bridge is None and not self.state.has_shadows:
            return
        for index in range(table_room(&self.state.sids)):
            subscription = <Subscription*>table_at(&self.state.sids, index)
            if subscription != NULL:
                self._drop_shadows(subscription)
                if self._account.bridge is not None:
                    self._add_shadows(subscription)

    cdef int _add_shadows(self, Subscription* subscription) except -1:
        """Insert a subscription into every account that its own account imports from, where it
        matches an import.
        """
        cdef list made = []
        subject_trie.charge_rules(len(self._account.bridge.streams), subscription.subject_size)
        for exporter, remote, translator, is_traceable in self._account.bridge.reached_by(
                subscription.subject[:subscription.subject_size]):
            made.append((
                exporter,
                add_shadow(exporter, remote, subscription, translator, is_traceable),
                translator))
            if len(made) == 1:
                if self.shadows is None:
                    self.shadows = {}
                self.shadows[<size_t>subscription] = made
                self.state.has_shadows = 1
        return 0

    cdef int _drop_shadows(self, Subscription* subscription) except -1:
        if not self.state.has_shadows:
            return 0
        for exporter, handle, _ in self.shadows.pop(<size_t>subscription, ()):
            drop_shadow(exporter, handle)
        self.state.has_shadows = bool(self.shadows)
        return 0

    # -------------------------------------------------------------- output

    cdef int _write(self, const char* data, size_t size) except -1:
        if self.state.doom:
            return 0
        if buffer_append(&self.state.outbox, data, size) != 0:
            raise MemoryError
        if buffer_size(&self.state.outbox) + self.state.link_pending > self.state.pending_max:
            self.state.doom = DOOM_SLOW_PENDING
        self.router.touch(&self.state)
        return 0

    def write(self, bytes data not None):
        """Queue protocol bytes for the peer."""
        if not self.state.closed:
            self._write(data, len(data))

    def send_error(self, str text not None):
        """Queue an -ERR line; the connection stays open."""
        cdef bytes line = b"-ERR '%b'\r\n" % text.encode("utf-8", "surrogateescape")
        self.write(line)

    def take_output(self):
        """Take all queued output as one bytes object; b"" if there is none."""
        cdef size_t size = buffer_size(&self.state.outbox)
        cdef bytes data
        if size == 0:
            return b""
        data = PyBytes_FromStringAndSize(self.state.outbox.data + self.state.outbox.begin, size)
        self.drop_output(size)
        return data

    cdef void drop_output(self, size_t size) noexcept:
        """Drop the first `size` bytes of the outbox, which the link has taken."""
        cdef Buffer* outbox = &self.state.outbox
        outbox.begin += size
        if outbox.begin < outbox.end:
            return
        # Busy connections retain their buffer; idle ones must not cost memory.
        if size <= OUTBOX_KEEP_BYTES or outbox.capacity > 16 * size:
            buffer_free(outbox)
        else:
            buffer_clear(outbox)

    @property
    def pending_bytes(self):
        """The size of the output that has not reached the socket."""
        return buffer_size(&self.state.outbox) + self.state.link_pending

    @property
    def doom(self):
        """The close reason that routing found for this session, or an empty string."""
        if self.state.doom == DOOM_NONE:
            return ""
        if self.state.doom == DOOM_SLOW_PENDING:
            return ops.CLOSED_SLOW_PENDING
        return ops.CLOSED_WRITE_ERROR

    # -------------------------------------------------------------- for monitoring

    @property
    def seed(self):
        """The seed of the table of subscription ids."""
        return self.state.sids.seed

    @property
    def subscription_count(self):
        """Number of open subscriptions."""
        return self.state.sids.count

    def subscriptions(self, uint32_t limit=0xFFFFFFFF, uint32_t offset=0):
        """Some or all subscriptions, as SubscriptionInfo."""
        return described(&self.state.sids, limit, offset, self.cid, self._account.name)
