"""A connection to another server that shares interest and messages of one account: a leaf node.

Owns the protocol state of such a connection, the peer's interest (as subscriptions of kind
SUB_LEAF, one per subject and queue group), and the interest announced to the peer. It never does
I/O, reads no clock, and does not decide about logins: that is up to `broker.leaves`.

The router writes messages straight into the outbox (`Router._encode_leaf`). Interest is announced
with LS+ and LS- when it changes (`AccountLeaves.tell`): at the end of a turn, and before the next
message, so that a requester's interest has been announced when its request arrives.

Invariants
- `told` refers to entries of the account's Interest, which live as long as they are announced;
- the weight announced to the peer is that of `_wanted` for a key: interest of this server and,
  unless the peer is isolated, interest of others through this server, but never the interest of
  the peer itself or of another server of its cluster;
- all interest is announced to a new peer in steps; changes in the meantime are announced at once.

With compression (`decoder`) the input is S2, decoded in slices of at most 4 MiB; for a peer that
has not authenticated, only one small slice is decoded.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memchr, memcmp, memset
from tradewind cimport invariants
from tradewind.broker.ack_subjects cimport consumer_size
from tradewind.broker.router cimport (
    READ_AREA_BYTES, SESSION_STEPS_MIN, SUBSCRIPTION_STEPS, TURN_STEPS_MAX)
from tradewind.broker.state cimport DOOM_MEMORY, Message
from tradewind.broker.trace_header cimport asks_for_trace
from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init, buffer_reserve, buffer_size,
    write_decimal)
from tradewind.containers.table cimport (
    table_find, table_free, table_hash, table_init, table_insert, table_remove)
from tradewind.route cimport subject_trie
from tradewind.route.sublist cimport (
    SUB_LEAF, subject_is_literal, subject_valid, subscription_free, subscription_new)
from tradewind.wire.leaf_parser cimport (
    OP_LHMSG, OP_LMSG, OP_LS_ADD, OP_LS_REMOVE, check_leaf_operation, parse_leaf_operation)
from tradewind.wire.parser cimport (
    OP_CONNECT, OP_ERR, OP_INFO, OP_PING, OP_PONG, PARSE_DONE, PARSE_MORE)

from tradewind.subjects import collide, is_subset
from tradewind.wire import ops

cdef enum:
    # A reason to block, like those of Session: input is still to be decoded.
    BLOCKED_DECODING = 8
    # The limit for decoded input of a peer that has not authenticated.
    UNAUTHENTICATED_DECODED_BYTES_MAX = 65536
    # Subjects announced to a new peer in one step.
    TOLD_PER_STEP = 5000
    # With more pending output than this, nothing more is announced to a new peer for now.
    TOLD_PENDING_BYTES_MAX = 1048576
    # Protocol lines of servers may be this much longer than those of clients.
    CONTROL_LINE_FACTOR = 16
    OFFER_AREA = 1
    ACK_DOTS_MIN = 8
    # The limit for consumers whose messages a peer with permissions may acknowledge; the newest
    # count.
    CONSUMERS_NOTED_MAX = 4096

BLOCKED_DECODING_FLAG = BLOCKED_DECODING
CONSUMERS_MAX = CONSUMERS_NOTED_MAX
ACKNOWLEDGEMENTS = "$JS.ACK.>"


cdef inline bint starts_with(const char* text, uint32_t size, const char* prefix,
                             uint32_t prefix_size) noexcept nogil:
    return size > prefix_size and memcmp(text, prefix, prefix_size) == 0


cdef bint is_ack(const char* subject, uint32_t size) noexcept nogil:
    return starts_with(subject, size, b"$JS.ACK.", 8)


cdef bint is_exempt_message(const char* subject, uint32_t size) noexcept nogil:
    """Whether a message is a reply to a service or an acknowledgement, which the receiver of a
    request may send: a reply cannot be guessed, and acknowledgements are compared with what was
    sent (`_is_asked_for`).
    """
    return starts_with(subject, size, b"_R_.", 4) or is_ack(subject, size)


cdef bint is_exempt_interest(const char* subject, uint32_t size) noexcept nogil:
    """Whether servers need this interest to detect loops and to respond to each other."""
    return starts_with(subject, size, b"$LDS.", 5) or starts_with(subject, size, b"_GR_.", 5) \
        or starts_with(subject, size, b"$GR.", 4)


cdef const char* shown_subject(const char* reply, uint32_t size) noexcept nogil:
    """Find the @ in the reply of a delivered message, which is followed by the subject it was
    published on; NULL if there is none.
    """
    cdef const char* at
    cdef const char* dot = reply
    cdef uint32_t dots = 0
    if not starts_with(reply, size, b"$JS.ACK.", 8):
        return NULL
    at = <const char*>memchr(reply, 64, size)
    while at != NULL:
        while dot < at:
            if dot[0] == 46:
                dots += 1
            dot += 1
        if dots >= ACK_DOTS_MIN:
            return at if at + 1 < reply + size else NULL
        at = <const char*>memchr(at + 1, 64, reply + size - at - 1)
    return NULL


cdef uint32_t gateway_prefix(const char* reply, uint32_t size) noexcept nogil:
    """Length of the gateway routing prefix of a reply, which clients do not see; 0 without one."""
    cdef uint32_t index, dots = 0
    if not starts_with(reply, size, b"_GR_.", 5):
        return 0
    for index in range(size):
        if reply[index] == 46:
            dots += 1
            if dots == 3:
                return index + 1 if index + 1 < size else 0
    return 0


@cython.no_gc_clear     # __dealloc__ needs the account, even in a garbage cycle
cdef class LeafSession(Session):
    """Created by `Leaves` for each established link; unusable once `close` was called."""

    def __cinit__(self):
        memset(&self.leaf, 0, sizeof(LeafState))
        buffer_init(&self.leaf.chosen)
        buffer_init(&self.leaf.translated)
        buffer_init(&self.scratch)

    def __init__(self, owner, Router router not None, Account account not None, uint64_t cid,
                 limits, uint64_t seed, is_solicited):
        Session.__init__(self, owner, router, account, cid, limits, seed)
        self.state.leaf = &self.leaf
        self.state.echo = 0
        self.state.headers = 1
        self.parser.headers_allowed = 1
        self.verbose = False
        self.pedantic = False
        self.is_solicited = is_solicited
        self.connection_type = "LEAFNODE"
        self.compression = "not supported"
        table_init(&self.told, seed)
        table_init(&self.weights, seed)
        table_init(&self.leaf.consumers, seed)
        self.consumers = {}

    def __dealloc__(self):
        table_free(&self.told)
        table_free(&self.weights)
        table_free(&self.leaf.consumers)
        buffer_free(&self.leaf.chosen)
        buffer_free(&self.leaf.translated)
        buffer_free(&self.scratch)

    # -------------------------------------------------------------- settings, made by the owner

    def apply_limits(self, limits):
        """Apply the limits of clients, with longer protocol lines."""
        Session.apply_limits(self, limits)
        self.parser.control_line_max *= CONTROL_LINE_FACTOR
        # Many clients share this link: one slow receiver must not block all of them.
        self.stall_enabled = False

    def set_peer(self, peer, headers, is_spoke, uint32_t cluster):
        """Apply what the peer announced about itself, and which side is the hub."""
        self.remote = peer
        self.is_spoke = is_spoke
        self.leaf.cluster = cluster
        self.state.headers = headers

    def set_rules(self, Permissions incoming, Permissions outgoing, Permissions subscribable,
                  Permissions forbidden):
        """Set what may arrive, what may be sent and what the peer may subscribe to; None allows
        everything. Mappings must not lead to what `forbidden` denies.
        """
        self.incoming = incoming
        self.forbidden = forbidden
        self.outgoing = outgoing
        self.subscribable = subscribable
        self.leaf.outgoing = NULL if outgoing is None else <void*>outgoing
        self.leaf.tracks_acks = incoming is not None and (
            incoming.rules.publish_allow is not None
            or any([collide(ACKNOWLEDGEMENTS, denied) for denied in incoming.rules.publish_deny]))

    def remember_consumers(self, consumers not None):
        """Continue the record of consumers whose messages the user of this connection was sent."""
        for name in consumers:
            self._know_consumer(name)

    def note_consumer(self, bytes name not None):
        """Record that the peer is sent a message of a consumer, named by the start of its ack
        subjects, and may acknowledge it from now on.
        """
        self._know_consumer(name)
        self.broker.consumer_noted(self, name)

    cdef int _know_consumer(self, bytes name) except -1:
        """Add a name to the table, which refers to the bytes in `consumers`; the oldest entry is
        removed if the table is full.
        """
        cdef Table* table = &self.leaf.consumers
        cdef bytes oldest
        if len(self.consumers) >= CONSUMERS_NOTED_MAX:
            oldest = next(iter(self.consumers))
            table_remove(table, table_hash(table, oldest, len(oldest)), oldest,
                         <uint32_t>len(oldest))
            del self.consumers[oldest]
        self.consumers[name] = None
        if table_insert(table, table_hash(table, name, len(name)), name, <uint32_t>len(name),
                        <void*>name) != 0:
            raise MemoryError
        return 0

    def start_messages(self):
        """Let messages flow. Called at the end of the handshake."""
        self.is_ready = True

    @property
    def cluster_number(self):
        """The number of its cluster's name; 0 without a cluster."""
        return self.leaf.cluster

    # -------------------------------------------------------------- compression

    def start_compression(self, decoder not None, encode not None):
        """Treat all input after the current line as S2, and compress all output after what is
        queued.
        """
        self.decoder = decoder
        self._encode = encode
        self.is_coded = True
        self.plain_left = buffer_size(&self.state.outbox)

    def set_encoding(self, encode not None):
        """Change the compression of the output from now on."""
        self._encode = encode

    def take_output(self):
        """Take all queued output as one bytes object; b"" if there is none."""
        cdef bytes data = Session.take_output(self)
        cdef size_t plain = self.plain_left
        if self._encode is None or not data:
            return data
        if plain == 0:
            return self._encode(data)
        self.plain_left = 0
        return data[:plain] + (self._encode(data[plain:]) if plain < <size_t>len(data) else b"")

    cdef char* offer(self) except NULL:
        if self.decoder is None:
            return Session.offer(self)
        self._check_idle()
        # The stored bytes are already decoded, so new input must not be appended to them.
        self.offer_kind = OFFER_AREA
        self.offered = 0
        self.offered_room = READ_AREA_BYTES // 4
        return self.router.read_area

    cdef int run_read(self, size_t size, int64_t now_ns) except -1:
        if self.decoder is not None:
            if size > self.offered_room:
                raise ValueError(f"{size} bytes were read into a buffer of {self.offered_room}")
            self.offer_kind = 0
            self.offered_room = 0
            return self._decode(PyBytes_FromStringAndSize(self.router.read_area, size), now_ns)
        Session.run_read(self, size, now_ns)
        if self.decoder is not None:
            return self._take_rest(now_ns)
        return 0

    def feed(self, bytes data not None, int64_t now_ns):
        """Run bytes that do not come from a socket (WebSocket frames, tests)."""
        if self.decoder is not None:
            self._decode(data, now_ns)
            return
        Session.feed(self, data, now_ns)
        if self.decoder is not None:
            self._take_rest(now_ns)

    cdef int _take_rest(self, int64_t now_ns) except -1:
        """Decode the bytes after the line that began compression, which must not be parsed as
        lines.
        """
        cdef bytes rest = PyBytes_FromStringAndSize(
            self.partial.data + self.partial.begin, buffer_size(&self.partial))
        buffer_free(&self.partial)
        return self._decode(rest, now_ns) if rest else 0

    cdef int _decode(self, bytes data, int64_t now_ns) except -1:
        """Decode and run input, one slice at a time."""
        self._check_idle()
        if self.state.closed:
            return 0
        self.decoded_ns = now_ns
        if self.awaiting_auth:
            self.undecoded_bytes += len(data)
            if self.undecoded_bytes > UNAUTHENTICATED_DECODED_BYTES_MAX:
                self.broker.refuse(self, "too much input before CONNECT")
                return 0
        try:
            plain = self.decoder.feed(data)
        except Exception as error:
            self.broker.peer_failed(self, error)
            return 0
        return self._run_slice(plain, now_ns)

    cdef int _run_slice(self, bytes data, int64_t now_ns) except -1:
        if self.awaiting_auth and self.decoder.decoded_bytes > UNAUTHENTICATED_DECODED_BYTES_MAX:
            self.broker.refuse(self, "too much input before CONNECT")
            return 0
        if data:
            Session.feed(self, data, now_ns)
        if self.decoder.pending and not self.state.closed and not self.blocked & BLOCKED_DECODING:
            self.block(BLOCKED_DECODING)
            self.broker.decoding_later(self)
        return 0

    def decode_more(self):
        """Continue with input that was not yet decoded."""
        if self.state.closed or not self.blocked & BLOCKED_DECODING:
            return
        self.blocked &= ~BLOCKED_DECODING
        self.touch()
        if not self.blocked and buffer_size(&self.partial):
            self._run_partial()
        if self.blocked:
            self.blocked |= BLOCKED_DECODING
            self.broker.decoding_later(self)
            return
        self._decode(b"", self.decoded_ns)

    # -------------------------------------------------------------- operations

    cdef int _run(self, const char* data, size_t size, size_t* consumed) except -1:
        """Run every complete operation; `consumed` is set to the number of bytes used."""
        cdef Operation operation
        cdef int status
        cdef uint64_t crowded = self.router.crowded_count
        cdef uint64_t walked = subject_trie.walked
        cdef size_t position = 0
        cdef bint was_coded = self.is_coded
        while (not self.state.closed and not self.state.doom and not self.blocked
               and position < size and self.is_coded == was_coded):
            if self.awaiting_auth and (data[position] | 0x20) != 99 \
                    and (data[position] | 0x20) != 105:
                self.broker.refuse(self, "an operation arrived before CONNECT")
                break
            status = parse_leaf_operation(
                &self.parser, data + position, size - position, &operation)
            if status == PARSE_DONE:
                if invariants.checked:
                    check_leaf_operation(&operation, data + position, size - position)
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
                self._fail(&operation, NULL, 0)
        consumed[0] = position
        return 0

    cdef int _dispatch(self, Operation* operation) except -1:
        if self._trace:
            self.broker.trace_operation(
                self, operation.kind,
                b"" if operation.kind == OP_PING or operation.kind == OP_PONG
                else operation.argument[:operation.argument_size],
                operation.body[:operation.total_size]
                if operation.kind == OP_LMSG or operation.kind == OP_LHMSG else b"")
        if operation.kind == OP_LMSG or operation.kind == OP_LHMSG:
            return self.publish(operation, False)
        if operation.kind == OP_LS_ADD or operation.kind == OP_LS_REMOVE:
            subject_trie.walked += SUBSCRIPTION_STEPS
        if operation.kind == OP_LS_ADD:
            return self._add_interest(operation)
        if operation.kind == OP_LS_REMOVE:
            return self._drop_interest(operation)
        if operation.kind == OP_PING:
            self._write(b"PONG\r\n", 6)
        elif operation.kind == OP_PONG:
            self.broker.pong_received(self)
        elif operation.kind == OP_CONNECT:
            self.broker.connect_received(self, operation.argument[:operation.argument_size])
        elif operation.kind == OP_INFO:
            self.broker.info_received(self, operation.argument[:operation.argument_size])
        elif operation.kind == OP_ERR:
            self.broker.error_received(self, operation.argument[:operation.argument_size])
        return 0

    cdef int publish(self, Operation* operation, bint is_examined) except -1:
        """Deliver a message from the other server. `is_examined`: its trace headers have been
        read.
        """
        cdef Message message
        cdef bytes mapped           # keeps the mapped subject alive until delivery ends
        cdef const char* mark
        cdef const char* route = operation.subject
        cdef uint32_t route_size = operation.subject_size, skipped
        if not self.is_ready:
            return 0
        if operation.kind == OP_LMSG:
            operation.header_size = 0
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
        mapped = self._account.meaning_of(route, route_size)
        if mapped is not None and self.router.trace is not None:
            self.router.trace.mapped(route[:route_size], mapped)
        if self.incoming is not None and not self.incoming.publish_allowed(route, route_size) \
                and not self._is_asked_for(route, route_size):
            return self._refuse_message(route, route_size, mapped)
        self.leaf.is_unproven = 0
        if mapped is not None:
            if self.forbidden is not None and mapped != route[:route_size] \
                    and self.forbidden.publish_denied(mapped, <uint32_t>len(mapped)):
                self.broker.mapped_denied(self, route[:route_size], mapped)
                return 0
            route = mapped
            route_size = <uint32_t>len(mapped)
        message.origin = &self.state
        message.subject = route
        message.subject_size = route_size
        message.reply = operation.reply
        message.reply_size = operation.reply_size
        if operation.reply_size:
            mark = shown_subject(operation.reply, operation.reply_size)
            if mark != NULL:
                self._show(&message, mark + 1,
                           <uint32_t>(operation.reply + operation.reply_size - mark - 1))
                message.reply_size = <uint32_t>(mark - operation.reply)
            else:
                skipped = gateway_prefix(operation.reply, operation.reply_size)
                message.reply += skipped
                message.reply_size -= skipped
        message.body = operation.body
        message.header_size = operation.header_size
        message.total_size = operation.total_size
        self.leaf.named = operation.queue
        self.leaf.named_size = operation.queue_size
        try:
            self.router.publish_as(self._account, route, route_size, &message)
        finally:
            self.leaf.named_size = 0
        return 0

    cdef void _show(self, Message* message, const char* subject, uint32_t size) noexcept:
        """Show receivers the subject that a delivered message was published on. If the peer may not
        publish to it, it is only shown: the router lets no part act on it.
        """
        if not subject_valid(subject, size, True):
            return
        message.subject = subject
        message.subject_size = size
        self.leaf.is_unproven = self.incoming is not None \
            and not self.incoming.publish_allowed(subject, size)

    cdef int _is_asked_for(self, const char* subject, uint32_t size) except -1:
        """Whether a message that the rules do not allow responds to something that the peer was
        sent. A reply to a service cannot be guessed; an acknowledgement can.
        """
        cdef uint32_t named
        if starts_with(subject, size, b"_R_.", 4):
            return True
        named = consumer_size(subject, size)
        if named and table_find(
                &self.leaf.consumers, table_hash(&self.leaf.consumers, subject, named), subject,
                named) != NULL:
            return True
        return self.state.tracks_responses and self._response_allowed(subject, size)

    cdef int _refuse_message(self, const char* subject, uint32_t size, bytes meaning) except -1:
        """Refuse a message that may not arrive: a hub closes the connection, a spoke ignores the
        message because it has announced what it denies.

        An acknowledgement may belong to a message from before this server was restarted, so it is
        ignored as well.
        """
        if not self.is_spoke and not is_ack(subject, size):
            self.broker.publish_denied(self, subject[:size] if meaning is None else meaning, False)
        return 0

    def may_send_to(self, bytes subject not None):
        """Whether traces of the peer's messages may go to `subject`: only where it may publish
        itself.
        """
        return self._may_use(subject, <uint32_t>len(subject)) and (
            self.incoming is None or self.incoming.publish_allowed(subject, <uint32_t>len(subject)))

    @property
    def publish_rules(self):
        """The PermissionRules that decide what may arrive, or None."""
        return None if self.incoming is None else self.incoming.rules

    def obstacle_to(self, bytes subject not None):
        """The reason, as traces report it, why the peer does not receive messages on `subject`;
        empty if it does.
        """
        cdef uint32_t size = <uint32_t>len(subject)
        if self.subscribable is not None and not self.subscribable.publish_allowed(subject, size):
            return "Not delivered because subscription denies this subject"
        if self.outgoing is not None and not self.outgoing.publish_allowed(subject, size):
            return "Not delivered because publish denied for this subject"
        return ""

    # -------------------------------------------------------------- interest of the peer

    cdef uint32_t _key(self, Operation* operation, const char** key) except? 0:
        """The key of a subject and its queue group."""
        if operation.queue_size == 0:
            key[0] = operation.subject
            return operation.subject_size
        buffer_clear(&self.scratch)
        if buffer_append(&self.scratch, operation.subject, operation.subject_size) != 0 \
                or buffer_append(&self.scratch, b" ", 1) != 0 \
                or buffer_append(&self.scratch, operation.queue, operation.queue_size) != 0:
            raise MemoryError
        key[0] = self.scratch.data + self.scratch.begin
        return <uint32_t>buffer_size(&self.scratch)

    cdef Subscription* _find(self, const char* key, uint32_t size) noexcept:
        return <Subscription*>table_find(
            &self.state.sids, table_hash(&self.state.sids, key, size), key, size)

    cdef int _add_interest(self, Operation* operation) except -1:
        cdef Subscription* subscription
        cdef const char* key = NULL
        cdef uint32_t size
        cdef int64_t account_max = self._account.limits.subscriptions_max
        if not self.is_ready:
            return 0
        if not subject_valid(operation.subject, operation.subject_size, False):
            self.send_error(ops.ERROR_INVALID_SUBSCRIPTION)
            return 0
        if starts_with(operation.subject, operation.subject_size, b"$LDS.", 5) \
                and self.broker.is_loop(self, operation.subject[:operation.subject_size]):
            return 0
        if self.subscribable is not None \
                and subject_is_literal(operation.subject, operation.subject_size) \
                and not is_exempt_interest(operation.subject, operation.subject_size) \
                and not self.subscribable.publish_allowed(
                    operation.subject, operation.subject_size):
            self.broker.subscribe_denied(self, operation.subject[:operation.subject_size],
                                         operation.queue[:operation.queue_size], b"")
            return 0
        size = self._key(operation, &key)
        subscription = self._find(key, size)
        if subscription != NULL:
            if subscription.weight != <uint32_t>operation.count_max:
                # The count in the trie is its weight, so it is removed and inserted again.
                self._account.sublist.remove(subscription)
                subscription.weight = <uint32_t>operation.count_max
                if self._account.sublist.insert(subscription) != 0:
                    raise MemoryError
            return 0
        if (self.subscriptions_max and self.state.sids.count >= self.subscriptions_max) or (
                account_max >= 0 and self.state.sids.count >= account_max):
            self.close(ops.CLOSED_MAX_SUBSCRIPTIONS, ops.ERROR_MAX_SUBSCRIPTIONS)
            return 0
        subscription = subscription_new(
            operation.subject, operation.subject_size, operation.queue, operation.queue_size,
            b"", 0)
        if subscription == NULL:
            raise MemoryError
        subscription.weight = <uint32_t>operation.count_max
        return self._insert(subscription)

    cdef int _insert(self, Subscription* subscription) except -1:
        cdef uint32_t size = subscription.subject_size
        cdef uint32_t hash_value
        if subscription.queue_size:
            size += 1 + subscription.queue_size
        subscription.owner = &self.state
        subscription.kind = SUB_LEAF
        subscription.is_above = self.is_spoke
        hash_value = table_hash(&self.state.sids, subscription.subject, size)
        if table_insert(&self.state.sids, hash_value, subscription.subject, size,
                        subscription) != 0:
            subscription_free(subscription)
            raise MemoryError
        if self._account.sublist.insert(subscription) != 0:
            table_remove(&self.state.sids, hash_value, subscription.subject, size)
            subscription_free(subscription)
            raise MemoryError
        if self._account.bridge is not None:
            self._add_shadows(subscription)
        return 0

    cdef int _drop_interest(self, Operation* operation) except -1:
        cdef const char* key = NULL
        cdef uint32_t size = self._key(operation, &key)
        cdef Subscription* subscription = self._find(key, size)
        if subscription != NULL:
            table_remove(&self.state.sids, table_hash(&self.state.sids, key, size), key, size)
            self._free(subscription)
            self._tell_gone()
        return 0

    # -------------------------------------------------------------- interest announced to the peer

    cdef uint64_t _wanted(self, Wanted* wanted, list alike) noexcept:
        """The weight of the interest here that the peer should know; `alike` are the other servers
        of its cluster.
        """
        cdef uint64_t total = wanted.local
        cdef Subscription* own
        cdef LeafSession other
        if self.is_isolated and not is_exempt_interest(&wanted.key[0], wanted.subject_size):
            return total
        total += wanted.below
        if not self.is_spoke:
            total += wanted.above
            own = self._find(&wanted.key[0], wanted.size)
            if own != NULL:
                total -= own.weight
        if alike is None:
            return total
        for other in alike:
            if other is not self and (not other.is_spoke or not self.is_spoke):
                own = other._find(&wanted.key[0], wanted.size)
                if own != NULL:
                    total -= own.weight
        return total

    cdef int tell(self, Wanted* wanted, list alike) except -1:
        """Announce one key to the peer, unless it already knows."""
        cdef uint64_t weight = self._wanted(wanted, alike)
        cdef bint is_group = wanted.size > wanted.subject_size
        cdef uint32_t hash_value = table_hash(&self.told, &wanted.key[0], wanted.size)
        cdef bint is_told = table_find(&self.told, hash_value, &wanted.key[0], wanted.size) != NULL
        cdef size_t before = 0
        cdef char* at
        if weight == 0 and not is_told:
            return 0
        weight = min(weight, <uint64_t>1000000000) if is_group else min(weight, <uint64_t>1)
        if is_told and weight:
            if not is_group:
                return 0
            before = <size_t>table_find(&self.weights, hash_value, &wanted.key[0], wanted.size)
            if weight == before:
                return 0
        elif not is_told and not self._may_ask(wanted):
            return 0
        buffer_clear(&self.scratch)
        if buffer_reserve(&self.scratch, wanted.size + 32) != 0:
            raise MemoryError
        buffer_append(&self.scratch, b"LS+ " if weight else b"LS- ", 4)
        buffer_append(&self.scratch, &wanted.key[0], wanted.size)
        if weight and is_group:
            buffer_append(&self.scratch, b" ", 1)
            at = self.scratch.data + self.scratch.end
            self.scratch.end += write_decimal(at, weight)
        buffer_append(&self.scratch, b"\r\n", 2)
        self._write(self.scratch.data + self.scratch.begin, buffer_size(&self.scratch))
        if is_group:
            if before:
                table_remove(&self.weights, hash_value, &wanted.key[0], wanted.size)
            if weight and table_insert(&self.weights, hash_value, &wanted.key[0], wanted.size,
                                       <void*><size_t>weight) != 0:
                raise MemoryError
        if weight == 0:
            table_remove(&self.told, hash_value, &wanted.key[0], wanted.size)
            if is_group:
                table_remove(&self.weights, hash_value, &wanted.key[0], wanted.size)
        elif not is_told and table_insert(&self.told, hash_value, &wanted.key[0], wanted.size,
                                          wanted) != 0:
            raise MemoryError
        return 0

    cdef int _may_ask(self, const Wanted* wanted) except -1:
        """Whether the peer may send any message that matches a key."""
        cdef const char* subject = &wanted.key[0]
        if self.incoming is None or is_exempt_interest(subject, wanted.subject_size):
            return True
        if subject_is_literal(subject, wanted.subject_size):
            return self.incoming.publish_allowed(subject, wanted.subject_size) \
                or is_exempt_message(subject, wanted.subject_size)
        rules = self.incoming.rules
        pattern = subject[:wanted.subject_size].decode("utf-8", "surrogateescape")
        if any([is_subset(pattern, denied) for denied in rules.publish_deny]):
            return False
        return rules.publish_allow is None or any(
            [collide(pattern, allowed) for allowed in rules.publish_allow]) \
            or is_exempt_message(subject, wanted.subject_size)

    @property
    def told_count(self):
        """Number of subjects and groups announced to the peer."""
        return self.told.count

    # -------------------------------------------------------------- the end

    def close(self, str reason not None, str error=""):
        """Close like a client's session, after leaving the account's list of leaf connections."""
        if self.state.closed:
            return
        leaves = self._account.leaves
        if self.is_ready and leaves is not None:
            leaves.leave(self)
        Session.close(self, reason, error)

    def forget_told(self):
        """Release the announced entries."""
        table_free(&self.told)
        table_free(&self.weights)
        self.cursor = NULL

    # -------------------------------------------------------------- for monitoring

    @property
    def kind(self):
        """The kind of peer."""
        return "Leafnode"

    @property
    def name(self):
        """The name of the other server, as far as it is known."""
        peer = self.remote if self.remote is not None else self.options
        return "" if peer is None else peer.name

    @property
    def lang(self):
        """The language: empty, because the peer is not a client."""
        return ""

    @property
    def version(self):
        """The version of the other server."""
        return self.remote.version if self.remote is not None else ""


