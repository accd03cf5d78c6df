"""Reads a block from end to end, to rebuild its index or to recover it with every checksum
verified.

Owns the walk over records and the handling of damage. A record that does not verify never takes its
neighbours with it: the walk searches for the next one that does, and reports the bytes in between.
Only the bytes after the last good record of a block may be a torn write; they are reported too, as
the tail. Nothing here changes a file.
"""

from array import array
from bisect import bisect_left
import msgspec

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy
from tradewind.store.table.record_index cimport NO_RECORD
from tradewind.store.format.lengths cimport (
    MARK_LENGTHS, Segment, has_header_block, has_possible_lengths, is_plain_header, read_segment)
from tradewind.store.format.records cimport (
    RECORD_MIN, RECORD_OK, Record, header_value, mark_kind, mark_value, parse_record,
    record_is_intact)
from tradewind.store.format.sequence_set cimport SequenceSet
from tradewind.store.format.sequence_tree cimport sequences_contains, sequences_insert
from tradewind.store.table.subject_index cimport SubjectEntry

cdef enum:
    # After damage every byte may be the beginning of a record, and the bytes may have been made to
    # look like one. Beyond this many bytes of a block only short records are searched for.
    HASHED_BYTES_MAX = 1073741824

cdef uint32_t SHORT_BYTES = 4096
# This many bytes are scanned before other threads may run.
cdef uint64_t BREATH_BYTES = 262144
# More zeros side by side than the numbers in a record have.
cdef uint32_t HOLE_BYTES = 24
# The unit that a disk writes wholly or not at all.
cdef uint64_t SECTOR_BYTES = 512
# How far after the one before it a sequence may be whose checksum is wrong.
cdef uint64_t CLAIM_GAP_MAX = 1048576


class Damage(msgspec.Struct):
    """Bytes of a block that are not records. `torn` means that no good record follows them."""

    offset: int
    size: int
    after_seq: int      # the last good sequence before them
    before_seq: int     # the first one after them; 0: none in this block
    torn: bool
    at_start: bool = False          # no message of this block is in front of them
    # Sequences of what look like whole records with a wrong checksum.
    claimed: list = []
    # The bytes look like a write that was cut off or arrived in parts.
    unfinished: bool = False
    out_of_order: bool = False      # an intact message after one with a higher sequence
    missing: int = 0                # so many bytes after it were cut off


class Tombstones:
    """The tombstones of a block in the order of the file, in three columns: there may be very
    many.
    """

    __slots__ = ("offsets", "sequences", "timestamps")

    def __init__(self):
        self.sequences = array("Q")
        self.timestamps = array("q")
        self.offsets = array("I")

    def __len__(self):
        return len(self.sequences)

    def append(self, uint64_t sequence, int64_t timestamp, uint32_t offset):
        """Append a tombstone."""
        self.sequences.append(sequence)
        self.timestamps.append(timestamp)
        self.offsets.append(offset)

    def cut(self, uint32_t offset):
        """Remove those at or after an offset."""
        count = bisect_left(self.offsets, offset)
        for column in (self.sequences, self.timestamps, self.offsets):
            del column[count:]


class BlockReport(msgspec.Struct):
    """The findings of a recovered block, besides its messages."""

    tombstones: Tombstones = msgspec.field(default_factory=Tombstones)
    marks: list = []           # (kind, value, offset)
    damage: list = []          # Damage
    newest: tuple = (0, 0)                              # sequence and time of the last one
    records: int = 0
    ttl_count: int = 0
    schedule_count: int = 0
    good_bytes: int = 0     # up to here the block is records


