"""Turns stored messages into the columns of Arrow record batches, without an object per message.

Owns the selection of rows (sequence, time, subject, removed or expired) and the layout of the
columns; the messages come from a block, from an archive or one by one from the network. A batch is
built in two passes: the first verifies and notes the wanted messages, the second fills buffers of
exactly the right size. It never opens a file and never imports Arrow: columns are pieces of memory
that `arrow.py` wraps without copying, and that are reused once Arrow has released them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset
from tradewind.client.streams.packed cimport PackedMessages, PackedHead
from tradewind.route.sublist cimport subject_matches
from tradewind.spark.columnar.memory cimport Memory, Piece
from tradewind.store.format.hash cimport Key
from tradewind.store.format.lengths cimport (
    MARK_LENGTHS, NOWHERE, Segment, has_possible_lengths, read_segment)
from tradewind.store.format.records cimport (
    RECORD_MAX, RECORD_MIN, RECORD_OK, Record, header_value, mark_kind, parse_record,
    record_is_intact)
from tradewind.store.format.sequence_set cimport SequenceSet
from tradewind.store.format.sequence_tree cimport sequences_contains, sequences_count

from tradewind.errors import CorruptRecord
from tradewind.store.format.message_ttl import NEVER, parse_ttl_ns

cdef enum:
    NS_PER_US = 1000
    # Limits of sizes in a backup; the states of consumers may be large.
    ENTRY_NAME_MAX = 1048576
    ENTRY_PAYLOAD_MAX = 268435456

cdef enum EntryStatus:
    ENTRY_WHOLE
    ENTRY_CUT
    ENTRY_BAD
    ENTRY_LAST

SEQUENCE_MAX = (1 << 62) - 1
TIME_NS_MIN = -(1 << 63)
TIME_NS_MAX = (1 << 63) - 1


cdef class RowDecoder:
    """Selects messages and returns them as columns.

    `patterns` is a list of lists of subject patterns: at least one of each list must match.
    `take_block` and `take_row` collect rows, `columns` returns the collected ones, `clear` drops
    them.
    """

    def __init__(self, *, uint64_t first_seq=1, uint64_t last_seq=SEQUENCE_MAX,
                 int64_t first_time_ns=TIME_NS_MIN, int64_t last_time_ns=TIME_NS_MAX,
                 int64_t age_floor_ns=TIME_NS_MIN, int64_t ttl_now_ns=0, patterns=(),
                 prefixes=(), SequenceSet removed=None):
        self.first_seq = first_seq
        self.last_seq = last_seq
        self.first_time_ns = first_time_ns
        self.last_time_ns = last_time_ns
        self.age_floor_ns = age_floor_ns
        self.ttl_now_ns = ttl_now_ns
        self._patterns = tuple(tuple(group) for group in patterns)
        self._prefixes = tuple(prefixes)
        self._any_subject = not self._patterns and not self._prefixes
        self.removed = SequenceSet() if removed is None else removed
        self._any_removed = sequences_count(&self.removed.tree) > 0
        self._held = []
        self.memory = Memory()

    def __dealloc__(self):
        free(self.rows)

    def clear(self):
        """Drop the rows and the bytes they lie in."""
        self.row_count = 0
        self._held = []

    def take_block(self, data not None, Key key not None, str path, *,
                   uint64_t first_seq, uint64_t last_seq, bint ends_torn, bint skips_damage):
        """Collect the wanted messages of a block whose live ones are in first_seq..last_seq.

        `ends_torn`: a write may be under way at its end, which is not damage. `skips_damage`: bytes
        that are not a record are skipped and counted; otherwise CorruptRecord names them. The bytes
        are held until `clear`; they may be a piece of our memory.
        """
        cdef uint64_t position = 0, size = len(data), next_position, newest = 0
        cdef const char* start = start_of(data)
        self._held.append(data)
        self._low = max(first_seq, self.first_seq)
        self._high = min(last_seq, self.last_seq)
        while True:
            position = self._walk(start, size, position, key, &newest)
            if position == size:
                return
            next_position = next_intact(start, size, position, key)
            if next_position == size and ends_torn:
                return
            if not skips_damage:
                raise CorruptRecord(
                    path, position, f"no intact record; sequence {newest} is in front of it")
            self.damaged_bytes += next_position - position
            position = next_position

    cdef uint64_t _walk(self, const char* data, uint64_t size, uint64_t position, Key key,
                        uint64_t* newest) except? 0:
        """Collect up to the first byte that is not a record, and return its position."""
        cdef Record record
        cdef Row row
        cdef Segment segment
        # After damage, the bounds of segments are unknown until the next segment begins.
        segment.end = 0 if position == 0 else size
        segment.is_proved = False
        segment.wrong = NOWHERE
        while position < size:
            if position == segment.end:
                read_segment(data, size, position, &segment)
            if parse_record(data + position, size - position, &record) != RECORD_OK \
                    or not record_is_intact(&key.state, &record):
                return position
            if not record.tombstone and not record.erased and (
                    segment.wrong == position
                    or not segment.is_proved and not has_possible_lengths(&record)):
                return position
            position += record.size
            if record.tombstone and record.seq == 0 \
                    and mark_kind(record.timestamp) == MARK_LENGTHS:
                segment.end = position
            if record.tombstone or record.seq <= newest[0]:
                continue
            newest[0] = record.seq
            if record.erased or record.seq < self._low:
                continue
            if record.seq > self._high:
                return size
            row.seq = record.seq
            row.timestamp = record.timestamp
            row.subject = record.subject
            row.subject_size = record.subject_size
            row.header = record.header
            row.header_size = record.header_size
            row.payload = record.payload
            row.payload_size = record.payload_size
            if self._is_wanted(&row):
                self._push(&row)
        return size

    def take_row(self, uint64_t seq, int64_t timestamp, bytes subject not None,
                 bytes header, bytes data not None):
        """Collect one message if it is wanted."""
        cdef Row row
        row.seq = seq
        row.timestamp = timestamp
        row.subject = subject
        row.subject_size = <uint32_t>len(subject)
        row.header_size = 0 if header is None else <uint32_t>len(header)
        row.header = NULL if header is None else <const char*>header
        row.payload = data
        row.payload_size = <uint32_t>len(data)
        if self.first_seq <= seq <= self.last_seq and self._is_wanted(&row):
            self._held.append((subject, header, data))
            self._push(&row)

    def take_archive(self, bytes data not None):
        """Collect messages of a backup from these bytes; returns (bytes used, whether it ends
        there).

        The used bytes end with a whole entry; pass the rest again together with what follows it.
        """
        cdef const char* at = data
        cdef const char* end = at + len(data)
        cdef const char* start = at
        cdef Row row
        cdef uint64_t parts[5]
        cdef int status
        self._held.append(data)
        while True:
            status = read_entry(&at, end, parts, &row)
            if status == ENTRY_CUT:
                return at - start, False
            if status == ENTRY_BAD:
                raise CorruptRecord("archive", at - start, "no entry of a backup has such sizes")
            if status == ENTRY_LAST:
                return at - start, True
            # Entries without a sequence hold the state of the stream and its consumers.
            if row.seq and self.first_seq <= row.seq <= self.last_seq and self._is_wanted(&row):
                self._push(&row)

    def take_packed(self, PackedMessages packed not None):
        """Collect the messages that an ordered consumer has delivered."""
        cdef const char* at = packed._bytes.data
        cdef const char* end = at + packed._bytes.end
        cdef const PackedHead* head
        cdef Row row
        self._held.append(packed)
        while at < end:
            head = <const PackedHead*>at
            row.seq = head.seq
            row.timestamp = head.timestamp
            row.subject = at + sizeof(PackedHead)
            row.subject_size = head.subject_size
            row.header = row.subject + head.subject_size
            row.header_size = head.header_size
            row.payload = row.header + head.header_size
            row.payload_size = head.payload_size
            if self.first_seq <= row.seq <= self.last_seq and self._is_wanted(&row):
                self._push(&row)
            at += head.stride

    def gaps_in(self, PackedMessages packed not None, uint64_t after_seq):
        """The sequences missing between `after_seq` and the messages of an ordered consumer.

        Returns pairs of the first and the last missing one, up to the last wanted sequence, and the
        sequence up to which that is known.
        """
        cdef const char* at = packed._bytes.data
        cdef const char* stop = at + packed._bytes.end
        cdef uint64_t seq, end
        gaps = []
        if packed.first_seq == after_seq + 1 and packed.last_seq <= self.last_seq \
                and packed.last_seq - after_seq == packed.count:
            return gaps, packed.last_seq
        while at < stop:
            seq = (<const PackedHead*>at).seq
            at += (<const PackedHead*>at).stride
            if seq <= after_seq:
                continue
            end = min(seq - 1, self.last_seq)
            if end > after_seq:
                gaps.append((after_seq + 1, end))
            after_seq = min(seq, self.last_seq)
            if seq >= self.last_seq:
                break
        return gaps, after_seq

    def gaps_in_archive(self, bytes data not None, uint64_t after_seq):
        """The same for what `take_archive` would take of these bytes, and the number of those
        messages.

        A backup begins with the first message of its stream: messages before the wanted ones are
        skipped.
        """
        cdef const char* at = data
        cdef const char* end = at + len(data)
        cdef Row row
        cdef uint64_t parts[5]
        cdef uint64_t gap_end, count = 0
        gaps = []
        while read_entry(&at, end, parts, &row) == ENTRY_WHOLE:
            count += 1
            if row.seq <= after_seq or after_seq >= self.last_seq:
                continue
            gap_end = min(row.seq - 1, self.last_seq)
            if gap_end > after_seq:
                gaps.append((after_seq + 1, gap_end))
            after_seq = min(row.seq, self.last_seq)
        return gaps, after_seq, count

    cdef bint _is_wanted(self, const Row* row) except -1:
        if row.timestamp < self.first_time_ns or row.timestamp > self.last_time_ns:
            return False
        if self._any_removed and sequences_contains(&self.removed.tree, row.seq):
            return False
        if not self._any_subject and not self._subject_passes(row):
            return False
        if self.ttl_now_ns or row.timestamp < self.age_floor_ns:
            return not self._has_expired(row)
        return True

    cdef bint _subject_passes(self, const Row* row) except -1:
        cdef bytes text
        cdef tuple group
        for text in self._prefixes:
            if row.subject_size < <uint32_t>len(text) \
                    or memcmp(row.subject, <const char*>text, len(text)) != 0:
                return False
        for group in self._patterns:
            for text in group:
                if subject_matches(
                        row.subject, row.subject_size, text, <uint32_t>len(text)):
                    break
            else:
                return False
        return True

    cdef bint _has_expired(self, const Row* row) except -1:
        """Whether it has expired, by its own time to live or by the age limit of the stream."""
        cdef Record record
        cdef size_t size = 0
        cdef const char* value = NULL
        cdef int64_t ttl_ns = 0
        record.header = row.header
        record.header_size = row.header_size
        if self.ttl_now_ns and row.header_size:
            value = header_value(&record, b"Nats-TTL:", 9, &size)
        if value != NULL:
            try:
                ttl_ns = parse_ttl_ns(value[:size])
            except ValueError:
                ttl_ns = 0
            if ttl_ns == NEVER:
                return False
            if ttl_ns and row.timestamp <= self.ttl_now_ns - ttl_ns:
                return True
        return row.timestamp < self.age_floor_ns

    cdef int _push(self, const Row* row) except -1:
        cdef Row* rows
        cdef uint64_t capacity
        if self.row_count == self.row_capacity:
            capacity = max(self.row_capacity * 2, <uint64_t>1024)
            rows = <Row*>realloc(self.rows, capacity * sizeof(Row))
            if rows == NULL:
                raise MemoryError
            self.rows = rows
            self.row_capacity = capacity
        self.rows[self.row_count] = row[0]
        self.row_count += 1
        return 0

    # ---------------------------------------------------------------- columns

    def batch_end(self, uint64_t start, uint64_t rows_max, uint64_t bytes_max):
        """How far a batch from row `start` on may extend: at least one row, then up to the limits.
        """
        cdef uint64_t end = start, size = 0
        while end < self.row_count and end - start < rows_max:
            size += self.rows[end].subject_size + self.rows[end].payload_size \
                + self.rows[end].header_size
            if size > bytes_max and end > start:
                break
            end += 1
        return end

    def seqs(self, uint64_t start, uint64_t end):
        """int64 values."""
        cdef Piece result = self.memory.take((end - start) * 8)
        cdef int64_t* target = <int64_t*>result.data
        cdef uint64_t index
        for index in range(start, end):
            target[index - start] = <int64_t>self.rows[index].seq
        return result

    def times(self, uint64_t start, uint64_t end):
        """int64 microseconds, rounded down."""
        cdef Piece result = self.memory.take((end - start) * 8)
        cdef int64_t* target = <int64_t*>result.data
        cdef uint64_t index
        cdef int64_t timestamp, whole
        for index in range(start, end):
            timestamp = self.rows[index].timestamp
            whole = timestamp // NS_PER_US
            target[index - start] = whole - 1 if whole * NS_PER_US > timestamp else whole
        return result

    def subjects(self, uint64_t start, uint64_t end):
        """Offsets and texts; bytes that are not UTF-8 become U+FFFD, because Arrow texts must be
        valid.
        """
        cdef Piece ends, text
        ends, text = self._texts(start, end, True)
        if is_ascii(text.data, text.size):
            return ends, text
        cdef uint64_t index
        cdef int32_t place = 0
        cdef int32_t* offsets
        cdef Row* row
        cdef list parts = []
        fixed = PyBytes_FromStringAndSize(NULL, (end - start + 1) * 4)
        offsets = <int32_t*>PyBytes_AS_STRING(fixed)
        for index in range(start, end):
            row = &self.rows[index]
            offsets[index - start] = place
            part = row.subject[:row.subject_size].decode("utf-8", "replace").encode()
            parts.append(part)
            place += <int32_t>len(part)
        offsets[end - start] = place
        return fixed, b"".join(parts)

    def payloads(self, uint64_t start, uint64_t end):
        """int32 offsets and the bytes between them."""
        return self._texts(start, end, False)

    cdef tuple _texts(self, uint64_t start, uint64_t end, bint of_subjects):
        cdef uint64_t index
        cdef int32_t place = 0
        cdef Row* row
        cdef Piece ends = self.memory.take((end - start + 1) * 4)
        cdef int32_t* offsets = <int32_t*>ends.data
        for index in range(start, end):
            row = &self.rows[index]
            offsets[index - start] = place
            place += row.subject_size if of_subjects else row.payload_size
        offsets[end - start] = place
        cdef Piece text = self.memory.take(place)
        cdef char* target = text.data
        for index in range(start, end):
            row = &self.rows[index]
            if of_subjects:
                memcpy(target + offsets[index - start], row.subject, row.subject_size)
            else:
                memcpy(target + offsets[index - start], row.payload, row.payload_size)
        return ends, text

    def headers(self, uint64_t start, uint64_t end):
        """A map from name to list of values, as (nulls, validity bits, row offsets, name offsets,
        names, list offsets, value offsets, values); a message without a header block is null.
        """
        cdef uint64_t index, count = end - start, nulls = 0
        cdef Piece validity = self.memory.take((count + 7) // 8)
        cdef uint8_t* bits = <uint8_t*>validity.data
        cdef Piece ends = self.memory.take((count + 1) * 4)
        cdef int32_t* offsets = <int32_t*>ends.data
        cdef HeaderColumn column = HeaderColumn()
        memset(bits, 0, (count + 7) // 8)
        for index in range(count):
            offsets[index] = column.name_count()
            if self.rows[start + index].header_size:
                bits[index // 8] |= <uint8_t>(1 << (index % 8))
                column.add(&self.rows[start + index])
            else:
                nulls += 1
        offsets[count] = column.name_count()
        return nulls, validity, ends, *column.finish()


cdef class HeaderColumn:
    """Names, each with a list of values, written one after the other."""

    cdef Growing name_ends
    cdef Growing names
    cdef Growing list_ends
    cdef Growing value_ends
    cdef Growing values
    cdef Growing lines                  # of one message: HeaderLine

    def __dealloc__(self):
        free(self.name_ends.data)
        free(self.names.data)
        free(self.list_ends.data)
        free(self.value_ends.data)
        free(self.values.data)
        free(self.lines.data)

    cdef int32_t name_count(self) noexcept:
        return <int32_t>(self.name_ends.size // 4)

    cdef int add(self, const Row* row) except -1:
        """Append the lines of one header block; those of one name are grouped."""
        cdef uint64_t index, other, count
        cdef HeaderLine* lines
        self.lines.size = 0
        split_lines(row, &self.lines)
        count = self.lines.size // sizeof(HeaderLine)
        lines = <HeaderLine*>self.lines.data
        for index in range(count):
            if lines[index].taken:
                continue
            add_end(&self.list_ends, self.value_ends.size // 4)
            add_end(&self.name_ends, self.names.size)
            add_bytes(&self.names, lines[index].name, lines[index].name_size)
            for other in range(index, count):
                if not lines[other].taken and lines[other].name_size == lines[index].name_size \
                        and memcmp(lines[other].name, lines[index].name,
                                   lines[index].name_size) == 0:
                    lines[other].taken = True
                    add_end(&self.value_ends, self.values.size)
                    add_bytes(&self.values, lines[other].value, lines[other].value_size)
        return 0

    cdef tuple finish(self):
        add_end(&self.list_ends, self.value_ends.size // 4)
        add_end(&self.name_ends, self.names.size)
        add_end(&self.value_ends, self.values.size)
        return (taken(&self.name_ends), taken(&self.names), taken(&self.list_ends),
                taken(&self.value_ends), taken(&self.values))


ctypedef struct HeaderLine:
    const char* name
    const char* value
    uint32_t name_size
    uint32_t value_size
    bint taken


cdef int split_lines(const Row* row, Growing* lines) except -1:
    """Split into `name: value` lines; the first line and lines without a name are skipped."""
    cdef const char* at = row.header
    cdef const char* end = row.header + row.header_size
    cdef const char* stop
    cdef const char* colon
    cdef bint is_first = True
    cdef HeaderLine line
    while at < end:
        stop = at
        while stop < end and not (stop[0] == 13 and stop + 1 < end and stop[1] == 10):
            stop += 1
        colon = at
        while colon < stop and colon[0] != 58:
            colon += 1
        if not is_first and colon < stop and colon > at:
            line.name = at
            line.name_size = <uint32_t>(colon - at)
            line.value = colon + 1
            line.taken = False
            while line.value < stop and line.value[0] in (32, 9):
                line.value += 1
            at = stop
            while at > line.value and (at - 1)[0] in (32, 9):
                at -= 1
            line.value_size = <uint32_t>(at - line.value)
            add_bytes(lines, <const char*>&line, sizeof(HeaderLine))
        is_first = False
        at = stop + 2
    return 0


cdef const char* start_of(data) except? NULL:
    """The address of a block's bytes, which the caller keeps alive."""
    return (<Piece>data).data if isinstance(data, Piece) else PyBytes_AS_STRING(<bytes?>data)


