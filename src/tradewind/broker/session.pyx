"""One connection, without its socket: bytes in, output buffer out.

Owns the connection's protocol state and its unfinished input; its base, `Subscriber`, owns the
subscriptions and the outbox. It never does I/O, never reads a clock (times are passed in) and never
decides about logins: CONNECT goes to the broker, which asks the gate.

The link offers `read_buffer()` to the socket and reports with `received(size, now_ns)`; complete
operations run immediately, and the bytes of an unfinished one are stored. All sessions share one
read area, so an idle connection holds no input memory. Output collects in the outbox until the link
calls `take_output()` at the end of the turn.

A session can be *blocked* (see Blocked): it stores its unread bytes, the link stops reading, and
`unblock` continues.

Input is run only by the link that has read it, or at the end of a turn (`resume`): the code that
unblocks a session may itself have been called by an operation of that session, whose bytes are
still being parsed. Such a session continues when the operation returns.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport UINT32_MAX
from libc.string cimport memcpy
from tradewind cimport invariants
from tradewind.broker.accounts cimport Account
from tradewind.broker.reserved cimport reserved_reply, reserved_subject
from tradewind.broker.allowed_responses cimport AllowedResponses
from tradewind.broker.router cimport READ_AREA_BYTES, SESSION_STEPS_MIN, TURN_STEPS_MAX, Router
from tradewind.broker.state cimport Message
from tradewind.broker.trace_header cimport asks_for_trace
from tradewind.broker.turn cimport Turn
from tradewind.clock_reading cimport reading
from tradewind.broker.unheard cimport is_taken, takers_count
from tradewind.route cimport subject_trie
from tradewind.route.permissions cimport Permissions
from tradewind.route.sublist cimport Match, Subscription, subject_valid
from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init, buffer_reserve, buffer_size,
    write_decimal)
from tradewind.wire.parser cimport (
    FAULT_ARGUMENTS, FAULT_CONTROL_LINE, FAULT_PAYLOAD, OP_CONNECT, OP_ERR, OP_HPUB, OP_INFO, OP_OK,
    OP_PING, OP_PONG, OP_PUB, OP_SUB, OP_UNSUB, PARSE_DONE, PARSE_MORE, check_operation,
    parse_operation, parser_init)

from tradewind.wire import ops

cdef enum:
    # Up to this many unfinished bytes are copied in front of the next read; longer ones stay and
    # grow in place.
    PARTIAL_COPY_MAX = 65536
    # The limit for data that a connection can make the server hold before it has authenticated.
    UNAUTHENTICATED_BYTES_MAX = 32768
    SERVICES_PENDING_MAX = 128

cdef enum OfferKind:
    OFFER_NONE = 0
    OFFER_AREA = 1
    OFFER_PARTIAL = 2


BLOCKED_AUTHENTICATION_FLAG = BLOCKED_AUTHENTICATION
BLOCKED_STALL_FLAG = BLOCKED_STALL
BLOCKED_SERVICE_FLAG = BLOCKED_SERVICE


@cython.no_gc_clear     # see Subscriber
cdef class Session(Subscriber):
    """Created by the broker for each established link; unusable once `close` was called."""

    def __cinit__(self):
        buffer_init(&self.partial)

    def __init__(self, broker, Router router not None, Account account not None, uint64_t cid,
                 limits, uint64_t seed):
        Subscriber.__init__(self, broker, router, account, cid, seed)
        self.pedantic = True
        self.user = ""
        self.close_reason = ""
        self.remote_ip = ""
        self.connection_type = "STANDARD"
        self.nonce = b""
        parser_init(&self.parser, limits.max_control_line_bytes, limits.max_payload_bytes)
        self.apply_limits(limits)

    def __dealloc__(self):
        buffer_free(&self.partial)

    # -------------------------------------------------------------- settings, made by the broker

    def apply_limits(self, limits):
        """Apply the limits of the server's options, at the start and after a reload."""
        cdef int64_t payload_max = limits.max_payload_bytes
        cdef int64_t account_max = self._account.limits.payload_bytes_max
        if 0 <= account_max < payload_max:
            payload_max = account_max
        self.parser.control_line_max = limits.max_control_line_bytes
        self.parser.payload_max = payload_max
        self.state.pending_max = limits.max_pending_bytes
        self.subscriptions_max = min(limits.max_subscriptions, UINT32_MAX)
        self.subscription_tokens_max = limits.max_subscription_tokens
        self.stall_enabled = not limits.no_fast_producer_stall

    def configure(self, options, headers, trace):
        """Apply the settings of CONNECT."""
        self.options = options
        self.request_info = None
        self.verbose = options.verbose
        self.pedantic = options.pedantic
        self.no_responders = options.no_responders
        self.state.echo = options.echo
        self.state.headers = headers
        self.parser.headers_allowed = headers
        self._trace = trace

    def enter(self, Account account not None, user, Permissions permissions, limits,
              connected=True):
        """Make the session a member of `account`, after the gate has accepted it (`connected`: by a
        CONNECT of its own).
        """
        self._move_subscriptions(account)
        self._account = account
        self.request_info = None
        self.reshadow()
        self.user = user
        self._permissions = permissions
        self.subscribe_rules = 0
        if permissions is not None:
            self.subscribe_rules = len(permissions.rules.subscribe_allow or ()) + len(
                permissions.rules.subscribe_deny)
        self.state.permissions = NULL if permissions is None else <void*>permissions
        # Until `recheck_subscriptions` has checked the earlier subscriptions.
        self.state.filtered = permissions is not None and self.state.sids.count != 0
        self.state.tracks_responses = permissions is not None and permissions.tracks_responses
        self.responses = AllowedResponses(permissions.rules.responses) \
            if self.state.tracks_responses else None
        self.awaiting_auth = False
        self.connected = connected
        self.apply_limits(limits)

    def require_auth(self):
        """Accept only CONNECT until `enter`."""
        self.awaiting_auth = True

    @property
    def must_authenticate(self):
        """Whether the session still has to authenticate."""
        return self.awaiting_auth

    @property
    def is_connected(self):
        """Whether a CONNECT was accepted."""
        return self.connected

    @property
    def account(self):
        """The account that the session is a member of."""
        return self._account

    @property
    def permissions(self):
        """The permissions that apply to the session, or None."""
        return None if self._permissions is None else self._permissions.rules

    @property
    def publish_rules(self):
        """The PermissionRules that decide what the session may publish, or None."""
        return self.permissions

    @property
    def trace(self):
        """Whether the session's protocol lines are logged."""
        return self._trace

    @trace.setter
    def trace(self, value):
        self._trace = value

    # -------------------------------------------------------------- input

    def read_buffer(self):
        """The buffer for the next read; a writable view that is valid until `received`."""
        cdef char* start = self.offer()
        return PyMemoryView_FromMemory(start, self.offered_room, PyBUF_WRITE)

    cdef char* offer(self) except NULL:
        """`read_buffer` as a pointer to `offered_room` bytes."""
        cdef size_t kept = buffer_size(&self.partial)
        cdef size_t room
        self._check_idle()
        if kept <= PARTIAL_COPY_MAX:
            if kept:
                memcpy(self.router.read_area, self.partial.data + self.partial.begin, kept)
            self.offer_kind = OFFER_AREA
            self.offered = kept
            room = min(<size_t>READ_AREA_BYTES - kept, self.router.read_room)
            if self.awaiting_auth:
                room = min(room, <size_t>UNAUTHENTICATED_BYTES_MAX)
            self.offered_room = room
            return self.router.read_area + kept
        # A large payload grows in place, to the size of its missing part and a little more.
        room = self.parser.need - kept if self.parser.need > kept else 0
        room = max(room + 4096, <size_t>PARTIAL_COPY_MAX)
        if buffer_reserve(&self.partial, room) != 0:
            raise MemoryError
        self.offer_kind = OFFER_PARTIAL
        self.offered = kept
        self.offered_room = room
        return self.partial.data + self.partial.end

    cdef int _begin_turn(self, int64_t now_ns) except -1:
        """Set the time of the turn, which applies to everything that the arrived bytes cause."""
        cdef Turn turn = self.router.turn
        turn.now_ns = now_ns
        if turn.monotonic_clock is not None:
            turn.monotonic_ns = reading(turn.monotonic_clock)
        return 0

    def received(self, size_t size, int64_t now_ns):
        """Run the complete operations in the `size` bytes read into the view of `read_buffer`."""
        self.run_read(size, now_ns)

    cdef int run_read(self, size_t size, int64_t now_ns) except -1:
        cdef size_t consumed = 0
        cdef size_t total = self.offered + size
        cdef int kind = self.offer_kind
        self._check_idle()
        if size > self.offered_room:
            raise ValueError(f"{size} bytes were read into a buffer of {self.offered_room}")
        self.offer_kind = OFFER_NONE
        self.offered_room = 0
        self.last_activity_ns = now_ns
        self._begin_turn(now_ns)
        self.stall_spent = False
        if self.state.closed or kind == OFFER_NONE:
            return 0
        if kind == OFFER_PARTIAL:
            self.partial.end += size
            self._run_partial()
            return 0
        buffer_clear(&self.partial)
        self._enter(self.router.read_area, total, &consumed)
        self._keep(self.router.read_area + consumed, total - consumed)
        return 0

    def feed(self, bytes data not None, int64_t now_ns):
        """Run bytes that do not come from a socket (WebSocket frames, tests)."""
        cdef size_t consumed = 0
        cdef const char* start = data
        cdef size_t size = len(data)
        self._check_idle()
        self.last_activity_ns = now_ns
        self._begin_turn(now_ns)
        self.stall_spent = False
        if self.state.closed:
            return
        if buffer_size(&self.partial) or self.blocked:
            if buffer_append(&self.partial, start, size) != 0:
                raise MemoryError
            self._run_partial()
            return
        self._enter(start, size, &consumed)
        self._keep(start + consumed, size - consumed)

    cdef int _check_idle(self) except -1:
        """Refuse to touch input that is being run: its bytes would move or run twice."""
        if self.is_running:
            raise RuntimeError(f"session {self.cid} was entered again while it runs its input")
        return 0

    cdef int _enter(self, const char* data, size_t size, size_t* consumed) except -1:
        """Call `_run`; this is its only caller. After an error nothing is left to run: the
        operations before it must not run again.
        """
        self._check_idle()
        self.is_running = True
        try:
            self._run(data, size, consumed)
        except BaseException:
            buffer_free(&self.partial)
            raise
        finally:
            self.is_running = False
        return 0

    cdef int _run_partial(self) except -1:
        """Run the stored bytes in place, and drop the consumed ones."""
        cdef size_t consumed = 0
        self._enter(self.partial.data + self.partial.begin, buffer_size(&self.partial), &consumed)
        if self.state.closed:
            buffer_free(&self.partial)
            return 0
        self.partial.begin += consumed
        if buffer_size(&self.partial) == 0:
            buffer_free(&self.partial)
        return 0

    cdef int _keep(self, const char* data, size_t size) except -1:
        """Store the bytes of an unfinished operation; `partial` is empty when this is called."""
        if size == 0 or self.state.closed:
            buffer_free(&self.partial)
            return 0
        if buffer_append(&self.partial, data, size) != 0:
            raise MemoryError
        return 0

    @property
    def input_pending_bytes(self):
        """The size of the stored unfinished or blocked input."""
        return buffer_size(&self.partial)

    def block(self, uint32_t flag):
        """Stop running operations; the link stops reading when it sees `blocked`."""
        self.blocked |= flag
        self.router.touch(&self.state)

    def unblock(self, uint32_t flag):
        """Continue with the stored bytes, unless something else still blocks: in the run that is in
        progress, if there is one, else at the end of the turn.
        """
        if not self.blocked & flag:
            return
        self.blocked &= ~flag
        if flag == BLOCKED_STALL:
            self.stall_spent = True
        self.router.touch(&self.state)
        if not self.blocked and not self.is_running and not self.is_resuming \
                and not self.state.closed and buffer_size(&self.partial):
            self.is_resuming = True
            self.router.resuming.append(self)

    cdef int _give_way(self) except -1:
        """Leave the rest of the input to a later turn, because other work waits for the end of this
        one.
        """
        self.block(BLOCKED_TURN)
        if not self.is_resuming:
            self.is_resuming = True
            self.router.waiting.append(self)
        return 0

    def resume(self):
        """Run the bytes that were stored while the session was blocked, or that `_give_way` has
        left; called at the end of a turn.
        """
        self.is_resuming = False
        if self.state.closed:
            return
        if self.blocked & BLOCKED_TURN:
            self.blocked &= ~BLOCKED_TURN
            self.router.touch(&self.state)
        if not self.blocked and buffer_size(&self.partial):
            self._run_partial()

    def hold_back(self):
        """Delay the next operation, because the session publishes to a crowded receiver or
        stream.
        """
        if self.stall_enabled and not self.blocked & BLOCKED_STALL:
            self.stalls += 1
            self.block(BLOCKED_STALL)
            self.broker.stalled(self)

    cpdef int service_queued(self) except -1:
        """Count a message that went to one of the server's services."""
        self.services_pending += 1
        if self.services_pending >= SERVICES_PENDING_MAX:
            self.block(BLOCKED_SERVICE)

    cpdef int service_done(self) except -1:
        """Count a message that a service has finished."""
        self.services_pending -= 1
        if self.services_pending <= SERVICES_PENDING_MAX // 2 and self.blocked:
            self.unblock(BLOCKED_SERVICE)

    # -------------------------------------------------------------- operations

    cdef int _run(self, const char* data, size_t size, size_t* consumed) except -1:
        """Run every complete operation; `consumed` is set to the number of bytes used."""
        cdef Operation operation
        cdef int status
        cdef uint64_t crowded = self.router.crowded_count
        cdef uint64_t walked = subject_trie.walked
        cdef size_t position = 0
        while (not self.state.closed and not self.state.doom and not self.blocked
               and position < size):
            if self.awaiting_auth and (data[position] | 0x20) != 99:
                self.broker.refuse(self, "an operation arrived before CONNECT")
                break
            status = parse_operation(&self.parser, data + position, size - position, &operation)
            if status == PARSE_DONE:
                if invariants.checked:
                    check_operation(&operation, data + position, size - position)
                position += operation.consumed
                if operation.kind != OP_PONG:
                    self.active = True
                self._dispatch(&operation)
                if self.router.crowded_count != crowded and not self.stall_spent:
                    self.hold_back()
                if subject_trie.walked - walked > SESSION_STEPS_MIN \
                        and subject_trie.walked - self.router.walked_before > TURN_STEPS_MAX:
                    self._give_way()
            elif status == PARSE_MORE:
                position += operation.consumed
                break
            else:
                self._fail(&operation, data + position, size - position)
        if invariants.checked:
            assert position <= size, (position, size)
        consumed[0] = position
        return 0

    cdef int _dispatch(self, Operation* operation) except -1:
        if self._trace:
            self.broker.trace_operation(
                self, operation.kind,
                operation.argument[:operation.argument_size]
                if operation.kind != OP_PING and operation.kind != OP_PONG
                and operation.kind != OP_OK else b"",
                operation.body[:operation.total_size]
                if operation.kind == OP_PUB or operation.kind == OP_HPUB else b"")
        if operation.kind == OP_PUB or operation.kind == OP_HPUB:
            return self.publish(operation, False)
        if operation.kind == OP_PING:
            self._write(b"PONG\r\n", 6)
            if self.connected and not self.first_pong_sent:
                self.first_pong_sent = True
                self.broker.first_pong_sent(self)
        elif operation.kind == OP_PONG:
            self.broker.pong_received(self)
        elif operation.kind == OP_SUB:
            return self._subscribe(operation)
        elif operation.kind == OP_UNSUB:
            return self._unsubscribe(operation)
        elif operation.kind == OP_CONNECT:
            self.broker.connect_received(self, operation.argument[:operation.argument_size])
        elif operation.kind == OP_INFO:
            self.broker.info_received(self, operation.argument[:operation.argument_size])
        elif operation.kind == OP_ERR:
            self.close(ops.CLOSED_PARSE_ERROR)
        return 0

    cdef int _fail(self, const Operation* operation, const char* data, size_t size) except -1:
        """Report that the peer violated the grammar at the beginning of `data`."""
        cdef int fault = operation.fault
        if fault == FAULT_ARGUMENTS:
            self.close(ops.CLOSED_PROTOCOL)
        elif fault == FAULT_CONTROL_LINE:
            self.close(ops.CLOSED_MAX_CONTROL_LINE, ops.ERROR_MAX_CONTROL_LINE)
        elif fault == FAULT_PAYLOAD:
            if operation.kind == OP_HPUB:
                self.broker.too_large(self, data[:min(size, <size_t>PARTIAL_COPY_MAX)])
            self.close(ops.CLOSED_MAX_PAYLOAD, ops.ERROR_MAX_PAYLOAD)
        else:
            self.close(ops.CLOSED_PROTOCOL, ops.ERROR_UNKNOWN_OPERATION)
        return 0

    cdef int publish(self, Operation* operation, bint is_examined) except -1:
        """Deliver a message. `is_examined`: its trace headers have been read."""
        cdef Message message
        cdef bytes mapped           # keeps the mapped subject alive until delivery ends
        if self.pedantic and not subject_valid(operation.subject, operation.subject_size, True):
            self.send_error(ops.ERROR_INVALID_PUBLISH_SUBJECT)
        if operation.header_size and not is_examined and asks_for_trace(
                operation.body, operation.header_size, self._account.traces_parents):
            self.broker.publish_traced(self, <size_t>operation)
            return 0
        self.state.in_msgs += 1
        self.state.in_bytes += operation.total_size
        self.router.in_msgs += 1
        self.router.in_bytes += operation.total_size
        self._account.in_msgs += 1
        self._account.in_bytes += operation.total_size
        if self._account.mappings is not None or self._account.domain_size:
            mapped = self._account.meaning_of(operation.subject, operation.subject_size)
            if mapped is not None:
                if self.router.trace is not None:
                    self.router.trace.mapped(operation.subject[:operation.subject_size], mapped)
                operation.subject = mapped
                operation.subject_size = <uint32_t>len(mapped)
        if (self.state.permissions != NULL
                or reserved_subject(operation.subject, operation.subject_size)):
            if not self._may_publish(operation):
                return 0
        if operation.reply_size and reserved_reply(operation.reply, operation.reply_size):
            self.broker.publish_denied(self, operation.reply[:operation.reply_size], True)
            return 0
        if self.verbose:
            self._write(b"+OK\r\n", 5)
        message.origin = &self.state
        message.subject = operation.subject
        message.subject_size = operation.subject_size
        message.reply = operation.reply
        message.reply_size = operation.reply_size
        message.body = operation.body
        message.header_size = operation.header_size
        message.total_size = operation.total_size
        if self.router.publish(self._account, &message) == 0:
            if takers_count and is_taken(self, operation):
                return 0
            if operation.reply_size and self.no_responders:
                self._answer_no_responders(operation)
        return 0

    cdef int _may_publish(self, Operation* operation) except -1:
        """Check a publish on the rare path: the user has permissions, or the subject may be
        reserved.
        """
        cdef bint allowed = self._may_use(operation.subject, operation.subject_size)
        if allowed and self._permissions is not None:
            allowed = self._may_publish_to(operation.subject, operation.subject_size)
        if not allowed:
            self.broker.publish_denied(self, operation.subject[:operation.subject_size], False)
        return allowed

    cdef int _may_use(self, const char* subject, uint32_t size) except -1:
        """Whether a subject is free for clients: some are reserved for servers; the system account
        may use a part of these.
        """
        return not reserved_subject(subject, size) or (
            subject[0] == 36 and self.broker.is_system_account(self._account))

    cdef int _may_publish_to(self, const char* subject, uint32_t size) except -1:
        """Whether the user's permissions allow publishing to a subject."""
        return self._permissions.publish_allowed(subject, size) or (
            self.state.tracks_responses and self._response_allowed(subject, size))

    def may_send_to(self, bytes subject not None):
        """Whether the server may publish there on the session's behalf; permission to respond does
        not count.
        """
        return self._may_use(subject, <uint32_t>len(subject)) and (
            self._permissions is None
            or self._permissions.publish_allowed(subject, <uint32_t>len(subject)))

    cdef int _answer_no_responders(self, Operation* operation) except -1:
        """Notify the publisher that there is no receiver, through its own subscription to the
        reply, if it has one.
        """
        cdef Match* match = self._account.sublist.match(operation.reply, operation.reply_size)
        cdef uint32_t index
        cdef Subscription* subscription
        cdef char size_text[20]
        cdef size_t size = 32 + <size_t>operation.subject_size
        if match == NULL:
            return 0
        for index in range(match.plain.count):
            subscription = match.plain.items[index]
            subject_trie.walked += 1
            if subscription.owner == <void*>&self.state:
                digits = size_text[:write_decimal(size_text, size)]
                subject = operation.subject[:operation.subject_size]
                line = b"HMSG %b %b %b %b\r\nNATS/1.0 503\r\nNats-Subject: %b\r\n\r\n\r\n" % (
                    operation.reply[:operation.reply_size],
                    subscription.sid[:subscription.sid_size], digits, digits, subject)
                self._write(line, len(line))
                return 0
        return 0

    # -------------------------------------------------------------- allow_responses

    def track_response(self, bytes reply not None):
        """Allow responses for a while after a message with a reply was delivered."""
        self.responses.allow(reply, self.broker.monotonic_ns())

    cdef int _response_allowed(self, const char* subject, uint32_t size) except -1:
        return self.responses.take(subject[:size], self.broker.monotonic_ns())

    # -------------------------------------------------------------- in the router's list

    def touch(self):
        """Let the link check this session at the end of the turn."""
        self.router.touch(&self.state)

    def mark_clean(self):
        """Called when the router has passed this session to the end of the turn."""
        self.clean()

    cdef int clean(self) except -1:
        """Call `mark_clean`, from compiled code."""
        if invariants.checked:
            assert self.state.dirty, "a session is listed once in a turn"
            assert invariants.is_sound(&self.state.outbox)
            assert invariants.is_sound(&self.partial)
        self.state.dirty = 0
        return 0

    # -------------------------------------------------------------- the end

    @property
    def is_closed(self):
        """Whether `close` was called."""
        return bool(self.state.closed)

    def close(self, str reason not None, str error=""):
        """Leave routing immediately and for good; `error` is queued as the last line. The link
        closes after the output.

        Nothing is delivered to the session any more; a very large number of subscriptions is
        removed in steps.
        """
        if self.state.closed:
            return
        if error:
            self.send_error(error)
        self.state.closed = 1
        self.close_reason = reason
        # No input is run any more. Bytes that are being run, or read into, are freed later.
        if not self.is_running and self.offer_kind != OFFER_PARTIAL:
            buffer_free(&self.partial)
        try:
            self.broker.session_closing(self)
        finally:
            if not self.drop_some():
                self.router.leaving.append(self)
            self.router.touch(&self.state)
        self.broker.session_closed(self)

    # -------------------------------------------------------------- for monitoring

    @property
    def kind(self):
        """The kind of peer."""
        return "Client"

    @property
    def client_type(self):
        """The kind of connection, "websocket" or "nats"."""
        return "websocket" if self.connection_type in ("WEBSOCKET", "LEAFNODE_WS") else "nats"

    @property
    def name(self):
        """The name in CONNECT."""
        return self.options.name

    @property
    def lang(self):
        """The client library's language."""
        return self.options.lang

    @property
    def version(self):
        """The client library's version."""
        return self.options.version

    @property
    def tls_version(self):
        """The TLS version; empty without TLS."""
        return self.tls.version if self.tls is not None else ""

    @property
    def tls_cipher(self):
        """The TLS cipher suite; empty without TLS."""
        return self.tls.cipher if self.tls is not None else ""

    @property
    def tls_peer_certs(self):
        """The certificate that the peer presented, in DER; empty without one."""
        return (self.tls.certificate,) if self.tls is not None and self.tls.certificate else ()

    @property
    def in_msgs(self):
        """Number of messages published by the peer."""
        return self.state.in_msgs

    @property
    def in_bytes(self):
        """Size of those messages, including headers."""
        return self.state.in_bytes

    @property
    def out_msgs(self):
        """Number of messages delivered to the peer."""
        return self.state.out_msgs

    @property
    def out_bytes(self):
        """Size of those messages, including headers."""
        return self.state.out_bytes