cdef int load_block_index(Block block, SubjectIndex index, bint adding=False) except -1:
    """Build the index of a block whose totals are known; dead records are left out.

    Returns 1, with nothing loaded, if the block does not match its totals. Checksums are verified
    the first time, lengths every time. `adding`: an unknown subject is added, with no messages.
    """
    cdef uint64_t position = 0, pushed = 0
    cdef Segment segment
    segment.end = 0
    cdef const char* data
    cdef Record record
    cdef SubjectEntry* entry
    cdef uint64_t messages = 0, lowest = 0, tombstones = 0
    if block.size == 0:
        return 1 if block.live_msgs else 0
    data = block.plain_bytes()
    block.reset_index()
    while position < block.size:
        if position == segment.end:
            read_segment(data, block.size, position, &segment)
        if parse_record(data + position, block.size - position, &record) != RECORD_OK \
                or (not block.verified and not record_is_intact(&block.key, &record)) \
                or has_wrong_lengths(block, &segment, &record, position):
            block.forget_index()
            return 1
        if not record.tombstone and not record.erased and record.seq >= block.first_seq \
                and record.seq <= block.last_seq and record.seq > block.indexed_to() \
                and not sequences_contains(&block.deleted.tree, record.seq):
            entry = index.find(record.subject, record.subject_size)
            if entry == NULL and adding:
                entry = index.find_or_add(record.subject, record.subject_size)
                if entry == NULL:
                    raise MemoryError
            if entry != NULL:
                block._push(record.seq, <uint32_t>position, entry.id)
                pushed += 1
        if record.tombstone:
            tombstones += record.seq != 0
        elif not record.erased:
            lowest = record.seq if lowest == 0 else min(lowest, record.seq)
            messages += 1
        position += record.size
    if pushed != block.live_msgs or block.has_faulted():
        block.forget_index()
        return 1
    block.adopt_counts(messages, lowest, tombstones)
    block.verified = True
    return 0


cdef bint has_wrong_lengths(Block block, const Segment* segment, const Record* record,
                            uint64_t position) except -1:
    """Whether a message is divided otherwise than it was written, as far as that can be
    determined.
    """
    if record.tombstone or record.erased:
        return False
    if segment.wrong == position or (block.suspects is not None and position in block.suspects):
        return True
    if not segment.is_proved and not has_possible_lengths(record):
        return True
    if has_header_block(record) and not is_plain_header(record.header, record.header_size):
        block.note_odd(record.seq)      # a client has sent it like that
    return False


cdef bint is_record(Block block, const char* data, uint64_t position, Record* record,
                    uint64_t* hashed) noexcept nogil:
    """Whether an intact record is there; `hashed` counts the bytes hashed to find out."""
    if parse_record(data + position, block.size - position, record) != RECORD_OK \
            or (hashed[0] > HASHED_BYTES_MAX and record.size > SHORT_BYTES):
        return False
    hashed[0] += record.size
    return record_is_intact(&block.key, record)


cdef uint64_t next_record(Block block, const char* data, uint64_t position,
                          uint64_t* hashed) noexcept nogil:
    """Find the next intact record after the damaged one at `position`; 0 if there is none.

    A payload may hold bytes that look like a record. So if the length of the damaged one leads to
    an intact record, one on the way counts only if a chain of them leads there too.
    """
    cdef Record record
    cdef uint64_t start = position + 1, target = 0, follow
    if parse_record(data + position, block.size - position, &record) == RECORD_OK \
            and is_record(block, data, position + record.size, &record, hashed):
        target = <uint64_t>(record.start - data)
    while start + RECORD_MIN <= block.size and start != target:
        if is_record(block, data, start, &record, hashed):
            follow = start + record.size
            while follow < target and is_record(block, data, follow, &record, hashed):
                follow += record.size
            if target == 0 or follow == target:
                return start
        start += 1
    return target


cdef list claimed_sequences(const char* data, const char* stored, uint64_t available,
                            uint64_t after_seq, bint is_unreadable):
    """The consecutive sequences of records that are complete except for their checksums.

    A write cut off by a crash is not: a torn write ends early, or its missing sectors are zeros up
    to the end. Zeros mean nothing where the disk `is_unreadable`; they are searched for in the
    `stored` bytes, which differ from `data` if that was decrypted.
    """
    cdef Record record
    cdef uint32_t index
    cdef uint64_t position = 0
    result = []
    while parse_record(data + position, available - position, &record) == RECORD_OK:
        # A tombstone or a skip has no text: this one is a message whose flags are wrong.
        if not record.tombstone or record.size > RECORD_MIN:
            if record.seq <= after_seq or record.seq - after_seq > CLAIM_GAP_MAX:
                break
            for index in range(record.size - 8, record.size):
                if stored[position + index] != 0 or is_unreadable:
                    break
            else:
                break
            after_seq = record.seq
            if not record.erased or record.size > RECORD_MIN:
                result.append(record.seq)
        position += record.size
    return result


