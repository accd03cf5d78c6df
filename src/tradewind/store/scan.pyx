"""Reading a block from end to end.

That is done to build its index again, or to recover it with every checksum verified.

Owns the walk over records and what is done about damage. A record that does not verify never takes
its neighbours along: the walk looks for the next one that does, and reports the bytes in between.
Only what follows the last good record of a block may be a torn write; it is reported too, as the
tail. Nothing here changes a file.
"""

from dataclasses import dataclass, field

from tradewind.errors import CorruptRecord

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.store.record_index cimport NO_RECORD
from tradewind.store.records cimport (
    RECORD_MIN, RECORD_OK, Record, header_value, parse_record, record_is_intact)
from tradewind.store.sequence_tree cimport sequences_contains
from tradewind.store.subject_index cimport SubjectEntry

# How far apart two sequences of one block may be when looking for the next good record behind
# damage.
cdef uint64_t RESYNC_GAP_MAX = <uint64_t>1 << 40


@dataclass(slots=True)
class Damage:
    """Bytes of a block that are not records. `torn` means that nothing good follows them."""

    offset: int
    size: int
    after_seq: int      # the last good sequence in front of them
    before_seq: int     # the first one behind them; 0: none in this block
    torn: bool
    # What looks like a whole record of this sequence with a wrong checksum; 0: nothing does.
    record_seq: int
    data: bytes
    out_of_order: bool = False      # an intact record that does not belong where it is


@dataclass(slots=True)
class BlockReport:
    """What a recovered block held besides its messages."""

    tombstones: list = field(default_factory=list)      # (sequence, timestamp, offset)
    marks: list = field(default_factory=list)           # (kind, value, offset)
    damage: list = field(default_factory=list)          # Damage
    newest: tuple = (0, 0)                              # sequence and timestamp of the last message
    records: int = 0
    ttl_count: int = 0
    schedule_count: int = 0
    good_bytes: int = 0     # up to here the block is records


cdef int load_block_index(Block block, SubjectIndex index) except -1:
    """Build the index of a block whose totals are known; dead records are left out, checksums are
    not looked at.
    """
    cdef uint64_t position = 0
    cdef const char* data
    cdef Record record
    cdef SubjectEntry* entry
    cdef int status
    cdef uint64_t messages = 0, lowest = 0, tombstones = 0
    if block.size == 0:
        return 0
    data = block.plain_bytes()
    block.reset_index()
    while position < block.size:
        status = parse_record(data + position, block.size - position, &record)
        if status != RECORD_OK \
                or (not block.verified and not record_is_intact(&block.key, &record)):
            block.release()
            raise CorruptRecord(block.path, position, "a record that was good has changed")
        if not record.tombstone and not record.erased and record.seq >= block.first_seq \
                and record.seq <= block.last_seq and record.seq > block.indexed_to() \
                and not sequences_contains(&block.deleted.tree, record.seq):
            entry = index.find(record.subject, record.subject_size)
            if entry != NULL:
                block._push(record.seq, <uint32_t>position, entry.id)
        if record.tombstone:
            tombstones += record.seq != 0
        elif not record.erased:
            lowest = record.seq if lowest == 0 else min(lowest, record.seq)
            messages += 1
        position += record.size
    block.adopt_counts(messages, lowest, tombstones)
    block.verified = True
    return 0


cdef uint64_t next_record(Block block, const char* data, uint64_t position, uint64_t after_seq,
                          Record* record) except? 0:
    """Where the next intact record begins, looking byte by byte; 0 if there is none."""
    while position + RECORD_MIN <= block.size:
        if parse_record(data + position, block.size - position, record) == RECORD_OK \
                and (record.tombstone or record.seq == 0
                     or (record.seq > after_seq and record.seq - after_seq < RESYNC_GAP_MAX)) \
                and record_is_intact(&block.key, record):
            return position
        position += 1
    return 0


cdef uint64_t whole_record_at(const char* data, uint64_t available,
                              uint64_t after_seq) noexcept nogil:
    """The sequence of a record that is all there but for its checksum.

    A write cut off by a crash is not: a torn write ends early, or its missing sectors are zeros up
    to the end.
    """
    cdef Record record
    cdef uint32_t index
    if parse_record(data, available, &record) != RECORD_OK or record.tombstone:
        return 0
    if record.seq <= after_seq or record.seq - after_seq > 1048576:
        return 0
    for index in range(record.size - 8, record.size):
        if data[index] != 0:
            return record.seq
    return 0


cdef bint has_header(const Record* record, const char* name, size_t size) noexcept nogil:
    """Whether a header line begins with `name` (which ends with a colon)."""
    return header_value(record, name, size, &size) != NULL


cdef int take_message(Block block, SubjectIndex index, const Record* record, uint64_t position,
                      report) except -1:
    """A good message of a block that is being recovered."""
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


def recover_block(Block block not None, SubjectIndex index not None, uint64_t after_seq):
    """Walk the whole block, verify everything, fill its index and the subjects.

    Gives a BlockReport. `after_seq` is the last sequence of the block before: messages at or
    below it are ignored.
    """
    cdef uint64_t newest_seq = 0
    cdef int64_t newest_timestamp = 0
    cdef uint64_t position = 0, next_position, last = after_seq
    cdef const char* data
    cdef Record record
    report = BlockReport()
    block.start_after(after_seq)
    if block.size == 0:
        return report
    data = block.plain_bytes()
    block.reset_index()
    while position < block.size:
        if parse_record(data + position, block.size - position, &record) != RECORD_OK \
                or not record_is_intact(&block.key, &record):
            looks_like = whole_record_at(data + position, block.size - position, last)
            next_position = next_record(block, data, position + 1, last, &record)
            end = next_position or block.size
            report.damage.append(Damage(position, end - position, last, 0, next_position == 0,
                                        looks_like, (data + position)[:end - position]))
            if next_position == 0:
                break
            position = next_position
            continue
        report.records += 1
        if record.tombstone and record.seq:
            report.tombstones.append((record.seq, record.timestamp, position))
        elif record.tombstone:
            report.marks.append((<uint64_t>record.timestamp >> 56,
                                 <uint64_t>record.timestamp & 0xFFFFFFFFFFFFFFull, position))
        elif record.seq > last:
            if report.damage and report.damage[len(report.damage) - 1].before_seq == 0:
                report.damage[len(report.damage) - 1].before_seq = record.seq
            if record.erased:
                block.skip_to(record.seq)
            else:
                take_message(block, index, &record, position, report)
                newest_seq = record.seq
                newest_timestamp = record.timestamp
            last = record.seq
        elif record.seq > after_seq and not record.erased \
                and block._offset_of(record.seq) == NO_RECORD:
            report.damage.append(Damage(position, record.size, record.seq - 1, record.seq + 1,
                                        False, record.seq, (data + position)[:record.size], True))
        position += record.size
        report.good_bytes = position
    block.verified = not report.damage
    block.tombstones = len(report.tombstones)
    report.newest = newest_seq, newest_timestamp
    block.ttl_count = report.ttl_count
    block.schedule_count = report.schedule_count
    if block.live_msgs == 0 and report.tombstones:
        highest = max(seq for seq, _, _ in report.tombstones)
        block.skip_to(max(highest, block.last_seq))
    return report