@cython.no_gc_clear     # sessions cleared in the same garbage cycle still refer to its interest
cdef class AccountLeaves:
    """The leaf connections of one account that are ready, and the interest announced to them."""

    def __init__(self, Account account not None, Router router not None):
        self.account = account
        self.router = router
        self.interest = account.sublist.interest
        self.sessions = {}
        self.clusters = {}

    def join(self, LeafSession session not None):
        """Announce everything to a session: the first part immediately, the rest in `sync`."""
        self.sessions[session.cid] = session
        if session.leaf.cluster:
            self.clusters.setdefault(session.leaf.cluster, []).append(session)
        self.interest.listeners += 1
        if len(self.sessions) == 1:
            self.account.leaves = self
            self.router.telling.append(self)
        session.cursor = self.interest.ring.after
        self.syncing += 1
        return self.sync(session)

    def leave(self, LeafSession session not None):
        """Announce nothing more to a session. The caller still has to remove the interest of its
        peer.
        """
        cdef Wanted* wanted
        if self.sessions.pop(session.cid, None) is None:
            return
        if session.cursor != NULL:
            self.syncing -= 1
        if session.leaf.cluster:
            self.clusters[session.leaf.cluster].remove(session)
            if not self.clusters[session.leaf.cluster]:
                del self.clusters[session.leaf.cluster]
        session.forget_told()
        self.interest.listeners -= 1
        if self.sessions:
            return
        self.account.leaves = None
        self.router.telling.remove(self)
        # There is no session left to announce interest to.
        wanted = self.interest.take_changed()
        while wanted != NULL:
            if self.interest.is_over(wanted):
                self.interest.remove(wanted)
            wanted = self.interest.take_changed()

    def sync(self, LeafSession session not None):
        """Announce some more to a new peer; False once it knows everything."""
        cdef Wanted* wanted
        cdef uint32_t count = 0
        cdef list alike = self.clusters.get(session.leaf.cluster)
        if session.cursor == NULL or session.state.closed:
            return False
        if buffer_size(&session.state.outbox) + session.state.link_pending \
                > TOLD_PENDING_BYTES_MAX:
            return True
        while session.cursor != &self.interest.ring:
            if count == TOLD_PER_STEP:
                return True
            wanted = session.cursor
            session.cursor = wanted.after
            session.tell(wanted, alike)
            count += 1
        session.cursor = NULL
        self.syncing -= 1
        return False

    def tell(self):
        """Announce changed interest to all sessions."""
        cdef Wanted* wanted
        cdef LeafSession session
        if self.interest.is_short:
            self._give_up()
            return
        if self.interest.changed == NULL:
            return
        wanted = self.interest.take_changed()
        while wanted != NULL:
            for session in self.sessions.values():
                session.tell(wanted, self.clusters.get(session.leaf.cluster))
            if self.interest.is_over(wanted):
                self._forget_interest(wanted)
            wanted = self.interest.take_changed()

    @property
    def has_changes(self):
        """Whether `tell` has anything to announce."""
        return self.interest.changed != NULL

    cdef int _forget_interest(self, Wanted* wanted) except -1:
        """Free an entry without interest, once that has been announced to every peer."""
        cdef LeafSession session
        if self.syncing:
            for session in self.sessions.values():
                if session.cursor == wanted:
                    session.cursor = wanted.after
        self.interest.remove(wanted)
        return 0

    def _give_up(self):
        """Close all sessions because the record of interest is incomplete, for lack of memory. They
        are closed once a current delivery is over, so that they start anew.
        """
        cdef LeafSession session
        for session in self.sessions.values():
            session.state.doom = DOOM_MEMORY
            self.router.touch(&session.state)