cdef bint has_hole(const char* data, uint64_t start, uint64_t end) noexcept nogil:
    """Whether stored bytes [start, end), at least 4, look like a write that arrived only in parts.

    They are then zero at their beginning or end, before a sector, or over some length; bit rot
    hardly ever looks like that.
    """
    cdef uint32_t length, zeros = 0
    memcpy(&length, data + start, 4)
    if length == 0 or data[end - 1] == 0:
        return True
    while start < end:
        zeros = zeros + 1 if data[start] == 0 else 0
        start += 1
        if zeros >= HOLE_BYTES or (zeros and start % SECTOR_BYTES == 0):
            return True
    return False


cdef bint has_header(const Record* record, const char* name, size_t size) noexcept nogil:
    """Whether a header line begins with `name` (which ends with a colon)."""
    return header_value(record, name, size, &size) != NULL


cdef int take_message(Block block, SubjectIndex index, const Record* record, uint64_t position,
                      report) except -1:
    """Take a good message of a block that is being recovered."""
    cdef SubjectEntry* entry = index.find_or_add(record.subject, record.subject_size)
    if entry == NULL:
        raise MemoryError
    block.adopt_message(record.seq, record.timestamp, record.size, <uint32_t>position, entry.id)
    if entry.total == 0:
        entry.first_seq = record.seq
        entry.first_block = block.number
    entry.total += 1
    entry.last_seq = record.seq
    entry.last_block = block.number
    if record.header_size:
        if has_header(record, b"Nats-TTL:", 9):
            report.ttl_count += 1
        if has_header(record, b"Nats-Schedule:", 14):
            report.schedule_count += 1
    return 0


def record_places(Block block not None):
    """The (sequence, offset, size) of all records of a block without damage, in the order of the
    file.

    A record that is not a message and skips nothing has the sequence of the message before it, or
    0.
    """
    cdef uint64_t position = 0, seq = 0
    cdef const char* data = block.plain_bytes() if block.size else NULL
    cdef Record record
    places = []
    while position < block.size \
            and parse_record(data + position, block.size - position, &record) == RECORD_OK:
        if not record.tombstone:
            seq = record.seq
        places.append((seq, position, record.size))
        position += record.size
    return places


def note_removals(Block block not None, SequenceSet held not None, SequenceSet told not None):
    """Add to `held` the sequences of messages in a block, live ones left out, and to `told` those
    that its tombstones name. Its bytes must be contiguous.
    """
    cdef uint64_t position = 0
    cdef const char* data = block.plain_bytes() if block.size else NULL
    cdef Record record
    while position < block.size \
            and parse_record(data + position, block.size - position, &record) == RECORD_OK:
        if record.tombstone:
            if record.seq and sequences_insert(&told.tree, record.seq) < 0:
                raise MemoryError
        elif not record.erased and (
                record.seq < block.first_seq or record.seq > block.last_seq
                or sequences_contains(&block.deleted.tree, record.seq)):
            if sequences_insert(&held.tree, record.seq) < 0:
                raise MemoryError
        position += record.size


cdef object damage_at(Block block, const char* data, const char* stored, uint64_t position,
                      uint64_t next_position, uint64_t last, uint64_t after_seq):
    """The Damage from `position` to the next good record (0: there is none)."""
    cdef Record record
    cdef uint64_t end = next_position or block.size
    claimed = claimed_sequences(data + position, stored + position, end - position, last,
                                block.unreadable > 0)
    if claimed:
        parse_record(data + position, block.size - position, &record)
        unfinished = has_hole(stored, position, position + record.size)
    else:
        unfinished = next_position == 0 or end < position + 4 or has_hole(stored, position, end)
    return Damage(position, end - position, last, 0, next_position == 0, last == after_seq, claimed,
                  unfinished)


cdef object wrong_lengths_at(Block block, const Record* record, uint64_t position, uint64_t last,
                             uint64_t after_seq):
    """The Damage of a record that has arrived whole, but whose parts cannot be distinguished."""
    return Damage(position, record.size, last, 0, position + record.size >= block.size,
                  last == after_seq, [record.seq] if record.seq > last else [])


