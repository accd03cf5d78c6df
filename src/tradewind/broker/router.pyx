"""Routes a message to the output buffers of its receivers: the loop that runs once per message.

Owns the list of sessions touched in this turn and the server-wide message counters. It never writes
to a socket, never closes a session (it marks it doomed, and the broker closes it when the turn
ends), and never calls a service inside a delivery: messages for services are queued and handed over
by `run_internal`, so no Python code can change the routing table while it is being walked. Hooks
are the exception: they receive a message immediately and must not change the routing table.

A message that continues in another account (`broker.bridges`) does so once the delivery in its own
account is complete, so two walks of one routing table never overlap.
"""

from cpython.buffer cimport PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy
from tradewind cimport invariants
from tradewind.broker.ack_subjects cimport consumer_size
from tradewind.broker.state cimport (
    DOOM_MEMORY, DOOM_SLOW_PENDING, TAKES_NONE, TAKES_PERMITTED, Carry, Hook, LeafState)
from tradewind.broker.turn_watch cimport TurnWatch
from tradewind.route cimport subject_trie
from tradewind.route.permissions cimport Permissions
from tradewind.route.members cimport array_push
from tradewind.route.sublist cimport (
    SUB_CROSSING, SUB_LEAF, SUB_REMOVED, SUB_SHADOW, QueueGroup, subject_matches, subscription_free)
from tradewind.route.translator cimport Translator
from tradewind.containers.table cimport Table, table_find, table_hash, table_remove
from tradewind.containers.buffer cimport (
    Buffer, buffer_append, buffer_clear, buffer_free, buffer_init, buffer_reserve, buffer_size,
    write_decimal)

from tradewind.broker.accounts import InternalMessage, SubscriptionInfo
from tradewind.faults import Faults

cdef enum:
    # "HMSG " + two spaces + two sizes + CRLF twice, rounded up; the strings are added.
    FRAME_BYTES_MAX = 64
    # One read takes at least this much, however many receivers there are.
    READ_BYTES_MIN = 65536
    # After this time, services that have not run yet wait for the next turn.
    SERVICES_NS_MAX = 10_000_000
    # The same for connections that continue after they were blocked.
    RESUMED_NS_MAX = 10_000_000

cdef str NOT_DELIVERED = "Not delivered because "


cdef inline bint begins(const char* text, uint32_t size, const char* start,
                        uint32_t start_size) noexcept nogil:
    return size > start_size and memcmp(text, start, start_size) == 0


cdef bint is_request(const char* subject, uint32_t size) noexcept nogil:
    """Whether a service of the server may act for the publisher to a subject. Events, and messages
    of consumers to mirrors and sources, only carry information.
    """
    if begins(subject, size, b"$JS.", 4):
        return not (begins(subject, size, b"$JS.EVENT.", 10) or begins(subject, size, b"$JS.M.", 6)
                    or begins(subject, size, b"$JS.S.", 6))
    return begins(subject, size, b"$TW.API.", 8)


cdef bint is_named(const LeafState* origin, const char* queue, uint32_t size) noexcept nogil:
    """Whether a message from a leaf connection names this queue group."""
    cdef const char* at = origin.named
    cdef const char* end = at + origin.named_size
    cdef const char* start
    while at < end:
        start = at
        while at < end and at[0] != 32 and at[0] != 9:
            at += 1
        if <uint32_t>(at - start) == size and memcmp(start, queue, size) == 0:
            return True
        while at < end and (at[0] == 32 or at[0] == 9):
            at += 1
    return False


cdef bint is_elsewhere(const Subscription* subscription, const Message* message) noexcept nogil:
    """Whether a message comes from a server outside the subscribing server and its cluster."""
    cdef SessionState* target = <SessionState*>subscription.owner
    cdef SessionState* origin = message.origin
    if target.closed or target.doom or target == origin:
        return False
    return origin == NULL or origin.leaf == NULL or not target.leaf.cluster \
        or target.leaf.cluster != origin.leaf.cluster


cdef bytes forward(Router router, SessionState* target, const Message* message, Message* sent):
    """Write the traced message that another server receives and record it in the trace. Return the
    body, which must stay alive as long as `sent`, or None if the server receives nothing.
    """
    cdef object session = <object>target.session
    cdef Buffer* translated = &target.leaf.translated
    cdef bytes name = router.route[:router.route_size] if buffer_size(translated) == 0 \
        else translated.data[translated.begin:translated.end]
    cdef bytes header = router.trace.forwarded(
        session, message.body[:message.header_size], session.obstacle_to(name))
    cdef bytes body
    if header is None:
        return None
    body = header + message.body[message.header_size:message.total_size]
    if len(body) > router.trace.payload_max:
        # The other server would close the connection because of the hop, so leave it out.
        header = message.body[:message.header_size]
        body = message.body[:message.total_size]
    sent.body = body
    sent.header_size = len(header)
    sent.total_size = len(body)
    return body


