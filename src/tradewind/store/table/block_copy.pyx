"""Copies of a block: with records erased, or without those that are no longer needed.

Owns what a copy keeps. The bytes come in and go out as they are on disk before compression; nothing
here touches a file, and everything may run in a worker thread while the block is in use, because it
works on a snapshot.

A compacted copy keeps the live messages, the newest floor mark, and the tombstones of messages
whose records may still lie, dead, in the file of an older block. Everything else is a gap in the
sequences, which means the same as a deletion to both servers. If marks proved the lengths of all
that it keeps, it ends with a mark that proves them again.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from tradewind.store.table.block cimport Block
from tradewind.store.table.marks cimport MARK_FLOOR
from tradewind.store.format.lengths cimport (
    MARK_LENGTHS, NOWHERE, Segment, length_term, lengths_value, read_segment)
from tradewind.store.format.records cimport (
    RECORD_MIN, RECORD_OK, Record, erase_record, mark_kind, mark_time, mark_value, parse_record,
    write_record)
from tradewind.store.format.sequence_tree cimport SequenceTree, sequences_contains

ctypedef struct SequenceSpan:
    uint64_t lowest             # no record of the file is below it
    uint64_t last
    const SequenceTree* gone    # those have no record any more; NULL: unknown


cdef class OlderBlocks:
    """The sequences whose dead records older blocks may hold; a snapshot, for `compacted_copy`."""

    cdef SequenceSpan* spans
    cdef size_t count
    cdef list gone              # keeps the trees alive; they never change

    def __cinit__(self, list blocks not None):
        """`blocks` are older than the one to be copied; a block without dead records is left out.
        """
        cdef Block block
        self.gone = []
        self.spans = <SequenceSpan*>malloc(max(len(blocks), 1) * sizeof(SequenceSpan))
        if self.spans == NULL:
            raise MemoryError
        for block in sorted(blocks, key=by_last_sequence):
            if not block.has_dead_records():
                continue
            self.spans[self.count].lowest = block.file_lowest
            self.spans[self.count].last = block.last_seq
            self.spans[self.count].gone = NULL
            if block.gone is not None:
                self.gone.append(block.gone)
                self.spans[self.count].gone = &block.gone.tree
            self.count += 1

    def __dealloc__(self):
        free(self.spans)

    cdef bint may_hold(self, uint64_t seq) noexcept nogil:
        """Whether one of the files may have a record of this sequence."""
        cdef size_t low = 0, high = self.count, middle
        cdef SequenceSpan* span
        while low < high:
            middle = (low + high) // 2
            if self.spans[middle].last < seq:
                low = middle + 1
            else:
                high = middle
        while low < self.count and self.spans[low].lowest <= seq:
            span = &self.spans[low]
            if span.gone == NULL or not sequences_contains(span.gone, seq):
                return True
            low += 1
        return False


def by_last_sequence(Block block not None):
    """The order of blocks, whose ranges of sequences do not overlap; equal ends are ordered by
    number.
    """
    return block.last_seq, block.number


def erased_copy(Block block not None, const unsigned char[::1] plain not None,
                list sequences not None):
    """Copy a block with the records of these sequences erased; None if its records are damaged."""
    cdef size_t size = plain.shape[0], position = 0
    cdef bytes copy = PyBytes_FromStringAndSize(<const char*>&plain[0], size)
    cdef char* data = PyBytes_AS_STRING(copy)
    cdef Record record
    wanted = set(sequences)
    while position < size:
        if parse_record(data + position, size - position, &record) != RECORD_OK:
            return None
        if not record.tombstone and not record.erased and record.seq in wanted:
            if erase_record(data + position, &block.key, record.size, record.seq) != 0:
                raise MemoryError
        position += record.size
    return copy


cdef class _Copy:
    """A compaction in progress."""

    cdef const char* data
    cdef size_t size
    cdef const uint32_t* live       # offsets of live messages, ascending
    cdef size_t live_count
    cdef char* target
    cdef size_t done
    cdef uint64_t messages
    cdef uint64_t tombstones
    cdef uint64_t lengths           # the sum of the messages that were kept
    cdef bint is_proved             # ... and they are right

    cdef size_t newest_floor(self) noexcept nogil:
        """The offset of the highest floor mark; beyond the end if there is none."""
        cdef size_t position = 0, found = self.size
        cdef uint64_t highest = 0, value
        cdef Record record
        while position < self.size:
            if parse_record(self.data + position, self.size - position, &record) != RECORD_OK:
                return found
            value = mark_value(record.timestamp)
            if record.tombstone and record.seq == 0 \
                    and mark_kind(record.timestamp) == MARK_FLOOR and value >= highest:
                highest = value
                found = position
            position += record.size
        return found

    cdef bint run(self, OlderBlocks older) noexcept nogil:
        """Copy all needed records; false if a record is damaged."""
        cdef size_t position = 0, next_live = 0, floor = self.newest_floor()
        cdef Record record
        cdef Segment segment
        cdef bint keep
        segment.end = 0
        self.is_proved = True
        while position < self.size:
            if position == segment.end:
                read_segment(self.data, self.size, position, &segment)
            if segment.wrong != NOWHERE or parse_record(
                    self.data + position, self.size - position, &record) != RECORD_OK:
                return False
            keep = position == floor
            if next_live < self.live_count and self.live[next_live] == position:
                keep = True
                next_live += 1
                self.messages += 1
                self.lengths ^= length_term(record.seq, record.subject_size, record.header_size)
                self.is_proved = self.is_proved and segment.is_proved
            elif record.tombstone and record.seq and older.may_hold(record.seq):
                keep = True
                self.tombstones += 1
            if keep:
                memcpy(self.target + self.done, self.data + position, record.size)
                self.done += record.size
            position += record.size
        return next_live == self.live_count


def compacted_copy(Block block not None, const unsigned char[::1] plain not None,
                   bytes live not None, OlderBlocks older not None):
    """Copy a block without unneeded records; returns also how many messages and tombstones are
    left.

    `live` are the offsets of the live messages as Block.live_offsets returns them. None if the
    records are damaged.
    """
    cdef _Copy copy = _Copy.__new__(_Copy)
    cdef bint whole
    copy.data = <const char*>&plain[0]
    copy.size = plain.shape[0]
    copy.live = <const uint32_t*>PyBytes_AS_STRING(live)
    copy.live_count = len(live) // sizeof(uint32_t)
    copy.target = <char*>malloc(copy.size + RECORD_MIN)
    if copy.target == NULL:
        raise MemoryError
    try:
        with nogil:
            whole = copy.run(older)
        if not whole:
            return None
        if copy.messages and copy.is_proved:
            write_record(copy.target + copy.done, &block.key, <uint64_t>1 << 62,
                         mark_time(MARK_LENGTHS, lengths_value(copy.lengths)), NULL, 0, NULL, 0,
                         NULL, 0)
            copy.done += RECORD_MIN
        return copy.target[:copy.done], copy.messages, copy.tombstones
    finally:
        free(copy.target)


def find_sparse(list blocks not None, uint64_t dead_before, uint64_t size_min):
    """The sealed blocks that are mostly dead. Tombstones count as needed for `dead_before` records
    in files that are not in the list, and for the dead records of those in the list.
    """
    cdef Block block
    cdef uint64_t dead = dead_before
    cdef Py_ssize_t index
    found = []
    for index in range(len(blocks) - 1):
        block = <Block>blocks[index]
        if not block.queued and block.size >= size_min and block.is_sparse(dead):
            found.append(block)
        dead += block.dead_records()
    return found