cdef uint64_t let_others_run(uint64_t position) noexcept:
    """Release the interpreter lock for a moment, because a block of an upload can be of any size;
    returns where to do it again.
    """
    with nogil:
        return position + BREATH_BYTES


cdef const char* stored_of(Block block, const char* data, list held) except NULL:
    """The stored bytes of an encrypted block, otherwise `data`: missing bytes are zeros on disk,
    and noise when they are decrypted. The bytes are held in `held`.
    """
    cdef bytes encrypted = block.stored_bytes()
    if encrypted is None or <uint64_t>len(encrypted) < block.size:
        return data
    held.append(encrypted)
    return encrypted


cdef int end_damage(report, uint64_t seq) except -1:
    """Set the good message that follows the last damage."""
    for damage in reversed(report.damage):
        if damage.before_seq:
            break
        damage.before_seq = seq
    return 0


cdef int finish_recovery(Block block, report, const Segment* segment) except -1:
    """Finish the recovery of a block whose last segment was read."""
    block.verified = not report.damage
    if block.verified and segment.end == block.size and not segment.is_open:
        block.adopt_lengths(0)
    elif block.verified and not segment.is_rewritten:
        block.adopt_lengths(segment.sum)
    block.tombstones = len(report.tombstones)
    block.ttl_count = report.ttl_count
    block.schedule_count = report.schedule_count
    if block.live_msgs == 0 and report.tombstones:
        block.skip_to(max(max(report.tombstones.sequences), block.last_seq))
    return 0


def recover_block(Block block not None, SubjectIndex index not None, uint64_t after_seq):
    """Walk the whole block, verify everything, fill its index and the subjects.

    Returns a BlockReport. `after_seq` is the last sequence of the block before: messages at or
    below it are ignored.
    """
    cdef uint64_t newest_seq = 0, breath = BREATH_BYTES
    cdef int64_t newest_timestamp = 0
    cdef uint64_t position = 0, next_position, last = after_seq, hashed = 0
    cdef const char* data
    cdef const char* stored
    cdef Record record
    cdef Segment segment
    segment.end = 0
    report, held = BlockReport(), []
    block.start_after(after_seq)
    if block.size == 0:
        return report
    data = stored = block.plain_bytes()
    block.reset_index()
    while position < block.size:
        if position == segment.end:
            with nogil:
                read_segment(data, block.size, position, &segment)
        if parse_record(data + position, block.size - position, &record) != RECORD_OK \
                or not record_is_intact(&block.key, &record):
            if not report.damage:
                stored = stored_of(block, data, held)
            with nogil:
                next_position = next_record(block, data, position, &hashed)
            report.damage.append(
                damage_at(block, data, stored, position, next_position, last, after_seq))
            if next_position == 0:
                break
            position = next_position
            segment.is_proved = segment.is_proved and position <= segment.end
            continue
        if has_wrong_lengths(block, &segment, &record, position):
            report.damage.append(wrong_lengths_at(block, &record, position, last, after_seq))
            position += record.size
            continue
        if position >= breath:
            breath = let_others_run(position)
        report.records += 1
        if record.tombstone and record.seq:
            report.tombstones.append(record.seq, record.timestamp, <uint32_t>position)
        elif record.tombstone:
            report.marks.append(
                (mark_kind(record.timestamp), mark_value(record.timestamp), position))
            if mark_kind(record.timestamp) == MARK_LENGTHS:
                segment.end = position + record.size        # also if damage hid where it began
        elif record.seq > last:
            if report.damage:
                end_damage(report, record.seq)
            if record.erased:
                block.skip_to(record.seq)
            else:
                take_message(block, index, &record, position, report)
            if record.timestamp or not record.erased:
                newest_seq = record.seq
                newest_timestamp = record.timestamp
            last = record.seq
        elif record.seq > after_seq and not record.erased \
                and block._offset_of(record.seq) == NO_RECORD:
            report.damage.append(Damage(position, record.size, record.seq - 1, record.seq,
                                        False, out_of_order=True))
        position += record.size
        report.good_bytes = position
    report.newest = newest_seq, newest_timestamp
    finish_recovery(block, report, &segment)
    return report