cdef bint is_ascii(const char* text, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t index
    cdef uint8_t seen = 0
    for index in range(size):
        seen |= <uint8_t>text[index]
    return seen < 0x80


cdef int add_bytes(Growing* target, const char* data, size_t size) except -1:
    cdef size_t capacity
    cdef char* grown
    if target.size + size > target.capacity:
        capacity = max((target.size + size) * 2, <size_t>4096)
        grown = <char*>realloc(target.data, capacity)
        if grown == NULL:
            raise MemoryError
        target.data = grown
        target.capacity = capacity
    if size:
        memcpy(target.data + target.size, data, size)
    target.size += size
    return 0


cdef int add_end(Growing* target, size_t value) except -1:
    cdef int32_t end = <int32_t>value
    return add_bytes(target, <const char*>&end, 4)


cdef bytes taken(Growing* source):
    return PyBytes_FromStringAndSize(source.data, source.size) if source.size else b""


cdef int read_entry(const char** at, const char* end, uint64_t* parts, Row* row) noexcept nogil:
    """Parse one entry of a backup of version 2; `at` moves behind it if it is complete.

    uvarint name size | varint time | uvarint sequence | uvarint header size | uvarint payload size
    | name | header | payload. Five zeros mark the end.
    """
    cdef const char* place = at[0]
    cdef int index, shift
    cdef uint8_t byte
    for index in range(5):
        parts[index] = 0
        shift = 0
        while True:
            if place >= end:
                return ENTRY_CUT
            if shift > 63:
                return ENTRY_BAD
            byte = <uint8_t>place[0]
            place += 1
            parts[index] |= <uint64_t>(byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
    if parts[0] > ENTRY_NAME_MAX or parts[3] > RECORD_MAX or parts[4] > ENTRY_PAYLOAD_MAX:
        return ENTRY_BAD
    if parts[0] == 0 and parts[2] == 0 and parts[3] == 0 and parts[4] == 0:
        at[0] = place
        return ENTRY_LAST
    if <uint64_t>(end - place) < parts[0] + parts[3] + parts[4]:
        return ENTRY_CUT
    row.timestamp = <int64_t>(parts[1] >> 1) ^ -<int64_t>(parts[1] & 1)
    row.seq = parts[2]
    row.subject = place
    row.subject_size = <uint32_t>parts[0]
    row.header = place + parts[0]
    row.header_size = <uint32_t>parts[3]
    row.payload = row.header + parts[3]
    row.payload_size = <uint32_t>parts[4]
    at[0] = row.payload + parts[4]
    return ENTRY_WHOLE


cdef uint64_t next_intact(const char* data, uint64_t size, uint64_t position,
                          Key key) noexcept nogil:
    """Where the next intact record after the damaged one at `position` begins; `size` if there is
    none.

    The length in the damaged record is trusted only if it leads to an intact record.
    """
    cdef Record record
    if parse_record(data + position, size - position, &record) == RECORD_OK \
            and parse_record(data + position + record.size, size - position - record.size,
                             &record) == RECORD_OK \
            and record_is_intact(&key.state, &record):
        return <uint64_t>(record.start - data)
    position += 1
    while position + RECORD_MIN <= size:
        if parse_record(data + position, size - position, &record) == RECORD_OK \
                and record_is_intact(&key.state, &record):
            return position
        position += 1
    return size
