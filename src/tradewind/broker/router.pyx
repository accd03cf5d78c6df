"""A message -> the output buffers of its receivers. This is the loop that runs once per message.

Owns the list of sessions touched in this turn and the server-wide message counters. It never writes
to a socket, never closes a session (it marks it doomed and the broker closes it when the turn
ends), and never calls a service inside a delivery: their messages are queued and handed over by
`run_internal`, so no Python code can change the routing table while it is being walked. The
exception are hooks, which take a message at once and promise to leave the routing table alone.

What goes on in another account (`broker.bridges`) does so when the delivery in its own is over, so
no two walks of one routing table are ever under way at once.
"""

from cpython.buffer cimport PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from tradewind cimport invariants
from tradewind.broker.state cimport (
    DOOM_MEMORY, DOOM_SLOW_PENDING, Carry, Hook, is_trace_only)
from tradewind.broker.turn_watch cimport TurnWatch
from tradewind.route.permissions cimport Permissions
from tradewind.route.members cimport array_push
from tradewind.route.sublist cimport (
    SUB_CROSSING, SUB_REMOVED, SUB_SHADOW, QueueGroup, subscription_free)
from tradewind.route.translator cimport Translator
from tradewind.containers.table cimport table_hash, table_remove
from tradewind.containers.buffer cimport (
    buffer_free, buffer_init, buffer_reserve, buffer_size, write_decimal)

from tradewind.broker.accounts import InternalMessage, SubscriptionInfo
from tradewind.faults import Faults

cdef enum:
    # "HMSG " + two spaces + two sizes + CRLF twice, rounded up; the strings are added.
    FRAME_BYTES_MAX = 64
    # One read takes at least so much, however many receivers there are.
    READ_BYTES_MIN = 65536
    # After this time the services that have not run wait for the next turn.
    SERVICES_NS_MAX = 10_000_000


