"""The part of a consumer that runs once per message: select it, encode it, send it, handle its ack.

Owns the position, the acknowledgements and the waiting requests of one consumer, and the state of
its pace and flow control. It reads messages in place in the store and has them encoded into the
output of their receivers; no object is created per message. It never decides about time by itself:
the times are those of the turn, and deadlines are left to its owner, the consumer, which also
handles rare cases: pull requests as JSON, acks other than plain ones, advisories, heartbeats.
`DeliveryOwner` is all that it asks of its owner.

Hooks are called in the middle of a delivery, so they only change state; `deliver` sends at the end
of the turn. A message counts as delivered only once it has reached an output, so a requester that
has gone costs nothing.

A consumer takes a bounded part of one turn. If a receiver's output is already large, the consumer
waits until it has been read: sending a whole stream never makes a client a slow consumer.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy
from tradewind.broker.trace_header cimport has_sampled_parent
from tradewind.consumer.pending cimport ACK_ALL, ACK_EXPLICIT, ACK_NONE
from tradewind.consumer.ack_replies cimport AckReplies
from tradewind.consumer.ordered_keys cimport (
    KEY_HEADER, KEY_SUBJECT, KEY_TOKEN, key_hash, key_is_free, ready_seq)
from tradewind.consumer.pace cimport note_paced, pace_due, set_pace_rate
from tradewind.consumer.pulls cimport (
    PullRequest, heartbeat_header, publish_header, read_plain_pull, receiver_at)
from tradewind.consumer.replies cimport (
    ACK_NUMBERS_MAX, AckSubject, read_ack_subject, without_last_numbers, write_ack_numbers)
from tradewind.saturated cimport later
from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init)

import os
from typing import Protocol

from tradewind.errors import StoreError

cdef enum:
    # Budget of one consumer per turn, beside its `room_bytes`.
    TURN_MESSAGES = 1000
    # ... for looking for messages that pass the filter; the unit is about a nanosecond.
    TURN_WORK = 2_000_000
    # A receiver with more output than this is given time to read.
    RECEIVER_BYTES_MAX = 1048576
    RECEIVER_PAUSE_NS = 1000000
    # The window of flow control: it starts at a sixteenth and doubles with every answer.
    WINDOW_BYTES_MAX = 33554432
    DISK_PAUSE_NS = 1000000000
    # The cost of parking a message, in the unit of TURN_WORK.
    PARK_WORK = 400
    # A changed state is saved at most this often.
    SAVE_INTERVAL_NS = 100000000

WAITS = {
    WAIT_NOTHING: "nothing", WAIT_MESSAGES: "messages", WAIT_SYNC: "sync", WAIT_DEMAND: "demand",
    WAIT_ACKS: "acks", WAIT_FLOW: "flow", WAIT_PACE: "pace", WAIT_RECEIVER: "receiver",
    WAIT_PAUSE: "pause", WAIT_DISK: "disk", WAIT_KEYS: "keys"}

KINDS = {"subject": KEY_SUBJECT, "token": KEY_TOKEN, "header": KEY_HEADER}

cdef bytes HEADER_START = b"NATS/1.0\r\n"
cdef bytes FLOW_REQUEST = b"NATS/1.0 100 FlowControl Request\r\n\r\n"


cdef int on_ack(void* target, Message* message) except -1:
    return (<Delivery>target)._ack(message)


cdef int on_flow_answer(void* target, Message* message) except -1:
    return (<Delivery>target)._flow_answer(message)


cdef int on_request(void* target, Message* message) except -1:
    return (<Delivery>target)._request(message)


class DeliveryOwner(Protocol):
    """The owner of a delivery, a taker, which handles the rare cases."""

    def other_ack(self, seq, consumer_seq, deliveries, payload, reply, header):
        """Handle an ack that is more than a plain one; true if its sender gets an empty answer."""

    def sampled(self, seq, consumer_seq, deliveries):
        """Called when a pending message is acknowledged, if `samples` is set."""

    def take_removals(self):
        """Called in a turn if pending messages have left the stream."""

    def take_requests(self):
        """Called in a turn if there are requests with more than a number and an expiry."""

    def delivered(self):
        """Called after a turn with advisories, or with messages that are not sent again."""

    def keep_acks(self):
        """Called when an ack asks for an answer: call `replies.answer_through` when the ack is
        stored.
        """

    def new_pin(self):
        """Called when a request without a pin is served; returns the pin that identifies it from
        now on.
        """

    def flow_id(self):
        """The last token of a subject for flow control."""

    def flow_acknowledged(self, header):
        """Called when an answer to flow control has a header."""

    def look_at_binding(self):
        """Called when the deliver subject may have gained its first subscriber, or lost the
        last.
        """


cdef class Delivery(TakerPart):
    """The deliveries of one consumer, its `owner`, which a turn wakes and a stream knows."""

    def __cinit__(self):
        self.tokens, self.requests, self.advisories = [], [], []
        self.flow_subject = b""
        buffer_init(&self.body)
        self.kept = KeptRecord()

    def __init__(self, Taker owner not None, Router router not None, Account account not None,
                 Cursor cursor not None, AckState acks not None, Pulls pulls,
                 bytes ack_prefix not None, bytes deliver_subject=b"", bytes deliver_group=b""):
        self.owner = owner
        self.router = router
        self.turn = router.turn
        self.account = account
        self.store = cursor.store
        self.cursor = cursor
        self.acks = acks
        self.pulls = pulls
        if pulls is not None:
            pulls.serve(owner, router, account, cursor, acks)
        self.deliver_subject = deliver_subject
        self.deliver_group = deliver_group
        self.replies = AckReplies(owner, router, account)
        self.follower = Follower(cursor, acks, self.turn, owner)
        self.active_ns = self.turn.monotonic_ns
        self.prefix_size = <uint32_t>len(ack_prefix)
        self.reply = <char*>malloc(self.prefix_size + ACK_NUMBERS_MAX)
        if self.reply == NULL:
            raise MemoryError
        memcpy(self.reply, <const char*>ack_prefix, self.prefix_size)

    def __dealloc__(self):
        free(self.reply)
        buffer_free(&self.body)

    # -------------------------------------------------------------- set up and close

    def attach(self, RemovalFanOut removals not None, ack_subjects, bytes request_subject,
               bytes flow_subjects):
        """Listen for acks, requests, answers to flow control, and removals."""
        for subject in ack_subjects:
            self.tokens.append(self.account.attach(subject, on_ack, self))
        self.tokens.append(self.account.attach(request_subject, on_request, self))
        if flow_subjects:
            self.tokens.append(self.account.attach(flow_subjects, on_flow_answer, self))
        removals.followers.append(self.follower)
        self.watch_binding()

    def detach(self, RemovalFanOut removals not None):
        """Stop listening; nothing is sent from now on."""
        for token in self.tokens:
            self.account.unsubscribe(token)
        self.tokens = []
        self.unwatch_binding()
        if self.follower in removals.followers:
            removals.followers.remove(self.follower)
        self.closed = self.replies.is_closed = True

    def set_flow_control(self, bint acknowledges):
        """Make the receiver keep up. `acknowledges`: its answers are the only acknowledgements."""
        self.flow_control = True
        self.flow_acknowledges = acknowledges
        self.window = WINDOW_BYTES_MAX // 16

    def set_heartbeat(self, int64_t interval_ns):
        """Send heartbeats at this interval, beginning now; 0: none."""
        self.heartbeat_ns = interval_ns
        self.heartbeat_due_ns = later(self.turn.monotonic_ns, interval_ns)

    def set_rate(self, double bytes_per_second, double burst_bytes):
        """Limit the rate; 0 means no limit."""
        set_pace_rate(&self.pace, bytes_per_second, burst_bytes, self.turn.monotonic_ns)

    def set_replay(self, uint64_t through_seq):
        """Replay the intervals between the messages up to this one."""
        self.pace.replay_to = through_seq

    def set_order(self, str kind not None, uint32_t token, bytes header not None, uint32_t limit,
                  uint32_t park_max):
        """Keep order per key: at most `limit` messages of a key in flight, and at most `park_max`
        parked. `kind` is "subject", "token" or "header".
        """
        self.key_header = header + b":"
        self.key_rule.kind = KINDS[kind]
        self.key_rule.token = token
        self.key_rule.name = self.key_header
        self.key_rule.name_size = <size_t>len(self.key_header)
        self.park_max = park_max
        self.acks.order_keys(limit, int.from_bytes(os.urandom(8), "little"))

    def set_deliver_subject(self, bytes subject not None, bytes group not None):
        """Push to another subject from now on."""
        self.unwatch_binding()
        self.deliver_subject = subject
        self.deliver_group = group
        self.watch_binding()

    cdef int _changed(self) except -1:
        """Note that the state differs from the saved one."""
        if self.save_due_ns == 0:
            self.save_due_ns = self.turn.monotonic_ns + SAVE_INTERVAL_NS
            self.turn.wake(self.owner)
        return 0

    # -------------------------------------------------------------- sending

    cpdef bint fill(self, uint64_t visible_seq) except -1:
        """Send the available messages; true if another turn is wanted at once. The owner is called
        for rare parts only.

        StoreError if the store cannot be read: the consumer tries again later, by
        `next_deadline_ns`.
        """
        cdef bint wants_more
        if self.closed:
            return False
        try:
            if self.follower.gone or self.follower.purged:
                self.owner.take_removals()
            if self.requests and not self._take_plain_requests():
                self.owner.take_requests()
            if not self.is_bound and self.pulls is None:
                self.check_binding()
            wants_more = self.deliver(visible_seq)
            if self.acks.exceeded or self.advisories:
                self.owner.delivered()
        except StoreError:
            self.wait_for_disk()
            raise
        return wants_more

    cdef bint _take_plain_requests(self) except -1:
        """Take the requests of this turn that name a number and an expiry only; false if one of
        them is of another kind, and was not taken, nor those after it.
        """
        cdef list requests = self.requests
        cdef Py_ssize_t taken = 0
        if self.pulls is None or self.pulls.has_rules:
            return False
        for reply, header, payload in requests:
            if header or not self.add_plain_request(reply, payload):
                break
            taken += 1
        if taken == len(requests):
            requests.clear()
            return True
        del requests[:taken]
        return False

    def add_plain_request(self, bytes reply not None, bytes payload not None):
        """Add a request that only has a number of messages and an expiry; false if it has anything
        else, or too many wait.
        """
        cdef int64_t batch, expires_ns
        cdef int64_t now_ns = self.turn.monotonic_ns
        if self.pulls is None or self.pulls.count >= self.pulls.count_max \
                or not read_plain_pull(payload, len(payload), &batch, &expires_ns):
            return False
        self.active_ns = now_ns
        self.pulls.enter(self.pulls.new_plain(reply, batch,
                                              later(now_ns, expires_ns) if expires_ns else 0))
        return True

    cpdef bint deliver(self, uint64_t visible_seq) except -1:
        """Send what may be sent up to `visible_seq`; true if there may be more, otherwise see
        `wait`.
        """
        cdef Record record
        cdef Message message
        cdef size_t size, total = 0
        cdef size_t room_bytes = <size_t>self.turn.room_bytes
        cdef uint32_t count = 0
        cdef int64_t due_ns
        self.visible_seq = visible_seq
        self.replies.send()
        if self.closed:
            return False
        if self.wait == WAIT_DISK and self.turn.monotonic_ns < self.pace_due_ns \
                or self.wait == WAIT_RECEIVER and self._receiver_is_full():
            if self.pulls is not None:
                self.pulls.sweep(False, False)
            return False
        self.wait = WAIT_NOTHING
        self.cursor.work_left = TURN_WORK
        self.cursor.is_late = False
        if self.acks.unknown_from and not self._learn_keys():
            return True
        while count < TURN_MESSAGES and total < room_bytes:
            if not self._may_send() or not self._pick(&record):
                break
            size = self._prepare(&record, &message)
            due_ns = pace_due(&self.pace, record.timestamp, size, self.turn.monotonic_ns,
                              self.turn.now_ns)
            if due_ns:
                self.pace_due_ns = due_ns
                self.wait = WAIT_PACE
                break
            if not (self._send_push(&record, &message, size) if self.pulls is None
                    else self._send_pull(&record, &message, size)):
                break
            count += 1
            total += size
            if self.router.largest_pending > RECEIVER_BYTES_MAX:
                self.wait = WAIT_RECEIVER
                self.pace_due_ns = self.turn.monotonic_ns + RECEIVER_PAUSE_NS
                break
        self.kept.let_go()
        if self.wait == WAIT_MESSAGES and self.cursor.limit() > self.pace.replay_to:
            self.pace.replay_to = 0
        if self.pulls is not None and self.pulls.count \
                and (self.wait != WAIT_NOTHING or self.cursor.is_late):
            self.pulls.sweep(self._is_at_end(), False)
        return self.wait == WAIT_NOTHING

    cdef bint _is_at_end(self) noexcept:
        """Whether requests that do not wait have received all available messages.

        While acknowledgements are outstanding there may be more for them. nats-server then checks
        them only when another request expires or wants a heartbeat, and ends them on that occasion.
        """
        if self.wait == WAIT_ACKS:
            return 0 < self.pulls.due_ns <= self.turn.monotonic_ns
        return self.wait in (WAIT_MESSAGES, WAIT_DEMAND, WAIT_PAUSE, WAIT_KEYS)

    def wait_for_disk(self):
        """The next message could not be read: retry later; requests still end in time."""
        self.wait = WAIT_DISK
        self.pace_due_ns = self.turn.monotonic_ns + DISK_PAUSE_NS
        if self.pulls is not None:
            self.pulls.sweep(False, False)

    cdef bint _receiver_is_full(self) noexcept:
        cdef size_t pending = 0
        if self.pulls is None:
            pending = self.router.pending_at(
                self.account, self.deliver_subject, <uint32_t>len(self.deliver_subject))
        elif self.pulls.head != NULL:
            pending = self.router.pending_at(
                self.account, &self.pulls.head.reply[0], self.pulls.head.reply_size)
        if pending <= RECEIVER_BYTES_MAX // 2:
            return False
        self.pace_due_ns = self.turn.monotonic_ns + RECEIVER_PAUSE_NS
        return True

    cdef bint _may_send(self):
        """Whether anyone can take a message now."""
        if self.paused:
            self.wait = WAIT_PAUSE
            return False
        if self.pulls is not None:
            if self.pulls.count == 0:
                self.wait = WAIT_DEMAND
                return False
            return True
        if not self.is_bound:
            self.wait = WAIT_DEMAND
            return False
        if self.window and self.window_pending > self.window:
            self.wait = WAIT_FLOW
            return False
        return True

    cdef int _pick(self, Record* record) except -1:
        """Select the next message, redeliveries first. 0 if there is none."""
        cdef uint64_t seq
        while self.acks.queue_count:
            seq = self.acks.next_redelivery()
            if seq == 0:
                break
            if self.store.read(seq, record) == 0:
                self.sending_seq = seq
                self.sending_again = True
                self.sending_parked = False
                self.sending_deliveries = self.acks.deliveries(seq) + 1
                return 1
            # Gone from the stream without a notification: it cannot be sent again.
            self.acks.forget(seq)
        if self.max_ack_pending \
                and self.acks.count - self.acks.parked_count >= self.max_ack_pending:
            self.wait = WAIT_ACKS
            return 0
        if self.acks.keys != NULL:
            return self._pick_by_key(record)
        while True:
            seq = self.cursor.peek(self.visible_seq)
            if seq == 0 and self.cursor.is_late:
                return 0        # the search continues in the next turn
            if seq == 0:
                self.wait = WAIT_SYNC if self.visible_seq < self.store.last_seq else WAIT_MESSAGES
                return 0
            if self.store.read(seq, record) == 0:
                self.sending_seq = seq
                self.sending_again = False
                self.sending_deliveries = 1
                return 1
            self.cursor.advance(seq)

    cdef int _pick_by_key(self, Record* record) except -1:
        """Select the next message whose key is not busy: parked ones and others alternate, so that
        neither keeps the other waiting. 0 if there is none.
        """
        if self.prefers_parked and self._pick_parked(record) or self._pick_free(record):
            return 1
        if not self.prefers_parked and self._pick_parked(record):
            self.wait = WAIT_NOTHING
            return 1
        return 0

    cdef int _pick_parked(self, Record* record) except -1:
        """Select the parked message whose turn it is. 0 if there is none."""
        cdef uint64_t seq = ready_seq(self.acks.keys)
        while seq:
            if self.store.read(seq, record) == 0:
                self.sending_seq = seq
                self.sending_again = False
                self.sending_parked = True
                self.sending_deliveries = 1
                if not self.acks.is_unsent(seq):
                    self.sending_deliveries += self.acks.deliveries(seq)
                return 1
            self.acks.forget(seq)
            seq = ready_seq(self.acks.keys)
        return 0

    cdef int _pick_free(self, Record* record) except -1:
        """Select the next message of the stream, and park those whose keys are busy. 0 if there is
        none.
        """
        cdef uint64_t seq, hash
        while True:
            seq = self.cursor.peek(self.visible_seq)
            if seq == 0 and self.cursor.is_late:
                return 0
            if seq == 0:
                self.wait = WAIT_SYNC if self.visible_seq < self.store.last_seq \
                    else WAIT_KEYS if self.acks.parked_count else WAIT_MESSAGES
                return 0
            if self.store.read(seq, record) != 0:
                self.cursor.advance(seq)
                continue
            hash = key_hash(self.acks.keys, &self.key_rule, record)
            if key_is_free(self.acks.keys, hash):
                self.sending_seq = seq
                self.sending_again = self.sending_parked = False
                self.sending_deliveries = 1
                self.sending_hash = hash
                return 1
            if self.acks.parked_count >= self.park_max:
                self.wait = WAIT_KEYS
                return 0
            self.acks.park(seq, hash, self.turn.monotonic_ns)
            self.cursor.advance(seq)
            self._changed()
            if self.cursor.work_left < PARK_WORK:
                self.cursor.work_left = 0
                self.cursor.is_late = True
                return 0
            self.cursor.work_left -= PARK_WORK

    cdef bint _learn_keys(self) except -1:
        """Read the keys of messages that are pending since before the start; false if that goes on
        in the next turn.
        """
        cdef Record record
        cdef uint64_t seq = self.acks.unknown_seq()
        while seq:
            if self.cursor.work_left < PARK_WORK:
                return False
            self.cursor.work_left -= PARK_WORK
            if self.store.read(seq, &record) == 0:
                self.acks.set_key(seq, key_hash(self.acks.keys, &self.key_rule, &record))
            else:
                self.acks.forget(seq)
            seq = self.acks.unknown_seq()
        return True

    cdef uint64_t left(self) except? 0xFFFFFFFFFFFFFFFF:
        """The number of messages that were not delivered."""
        return self.cursor.pending() + self.acks.parked_count

    cdef size_t _prepare(self, Record* record, Message* message) except 0:
        """Fill in a message with its ack subject; returns its size as clients count it."""
        cdef uint64_t pending
        self.kept.keep(self.store, record)      # counting loads blocks; a receiver may be a stream
        pending = self.left()
        message.origin = NULL
        message.subject = record.subject
        message.subject_size = record.subject_size
        message.body = record.header        # the payload follows it
        message.header_size = record.header_size
        message.total_size = <size_t>record.header_size + record.payload_size
        if self.headers_only:
            self._set_body(message, b"Nats-Msg-Size: %d\r\n" % record.payload_size, False)
        message.reply = self.reply
        message.reply_size = self.prefix_size + write_ack_numbers(
            self.reply + self.prefix_size, self.sending_deliveries, self.sending_seq,
            self.acks.delivered_consumer + 1, record.timestamp,
            pending - (0 if self.sending_again else 1))
        if self.is_preview:
            message.reply_size = without_last_numbers(self.reply, message.reply_size)
        return message.subject_size + message.reply_size + message.total_size

    cdef int _set_body(self, Message* message, bytes line, bint with_payload) except -1:
        """Add a line to the header; without the payload only the header is left."""
        cdef bytes header = message.body[:message.header_size]
        cdef bytes payload = b""
        if with_payload:
            payload = message.body[message.header_size:message.total_size]
        header = (header[:len(header) - 2] if header else HEADER_START) + line + b"\r\n"
        buffer_clear(&self.body)
        if buffer_append(&self.body, header, len(header)) != 0 \
                or buffer_append(&self.body, payload, len(payload)) != 0:
            raise MemoryError
        message.body = self.body.data
        message.header_size = len(header)
        message.total_size = len(header) + len(payload)
        return 0

    cdef int _send_push(self, Record* record, Message* message, size_t size) except -1:
        if self.router.publish_as(self.account, self.deliver_subject,
                                  <uint32_t>len(self.deliver_subject), message) == 0:
            self.is_bound = False
            self.wait = WAIT_DEMAND
            return 0
        self._commit(record, size)
        if self.acks.attempts is not None:
            self.acks.note_receiver(record.seq, receiver_at(
                self.account, self.deliver_subject, <uint32_t>len(self.deliver_subject)))
        self.heartbeat_due_ns = later(self.turn.monotonic_ns, self.heartbeat_ns)
        if self.window:
            self._flow(size)
        return 1

    cdef int _send_pull(self, Record* record, Message* message, size_t size) except -1:
        """Send to the request whose turn it is; requests of receivers that are gone are dropped."""
        cdef PullRequest* request
        while True:
            request = self.pulls.next_request(size)
            if request == NULL:
                self.wait = WAIT_DEMAND
                return 0
            if self.pulls.pins:
                self._set_body(message, b"Nats-Pin-Id: %s\r\n" % self.pulls.pin_id, True)
            if self.router.publish_as(self.account, &request.reply[0], request.reply_size, message):
                self._commit(record, size)
                if self.acks.attempts is not None:
                    self.acks.note_receiver(record.seq, receiver_at(
                        self.account, &request.reply[0], request.reply_size))
                self.pulls.answered(request, size)
                return 1
            self.pulls.remove(request)

    cdef int _commit(self, Record* record, size_t size) except -1:
        """Record that the message has been sent."""
        cdef uint64_t seq = self.sending_seq
        if self.acks.keys != NULL:
            if not self.sending_again and not self.sending_parked:
                self.cursor.advance(seq)
            self.prefers_parked = not self.sending_parked
        elif not self.sending_again:
            self.cursor.advance(seq)
        self.acks.deliver(seq, self.turn.monotonic_ns, self.sending_hash)
        self.last_delivered_ns = self.turn.now_ns
        self.active_ns = self.turn.monotonic_ns
        note_paced(&self.pace, record.timestamp, size, self.turn.monotonic_ns)
        self._changed()
        if self.acks.rule == ACK_NONE and self.on_done is not None:
            self.on_done.message_done(self.owner, seq)
        if self.router.spans is not None and has_sampled_parent(
                record.header, record.header_size):
            self.router.spans.delivered(
                self.owner, seq, self.sending_deliveries, record.header[:record.header_size],
                record.subject[:record.subject_size])
        return 0

    # -------------------------------------------------------------- flow control and heartbeats

    cdef int _flow(self, size_t size) except -1:
        """Count what was sent, and request an answer when half of the window is used."""
        cdef bint asks
        self.window_pending += size
        asks = self.window_pending > self.window // 2 or (
            self.flow_acknowledges and self.max_ack_pending
            and self.acks.count >= self.max_ack_pending)
        if not self.flow_subject and asks:
            self.ask_flow()
        elif self.flow_subject and self.window_pending - self.window_asked >= self.window:
            self.window_asked += size
        return 0

    def ask_flow(self):
        """Send a flow control request."""
        cdef bytes token = self.owner.flow_id()
        # The prefixes of acks and of flow control differ in one word only.
        self.flow_subject = b"$JS.FC." + self.reply[8:self.prefix_size] + token
        self.window_asked = self.window_pending
        publish_header(self.router, self.account, self.deliver_subject,
                       <uint32_t>len(self.deliver_subject), self.flow_subject,
                       <uint32_t>len(self.flow_subject), FLOW_REQUEST)

    cdef int _flow_answer(self, Message* message) except -1:
        cdef bytes expected = self.flow_subject
        if len(expected) != message.subject_size \
                or memcmp(<const char*>expected, message.subject, message.subject_size) != 0:
            return 1
        if self.window < WINDOW_BYTES_MAX:
            self.window = min(self.window * 2, <int64_t>WINDOW_BYTES_MAX)
        self.window_pending = max(self.window_pending - self.window_asked, <int64_t>0)
        self.window_asked = 0
        self.flow_subject = b""
        self.active_ns = self.turn.monotonic_ns
        self.turn.wake(self.owner)
        if message.header_size:
            self.owner.flow_acknowledged(message.body[:message.header_size])
        return 1

    def beat(self):
        """Send the idle heartbeat of a push consumer; returns the number of receivers."""
        cdef bytes header = heartbeat_header(self.cursor, self.acks)
        if self.flow_subject:
            header += b"Nats-Consumer-Stalled: %s\r\n" % self.flow_subject
        header += b"\r\n"
        return publish_header(self.router, self.account, self.deliver_subject,
                              <uint32_t>len(self.deliver_subject), NULL, 0, header)

    # -------------------------------------------------------------- acknowledgements

    cdef int _ack(self, Message* message) except -1:
        """Handle a message on the ack subject."""
        cdef AckSubject parsed
        cdef const char* payload = message.body + message.header_size
        cdef size_t size = message.total_size - message.header_size
        cdef bint answer
        if message.origin == NULL:
            self.turn.defer(self.late_ack, message.subject[:message.subject_size],
                            message.reply[:message.reply_size],
                            message.body[:message.header_size], payload[:size])
            return 1
        self.active_ns = self.turn.monotonic_ns
        if not read_ack_subject(message.subject, message.subject_size, self.is_preview, &parsed) \
                or parsed.seq == 0:
            return 1
        if self.router.spans is not None:
            self.router.spans.answered(self.owner, parsed.seq, payload[:min(size, <size_t>16)])
        if size == 0 or size == 4 and memcmp(payload, b"+ACK", 4) == 0 \
                or size == 3 and memcmp(payload, b"+OK", 3) == 0:
            answer = self.acknowledge(parsed.seq, parsed.consumer_seq, parsed.deliveries)
        else:
            answer = self.owner.other_ack(
                parsed.seq, parsed.consumer_seq, parsed.deliveries, payload[:size],
                message.reply[:message.reply_size], message.body[:message.header_size])
        if answer and message.reply_size:
            self.replies.add(message.reply, message.reply_size, False)
        return 1

    def late_ack(self, bytes subject not None, bytes reply not None, bytes header not None,
                 bytes payload not None):
        """Handle an ack that the server sent to itself, after that delivery has ended."""
        cdef AckSubject parsed
        cdef uint32_t size = <uint32_t>len(subject)
        if not self.closed and read_ack_subject(subject, size, self.is_preview, &parsed) \
                and parsed.seq:
            if payload in (b"", b"+ACK", b"+OK"):
                answer = self.acknowledge(parsed.seq, parsed.consumer_seq, parsed.deliveries)
            else:
                answer = self.owner.other_ack(
                    parsed.seq, parsed.consumer_seq, parsed.deliveries, payload, reply, header)
            if answer and reply:
                self.replies.add(reply, <uint32_t>len(reply), True)

    cpdef bint acknowledge(self, uint64_t seq, uint64_t consumer_seq, uint64_t deliveries,
                           bint measures=True) except -1:
        """Acknowledge a message; returns whether to answer, which is false if it was never sent.

        `measures`: it may be sampled.
        """
        cdef uint32_t index
        cdef AckState acks = self.acks
        if seq >= self.cursor.limit() and not self.flow_control:
            return False
        if acks.rule == ACK_ALL \
                and (consumer_seq <= acks.floor_consumer or seq <= acks.floor_stream):
            return True
        if acks.keys != NULL and acks.is_unsent(seq):
            return False
        if self.samples and measures and acks.rule == ACK_EXPLICIT and acks.is_pending(seq):
            self.owner.sampled(seq, consumer_seq, deliveries)
        if acks.keys != NULL or self.max_ack_pending and acks.count >= self.max_ack_pending:
            self.turn.wake(self.owner)
        acks.acknowledge(seq, consumer_seq)
        self.last_acked_ns = self.turn.now_ns
        self._changed()
        if self.on_done is not None:
            self.on_done.message_done(self.owner, seq)
            for index in range(acks.released_count):
                self.on_done.message_done(self.owner, acks.released[index])
        return True

    def touch(self, bint delivered):
        """Note a change of state that counts as a delivery or as an acknowledgement."""
        if delivered:
            self.last_delivered_ns = self.turn.now_ns
        self._changed()
        if self.acks.keys != NULL:
            self.turn.wake(self.owner)      # a key may have become free

    cdef int _request(self, Message* message) except -1:
        if message.reply_size:
            self.queue_request(
                message.reply[:message.reply_size], message.body[:message.header_size],
                message.body[message.header_size:message.total_size])
        return 1

    cpdef int queue_request(self, bytes reply, bytes header, bytes payload) except -1:
        """Queue a pull request until the turn ends."""
        self.requests.append((reply, header, payload))
        self.turn.wake(self.owner)
        return 0

    def take_requests(self):
        """Take the requests that arrived since the last call."""
        taken = self.requests
        self.requests = []
        return taken

    def return_requests(self, list requests not None):
        """Return requests that could not be handled; they are taken again, before later ones."""
        self.requests[:0] = requests

    def note_activity(self):
        """Count an ack by the server itself, for a removed message, like one from the client."""
        self.last_acked_ns = self.turn.now_ns

    def forget_activity(self):
        """Forget when a message was last delivered and acknowledged."""
        self.last_delivered_ns = self.last_acked_ns = 0

    def take_gone(self):
        """Return (sequences that left the stream while they were needed, whether they were purged).
        """
        taken = self.follower.gone, bool(self.follower.purged)
        self.follower.gone = []
        self.follower.purged = False
        return taken

    @property
    def has_gone(self):
        """Whether `take_gone` would return anything."""
        return bool(self.follower.gone) or bool(self.follower.purged)

    # -------------------------------------------------------------- output

    def send_status(self, bytes reply not None, bytes status not None):
        """Refuse a pull request."""
        cdef bytes header = b"NATS/1.0 %s\r\n\r\n" % status
        publish_header(self.router, self.account, reply, <uint32_t>len(reply), NULL, 0, header)

    # -------------------------------------------------------------- interest

    def watch_binding(self):
        """Have `look_at_binding` called when the deliver subject gains or loses a subscriber."""
        if self.pulls is None:
            self.account.watch(
                self.deliver_subject, self.deliver_group, self.owner.look_at_binding)
        self.check_binding()

    def unwatch_binding(self):
        """Undo `watch_binding`."""
        self.account.unwatch(self.deliver_subject, self.deliver_group, self.owner.look_at_binding)

    def check_binding(self):
        """Check whether anyone subscribes to exactly the deliver subject, in its group; true if
        that has changed.
        """
        cdef bytes subject = self.deliver_subject
        cdef bytes group = self.deliver_group
        was_bound = self.is_bound
        self.is_bound = self.pulls is None and not self.closed \
            and self.account.sublist.has_subscription(
                subject, <uint32_t>len(subject), group, <uint32_t>len(group))
        return was_bound != self.is_bound

    cdef bint needs_message(self, uint64_t seq, uint32_t subject_id) except -1:
        """Whether a stored message of a subject is still wanted; used for retention by interest."""
        self.cursor.chosen.prepare()
        return self.cursor.chosen.accepts(subject_id) \
            and self.acks.is_needed(seq, self.cursor.limit())

    cdef uint64_t limit(self) noexcept:
        """The first sequence that has not been delivered, nor any message after it."""
        return self.cursor.limit()

    cdef bint has_demand(self) noexcept:
        """Whether a receiver would take a message, if there were one."""
        if self.closed:
            return False
        return self.is_bound if self.pulls is None else self.pulls.count > 0

    @property
    def waits_for(self):
        """The reason why no message is being sent, in one word."""
        return WAITS[self.wait]

    def watch_use(self, int64_t threshold_ns, int64_t looked_ns, int64_t due_ns):
        """Set when `Inactivity` has to check whether the consumer is still in use."""
        self.inactive_threshold_ns = threshold_ns
        self.inactive_looked_ns = looked_ns
        self.inactive_due_ns = due_ns

    cpdef int64_t inactive_at_ns(self) except? -1:
        """When to check whether the consumer is in use; 0: it certainly is."""
        cdef int64_t due_ns
        if self.inactive_threshold_ns == 0 or self.pulls is None and self.is_bound:
            return 0
        due_ns = later(self.active_ns, self.inactive_threshold_ns)
        # The result of the last check counts until the consumer is used again.
        return max(due_ns, self.inactive_due_ns) if self.active_ns <= self.inactive_looked_ns \
            else due_ns

    cpdef int64_t next_deadline_ns(self) except? -1:
        """When anything is due, here or in a part of the owner; 0: never."""
        cdef int64_t first_ns = 0
        cdef int64_t[8] times = [
            self.pause_due_ns, self.inactive_at_ns(), self.save_due_ns, self.acks.next_due_ns(),
            0 if self.pulls is None else self.pulls.due_ns,
            0 if self.pulls is None else self.pulls.pin_due_ns,
            self.heartbeat_due_ns if self.heartbeat_ns else 0, self._paced_until_ns()]
        cdef int index
        for index in range(8):
            if times[index] and (first_ns == 0 or times[index] < first_ns):
                first_ns = max(times[index], <int64_t>1)
        return first_ns

    cdef int64_t _paced_until_ns(self) noexcept:
        if self.wait == WAIT_PACE or self.wait == WAIT_RECEIVER or self.wait == WAIT_DISK:
            return self.pace_due_ns
        return 0

    @property
    def pace_due(self):
        """When pace, a slow receiver or the disk allows it to continue; 0 if none of them blocks
        it.
        """
        return self._paced_until_ns()
