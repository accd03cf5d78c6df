"""Copies messages of one stream into another. Runs once per message.

It copies from store to store if the origin is a stream of this server, and otherwise from an inbox
into which a consumer of the origin delivers them, wherever that is.

Owns its position, and how much is copied before other work has its turn. Only durable messages of
the origin are copied, so a copy never promises more than its original, and it is written and synced
with everything else that the target takes: copying adds no commit of its own. If too much already
waits for that disk, it waits too.

A mirror keeps sequences and times; a source assigns new ones, and the header of each copy records
where it came from, which is all that is needed after a restart. Anything unusual in a message or in
a configuration leaves the fast path for its owner, a mirror or source, which is plain Python: see
`CopierOwner`.

An origin that keeps messages until they were taken may drop one once its copy is durable.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init, buffer_reserve, buffer_size,
    write_decimal)
from tradewind.jetstream.replication.header_copy cimport (
    NOTE_DROPPED, NOTE_INCREMENT, NOTE_MALFORMED, NOTE_NOTHING, NOTE_ROLLUP, NOTE_TTL, copy_fields,
    look_at_header)
from tradewind.store.format.records cimport RECORD_MAX
from tradewind.store.table.bounded_walk cimport Reach, next_within
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectIndex
from tradewind.stream.header_scan cimport TextSpan

from typing import Protocol

from tradewind.errors import StoreError

cdef enum:
    # Budget of one copier per turn: about two milliseconds of work.
    TURN_MSGS_MAX = 4096
    # For looking for messages that pass the filter; the unit is about a nanosecond.
    TURN_WORK = 2_000_000
    TURN_BYTES_MAX = 1048576
    TURN_SETTLED_MAX = 1024
    DECIMAL_MAX = 20
    HEADER_BYTES_MAX = 65535
    # Number of subjects of an origin whose new names are kept.
    MAPPED_MAX = 65536

# A copy that could not be stored is retried after this time.
RETRY_NS = 2_000_000_000


class CopierOwner(Protocol):
    """The owner of a copier, which handles the unusual cases."""

    def copy_slowly(self, seq, timestamp, subject, header, payload):
        """Store a copy that is not handled by the fast path; false if it has to be retried
        later.
        """

    def map_subject(self, subject):
        """The subject of the copy of a message with this subject."""

    def hold(self, reason):
        """Report why the next copy cannot be stored: call `try_later`. Returns false."""


cdef class Copier(TakerPart):
    """Copies messages into `target` from `connect` to `disconnect`. A turn wakes its `owner`, which
    the origin knows as a taker.
    """

    def __cinit__(self, *_, **__):
        buffer_init(&self.body)
        buffer_init(&self.marks)
        self.head = self.middle = self.tail = b""

    def __init__(self, Taker owner not None, Ingest target not None, tuple patterns not None, *,
                 bint keeps_place):
        self.owner = owner
        self.target = target
        self.turn = target.turn
        self.patterns = patterns
        self.keeps_place = keeps_place

    def __dealloc__(self):
        buffer_free(&self.body)
        buffer_free(&self.marks)

    def connect(self, Ingest origin not None, uint64_t next_seq, uint64_t first_seq,
                DoneListener done_listener=None):
        """Copy from `next_seq` on. All copies of earlier messages are durable, and none below
        `first_seq` is wanted.
        """
        self.origin = origin
        self.chosen = SubjectFilter(origin.store.index, self.patterns)
        self.next_seq = max(next_seq, <uint64_t>1)
        self.confirmed_seq = self.next_seq - 1
        # The origin may not know of everything that is safe.
        self.released_seq = min(max(first_seq, <uint64_t>1), self.next_seq) - 1
        self.done_listener = done_listener
        self.due_ns = 0
        self.is_crowded = False
        self.mapped = None
        buffer_clear(&self.marks)
        self.turn.wake(self.owner)

    def connect_inbox(self, Inbox inbox not None, uint64_t next_seq):
        """Copy the messages of an inbox from `next_seq` on. All earlier copies are durable."""
        self.inbox = inbox
        self.next_seq = max(next_seq, <uint64_t>1)
        self.confirmed_seq = self.next_seq - 1
        self.due_ns = 0
        self.is_crowded = False
        buffer_clear(&self.marks)
        self.turn.wake(self.owner)

    def set_done_listener(self, DoneListener done_listener=None):
        """Set the listener for messages that the origin may drop; called when its retention
        changes.
        """
        self.done_listener = done_listener

    def disconnect(self):
        """Stop copying, because the origin is gone or no longer wanted."""
        self.origin = None
        self.inbox = None
        self.chosen = None
        self.done_listener = None
        self.due_ns = 0
        buffer_clear(&self.marks)

    def forget_copied(self, uint64_t seq=0):
        """Set the sequence of the last copied message."""
        self.copied_seq = seq

    # -------------------------------------------------------------- per message

    def fill(self, uint64_t visible_seq):
        """Copy up to a sequence of the origin; true if another turn is wanted immediately."""
        try:
            if self.inbox is not None:
                return self._copy_arrived()
            return self.origin is not None and self._copy_some(visible_seq)
        except StoreError:
            self.try_later()
            raise

    cdef bint _copy_some(self, uint64_t visible_seq) except -1:
        cdef bint wants_more = False
        if self.due_ns <= self.turn.monotonic_ns:
            wants_more = self._copy_next(visible_seq)
        if self.done_listener is not None:
            self._release_some()
            wants_more = wants_more or self.released_seq < self.confirmed_seq
        return wants_more

    cdef bint _copy_next(self, uint64_t visible_seq) except -1:
        """Copy up to the budget; returns whether there is more."""
        cdef Record record
        cdef Reach reach
        cdef uint64_t seq, size = 0
        cdef uint32_t count = 0
        cdef bint wants_more = False
        reach.work_left = TURN_WORK
        self.due_ns = 0
        self.is_crowded = False
        while self.next_seq <= visible_seq:
            if count >= TURN_MSGS_MAX or size >= TURN_BYTES_MAX:
                wants_more = True
                break
            if not self.target.has_room_for_copies():
                self.is_crowded = True
                break
            seq = next_within(self.origin.store, self.next_seq, self.chosen, &reach)
            if seq == 0 and reach.work_left == 0 and reach.passed < visible_seq:
                self.next_seq = reach.passed + 1
                wants_more = True
                break
            if seq == 0 or seq > visible_seq:
                # Skipped messages are not examined again.
                self.next_seq = visible_seq + 1
                break
            if self.origin.store.read(seq, &record) == 0:
                if not self._copy(&record):
                    break
                if self.origin is None:
                    return False
                self.copied_seq = seq
                count += 1
                size += record.size
            self.next_seq = seq + 1
        self._note_copied()
        return wants_more

    cdef bint _copy_arrived(self) except -1:
        """Copy messages from the inbox, up to the same budget."""
        cdef Inbox inbox = self.inbox
        cdef Record record
        cdef uint64_t size = 0
        cdef uint32_t count = 0
        if self.due_ns > self.turn.monotonic_ns:
            return False
        self.due_ns = 0
        self.is_crowded = False
        while count < TURN_MSGS_MAX and size < TURN_BYTES_MAX and inbox.first(&record):
            if not self.target.has_room_for_copies():
                self.is_crowded = True
                break
            # A consumer that starts over also delivers what was copied before.
            if record.seq >= self.next_seq:
                if not self._copy(&record):
                    break
                if self.inbox is not inbox:
                    return False
                self.copied_seq = record.seq
                self.next_seq = record.seq + 1
            count += 1
            size += record.size
            inbox.drop_first()
        self._note_copied()
        return inbox.waiting > 0 and not self.is_crowded and self.due_ns == 0

    cdef bint _copy(self, Record* record) except -1:
        """Copy one message; false if it could not be stored and has to be retried."""
        cdef TextSpan id
        cdef int notes = NOTE_NOTHING
        cdef uint64_t size = self.target.store.stored_size(
            record.subject_size, record.header_size, record.payload_size)
        id.size = 0
        if record.header_size:
            notes = look_at_header(record.header, record.header_size, not self.keeps_place, &id)
        # The header of a source's copy needs room too, so sizes near a limit are examined closely.
        size += len(self.head) + len(self.middle) + len(self.tail) + DECIMAL_MAX \
            + record.subject_size
        if not self.is_plain or notes & (NOTE_MALFORMED | NOTE_INCREMENT) \
                or notes & NOTE_TTL and self.expires or notes & NOTE_ROLLUP and self.rolls_up \
                or <int64_t>size > self.target.credit_bytes or size > RECORD_MAX:
            return self._copy_slowly(record)
        if 0 <= self.target.message_bytes_max < <int64_t>size:
            return self._copy_slowly(record)
        try:
            if self.keeps_place:
                return self._copy_placed(record, notes)
            if id.size and self.target.ids.window_ns > 0:
                if self.target.ids.find(id.start, id.size, self.turn.monotonic_ns):
                    return True
                if not self.target.ids.has_room(id.size):
                    return self.owner.hold("too many message ids are remembered")
            return self._copy_sourced(record)
        except StoreError as error:
            return self.owner.hold(str(error))

    cdef bint _copy_placed(self, Record* record, int notes) except -1:
        """Copy a message of a mirror, which keeps its sequence and time."""
        cdef bytes subject
        cdef const char* body = record.header if record.header_size else record.payload
        cdef uint32_t header_size = record.header_size
        if notes & NOTE_DROPPED:
            self._build(record)
            header_size = <uint32_t>self.body.end - record.payload_size
            body = self.body.data
        if self.maps:
            subject = self._mapped(record)
            self.target.place(record.seq, record.timestamp, subject, <uint32_t>len(subject), body,
                              header_size, header_size + record.payload_size, 0)
            return True
        self.target.place(record.seq, record.timestamp, record.subject, record.subject_size, body,
                          header_size, header_size + record.payload_size, 0)
        return True

    cdef bint _copy_sourced(self, Record* record) except -1:
        """Copy a message under a new sequence and time; its origin is recorded after its own
        fields.

        Everything is built in `body`, the subject first, because the origin may be the target.
        """
        cdef uint32_t subject_size = record.subject_size, header_size, payload_size
        cdef const char* subject = record.subject
        cdef bytes mapped
        cdef TextSpan id
        if self.maps:
            mapped = self._mapped(record)
            subject, subject_size = mapped, <uint32_t>len(mapped)
        payload_size = record.payload_size
        self._build(record)
        if buffer_append(&self.body, subject, subject_size) != 0:
            raise MemoryError
        header_size = <uint32_t>(self.body.end - payload_size - subject_size)
        if header_size > HEADER_BYTES_MAX:
            return self._copy_slowly(record)
        id.size = 0
        look_at_header(self.body.data, header_size, False, &id)
        self.target._append(self.body.data + header_size + payload_size, subject_size,
                            self.body.data, header_size, self.body.data + header_size,
                            payload_size, &id, 0)
        return True

    cdef int _build(self, Record* record) except -1:
        """Build the header and payload of a copy in `body`."""
        cdef size_t begin
        cdef char* at
        buffer_clear(&self.body)
        if buffer_append(&self.body, b"NATS/1.0\r\n", 10) != 0:
            raise MemoryError
        begin = self.body.end
        if record.header_size and copy_fields(
                record.header, record.header_size, not self.keeps_place, &self.body) != 0:
            raise MemoryError
        if self.head:
            if buffer_reserve(&self.body, len(self.head) + DECIMAL_MAX + len(self.middle)
                              + record.subject_size + len(self.tail)) != 0:
                raise MemoryError
            buffer_append(&self.body, self.head, len(self.head))
            at = self.body.data + self.body.end
            self.body.end += write_decimal(at, record.seq)
            buffer_append(&self.body, self.middle, len(self.middle))
            buffer_append(&self.body, record.subject, record.subject_size)
            buffer_append(&self.body, self.tail, len(self.tail))
        if self.body.end == begin:
            buffer_clear(&self.body)        # no field is left: there is no block
        elif buffer_append(&self.body, b"\r\n", 2) != 0:
            raise MemoryError
        if buffer_append(&self.body, record.payload, record.payload_size) != 0:
            raise MemoryError
        return 0

    cdef bytes _mapped(self, Record* record):
        """The subject of a copy, computed once for each subject of the origin."""
        cdef SubjectIndex index
        cdef SubjectEntry* entry
        cdef bytes subject
        if self.origin is None:
            return self._mapped_by_name(record.subject[:record.subject_size])
        index = self.origin.store.index
        entry = index.find(record.subject, record.subject_size)
        if entry == NULL or entry.id >= MAPPED_MAX:
            return self.owner.map_subject(record.subject[:record.subject_size])
        if self.mapped is None or self.mapped_epoch != index.epoch:
            self.mapped = []
            self.mapped_epoch = index.epoch
        if entry.id >= <uint32_t>len(self.mapped):
            self.mapped += [None] * (entry.id + 1 - len(self.mapped))
        subject = <bytes>self.mapped[entry.id]
        if subject is None:
            subject = self.owner.map_subject(record.subject[:record.subject_size])
            self.mapped[entry.id] = subject
        return subject

    cdef bytes _mapped_by_name(self, bytes subject):
        cdef bytes mapped = None
        if self.mapped_by_name is None or len(self.mapped_by_name) >= MAPPED_MAX:
            self.mapped_by_name = {}
        mapped = self.mapped_by_name.get(subject)
        if mapped is None:
            mapped = self.mapped_by_name[subject] = self.owner.map_subject(subject)
        return mapped

    def forget_mapped(self):
        """Drop the cached subjects of copies; called when the mapping has changed."""
        self.mapped = None
        self.mapped_by_name = None

    cdef bint _copy_slowly(self, Record* record) except -1:
        cdef bytes subject = record.subject[:record.subject_size]
        cdef bytes payload = record.payload[:record.payload_size]
        cdef uint64_t seq = record.seq
        cdef int64_t timestamp = record.timestamp
        cdef bytes header
        if record.header_size and look_at_malformed(record):
            header = record.header[:record.header_size]
        else:
            self._build(record)
            header = self.body.data[:self.body.end - record.payload_size] \
                if self.body.end > record.payload_size else b""
        return self.owner.copy_slowly(seq, timestamp, subject, header, payload)

    def try_later(self):
        """Retry later, because the next message could not be read or its copy could not be
        stored.
        """
        self.due_ns = self.turn.monotonic_ns + RETRY_NS

    # -------------------------------------------------------------- what is safe

    cdef int _note_copied(self) except -1:
        """Record that everything below `next_seq` is safe once the target's present messages are
        durable.
        """
        cdef CopyMark mark
        cdef CopyMark* last
        mark.target_seq = self.target.store.last_seq
        mark.origin_seq = self.next_seq - 1
        if buffer_size(&self.marks):
            last = <CopyMark*>(self.marks.data + self.marks.end - sizeof(CopyMark))
            if last.target_seq == mark.target_seq:
                last.origin_seq = mark.origin_seq
                self.confirm()
                return 0
        if buffer_append(&self.marks, <const char*>&mark, sizeof(CopyMark)) != 0:
            raise MemoryError
        self.confirm()
        return 0

    cpdef void confirm(self) except *:
        """Called when more messages of the target may have become durable."""
        cdef CopyMark* mark
        cdef uint64_t safe = self.target.visible()
        while buffer_size(&self.marks):
            mark = <CopyMark*>(self.marks.data + self.marks.begin)
            if mark.target_seq > safe:
                break
            self.confirmed_seq = max(self.confirmed_seq, mark.origin_seq)
            self.marks.begin += sizeof(CopyMark)
        if buffer_size(&self.marks) == 0:
            buffer_clear(&self.marks)

    cdef int _release_some(self) except -1:
        """Notify the origin of messages with a durable copy, which it may drop."""
        cdef Reach reach
        cdef uint64_t seq
        cdef uint32_t _count
        reach.work_left = TURN_WORK
        for _count in range(TURN_SETTLED_MAX):
            if self.released_seq >= self.confirmed_seq:
                return 0
            seq = next_within(self.origin.store, self.released_seq + 1, self.chosen, &reach)
            if seq == 0 and reach.work_left == 0:
                self.released_seq = min(reach.passed, self.confirmed_seq)
                return 0
            if seq == 0 or seq > self.confirmed_seq:
                self.released_seq = self.confirmed_seq
                return 0
            self.released_seq = seq
            self.done_listener.message_done(self.owner, seq)
        return 0

    cdef bint needs_message(self, uint64_t seq, uint32_t subject_id) except -1:
        """Whether a message has no durable copy yet."""
        if self.origin is None or seq <= self.confirmed_seq:
            return False
        self.chosen.prepare()
        return self.chosen.accepts(subject_id)

    cdef uint64_t limit(self) noexcept:
        """The first sequence of the origin that may have no durable copy."""
        return self.confirmed_seq + 1

    cdef bint has_demand(self) noexcept:
        """Whether the copier waits for a message."""
        return (self.origin is not None or self.inbox is not None) \
            and not self.is_crowded and self.due_ns == 0

    @property
    def has_unreleased(self):
        """Whether the origin has yet to be notified that it may drop some messages."""
        return self.done_listener is not None and self.released_seq < self.confirmed_seq


cdef bint look_at_malformed(Record* record) noexcept:
    cdef TextSpan id
    return look_at_header(record.header, record.header_size, False, &id) & NOTE_MALFORMED
