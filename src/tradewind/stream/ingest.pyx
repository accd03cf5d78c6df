"""A publish -> a stored message and the promise of an acknowledgement. Runs once per message.

Owns the replies that wait and the limits that are looked at for every message; what has passed them
is stored by its base, `MessageRecorder`. The fast path does only what is certain to succeed:
whatever is unusual in the message, in the configuration or in the state of the store leaves it for
`slow_path`, which is plain Python and gives the exact error. Never publishes by itself: replies
leave at the end of a turn, or when a commit has ended (`commit_path`).
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from tradewind cimport invariants
from tradewind.broker.accounts cimport Account
from tradewind.broker.router cimport Router
from tradewind.broker.state cimport TAKES_PERMITTED, Message
from tradewind.store.table.block cimport Block
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.table.schedule_times cimport end_schedule
from tradewind.store.format.records cimport RECORD_MAX, SUBJECT_MAX, Record, record_size
from tradewind.store.table.subject_index cimport SubjectEntry
from tradewind.stream.counter_scan cimport (
    COUNT_HEADER_MAX, COUNT_SUM_MAX, read_increment, read_sum, write_sum, write_tail)
from tradewind.stream.fast_core cimport (
    FAST_APPEND, OpenFastBatch, FastReply, is_fast_reply, parse_reply)
from tradewind.stream.header_scan cimport HEADER_PLAIN, TextSpan, scan_header
from tradewind.stream.message_ids cimport EXPIRED_AT_ONCE_MAX, MessageIds
from tradewind.stream.part_scan cimport COMMIT_END, COMMIT_NONE, PartFields, scan_part
from tradewind.stream.publish_replies cimport (
    REPLY_ACK, REPLY_BODY, REPLY_COPY, REPLY_DUPLICATE, REPLY_TEXT, ReplyQueue, Rider)
from tradewind.stream.schedule_intake cimport ScheduleIntake
from tradewind.stream.staging cimport OpenBatch, PartHead, part_bytes
from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init, buffer_size)

from functools import partial
from typing import Protocol

from tradewind.api import errors
from tradewind.errors import StoreError
from tradewind.store.table.schedule_times import note_schedule
from tradewind.stream.schedule_checks import may_direct

cdef enum:
    HEADER_BYTES_MAX = 65535
    # Larger schedules take the slow path.
    SCHEDULE_BYTES_MAX = 32768

BUSY_HEADER = b"NATS/1.0 429 Too Many Requests\r\n\r\n"


cdef int take_message(void* target, Message* message) except -1:
    """The hook of every subject of a stream."""
    cdef Ingest ingest = <Ingest>target
    if message.origin == NULL:
        # The server published it, perhaps while another stream was being written: later.
        handler = ingest.submit
        if ingest.turn.rider is not None:
            handler = partial(ingest.submit_copy, ingest.turn.rider)
            ingest.turn.rider = None
        ingest.turn.defer(handler, message.subject[:message.subject_size],
                          message.reply[:message.reply_size],
                          message.body[:message.header_size],
                          message.body[message.header_size:message.total_size])
        return 1
    try:
        return ingest.publish(message) if ingest.router.trace is None else ingest._trace(message)
    except Exception as error:
        ingest.router.faults.contain("publish", error, ingest.stream.name)
        ingest.slow_path.publish_failed(message.reply[:message.reply_size])
        return 1


cdef inline bint is_crowded(Ingest ingest) noexcept:
    """Whether three quarters of the allowed amount is waiting. From then on publishers without
    replies, which would not notice a refusal, are held back.
    """
    cdef uint64_t msgs_max = ingest.waiting_msgs_max - ingest.waiting_msgs_max // 4
    cdef uint64_t bytes_max = ingest.waiting_bytes_max - ingest.waiting_bytes_max // 4
    return ingest.store.last_seq - ingest.acknowledged_seq >= msgs_max \
        or ingest.appended_bytes - ingest.acknowledged_bytes >= bytes_max \
        or ingest.replies.count >= msgs_max


class IngestOwner(Protocol):
    """A stream, as its ingest sees it."""

    name: object
    is_active: object
    files: object
    upkeep: object

    def is_wanted(self, subject):
        """Whether a message of this subject would have a consumer; called while `asks_interest`."""

    def clock_went_back(self, distance_ns):
        """Called when the next message gets a time this much before the last one."""


class CloserLook(Protocol):
    """The slow path of a stream, as its ingest sees it."""

    fast_batches: object

    def publish(self, subject, reply, header, payload):
        """Take a message that needs a closer look."""

    def commit_batch(self, batch, reply):
        """Store a batch that needs a closer look; StoreError."""

    def refuse(self, reply, error):
        """Answer that a message is refused, with the error."""

    def store_failed(self, error, reply):
        """Called when a message could not be stored."""

    def publish_failed(self, reply):
        """Called after an internal error: the message may be stored or not."""


cdef class Ingest(MessageRecorder):
    """The part of one `stream` that runs once per message."""

    def __init__(self, Router router not None, Account account not None,
                 MessageStore store not None, MessageIds ids not None,
                 bytes ack_prefix not None, bytes busy_body not None,
                 uint64_t waiting_msgs_max, uint64_t waiting_bytes_max):
        MessageRecorder.__init__(self, router.turn, store, ids)
        self.router = router
        self.account = account
        self.replies = ReplyQueue(ack_prefix)
        self.refusals = ReplyQueue(ack_prefix)
        self.reads = ReplyQueue(ack_prefix)
        self.busy_body = busy_body
        self.waiting_msgs_max = waiting_msgs_max
        self.waiting_bytes_max = waiting_bytes_max
        self.message_bytes_max = -1
        self.acknowledged_seq = store.last_seq

    def __cinit__(self, *_, **__):
        buffer_init(&self.marks)

    def __dealloc__(self):
        buffer_free(&self.marks)

    def configure(self, *, bint acks, bint is_plain, bint counts, bint takes_batches, bint waits,
                  bint writes, bint asks_interest, bint discards_new, bint discards_new_per_subject,
                  int64_t message_bytes_max):
        """Set the parts of the configuration that the fast path uses."""
        self.acks = acks
        self.is_plain = is_plain
        self.counts = counts
        self.takes_batches = takes_batches
        self.waits = waits
        self.writes = writes
        self.asks_interest = asks_interest
        self.discards_new = discards_new
        self.discards_new_per_subject = discards_new_per_subject
        self.message_bytes_max = message_bytes_max

    def attach(self, bytes subject not None):
        """Take every message on a subject from now on; returns the token for `Account.unsubscribe`.
        """
        return self.account.attach(subject, take_message, self, b"", TAKES_PERMITTED)

    # -------------------------------------------------------------- per message

    cdef int publish(self, Message* message) except -1:
        """Store a message if nothing about it is unusual; always 1, it has been received."""
        cdef TextSpan id
        cdef uint64_t seq, size
        cdef uint32_t header_size = <uint32_t>message.header_size
        cdef uint32_t total_size = <uint32_t>message.total_size
        cdef OpenFastBatch fast = None
        id.size = 0
        if self.waits and is_crowded(self):
            # A disk that has failed will not catch up; there is nothing to wait for then.
            if not message.reply_size and message.origin != NULL \
                    and self.stream.files.failure is None:
                (<object>message.origin.session).hold_back()
            if self._is_full():
                return self._refuse(message)
        if message.total_size > RECORD_MAX or not self.is_plain:
            if self.counts and self._count(message):
                return 1
            return self._leave(message)
        if is_fast_reply(message.reply, message.reply_size):
            fast = self._next_of_fast(message)
            if fast is None:
                return self._leave(message)
        if header_size and scan_header(message.body, header_size, &id) != HEADER_PLAIN:
            if self.takes_batches and fast is None and self._stage(message):
                return 1
            if self.scheduling is not None and fast is None and self._schedule(message):
                return 1
            return self._leave(message)
        size = self.store.stored_size(message.subject_size, header_size, total_size - header_size)
        if not self._fits(message, size):
            return self._leave(message)
        if id.size and self.ids.window_ns > 0:
            seq = self.ids.find(id.start, id.size, self.turn.monotonic_ns)
            if seq and fast is not None:
                return self._leave(message)
            if seq:
                if self.acks and message.reply_size:
                    self.turn.mark_dirty(self)
                    self.replies.add(REPLY_DUPLICATE, seq, message.reply, message.reply_size,
                                     NULL, 0, NULL, 0, 0)
                return 1
            if not self.ids.has_room(id.size):
                return self._refuse(message)
        if self.asks_interest and not self.stream.is_wanted(
                message.subject[:message.subject_size]):
            return self._leave(message)
        if self.store.schedules.table.count:
            end_schedule(self.store, message.subject, message.subject_size)
        try:
            seq = self._append(message.subject, message.subject_size, message.body, header_size,
                               message.body + header_size, total_size - header_size, &id, 0)
        except StoreError as error:
            self.slow_path.store_failed(error, message.reply[:message.reply_size])
            return 1
        if fast is not None:
            return self._note_fast(fast, message, seq)
        if self.acks and message.reply_size:
            self.replies.add(REPLY_ACK, seq, message.reply, message.reply_size, NULL, 0, NULL, 0, 0)
        return 1

    cdef bint _count(self, Message* message) except -1:
        """Store the sum of a plain increment; False if it needs the slow path."""
        cdef Message counted = message[0]
        cdef char body[COUNT_HEADER_MAX + COUNT_SUM_MAX]
        cdef char tail[COUNT_SUM_MAX]
        cdef int64_t increment = 0, total = 0
        cdef uint32_t header_size = <uint32_t>message.header_size, sum_size
        cdef uint64_t seq
        cdef TextSpan no_id
        no_id.size = 0
        if message.header_size != message.total_size or self.store.schedules.table.count \
                or is_fast_reply(message.reply, message.reply_size) \
                or not read_increment(message.body, header_size, &increment) \
                or not self._last_sum(message, &total):
            return False
        total += increment
        memcpy(body, message.body, header_size)
        sum_size = write_sum(body + header_size, total)
        counted.body = body
        counted.total_size = header_size + sum_size
        if not self._fits(&counted, self.store.stored_size(
                message.subject_size, header_size, sum_size)):
            return False
        if self.asks_interest and not self.stream.is_wanted(
                message.subject[:message.subject_size]):
            return False
        try:
            seq = self._append(message.subject, message.subject_size, body, header_size,
                               body + header_size, sum_size, &no_id, 0)
        except StoreError as error:
            self.slow_path.store_failed(error, message.reply[:message.reply_size])
            return True
        if self.acks and message.reply_size:
            self.replies.add(REPLY_ACK, seq, message.reply, message.reply_size, NULL, 0, tail, 0,
                             write_tail(tail, total))
        return True

    cdef bint _schedule(self, Message* message) except -1:
        """Store a plain schedule on a subject without messages; False if it needs the slow path."""
        cdef ScheduleIntake scheduling = self.scheduling
        cdef uint32_t payload_size = <uint32_t>(message.total_size - message.header_size)
        cdef size_t header_size
        cdef int64_t due_ns = 0
        cdef uint64_t seq
        cdef TextSpan no_id
        no_id.size = 0
        if self.asks_interest or self.store.index.find(
                message.subject, message.subject_size) != NULL \
                or not scheduling.read(message.subject, message.subject_size, message.body,
                                       <uint32_t>message.header_size, self.turn.steady_ns(),
                                       &due_ns) \
                or not self._may_direct(message):
            return False
        header_size = buffer_size(&scheduling.header)
        if message.total_size + header_size > SCHEDULE_BYTES_MAX or not self._fits(
                message, self.store.stored_size(
                    message.subject_size, header_size, payload_size)):
            return False
        try:
            seq = self._append(message.subject, message.subject_size,
                               scheduling.header.data + scheduling.header.begin,
                               <uint32_t>header_size, message.body + message.header_size,
                               payload_size, &no_id, 0)
        except StoreError as error:
            self.slow_path.store_failed(error, message.reply[:message.reply_size])
            return True
        note_schedule(self.store, seq, due_ns)
        self.deadline_changed()
        if self.acks and message.reply_size:
            self.replies.add(REPLY_ACK, seq, message.reply, message.reply_size, NULL, 0, NULL, 0, 0)
        return True

    cdef bint _last_sum(self, Message* message, int64_t* total) except -1:
        """The sum in the last message of the subject, 0 without one; False if it has an unusual
        form.
        """
        cdef Record record
        cdef Block block
        cdef uint64_t seq
        cdef int64_t increment = 0
        cdef SubjectEntry* entry = self.store.index.find(message.subject, message.subject_size)
        if entry == NULL:
            return True
        try:
            seq = self.store.last_of(entry)
            block = self.store.block_of(seq) if seq else None
            if block is None:
                return False
            self.store.load_index(block)
            if block.read(seq, &record) != 0:
                return False
        except StoreError:
            return False
        # A header with more in it may say what the sum has from other streams.
        return read_increment(record.header, record.header_size, &increment) \
            and read_sum(record.payload, record.payload_size, total)

    cdef OpenFastBatch _next_of_fast(self, Message* message):
        """Find the batch for which this is certainly the next message; None if it needs the slow
        path.
        """
        cdef FastReply said
        cdef OpenFastBatch fast = self.fast
        if fast is None or parse_reply(message.reply, message.reply_size, &said) != 0 \
                or said.operation != FAST_APPEND or said.number != fast.last + 1 \
                or said.id_size != <uint32_t>len(fast.id) \
                or memcmp(said.id, <const char*>fast.id, said.id_size) != 0:
            return None
        return fast

    cdef int _note_fast(self, OpenFastBatch fast, Message* message, uint64_t seq) except -1:
        """Count the message of a fast batch that was stored; its client is notified from time to
        time.
        """
        fast.last += 1
        fast.stored_seq = seq
        fast.used_ns = self.turn.monotonic_ns
        if fast.last >= fast.acked + fast.step:
            self.slow_path.fast_batches.tell(fast, message.reply[:message.reply_size])
        return 1

    cdef bint _is_full(self) noexcept:
        """Whether too much is waiting for an acknowledgement."""
        return self.store.last_seq - self.acknowledged_seq >= self.waiting_msgs_max \
            or self.appended_bytes - self.acknowledged_bytes >= self.waiting_bytes_max \
            or self.replies.count >= self.waiting_msgs_max

    cdef bint has_room_for_copies(self) noexcept:
        """Whether half of the allowed waiting amount is free; the other half is for publishers."""
        return not self.waits or (
            self.store.last_seq - self.acknowledged_seq < self.waiting_msgs_max // 2
            and self.appended_bytes - self.acknowledged_bytes < self.waiting_bytes_max // 2)

    cdef bint _fits(self, Message* message, uint64_t size) noexcept:
        """Whether no limit refuses a message that the store counts as `size` bytes."""
        cdef SubjectEntry* entry
        cdef bint replaces
        cdef MessageStore store = self.store
        if not self._is_sound(message, size):
            return False
        if not self.discards_new:
            return True
        entry = store.index.find(message.subject, message.subject_size)
        replaces = entry != NULL and store.subject_msgs_max > 0 \
            and entry.total >= <uint64_t>store.subject_msgs_max
        if replaces and self.discards_new_per_subject:
            return False
        if store.msgs_max > 0 and store.msgs >= <uint64_t>store.msgs_max and not replaces:
            return False
        return store.bytes_max <= 0 or store.bytes + size <= <uint64_t>store.bytes_max

    cdef bint _is_sound(self, Message* message, uint64_t size) noexcept:
        """Whether neither the limits of a message nor those of the account refuse it."""
        return (self.message_bytes_max < 0
                or <int64_t>message.total_size <= self.message_bytes_max) \
            and message.header_size <= HEADER_BYTES_MAX and message.subject_size <= SUBJECT_MAX \
            and record_size(message.subject_size, message.header_size,
                            message.total_size - message.header_size) <= RECORD_MAX \
            and <int64_t>size <= self.credit_bytes

    # -------------------------------------------------------------- atomic batches

    cdef bint _stage(self, Message* message) except -1:
        """Add a message to an open batch, or store the whole batch; False if it needs the slow
        path.
        """
        cdef PartFields fields
        cdef OpenBatch batch
        cdef uint32_t header_size = <uint32_t>message.header_size
        cdef uint32_t total_size = <uint32_t>message.total_size
        if not scan_part(message.body, header_size, &fields) or not self._is_sound(
                message, self.store.stored_size(
                    message.subject_size, header_size, total_size - header_size)):
            return False
        batch = self.staging.next_part(&fields, message.subject_size + total_size)
        if batch is None or fields.commit == COMMIT_END:
            return False
        self.staging.take(batch, &fields, message.subject, message.subject_size, message.body,
                          header_size, total_size, self.turn.monotonic_ns)
        if fields.commit == COMMIT_NONE:
            if self.acks and message.reply_size:
                self.turn.mark_dirty(self)
                self.replies.add(REPLY_BODY, 0, message.reply, message.reply_size, NULL, 0, NULL,
                                 0, 0)
            return True
        self.staging.close(batch)
        self.commit_batch(batch, message.reply[:message.reply_size])
        return True

    cpdef int commit_batch(self, OpenBatch batch, bytes reply) except -1:
        """Store a complete batch, or send the publisher the error."""
        self.turn.mark_dirty(self)
        try:
            if not self._holds(batch):
                self.slow_path.commit_batch(batch, reply)
                return 0
            self._store_parts(batch)
        except StoreError as error:
            self.slow_path.store_failed(error, reply)
            return 0
        self.acknowledge(reply, self.store.last_seq, tail=batch.tail)
        return 0

    cdef bint _holds(self, OpenBatch batch) except -1:
        """Whether a batch is plain, and certainly may be stored."""
        cdef MessageStore store = self.store
        if not self.is_plain or not batch.is_simple or self.asks_interest:
            return False
        if self.discards_new and (
                store.subject_msgs_max > 0
                or (store.msgs_max > 0 and store.msgs + batch.count > <uint64_t>store.msgs_max)
                or (store.bytes_max > 0
                    and store.bytes + batch.record_bytes > <uint64_t>store.bytes_max)):
            return False
        return batch.holds(store, self.ids, self.turn.monotonic_ns)

    cdef int _store_parts(self, OpenBatch batch) except -1:
        """Store the messages of a batch, or none of them."""
        cdef PartHead* head
        cdef const char* subject
        cdef const char* header
        cdef TextSpan no_id
        cdef size_t at = 0
        cdef uint64_t first_seq = self.store.last_seq + 1
        no_id.size = 0
        try:
            self.begin_unit(batch.record_bytes, batch.count)
            while at < batch.parts.end:
                head = <PartHead*>(batch.parts.data + at)
                subject = <const char*>(head + 1)
                header = subject + head.subject_size
                if self.store.schedules.table.count:
                    end_schedule(self.store, subject, head.subject_size)
                self._append(subject, head.subject_size, header, head.header_size,
                             header + head.header_size, head.total_size - head.header_size,
                             &no_id, 0)
                at += part_bytes(head)
        except StoreError:
            self.stream.upkeep.discard(first_seq, self.store.last_seq)
            raise
        finally:
            (<object>self.store).end_unit()
        if batch.has_ids:
            self._remember_ids(batch, first_seq)
        return 0

    cdef int _remember_ids(self, OpenBatch batch, uint64_t first_seq) except -1:
        """Remember the ids of the messages of a batch, which were stored from a sequence on."""
        cdef PartHead* head
        cdef TextSpan id
        cdef size_t at = 0
        self.ids.expire(self.turn.monotonic_ns, EXPIRED_AT_ONCE_MAX)
        while at < batch.parts.end:
            head = <PartHead*>(batch.parts.data + at)
            id.start = <const char*>(head + 1) + head.subject_size + head.id_start
            id.size = head.id_size
            if id.size:
                self.ids.add(id.start, id.size, first_seq, self.turn.monotonic_ns)
            first_seq += 1
            at += part_bytes(head)
        self._remember_last(&id)
        return 0

    cdef int _refuse(self, Message* message) except -1:
        """Refuse a message because too much is waiting; its publisher has to slow down."""
        cdef bytes body
        if self.acks and message.reply_size:
            self.turn.mark_dirty(self)
            body = BUSY_HEADER + self.busy_body
            self.refusals.add(REPLY_BODY, 0, message.reply, message.reply_size, NULL, 0, body,
                              <uint32_t>len(BUSY_HEADER), <uint32_t>len(body))
        return 1

    cdef int _leave(self, Message* message) except -1:
        """Hand a message to the slow path."""
        cdef bytes reply = message.reply[:message.reply_size]
        self.turn.mark_dirty(self)
        if not self._may_direct(message):
            self.slow_path.refuse(reply, errors.MESSAGE_SCHEDULES_TARGET_INVALID())
            return 1
        try:
            self.slow_path.publish(message.subject[:message.subject_size], reply,
                                   message.body[:message.header_size],
                                   message.body[message.header_size:message.total_size])
        except StoreError as error:
            self.slow_path.store_failed(error, reply)
        return 1

    cdef int _may_direct(self, Message* message) except -1:
        """Whether the publisher may itself publish to the subjects that its headers name: the
        stream stores there for it, or ends the schedule that is there.
        """
        cdef object session
        if message.origin == NULL or message.header_size == 0:
            return True
        session = <object>message.origin.session
        if session.account is self.account and session.publish_rules is None:
            return True
        return may_direct(session, self.account, message.body[:message.header_size])

    cdef int _trace(self, Message* message) except -1:
        """Handle a message with a trace, which records what the stream does with it; it may be for
        the trace alone.
        """
        from tradewind.stream.traced_storing import publish_traced
        cdef bytes reply = message.reply[:message.reply_size]
        if self.waits and self._is_full():
            self.router.trace.stored(self.stream.name)["error"] = "too many requests"
            return self._refuse(message)
        if not self._may_direct(message):
            self.router.trace.stored(self.stream.name)["error"] = "schedule target not permitted"
            self.slow_path.refuse(reply, errors.MESSAGE_SCHEDULES_TARGET_INVALID())
            self.turn.mark_dirty(self)
            return 1
        try:
            publish_traced(self.stream, self.router.trace, message.subject[:message.subject_size],
                           reply, message.body[:message.header_size],
                           message.body[message.header_size:message.total_size])
        except StoreError as error:
            self.slow_path.store_failed(error, reply)
        self.turn.mark_dirty(self)
        return 1

    # -------------------------------------------------------------- for the slow path

    def submit(self, bytes subject not None, bytes reply not None, bytes header not None,
               bytes payload not None):
        """Publish a message from inside the server."""
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
        self.publish(&message)

    def submit_copy(self, Rider rider not None, bytes subject not None, bytes reply not None,
                    bytes header not None, bytes payload not None):
        """Publish the copy of another stream's message, and send the rider when the copy is
        durable.

        If the copy was refused, the rider waits only for the messages before it.
        """
        cdef Message message
        if self.stream.is_active:
            self.submit(subject, reply, header, payload)
            self.turn.mark_dirty(self)
            self.replies.add_rider(self.store.last_seq, rider)
            return
        message.origin = NULL
        message.subject = rider.reply
        message.subject_size = <uint32_t>len(rider.reply)
        message.reply_size = 0
        message.reply = NULL
        message.body = rider.body
        message.header_size = 0
        message.total_size = len(rider.body)
        self.router.publish(self.account, &message)

    def acknowledge(self, bytes reply not None, uint64_t seq, bint duplicate=False, *,
                    bytes tail=b""):
        """Answer, as soon as it is durable, that a message is stored as `seq`; `tail` follows in
        the JSON.
        """
        if self.acks and reply:
            self.turn.mark_dirty(self)
            self.replies.add(REPLY_DUPLICATE if duplicate else REPLY_ACK, seq, reply,
                             <uint32_t>len(reply), NULL, 0, tail, 0, <uint32_t>len(tail))

    def answer(self, bytes reply not None, bytes body not None):
        """Answer with a given body, in turn with the others."""
        if self.acks and reply:
            self.turn.mark_dirty(self)
            self.replies.add(REPLY_BODY, 0, reply, <uint32_t>len(reply), NULL, 0, body, 0,
                             <uint32_t>len(body))

    def acknowledge_always(self, bytes reply not None, uint64_t seq, *, bytes tail=b""):
        """Like `acknowledge`, even where publishers get no replies."""
        self.turn.mark_dirty(self)
        self.replies.add(REPLY_ACK, seq, reply, <uint32_t>len(reply), NULL, 0, tail, 0,
                         <uint32_t>len(tail))

    def answer_when_stored(self, bytes reply not None, uint64_t seq, bytes body not None):
        """Answer with a given body as soon as message `seq` is acknowledged, in any case."""
        self.turn.mark_dirty(self)
        self.replies.add(REPLY_TEXT, seq, reply, <uint32_t>len(reply), NULL, 0, body, 0,
                         <uint32_t>len(body))

    def refuse(self, bytes reply not None):
        """Refuse a message because too much is waiting."""
        cdef Message message
        message.reply = reply
        message.reply_size = <uint32_t>len(reply)
        self._refuse(&message)

    def send_copy(self, uint64_t seq, bytes subject not None, bytes reply not None,
                  bytes header not None, bytes payload not None):
        """Publish a copy of message `seq` as soon as that is acknowledged."""
        cdef bytes body = header + payload
        self.turn.mark_dirty(self)
        self.replies.add(REPLY_COPY, seq, subject, <uint32_t>len(subject), reply,
                         <uint32_t>len(reply), body, <uint32_t>len(header), <uint32_t>len(body))

    # -------------------------------------------------------------- at the end of a turn

    def deadline_changed(self):
        """Have the engine ask for the next deadline of the stream."""
        self.has_deadline = True
        self.turn.mark_dirty(self)

    cpdef uint64_t visible(self) noexcept:
        """The last sequence that consumers and readers may see: as durable as the stream
        promises.
        """
        cdef uint64_t seq
        if self.waits:
            seq = self.store.synced_seq
        elif self.writes:
            seq = max(self.store.written_seq, self.store.synced_seq)
        else:
            seq = self.store.last_seq
        return min(seq, self.hidden_from - 1) if self.hidden_from else seq

    cpdef uint64_t readable(self) noexcept:
        """The last sequence that may be read for answers that wait until it is visible.

        A message that replaces another is not visible before it is synced, when the other one is
        gone already: its subject must not look empty meanwhile.
        """
        return self.discarded_from - 1 if self.discarded_from else self.store.last_seq

    cpdef int end_turn(self) except -1:
        """Note how much was stored up to now, to know later what still waits for the disk, and send
        the replies that need not wait.
        """
        cdef TurnMark mark
        mark.seq = self.store.last_seq
        mark.bytes = self.appended_bytes
        if buffer_size(&self.marks) and (<TurnMark*>(
                self.marks.data + self.marks.end - sizeof(TurnMark))).seq == mark.seq:
            self.marks.end -= sizeof(TurnMark)
        if buffer_append(&self.marks, <const char*>&mark, sizeof(TurnMark)) != 0:
            raise MemoryError
        if self.refusals.count:
            self.refusals.release(self.router, self.account, 0, None)
        if self.replies.count:
            self.replies.release(self.router, self.account, self.acknowledged_seq, None)
        return 0

    @property
    def unacknowledged_turns(self):
        """Number of turns that have stored something that is not acknowledged yet."""
        return buffer_size(&self.marks) // sizeof(TurnMark)

    cdef int _check_acknowledged(self, uint64_t seq) except -1:
        """Assert that no message is acknowledged that is missing or, where the disk counts, not
        synced or written.
        """
        assert seq <= self.store.last_seq, (seq, self.store.last_seq)
        assert not self.waits or seq <= max(self.store.synced_seq, self.acknowledged_seq), (
            seq, self.store.synced_seq, self.acknowledged_seq)
        assert not self.writes or seq <= max(
            self.store.written_seq, self.store.synced_seq, self.acknowledged_seq), (
            seq, self.store.written_seq, self.acknowledged_seq)
        assert self.acknowledged_bytes <= self.appended_bytes
        assert invariants.is_sound(&self.marks)
        assert buffer_size(&self.marks) % sizeof(TurnMark) == 0
        return 0

    cpdef void acknowledge_through(self, uint64_t seq, bytes failure=None) except *:
        """Send the replies of messages up to `seq`, which are as durable as the stream promises.

        With a `failure` all other replies are sent too, with it as their body.
        """
        cdef TurnMark* mark
        if invariants.checked:
            self._check_acknowledged(seq)
        while buffer_size(&self.marks):
            mark = <TurnMark*>(self.marks.data + self.marks.begin)
            if mark.seq > seq:
                break
            self.acknowledged_bytes = mark.bytes
            self.marks.begin += sizeof(TurnMark)
        if buffer_size(&self.marks) == 0:
            buffer_clear(&self.marks)
        self.acknowledged_seq = max(self.acknowledged_seq, seq)
        if self.refusals.count:
            self.refusals.release(self.router, self.account, 0, None)
        if self.replies.count:
            self.replies.release(self.router, self.account, seq, failure)
        if self.reads.count:
            self.reads.release(self.router, self.account, seq, failure)

    cdef bint has_moved(self) except -1:
        """Whether the engine has to update the next deadline of the stream."""
        cdef MessageStore store = self.store
        cdef bint asked = self.has_deadline
        self.has_deadline = False
        return asked or self.ids.count or store.age_max_ns > 0 or store.timers.table.count \
            or store.trims or store.cuts_front