cdef class Router:
    """One per broker."""

    def __cinit__(self, uint64_t seed):
        # Members of a queue group see what comes of it: it must say nothing of another seed.
        self.random_state = seed | 1
        self.faults = Faults()
        self.touched = []
        self.leaving = []
        self.internal = []
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
        buffer_free(&self.local_subject)
        free(self.read_area)

    cdef uint32_t _random_below(self, uint32_t bound) noexcept:
        """xorshift64: fairness between queue members is all that is asked of it."""
        self.random_state ^= self.random_state << 13
        self.random_state ^= self.random_state >> 7
        self.random_state ^= self.random_state << 17
        return <uint32_t>((self.random_state >> 32) % bound)

    cdef int touch(self, SessionState* state) except -1:
        """The session has something for its link at the end of this turn."""
        if not state.dirty:
            state.dirty = 1
            self.touched.append(<object>state.session)
        return 0

    @property
    def pressure(self):
        """Whether some outbox has grown so large that the turn should end now."""
        return bool(self._pressure)

    def take_touched(self):
        """The sessions touched since the last call; each may be touched again from now on."""
        cdef list touched = self.touched
        self.touched = []
        self._pressure = False
        self.is_crowded = False
        self._fit_reads()
        for session in touched:
            session.mark_clean()
        return touched

    cdef void _fit_reads(self) noexcept:
        """Read less at a time where each byte goes to many receivers.

        Then they begin to work while the rest is still to be read, and what is on its way stays in
        the caches of the processor. A turn with little input says nothing about that.
        """
        cdef uint64_t taken = self.in_bytes - self.in_bytes_before
        cdef uint64_t given = self.out_bytes - self.out_bytes_before
        self.in_bytes_before = self.in_bytes
        self.out_bytes_before = self.out_bytes
        if taken >= READ_BYTES_MIN // 2:
            self.read_room = max(<size_t>READ_BYTES_MIN,
                                 <size_t>(READ_AREA_BYTES * taken // max(taken, given)))

    @property
    def has_work(self):
        """Whether a turn has anything to do."""
        return bool(self.touched or self.internal or self.leaving or self.turn.has_work
                    or self.changes)

    def drop_leaving(self):
        """Remove a part of what closed sessions have left in the routing tables."""
        if self.leaving and self.leaving[0].drop_some():
            del self.leaving[0]

    # -------------------------------------------------------------- publish

    cdef uint32_t publish(self, Account account, Message* message) except? 0xFFFFFFFF:
        """Deliver to every match; gives the number of receivers (services included)."""
        return self.publish_as(account, message.subject, message.subject_size, message)

    cdef uint32_t publish_as(self, Account account, const char* route, uint32_t route_size,
                             Message* message) except? 0xFFFFFFFF:
        """The same to the subscribers of `route`; they see the message's own subject.

        `largest_pending` says afterwards how much waits for the fullest of them.
        """
        cdef Match* match = account.sublist.match(route, route_size)
        cdef uint32_t delivered = 0, index
        cdef uint32_t first_crossing = self.crossings.count
        cdef bint is_complete = False
        self.largest_pending = 0
        self.is_rerouted = route != message.subject
        if match == NULL:
            return 0
        if invariants.checked:
            account.sublist.check_match(match, route, route_size)
        try:
            for index in range(match.plain.count):
                if self._deliver(account, match.plain.items[index], message):
                    delivered += 1
            if match.groups.count:
                delivered += self._deliver_groups(account, match, message)
            is_complete = True
        finally:
            if not is_complete:
                self.crossings.count = first_crossing
            # Also when a log hook failed: an exhausted subscription must not outlive this call.
            if self.exhausted.count:
                self._reap(account)
        if self.crossings.count != first_crossing:
            delivered += self._carry_on(first_crossing, route, route_size, message)
        return delivered

    cdef uint32_t _carry_on(self, uint32_t first, const char* route, uint32_t route_size,
                            Message* message) except? 0xFFFFFFFF:
        """Let a message go on in other accounts, now that no match of this one is in use; gives
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
        """How much waits for the fullest plain receiver of a subject, or for the emptiest member of
        a group.
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
        """One member of each queue group, from a random one on; a member that cannot take it is
        passed over.
        """
        cdef uint32_t index, attempt, start, delivered = 0
        cdef QueueGroup* group
        cdef Subscription* member
        for index in range(match.groups.count):
            group = &match.groups.items[index]
            start = self._random_below(group.members.count)
            for attempt in range(group.members.count):
                member = group.members.items[(start + attempt) % group.members.count]
                if self._deliver(account, member, message):
                    delivered += 1
                    break
        return delivered

    cdef int _deliver(self, Account account, Subscription* subscription,
                      Message* message) except -1:
        """Put one message into one receiver's outbox, if it may and can have it."""
        cdef SessionState* target = <SessionState*>subscription.owner
        if subscription.kind:
            return self._deliver_unusual(account, subscription, message)
        if target == NULL:
            if subscription.hook != NULL:
                return self._call_hook(subscription, message)
            if is_trace_only(message):
                return False
            self._deliver_internal(account, subscription, message)
            return True
        return self._put(account, subscription, target, message)

    cdef int _deliver_unusual(self, Account account, Subscription* subscription,
                              Message* message) except -1:
        """To subscriptions that reach into another account."""
        if subscription.kind == SUB_SHADOW:
            return self._deliver_shadow(account, subscription, message)
        if subscription.kind == SUB_CROSSING and self.depth < CROSSINGS_MAX:
            if array_push(&self.crossings, subscription) != 0:
                raise MemoryError
        return False

    cdef int _deliver_shadow(self, Account account, Subscription* shadow,
                             Message* message) except -1:
        """To the subscription that a shadow stands for, under the subject that its account knows.

        What came through a service is not passed on: sharing is not transitive.
        """
        cdef Subscription* subscription = <Subscription*>shadow.hook
        cdef Message local = message[0]
        if self.depth or subscription.kind == SUB_REMOVED:
            return False
        if shadow.handler != NULL and not self.is_rerouted:
            if (<Translator>shadow.handler).apply(message.subject, message.subject_size,
                                                  &self.local_subject) != 0:
                raise MemoryError
            local.subject = self.local_subject.data + self.local_subject.begin
            local.subject_size = <uint32_t>buffer_size(&self.local_subject)
        return self._put(account, subscription, <SessionState*>shadow.owner, &local)

    cdef int _put(self, Account account, Subscription* subscription, SessionState* target,
                  Message* message) except -1:
        """Into the outbox of a session."""
        if target.closed or target.doom:
            return False
        if target == message.origin and not target.echo:
            return False
        if subscription.filtered and not (<Permissions>target.permissions).delivery_allowed(
                message.subject, message.subject_size):
            return False
        if is_trace_only(message):
            return True
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
        """A part of the server takes a message; its fault is not that of the publisher, nor of the
        other receivers.
        """
        try:
            return (<Hook>subscription.hook)(
                subscription.handler, message if self.bare == NULL else <Message*>self.bare)
        except Exception as error:
            self.faults.contain("hook", error, repr(subscription.subject[
                :subscription.subject_size]))
            return True

    cdef bint _encode(self, Subscription* subscription, SessionState* target,
                      Message* message) noexcept:
        """Append MSG or HMSG; false, with the target doomed, when it holds too much already."""
        cdef const char* body = message.body
        cdef size_t total = message.total_size
        cdef size_t header = message.header_size
        cdef size_t pending
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
        target.out_msgs += 1
        target.out_bytes += total
        self.out_msgs += 1
        self.out_bytes += total
        subscription.delivered += 1
        if subscription.delivered == subscription.delivered_max:
            self._exhaust(subscription)
        pending = buffer_size(&target.outbox)
        if pending > PRESSURE_BYTES:
            self._pressure = True
        pending += target.link_pending
        if pending > self.largest_pending:
            self.largest_pending = pending
        if pending > target.pending_max - target.pending_max // 4:
            self.crowded_count += 1
            if pending > target.pending_max:
                target.doom = DOOM_SLOW_PENDING
        return True

    cdef void _exhaust(self, Subscription* subscription) noexcept:
        """Remember a subscription that just got its last message; without memory it is only
        silenced.
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
        """Call the services for up to `count_max` messages queued so far; gives how many are left.

        Fewer if they take long. A service that fails is reported as on_error(message, exception)
        and disturbs nobody else.
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

    def publish_internal(self, Account account not None, bytes subject not None,
                         bytes payload not None, bytes reply=b"", bytes header=b""):
        """Publish as the server itself; gives the number of receivers."""
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
        """A client subscription, by its address, as monitoring shows it."""
        cdef Subscription* subscription = <Subscription*>handle
        cdef SessionState* owner = <SessionState*>subscription.owner
        return SubscriptionInfo(
            subscription.subject[:subscription.subject_size].decode("utf-8", "replace"),
            subscription.queue[:subscription.queue_size].decode("utf-8", "replace"),
            subscription.sid[:subscription.sid_size].decode("utf-8", "replace"),
            subscription.delivered, subscription.delivered_max,
            (<object>owner.session).cid, account.name)
