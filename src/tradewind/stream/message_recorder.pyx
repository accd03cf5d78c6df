"""A checked message -> its place in the store: the sequence, the time and the id. Runs once per
message, as a part of the intake.

Owns the stamps, which ascend whatever the clock does, the ids of the last window and the counts of
bytes stored. Never decides whether a message is stored, and never answers a publisher: `Ingest`
does, which is a MessageRecorder.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.broker.turn cimport Turn
from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init)
from tradewind.saturated cimport CLOCK_SLACK_NS, distance, later
from tradewind.store.format.records cimport Record
from tradewind.store.table.block cimport Block
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.table.subject_index cimport SubjectFilter
from tradewind.stream.header_scan cimport HEADER_PLAIN, TextSpan, scan_header
from tradewind.stream.message_ids cimport EXPIRED_PER_ID, MessageIds

cdef extern from "<string.h>" nogil:
    void* memmem(const void* area, size_t area_size, const void* wanted, size_t wanted_size)

from tradewind.errors import StoreError
from tradewind.store.table.stamps_ahead import note_ahead

cdef enum:
    ID_FIELD_SIZE = 14          # "Nats-Msg-Id:" after the end of the line before

CREDIT_UNLIMITED = 2**62
# A clock that jumps all the time is followed back so often.
FOLLOWS_AGAIN_NS = 1_000_000_000


cdef class MessageRecorder(Participant):
    """The part of the intake of one `stream` that stores messages, which have passed all checks."""

    def __cinit__(self, *_, **__):
        buffer_init(&self._last_id)

    def __init__(self, Turn turn not None, MessageStore store not None, MessageIds ids not None):
        self.turn = turn
        self.store = store
        self.ids = ids
        self.credit_bytes = CREDIT_UNLIMITED

    def __dealloc__(self):
        buffer_free(&self._last_id)

    # -------------------------------------------------------------- per message

    cdef uint64_t _append(self, const char* subject, uint32_t subject_size, const char* header,
                          uint32_t header_size, const char* payload, uint32_t payload_size,
                          TextSpan* id, int64_t ttl_ns) except 0:
        """Store under the next sequence, at a time after that of the previous message, and remember
        the id. `ttl_ns` is what the header requests.
        """
        cdef uint64_t size = self.store.stored_size(subject_size, header_size, payload_size)
        cdef uint64_t seq = self.store.last_seq + 1
        cdef int64_t timestamp = self.turn.now_ns
        if timestamp <= self.store.last_timestamp:
            timestamp = self._stamp()
        self.turn.mark_dirty(self)
        try:
            self.store.append(subject, subject_size, header, header_size, payload, payload_size,
                              timestamp, ttl_ns)
        except StoreError:
            # If only the removal of another message failed, it is stored: a publisher that repeats
            # it, because it was refused, must not have it stored twice.
            if self.store.last_seq == seq:
                self._note_stored(seq, size, id)
            raise
        self._note_stored(seq, size, id)
        if ttl_ns > 0:
            self._note_lifetime(seq, timestamp, ttl_ns)
        return seq

    cpdef int64_t next_stamp(self) noexcept:
        """The time of the next message: now, or just after the last one while the clock is only a
        little before that. If the clock was wrong, the stamp follows it back, at most once a
        second, and not within a unit.
        """
        cdef int64_t now_ns = self.turn.now_ns, last_ns = self.store.last_timestamp
        if now_ns > last_ns or self.store.last_seq == 0:
            return now_ns
        if self._may_follow() and (
                self.store.unit_end == 0 or self.store.last.records.count == 0):
            return now_ns
        return later(last_ns, 1)

    cdef int64_t _stamp(self) except? -1:
        """The time of a message that is stored now; reports a clock that went back."""
        cdef int64_t timestamp = self.next_stamp(), last_ns = self.store.last_timestamp
        if timestamp < last_ns and self.store.last_seq:
            self.follows_from_ns = later(self.turn.monotonic_ns, FOLLOWS_AGAIN_NS)
            self.stream.clock_went_back(distance(timestamp, last_ns))
        return timestamp

    cdef bint _may_follow(self) noexcept:
        """Whether the clock is so far before the last message that it was wrong then, or is now."""
        return later(self.turn.now_ns, CLOCK_SLACK_NS) < self.store.last_timestamp \
            and self.turn.monotonic_ns >= self.follows_from_ns

    def begin_unit(self, uint64_t size, uint64_t count):
        """Prepare for messages that go into one block, with ascending stamps."""
        if self._may_follow():
            self.store.begin_run(self.turn.now_ns)
        (<object>self.store).begin_unit(size, count)

    cdef int _note_lifetime(self, uint64_t seq, int64_t timestamp, int64_t ttl_ns) except -1:
        """Set the timer of a message with a time to live: if its stamp cannot be trusted, that
        begins now.
        """
        cdef int64_t steady_ns = self.turn.steady_ns()
        if timestamp > later(steady_ns, CLOCK_SLACK_NS) and self.store.message_ttl:
            note_ahead(self.store, steady_ns)
            self.store.timers.add(seq, later(steady_ns, ttl_ns))
        return 0

    cdef int place(self, uint64_t seq, int64_t timestamp, const char* subject,
                   uint32_t subject_size, const char* body, uint32_t header_size,
                   uint32_t total_size, int64_t ttl_ns) except -1:
        """Store under a given sequence, which is after the last one, at a given time; sequences in
        between are skipped. Its id is not remembered.
        """
        cdef uint64_t size = self.store.stored_size(
            subject_size, header_size, total_size - header_size)
        cdef TextSpan no_id
        no_id.size = 0
        self.turn.mark_dirty(self)
        if seq > self.store.last_seq + 1:
            (<object>self.store).skip(seq - 1, 0)
        try:
            self.store.append(subject, subject_size, body, header_size, body + header_size,
                              total_size - header_size, timestamp, ttl_ns)
        except StoreError:
            if self.store.last_seq == seq:
                self._note_stored(seq, size, &no_id)
                return 0
            raise
        self._note_stored(seq, size, &no_id)
        if ttl_ns > 0:
            self._note_lifetime(seq, timestamp, ttl_ns)
        return 0

    cdef int _note_stored(self, uint64_t seq, uint64_t size, TextSpan* id) except -1:
        self.appended_bytes += size
        self.credit_bytes -= <int64_t>size
        if id.size:
            self.ids.expire(self.turn.monotonic_ns, EXPIRED_PER_ID)
            self.ids.add(id.start, id.size, seq, self.turn.monotonic_ns)
        if id.size or self._last_id.end:
            self._remember_last(id)
        return 0

    cdef int _remember_last(self, TextSpan* id) except -1:
        buffer_clear(&self._last_id)
        if id.size and buffer_append(&self._last_id, id.start, id.size) != 0:
            raise MemoryError
        return 0

    # -------------------------------------------------------------- for the slow path

    @property
    def last_id(self):
        """The id of the message that was stored last; empty if it had none."""
        return self._last_id.data[:self._last_id.end] if self._last_id.end else b""

    def append(self, bytes subject not None, bytes header not None, bytes payload not None,
               bytes message_id=b"", int64_t ttl_ns=0, *, uint64_t seq=0, int64_t timestamp=0):
        """Store a message that has passed all checks; returns its sequence. The sequence and the
        time may be given: see `place`.
        """
        cdef TextSpan id
        cdef bytes body
        if seq:
            body = header + payload
            self.place(seq, timestamp, subject, <uint32_t>len(subject), body,
                       <uint32_t>len(header), <uint32_t>len(body), ttl_ns)
            return seq
        id.start = message_id
        id.size = <uint32_t>len(message_id)
        return self._append(subject, <uint32_t>len(subject), header, <uint32_t>len(header),
                            payload, <uint32_t>len(payload), &id, ttl_ns)

    def remember_id(self, bytes message_id not None, uint64_t seq):
        """Remember the id of the message stored last; an empty id is ignored."""
        cdef TextSpan id
        id.start = message_id
        id.size = <uint32_t>len(message_id)
        if id.size:
            self.ids.expire(self.turn.monotonic_ns, EXPIRED_PER_ID)
            self.ids.add(id.start, id.size, seq, self.turn.monotonic_ns)
        self._remember_last(&id)

    def skip(self, bytes message_id=b""):
        """Use up a sequence without a message, and return it."""
        cdef TextSpan id
        cdef uint64_t seq = self.store.last_seq + 1
        self.turn.mark_dirty(self)
        self.store.skip(seq, self.next_stamp())
        id.start = message_id
        id.size = <uint32_t>len(message_id)
        if id.size:
            self.ids.expire(self.turn.monotonic_ns, EXPIRED_PER_ID)
            self.ids.add(id.start, id.size, seq, self.turn.monotonic_ns)
        self._remember_last(&id)
        return seq

    # -------------------------------------------------------------- at the start

    def load_ids(self, uint64_t first_seq, uint64_t count_max):
        """Remember the ids of `count_max` stored messages from a sequence on; returns where to
        continue, 0 at the end. If there are too many ids, the newest are remembered.

        The age of a message follows from its stamp. Stamps ahead of the clock are not trusted; ids
        in the last window before the last stamp count as new.
        """
        cdef SubjectFilter everything = SubjectFilter(self.store.index, ())
        cdef uint64_t seq = self.store.next_matching(first_seq, everything)
        cdef int64_t now_ns = self.turn.now_ns
        cdef int64_t known_from_ns = later(now_ns, -self.ids.window_ns)
        cdef int64_t ahead_from_ns = later(self.store.last_timestamp, -self.ids.window_ns)
        cdef int64_t came_ns
        cdef Block block, checked = None
        cdef Record record
        cdef TextSpan id
        while seq:
            if count_max == 0:
                return seq
            count_max -= 1
            block = self.store.block_of(seq)
            if block is not None and block is not checked:
                checked = block
                if (block.latest_timestamp <= known_from_ns
                        or block.first_timestamp > later(now_ns, CLOCK_SLACK_NS)) \
                        and block.latest_timestamp <= max(now_ns, ahead_from_ns):
                    seq = self.store.next_matching(block.last_seq + 1, everything)
                    continue
            id.size = 0
            if self.store.read(seq, &record) == 0 and record.timestamp > (
                    known_from_ns if record.timestamp <= now_ns else ahead_from_ns):
                find_id(&record, &id)
                if id.size:
                    while self.ids.count and not self.ids.has_room(id.size):
                        self.ids.drop_oldest()
                    came_ns = self.turn.monotonic_ns - max(
                        distance(record.timestamp, now_ns), <int64_t>0)
                    self.ids.add(id.start, id.size, seq, max(came_ns, self.ids.latest_ns()))
            seq = self.store.next_matching(seq + 1, everything)
        id.size = 0
        if self.store.read(self.store.last_seq, &record) == 0:
            find_id(&record, &id)
        self._remember_last(&id)
        return 0


cdef int find_id(Record* record, TextSpan* id) except -1:
    """Find the id in the header of a stored message, which may have other special fields too."""
    id.size = 0
    if record.header_size == 0 or scan_header(
            record.header, record.header_size, id) == HEADER_PLAIN:
        return 0
    cdef const char* header_end = record.header + record.header_size
    cdef const char* start = <const char*>memmem(
        record.header, record.header_size, b"\r\nNats-Msg-Id:", ID_FIELD_SIZE)
    cdef const char* end
    id.size = 0
    if start == NULL:
        return 0
    start += ID_FIELD_SIZE
    end = <const char*>memmem(start, header_end - start, b"\r\n", 2)
    if end == NULL:
        end = header_end
    while start < end and start[0] == 32:
        start += 1
    id.start = start
    id.size = <uint32_t>(end - start)
    return 0