cdef int note_consumer(SessionState* target, const Message* message) except -1:
    """Record the consumer whose message goes to another server, which may acknowledge it."""
    cdef uint32_t size = consumer_size(message.reply, message.reply_size)
    cdef Table* known = &target.leaf.consumers
    if size and table_find(known, table_hash(known, message.reply, size), message.reply,
                           size) == NULL:
        (<object>target.session).note_consumer(message.reply[:size])
    return 0


cdef inline void count_out(Router router, SessionState* target, size_t total) noexcept:
    """Count a message of `total` bytes that has been appended, and check how full the outbox is."""
    cdef size_t pending
    target.out_msgs += 1
    target.out_bytes += total
    router.out_msgs += 1
    router.out_bytes += total
    pending = buffer_size(&target.outbox)
    if pending > PRESSURE_BYTES:
        router._pressure = True
    pending += target.link_pending
    if pending > router.largest_pending:
        router.largest_pending = pending
    if pending > target.pending_max - target.pending_max // 4:
        router.crowded_count += 1
        if pending > target.pending_max:
            target.doom = DOOM_SLOW_PENDING


cdef class Router:
    """The router of a broker."""

    def __cinit__(self, uint64_t seed):
        # Queue group members can observe the output of this generator, so it must reveal nothing
        # about other seeds.
        self.random_state = seed | 1
        self.faults = Faults()
        self.touched = []
        self.resuming = []
        self.waiting = []
        self.leaving = []
        self.internal = []
        self.telling = []
        self.turn = Turn()
        self.changes = Changes()
        self.exhausted.items = NULL
        self.exhausted.count = 0
        self.exhausted.capacity = 0
        buffer_init(&self.local_subject)
        self.read_area = <char*>malloc(READ_AREA_BYTES)
        if self.read_area == NULL:
            raise MemoryError
        self.read_room = READ_AREA_BYTES
        self.read_view = PyMemoryView_FromMemory(self.read_area, READ_AREA_BYTES, PyBUF_WRITE)

    def __dealloc__(self):
        free(self.exhausted.items)
        free(self.crossings.items)
        free(self.leaves.items)
        buffer_free(&self.local_subject)
        free(self.read_area)

    cdef uint32_t _random_below(self, uint32_t bound) noexcept:
        """A random number below `bound`, by xorshift64: it only has to be fair between queue
        members.
        """
        self.random_state ^= self.random_state << 13
        self.random_state ^= self.random_state >> 7
        self.random_state ^= self.random_state << 17
        return <uint32_t>((self.random_state >> 32) % bound)

    cdef int touch(self, SessionState* state) except -1:
        """List a session that has output or a decision for its link at the end of this turn."""
        if not state.dirty:
            state.dirty = 1
            self.touched.append(<object>state.session)
        return 0

    @property
    def pressure(self):
        """Whether some outbox has grown so large that the turn should end now."""
        return bool(self._pressure)

    cdef list take_touched(self):
        """The sessions touched since the last call; the caller marks them clean, and each may be
        touched again. If they are very many, the ones touched last wait for the next turn.
        """
        cdef list touched = self.touched
        if len(touched) <= TOUCHED_AT_ONCE_MAX:
            self.touched = []
        else:
            self.touched = touched[TOUCHED_AT_ONCE_MAX:]
            del touched[TOUCHED_AT_ONCE_MAX:]
        self.dropped = 0
        self._pressure = False
        self.is_crowded = False
        self.walked_before = subject_trie.walked
        self._fit_reads()
        return touched

    cdef void _fit_reads(self) noexcept:
        """Read less at a time when each byte goes to many receivers.

        The receivers can then start while the rest is still to be read, and the data stays in the
        processor's caches. A turn with little input does not change the setting.
        """
        cdef uint64_t taken = self.in_bytes - self.in_bytes_before
        cdef uint64_t given = self.out_bytes - self.out_bytes_before
        self.in_bytes_before = self.in_bytes
        self.out_bytes_before = self.out_bytes
        if taken >= READ_BYTES_MIN // 2:
            self.read_room = max(<size_t>READ_BYTES_MIN,
                                 <size_t>(READ_AREA_BYTES * taken // max(taken, given)))

    @property
    def has_touched(self):
        """Whether links have something to write or have to close."""
        return bool(self.touched)

    @property
    def has_work(self):
        """Whether a turn has anything to do."""
        return bool(self.touched or self.resuming or self.waiting or self.internal or self.leaving
                    or self.turn.is_busy() or self.changes
                    or any([one.has_changes for one in self.telling]))

    def drop_leaving(self):
        """Remove some of the subscriptions that closed sessions have left in the routing tables."""
        cdef Py_ssize_t done = 0
        self.dropped = 0
        while done < len(self.leaving) and self.dropped < DROPPED_AT_ONCE_MAX:
            try:
                if not self.leaving[done].drop_some():
                    break
            except Exception as error:
                self.faults.contain("session", error)
            done += 1
        del self.leaving[:done]

    # -------------------------------------------------------------- publish

    cdef uint32_t publish(self, Account account, Message* message) except? 0xFFFFFFFF:
        """Deliver to every match and return the number of receivers, including services."""
        return self.publish_as(account, message.subject, message.subject_size, message)

    cdef uint32_t publish_as(self, Account account, const char* route, uint32_t route_size,
                             Message* message) except? 0xFFFFFFFF:
        """Deliver to the subscribers of `route`, who see the message's own subject.

        Afterwards `largest_pending` is the output pending at the fullest receiver.
        """
        cdef Match* match = account.sublist.match(route, route_size)
        cdef uint32_t delivered = 0, index
        cdef uint32_t first_crossing = self.crossings.count
        cdef bint is_complete = False
        cdef bint is_traced = self.trace is not None
        self.largest_pending = 0
        self.is_rerouted = route != message.subject
        self.is_unvouched = (message.origin == NULL and self.depth == 0 or self.is_answering) \
            and not self.is_vouched and is_request(route, route_size)
        self.route = route
        self.route_size = route_size
        if match == NULL:
            return 0
        subject_trie.walked += match.plain.count
        if invariants.checked:
            account.sublist.check_match(match, route, route_size)
        try:
            for index in range(match.plain.count):
                if self._deliver_traced(account, match.plain.items[index], message) if is_traced \
                        else self._deliver(account, match.plain.items[index], message):
                    delivered += 1
            if match.groups.count:
                if account.leaves is None:
                    delivered += self._deliver_groups(account, match, message)
                else:
                    delivered += self._deliver_groups_once(account, match, message)
            if self.leaves.count:
                self._send_to_leaves(account, message)
            is_complete = True
        finally:
            if not is_complete:
                self.crossings.count = first_crossing
                self._forget_leaves()
            # Even if a log hook failed: an exhausted subscription must not outlive this call.
            if self.exhausted.count:
                self._reap(account)
        if self.crossings.count != first_crossing:
            delivered += self._carry_on(first_crossing, route, route_size, message)
        return delivered

    cdef uint32_t _carry_on(self, uint32_t first, const char* route, uint32_t route_size,
                            Message* message) except? 0xFFFFFFFF:
        """Continue a message in other accounts, now that no match of this account is in use. Return
        the number of receivers there.
        """
        cdef uint32_t index, last = self.crossings.count, delivered = 0
        cdef size_t largest = self.largest_pending
        cdef Subscription* subscription
        self.depth += 1
        try:
            for index in range(first, last):
                subscription = self.crossings.items[index]
                try:
                    delivered += (<Carry>subscription.hook)(
                        subscription.handler, <void*>self, route, route_size, message)
                except Exception as error:
                    self.faults.contain("bridge", error, repr(subscription.subject[
                        :subscription.subject_size]))
                largest = max(largest, self.largest_pending)
        finally:
            self.depth -= 1
            self.crossings.count = first
            self.largest_pending = largest
        return delivered

    cdef size_t pending_at(self, Account account, const char* route, uint32_t route_size) noexcept:
        """The output pending at the fullest plain receiver of a subject, or at the emptiest member
        of a group.
        """
        cdef Match* match = account.sublist.match(route, route_size)
        cdef size_t largest = 0, smallest, pending
        cdef uint32_t index, member
        cdef SessionState* owner
        if match == NULL:
            return 0
        for index in range(match.plain.count):
            owner = <SessionState*>match.plain.items[index].owner
            if owner != NULL:
                largest = max(largest, buffer_size(&owner.outbox) + owner.link_pending)
        for index in range(match.groups.count):
            smallest = <size_t>-1
            for member in range(match.groups.items[index].members.count):
                owner = <SessionState*>match.groups.items[index].members.items[member].owner
                pending = 0 if owner == NULL else buffer_size(&owner.outbox) + owner.link_pending
                smallest = min(smallest, pending)
            largest = max(largest, smallest)
        return largest

    cdef uint32_t _deliver_groups(self, Account account, Match* match,
                                  Message* message) except? 0xFFFFFFFF:
        """Deliver to one member of each queue group, starting at a random one and skipping members
        that cannot receive it.
        """
        cdef uint32_t index, attempt, start, delivered = 0
        cdef QueueGroup* group
        cdef Subscription* member
        for index in range(match.groups.count):
            group = &match.groups.items[index]
            start = self._random_below(group.members.count)
            for attempt in range(group.members.count):
                subject_trie.walked += 1
                member = group.members.items[(start + attempt) % group.members.count]
                if self._deliver_traced(account, member, message) if self.trace is not None \
                        else self._deliver(account, member, message):
                    delivered += 1
                    break
        return delivered

    cdef int _deliver(self, Account account, Subscription* subscription,
                      Message* message) except -1:
        """Append a message to one receiver's outbox, if permitted and possible."""
        cdef SessionState* target = <SessionState*>subscription.owner
        if subscription.kind:
            return self._deliver_unusual(account, subscription, message)
        if target == NULL:
            if self.is_unvouched or (self.is_rerouted and subscription.takes == TAKES_NONE):
                return False
            if subscription.hook != NULL:
                return self._call_hook(subscription, message)
            self._deliver_internal(account, subscription, message)
            return True
        return self._put(account, subscription, target, message)

    cdef int _deliver_unusual(self, Account account, Subscription* subscription,
                              Message* message) except -1:
        """Deliver to a subscription that reaches into another account or to another server."""
        if subscription.kind == SUB_LEAF:
            if not self._leaf_takes(subscription, message, self.route, self.route_size):
                return False
            self._note_leaf(subscription, NULL, 0)
            return True
        if subscription.kind == SUB_SHADOW:
            return self._deliver_shadow(account, subscription, message)
        if subscription.kind == SUB_CROSSING and self.depth < CROSSINGS_MAX:
            if array_push(&self.crossings, subscription) != 0:
                raise MemoryError
        return False

    cdef int _deliver_shadow(self, Account account, Subscription* shadow,
                             Message* message) except -1:
        """Deliver to the subscription that a shadow stands for, under the subject that its account
        uses.

        Messages that came through a service import are not passed on: sharing is not transitive.
        """
        cdef Subscription* subscription = <Subscription*>shadow.hook
        cdef SessionState* target = <SessionState*>shadow.owner
        cdef Message local = message[0]
        if self.depth or subscription.kind == SUB_REMOVED:
            return False
        self._translate(shadow, &local)
        if target == NULL:
            return self._deliver(account, subscription, &local)
        if subscription.kind == SUB_LEAF:
            if not self._leaf_takes(subscription, message, self.local_route, self.local_route_size):
                return False
            self._note_leaf(subscription, self.local_route, self.local_route_size)
            return True
        self._unmask(subscription, &local, self.local_route, self.local_route_size, True)
        if target.filtered and self._is_denied(subscription, target, &local, self.local_route,
                                               self.local_route_size):
            return False
        return self._append(account, subscription, target, &local)

    cdef int _translate(self, Subscription* shadow, Message* message) except -1:
        """Set `local_route`, the name of the route in the account of the shadow's owner. A message
        that shows its route gets that name as its subject.
        """
        self.local_route = self.route
        self.local_route_size = self.route_size
        if shadow.handler == NULL:
            return 0
        if (<Translator>shadow.handler).apply(self.route, self.route_size,
                                              &self.local_subject) != 0:
            raise MemoryError
        self.local_route = self.local_subject.data + self.local_subject.begin
        self.local_route_size = <uint32_t>buffer_size(&self.local_subject)
        if not self.is_rerouted:
            message.subject = self.local_route
            message.subject_size = self.local_route_size
        return 0

    # -------------------------------------------------------------- traced messages

    cdef int _deliver_traced(self, Account account, Subscription* subscription,
                             Message* message) except -1:
        """Deliver like `_deliver`, and record the outcome in the trace. A message that is only
        traced is not delivered; it counts as received by its would-be receivers.
        """
        cdef Message seen
        if subscription.kind == SUB_LEAF:
            if not self.trace.is_told or not is_elsewhere(subscription, message):
                return self._deliver(account, subscription, message)
            # Even for a receiver that is not permitted: `forward` records why.
            self._note_leaf(subscription, NULL, 0)
            return self._leaf_takes(subscription, message, self.route, self.route_size)
        if subscription.kind == SUB_SHADOW:
            return self._deliver_shadow_traced(account, subscription, message)
        if subscription.owner == NULL:
            if subscription.kind or subscription.hook != NULL or self.is_rerouted:
                return self._deliver(account, subscription, message)
            return self.trace.served(message.subject[:message.subject_size]) \
                and self._deliver(account, subscription, message)
        seen = message[0]
        self._unmask(subscription, &seen, self.route, self.route_size, False)
        return self._deliver_noted(account, subscription, subscription, &seen, self.route,
                                   self.route_size)

    cdef int _deliver_noted(self, Account account, Subscription* named,
                            Subscription* subscription, Message* message, const char* route,
                            uint32_t route_size) except -1:
        """Deliver to the session of a subscription; the trace names it by the subject of `named`.
        """
        cdef SessionState* target = <SessionState*>subscription.owner
        cdef str obstacle = self._obstacle(subscription, target, message, route, route_size)
        self.trace.delivered(<object>target.session, named.subject[:named.subject_size],
                             named.queue[:named.queue_size], obstacle)
        if obstacle:
            return False
        return True if self.trace.only else self._append(account, subscription, target, message)

    cdef int _deliver_shadow_traced(self, Account account, Subscription* shadow,
                                    Message* message) except -1:
        cdef Subscription* subscription = <Subscription*>shadow.hook
        cdef SessionState* target = <SessionState*>shadow.owner
        cdef Message local = message[0]
        if self.depth or subscription.kind == SUB_REMOVED:
            return False
        if target == NULL or subscription.kind == SUB_LEAF:
            return self._deliver_shadow(account, shadow, message)
        self._translate(shadow, &local)
        trace = self.trace
        trace.exported((<object>target.session).account.name, local.subject[:local.subject_size])
        if shadow.is_traceable:
            self._unmask(subscription, &local, self.local_route, self.local_route_size, True)
            return self._deliver_noted(account, shadow, subscription, &local, self.local_route,
                                       self.local_route_size)
        # Counted as delivered, although it is not checked whether it could be.
        return True if trace.only else self._deliver_shadow(account, shadow, message)

    cdef str _obstacle(self, Subscription* subscription, SessionState* target, Message* message,
                       const char* route, uint32_t route_size):
        """Why a session does not receive a message; empty if it does."""
        if target == message.origin and not target.echo:
            return NOT_DELIVERED + "of no echo"
        if target.filtered and self._is_denied(subscription, target, message, route, route_size):
            return NOT_DELIVERED + "subscription denies this subject"
        if subscription.kind == SUB_REMOVED:
            return NOT_DELIVERED + "subscription is closed"
        if target.closed or target.doom:
            return NOT_DELIVERED + "client is closed"
        return ""

    cdef bint _is_denied(self, const Subscription* subscription, const SessionState* target,
                         const Message* message, const char* route,
                         uint32_t route_size) noexcept:
        """Whether a deny rule of a filtered receiver covers the subject that it would see, or the
        route; `route` is the receiver's name for the latter.
        """
        cdef Permissions permissions = <Permissions>target.permissions
        if not permissions.delivery_allowed(message.subject, message.subject_size,
                                            subscription.queue, subscription.queue_size):
            return True
        return self.is_rerouted and not permissions.delivery_allowed(
            route, route_size, subscription.queue, subscription.queue_size)

    cdef void _unmask(self, const Subscription* subscription, Message* message, const char* route,
                      uint32_t route_size, bint is_foreign) noexcept:
        """Show a message under its route if it only claims to be on a subject of the subscription:
        a server shows that subject and may not publish there. The receiver would take it for a
        message published with permission.
        """
        if self.is_rerouted and self._is_unproven(message, is_foreign) and subject_matches(
                message.subject, message.subject_size, subscription.subject,
                subscription.subject_size):
            message.subject = route
            message.subject_size = route_size

    cdef int _put(self, Account account, Subscription* subscription, SessionState* target,
                  Message* message) except -1:
        """Append to the outbox of a session, if its rules allow that."""
        cdef Message seen
        if self.is_rerouted and self._is_unproven(message, False):
            seen = message[0]
            self._unmask(subscription, &seen, self.route, self.route_size, False)
            message = &seen
        if target.filtered and self._is_denied(subscription, target, message, self.route,
                                               self.route_size):
            return False
        return self._append(account, subscription, target, message)

    cdef int _append(self, Account account, Subscription* subscription, SessionState* target,
                     Message* message) except -1:
        """Append to the outbox of a session, whatever its rules are."""
        if target.closed or target.doom:
            return False
        if target == message.origin and not target.echo:
            return False
        self.touch(target)
        if not self._encode(subscription, target, message):
            return False
        account.out_msgs += 1
        account.out_bytes += message.total_size
        if target.tracks_responses and message.reply_size:
            (<object>target.session).track_response(message.reply[:message.reply_size])
        if self.on_trace is not None:
            self.on_trace(<object>target.session, message.subject[:message.subject_size],
                          subscription.sid[:subscription.sid_size],
                          message.reply[:message.reply_size],
                          message.body[:message.total_size])
        return True

    cdef int _call_hook(self, Subscription* subscription, Message* message) except -1:
        """Pass a message to a part of the server; an error there must not affect the publisher or
        the other receivers.
        """
        cdef Message routed
        if self.bare != NULL:
            message = <Message*>self.bare
        if self.is_rerouted and subscription.takes == TAKES_PERMITTED \
                and self._is_unproven(message, False):
            routed = message[0]
            routed.subject = self.route
            routed.subject_size = self.route_size
            message = &routed
        try:
            return (<Hook>subscription.hook)(subscription.handler, message)
        except Exception as error:
            self.faults.contain("hook", error, repr(subscription.subject[
                :subscription.subject_size]))
            return True

    cdef bint _is_unproven(self, const Message* message, bint is_foreign) noexcept:
        """Whether a message that shows another subject than its route comes from a server that may
        not publish to that subject. In another account (`is_foreign`) it may not publish at all.
        """
        return message.origin != NULL and message.origin.leaf != NULL and (
            message.origin.leaf.is_unproven or is_foreign or self.depth != 0)

    cdef bint _encode(self, Subscription* subscription, SessionState* target,
                      Message* message) noexcept:
        """Append MSG or HMSG; False, with the target doomed, if too much output is already
        pending.
        """
        cdef const char* body = message.body
        cdef size_t total = message.total_size
        cdef size_t header = message.header_size
        cdef char* at
        if header and not target.headers:
            body += header
            total -= header
            header = 0
        if buffer_reserve(&target.outbox, total + message.subject_size + message.reply_size
                          + subscription.sid_size + FRAME_BYTES_MAX) != 0:
            target.doom = DOOM_MEMORY
            return False
        at = target.outbox.data + target.outbox.end
        if header:
            memcpy(at, b"HMSG ", 5)
            at += 5
        else:
            memcpy(at, b"MSG ", 4)
            at += 4
        memcpy(at, message.subject, message.subject_size)
        at += message.subject_size
        at[0] = 32
        memcpy(at + 1, subscription.sid, subscription.sid_size)
        at += subscription.sid_size + 1
        at[0] = 32
        at += 1
        if message.reply_size:
            memcpy(at, message.reply, message.reply_size)
            at += message.reply_size
            at[0] = 32
            at += 1
        if header:
            at += write_decimal(at, header)
            at[0] = 32
            at += 1
        at += write_decimal(at, total)
        at[0] = 13
        at[1] = 10
        if total:
            memcpy(at + 2, body, total)
        at += total + 2
        at[0] = 13
        at[1] = 10
        target.outbox.end = at + 2 - target.outbox.data
        count_out(self, target, total)
        subscription.delivered += 1
        if subscription.delivered == subscription.delivered_max:
            self._exhaust(subscription)
        return True

    # -------------------------------------------------------------- leaf connections

    cdef bint _leaf_takes(self, const Subscription* subscription, const Message* message,
                          const char* route, uint32_t route_size) noexcept:
        """Whether a message may go to the subscribing server: never back to where it came from.
        `route` is that server's name for the subject.
        """
        cdef LeafState* leaf = (<SessionState*>subscription.owner).leaf
        cdef Permissions outgoing
        if not is_elsewhere(subscription, message):
            return False
        if leaf.outgoing == NULL:
            return True
        outgoing = <Permissions>leaf.outgoing
        return outgoing.publish_allowed(route, route_size) and outgoing.delivery_allowed(
            route, route_size, subscription.queue, subscription.queue_size)

    cdef int _note_leaf(self, Subscription* subscription, const char* subject,
                        uint32_t size) except -1:
        """List a leaf connection as a receiver of the current message: once, however many of its
        subscribers match.

        `subject` is the one that an import translates to, or NULL.
        """
        cdef LeafState* leaf = (<SessionState*>subscription.owner).leaf
        if not leaf.is_listed:
            if array_push(&self.leaves, subscription) != 0:
                raise MemoryError
            leaf.is_listed = 1
        if subject != NULL and buffer_size(&leaf.translated) == 0 \
                and buffer_append(&leaf.translated, subject, size) != 0:
            raise MemoryError
        if subscription.queue_size and (
                buffer_append(&leaf.chosen, b" ", 1) != 0 or buffer_append(
                    &leaf.chosen, subscription.queue, subscription.queue_size) != 0):
            raise MemoryError
        return 0

    cdef uint32_t _deliver_groups_once(self, Account account, Match* match,
                                       Message* message) except? 0xFFFFFFFF:
        """Deliver to one member of each queue group, preferring members on this server that can
        receive it; a message from another server only goes to the groups that it names.

        A leaf connection counts once for each group member on its other side.
        """
        cdef uint32_t index, attempt, start, delivered = 0
        cdef uint64_t weight, chosen
        cdef QueueGroup* group
        cdef Subscription* member
        cdef LeafState* origin = NULL if message.origin == NULL else message.origin.leaf
        for index in range(match.groups.count):
            group = &match.groups.items[index]
            member = group.members.items[0]
            if origin != NULL and not is_named(origin, member.queue, member.queue_size):
                continue
            weight = 0
            start = self._random_below(group.members.count)
            subject_trie.walked += group.members.count
            for attempt in range(group.members.count):
                member = group.members.items[(start + attempt) % group.members.count]
                if member.kind == SUB_LEAF:
                    if self._leaf_takes(member, message, self.route, self.route_size):
                        weight += member.weight
                elif self._deliver_traced(account, member, message) if self.trace is not None \
                        else self._deliver(account, member, message):
                    delivered += 1
                    weight = 0
                    break
            if weight == 0:
                continue
            chosen = self._random_below(<uint32_t>min(weight, <uint64_t>0xFFFFFFFF))
            for attempt in range(group.members.count):
                member = group.members.items[attempt]
                if member.kind != SUB_LEAF or not self._leaf_takes(
                        member, message, self.route, self.route_size):
                    continue
                if chosen < member.weight:
                    delivered += self._deliver_unusual(account, member, message)
                    break
                chosen -= member.weight
        return delivered

    cdef int _send_to_leaves(self, Account account, Message* message) except -1:
        """Append the current message to the outbox of every leaf connection that receives it."""
        cdef uint32_t index
        cdef SessionState* target
        cdef Message sent = message[0]
        cdef bytes _body            # holds the rewritten body of a traced message
        cdef bint is_traced = self.trace is not None and self.trace.is_told
        if account.sublist.is_told and account.sublist.interest.changed != NULL:
            # Interest must be announced before the message leaves, because an answer may come back.
            account.leaves.tell()
        for index in range(self.leaves.count):
            target = <SessionState*>self.leaves.items[index].owner
            if is_traced:
                _body = forward(self, target, message, &sent)
                if _body is None:
                    continue
            self.touch(target)
            if self._encode_leaf(target, &sent):
                account.out_msgs += 1
                account.out_bytes += sent.total_size
                if target.tracks_responses and message.reply_size:
                    (<object>target.session).track_response(message.reply[:message.reply_size])
                if target.leaf.tracks_acks and message.reply_size:
                    note_consumer(target, message)
        self._forget_leaves()
        return 0

    cdef void _forget_leaves(self) noexcept:
        cdef uint32_t index
        cdef LeafState* leaf
        for index in range(self.leaves.count):
            leaf = (<SessionState*>self.leaves.items[index].owner).leaf
            leaf.is_listed = 0
            buffer_clear(&leaf.chosen)
            buffer_clear(&leaf.translated)
        self.leaves.count = 0

    cdef bint _encode_leaf(self, SessionState* target, Message* message) noexcept:
        """Append LMSG or HMSG in the form for servers; False, with the target doomed, if too much
        output is already pending.

        If the message shows a subject other than its route, that subject follows the reply; unless
        the server that sent it may not use it, because the next server cannot know that.
        """
        cdef LeafState* leaf = target.leaf
        cdef const char* body = message.body
        cdef const char* subject = self.route
        cdef uint32_t subject_size = self.route_size
        cdef size_t total = message.total_size, header = message.header_size
        cdef size_t groups = buffer_size(&leaf.chosen)
        cdef char* at
        cdef bint is_shown_elsewhere = self.is_rerouted and message.reply_size \
            and not self._is_unproven(message, buffer_size(&leaf.translated) != 0)
        if buffer_size(&leaf.translated):
            subject = leaf.translated.data + leaf.translated.begin
            subject_size = <uint32_t>buffer_size(&leaf.translated)
        if header and not target.headers:
            body += header
            total -= header
            header = 0
        if buffer_reserve(&target.outbox, total + subject_size + message.subject_size
                          + message.reply_size + groups + FRAME_BYTES_MAX) != 0:
            target.doom = DOOM_MEMORY
            return False
        at = target.outbox.data + target.outbox.end
        memcpy(at, b"HMSG " if header else b"LMSG ", 5)
        at += 5
        memcpy(at, subject, subject_size)
        at += subject_size
        if groups:
            memcpy(at, b" +" if message.reply_size else b" |", 2)
            at += 2
        if message.reply_size:
            at[0] = 32
            memcpy(at + 1, message.reply, message.reply_size)
            at += message.reply_size + 1
            if is_shown_elsewhere:
                at[0] = 64
                memcpy(at + 1, message.subject, message.subject_size)
                at += message.subject_size + 1
        if groups:
            memcpy(at, leaf.chosen.data + leaf.chosen.begin, groups)
            at += groups
        if header:
            at[0] = 32
            at += 1 + write_decimal(at + 1, header)
        at[0] = 32
        at += 1 + write_decimal(at + 1, total)
        at[0] = 13
        at[1] = 10
        if total:
            memcpy(at + 2, body, total)
        at += total + 2
        at[0] = 13
        at[1] = 10
        target.outbox.end = at + 2 - target.outbox.data
        count_out(self, target, total)
        return True

    def tell_interest(self):
        """Announce the interest that changed in this turn to other servers."""
        for tell in self.telling:
            try:
                tell.tell()
            except Exception as error:
                self.faults.contain("leaf node", error)

    cdef void _exhaust(self, Subscription* subscription) noexcept:
        """Note a subscription that just received its last message; if memory is exhausted, the
        subscription is only silenced.
        """
        subscription.kind = SUB_REMOVED
        array_push(&self.exhausted, subscription)

    cdef void _reap(self, Account account) noexcept:
        """Remove the exhausted subscriptions, now that no match result is in use."""
        cdef uint32_t index
        cdef Subscription* subscription
        cdef SessionState* owner
        for index in range(self.exhausted.count):
            subscription = self.exhausted.items[index]
            owner = <SessionState*>subscription.owner
            if owner.has_shadows:
                (<object>owner.session).drop_exhausted(<size_t>subscription)
                continue
            table_remove(&owner.sids,
                         table_hash(&owner.sids, subscription.sid, subscription.sid_size),
                         subscription.sid, subscription.sid_size)
            account.sublist.remove(subscription)
            subscription_free(subscription)
        self.exhausted.count = 0
        if account.bridge is not None:
            account.bridge.subscription_gone()

    # -------------------------------------------------------------- services

    cdef int _deliver_internal(self, Account account, Subscription* subscription,
                               Message* message) except -1:
        session = None if message.origin == NULL else <object>message.origin.session
        self.internal.append((<object>subscription.handler, InternalMessage(
            account,
            message.subject[:message.subject_size].decode("utf-8", "surrogateescape"),
            message.reply[:message.reply_size].decode("utf-8", "surrogateescape"),
            message.body[:message.header_size],
            message.body[message.header_size:message.total_size],
            session)))
        if session is not None:
            session.service_queued()
        return 0

    def run_internal(self, on_error, TurnWatch watch not None, count_max=64):
        """Call the services for up to `count_max` queued messages and return how many are left.

        The call returns earlier if the services take long. A failing service is reported as
        on_error(message, exception) and does not affect the others.
        """
        cdef list batch = self.internal[:count_max]
        cdef Py_ssize_t done = 0
        cdef int64_t until_ns = watch.step_ns + SERVICES_NS_MAX
        del self.internal[:count_max]
        for handler, message in batch:
            done += 1
            try:
                handler(message)
            except Exception as error:
                on_error(message, error)
            if message.session is not None:
                try:
                    message.session.service_done()
                except Exception as error:
                    message.session.broker.session_failed(message.session, error)
            if watch.lap("service", message.subject) > until_ns and done < len(batch):
                self.internal[:0] = batch[done:]
                break
        return len(self.internal)

    def run_resumed(self, on_error, TurnWatch watch not None):
        """Let sessions run their stored input: those that are no longer blocked, and those that
        gave way in an earlier turn.

        The call stops when they have taken long; the others come first in the next turn, and those
        that have given way in this one last. A failing session is reported as on_error(session,
        exception).
        """
        cdef list batch = self.resuming
        cdef Py_ssize_t done = 0
        cdef int64_t until_ns = watch.step_ns + RESUMED_NS_MAX
        self.resuming = []
        for session in batch:
            done += 1
            try:
                session.resume()
            except Exception as error:
                on_error(session, error)
            if watch.lap("kept input", "connections that had to wait") > until_ns \
                    or subject_trie.walked - self.walked_before > TURN_STEPS_MAX:
                break
        self.resuming = batch[done:] + self.resuming + self.waiting
        self.waiting = []

    def ask_internal(self, Account account not None, bytes subject not None,
                     bytes payload not None, bytes reply=b"", bytes header=b""):
        """Publish a request that the server makes of itself: services accept it."""
        cdef bint before = self.is_vouched
        self.is_vouched = True
        try:
            return self.publish_internal(account, subject, payload, reply, header)
        finally:
            self.is_vouched = before

    def publish_internal(self, Account account not None, bytes subject not None,
                         bytes payload not None, bytes reply=b"", bytes header=b""):
        """Publish as the server itself and return the number of receivers.

        Others may have chosen the subject (of responses, republished and delivered messages), and
        must not be able to make services act without permission in this way: JetStream requests
        that come from no connection are not accepted, unless made by `ask_internal`.
        """
        cdef Message message
        cdef bytes body = header + payload
        message.origin = NULL
        message.subject = subject
        message.subject_size = <uint32_t>len(subject)
        message.reply = reply
        message.reply_size = <uint32_t>len(reply)
        message.body = body
        message.header_size = len(header)
        message.total_size = len(body)
        return self.publish(account, &message)

    def describe(self, Account account not None, size_t handle):
        """A subscription of a peer, found by its address, as monitoring shows it."""
        cdef Subscription* subscription = <Subscription*>handle
        cdef SessionState* owner = <SessionState*>subscription.owner
        return SubscriptionInfo(
            subscription.subject[:subscription.subject_size].decode("utf-8", "replace"),
            subscription.queue[:subscription.queue_size].decode("utf-8", "replace"),
            subscription.sid[:subscription.sid_size].decode("utf-8", "replace"),
            subscription.delivered, subscription.delivered_max,
            (<object>owner.session).cid, account.name)
