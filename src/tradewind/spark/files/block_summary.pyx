"""Walks over whole blocks that read only the heads of records.

Owns two questions: what a block states besides its messages, which are tombstones, floors and its
ends (`BlockSummary`), and which messages the limits of the stream have removed without a trace in
the files, as the official server does (`LimitReplay`). Checksums are verified where something is
removed because of them, and at the end of a block that may still be written; the messages
themselves are verified by their readers. Never opens a file.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset
from tradewind.store.format.hash cimport Key
from tradewind.store.table.marks cimport MARK_FLOOR
from tradewind.store.format.records cimport (
    RECORD_MIN, RECORD_OK, Record, mark_kind, mark_value, parse_record, record_is_intact)
from tradewind.store.format.sequence_set cimport SequenceSet
from tradewind.store.format.sequence_tree cimport (
    sequences_contains, sequences_insert, sequences_next_present)

from tradewind.errors import StoreError

# 24 bytes each while the limits are replayed.
REPLAYED_MAX = 100_000_000


cdef class BlockSummary:
    """The contents of one block; see the fields."""

    def __init__(self):
        self.tombstones = SequenceSet()


def summarize_block(bytes data not None, Key key not None, *, bint verifies):
    """Walk over a plain block. `verifies`: the walk ends at the first wrong checksum."""
    cdef BlockSummary summary = BlockSummary()
    cdef Record record
    cdef const char* start = data
    cdef uint64_t position = 0, size = len(data)
    while position < size:
        if parse_record(start + position, size - position, &record) != RECORD_OK:
            break
        if (verifies or record.tombstone) and not record_is_intact(&key.state, &record):
            if verifies:
                break
        elif record.tombstone and record.seq == 0:
            summary.is_ours = summary.is_ours or position == 0
            if mark_kind(record.timestamp) == MARK_FLOOR:
                summary.floor = max(summary.floor, mark_value(record.timestamp))
        elif record.tombstone:
            summary.spoken_seq = max(summary.spoken_seq, record.seq)
            if sequences_insert(&summary.tombstones.tree, record.seq) < 0:
                raise MemoryError
        else:
            summary.spoken_seq = max(summary.spoken_seq, record.seq)
            if not record.erased and record.seq > summary.last_seq:
                if summary.messages == 0:
                    summary.first_seq = record.seq
                    summary.first_time_ns = record.timestamp
                summary.last_seq = record.seq
                summary.last_time_ns = record.timestamp
                summary.messages += 1
                summary.bytes += record.size
        position += record.size
    summary.good_bytes = position
    return summary


def first_message(bytes data not None):
    """Sequence and time of the first message in these bytes, the head of a plain block.

    (0, 0) if they contain none; a truncated record counts if its numbers are there.
    """
    cdef Record record
    cdef const char* start = data
    cdef uint64_t position = 0, size = len(data)
    cdef uint64_t seq
    cdef int64_t timestamp
    while position + 30 <= size:
        # Records begin at any byte, so the numbers may be unaligned.
        memcpy(&seq, start + position + 4, 8)
        memcpy(&timestamp, start + position + 12, 8)
        if seq >> 62 == 0:
            return seq, timestamp
        if parse_record(start + position, size - position, &record) != RECORD_OK:
            break
        position += record.size
    return 0, 0


def advance(bytes data not None, uint64_t after_seq, uint64_t msgs_max, uint64_t bytes_max,
            SequenceSet removed not None, bint may_exceed):
    """How far one may read after `after_seq`: (last sequence, messages, bytes, reached a limit).

    If no message fits, the last sequence is `after_seq` itself; `may_exceed` lets the first message
    pass even if it is larger than `bytes_max`.
    """
    cdef Record record
    cdef const char* start = data
    cdef uint64_t position = 0, size = len(data), last = after_seq, messages = 0, total = 0
    while position < size:
        if parse_record(start + position, size - position, &record) != RECORD_OK:
            break
        position += record.size
        if record.tombstone or record.erased or record.seq <= last \
                or sequences_contains(&removed.tree, record.seq):
            continue
        if messages == msgs_max or (total + record.size > bytes_max
                                    and (messages or not may_exceed)):
            return last, messages, total, True
        messages += 1
        total += record.size
        last = record.seq
    return last, messages, total, False


def first_at_time(bytes data not None, int64_t time_ns):
    """The first sequence of a message not older than `time_ns`; 0 if there is none."""
    cdef Record record
    cdef const char* start = data
    cdef uint64_t position = 0, size = len(data)
    while position < size:
        if parse_record(start + position, size - position, &record) != RECORD_OK:
            break
        position += record.size
        if not record.tombstone and not record.erased and record.timestamp >= time_ns:
            return record.seq
    return 0


def members_between(SequenceSet source not None, uint64_t first, uint64_t last):
    """A set of the members of `source` that lie in first..last, both included."""
    cdef SequenceSet result = SequenceSet()
    cdef uint64_t seq = first
    while sequences_next_present(&source.tree, seq, &seq) and seq <= last:
        if sequences_insert(&result.tree, seq) < 0:
            raise MemoryError
        seq += 1
    return result


def add_members(SequenceSet target not None, SequenceSet source not None):
    """Add all members of `source` to `target`."""
    cdef uint64_t seq = 0
    while sequences_next_present(&source.tree, seq, &seq):
        if sequences_insert(&target.tree, seq) < 0:
            raise MemoryError
        seq += 1


cdef class LimitReplay:
    """Replays the effect of the limits: blocks are fed in order, `removed` collects what is gone.

    `removed` and `floor` start with what is already known. `follows_tombstones`: a tombstone takes
    effect at its place between the messages, as it did when it was written; otherwise the caller
    has put all of them into `removed` at the start.
    """

    def __init__(self, int64_t msgs_max, int64_t bytes_max, int64_t subject_msgs_max,
                 SequenceSet removed not None, uint64_t floor, *, bint follows_tombstones):
        self.msgs_max = msgs_max
        self.bytes_max = bytes_max
        self.subject_msgs_max = subject_msgs_max
        self.removed = removed
        self.floor = floor
        self.follows_tombstones = follows_tombstones
        self.index = SubjectIndex()

    def __dealloc__(self):
        free(self.kept)
        free(self.queues)

    def feed(self, bytes data not None, Key key not None, uint64_t first_seq):
        """Feed the next block, plain and up to its good end; nothing in it below `first_seq` is
        live.
        """
        cdef Record record
        cdef const char* start = data
        cdef uint64_t position = 0, size = len(data)
        cdef uint64_t last = self.kept[self.kept_count - 1].seq if self.kept_count else 0
        while position < size:
            if parse_record(start + position, size - position, &record) != RECORD_OK:
                return
            position += record.size
            if record.tombstone:
                self.has_gaps = self.has_gaps or record.seq > 0
                if self.follows_tombstones and record.seq \
                        and record_is_intact(&key.state, &record):
                    self._remove_seq(record.seq)
                continue
            if record.erased or (self.last_seq and record.seq > self.last_seq + 1):
                self.has_gaps = True
            self.last_seq = max(self.last_seq, record.seq)
            if record.seq > last and (not record.erased or self._counted(&record)):
                last = record.seq
                if record.seq >= self.floor and record.seq >= first_seq \
                        and not sequences_contains(&self.removed.tree, record.seq):
                    self._append(&record)

    cdef bint _counted(self, const Record* record) noexcept:
        """Whether an erased record was a message: it counted until its tombstone was written.

        Its subject is unknown by now, so messages that it displaced from its subject come back
        here, as they do when the official server is killed and restarted.
        """
        return self.follows_tombstones and record.size > RECORD_MIN

    cdef int _append(self, const Record* record) except -1:
        cdef SubjectEntry* entry = self.index.find_or_add(
            record.subject, 0 if record.erased else record.subject_size)
        cdef SubjectQueue* queue
        cdef Kept* item
        if entry == NULL:
            raise MemoryError
        self._reserve(entry.id)
        item = &self.kept[self.kept_count]
        item.seq, item.size, item.subject = record.seq, record.size, entry.id
        item.later, item.is_dead = 0, False
        self.kept_count += 1
        queue = &self.queues[entry.id]
        if queue.newest:
            self.kept[queue.newest - 1].later = self.kept_count
        else:
            queue.oldest = self.kept_count
        queue.newest = self.kept_count
        queue.live += 1
        self.live += 1
        self.live_bytes += record.size
        while self.subject_msgs_max > 0 and not record.erased \
                and queue.live > <uint64_t>self.subject_msgs_max:
            while self.kept[queue.oldest - 1].is_dead:
                queue.oldest = self.kept[queue.oldest - 1].later
            self._remove(queue.oldest - 1)
        while (self.msgs_max > 0 and self.live > <uint64_t>self.msgs_max) \
                or (self.bytes_max > 0 and self.live_bytes > <uint64_t>self.bytes_max
                    and self.live > 0):
            while self.kept[self.oldest].is_dead:
                self.oldest += 1
            self._remove(self.oldest)
        return 0

    def _reserve(self, uint32_t subject):
        """Reserve room for one more message, and for the queue of this subject."""
        cdef uint32_t capacity
        cdef void* grown
        if self.kept_count == self.kept_capacity:
            if self.kept_count >= <uint32_t>REPLAYED_MAX:
                raise StoreError(
                    f"more than {REPLAYED_MAX:,} messages under limits that only a running"
                    " nats-server knows of; read through the server (readMode network), or stop"
                    " it so that it writes index.db")
            capacity = max(self.kept_capacity * 2, <uint32_t>4096)
            grown = realloc(self.kept, capacity * sizeof(Kept))
            if grown == NULL:
                raise MemoryError
            self.kept = <Kept*>grown
            self.kept_capacity = capacity
        if subject >= self.queue_capacity:
            capacity = max((subject + 1) * 2, <uint32_t>256)
            grown = realloc(self.queues, capacity * sizeof(SubjectQueue))
            if grown == NULL:
                raise MemoryError
            self.queues = <SubjectQueue*>grown
            memset(&self.queues[self.queue_capacity], 0,
                   (capacity - self.queue_capacity) * sizeof(SubjectQueue))
            self.queue_capacity = capacity

    cdef int _remove(self, uint32_t place) except -1:
        cdef Kept* item = &self.kept[place]
        item.is_dead = True
        self.live -= 1
        self.live_bytes -= item.size
        self.queues[item.subject].live -= 1
        if sequences_insert(&self.removed.tree, item.seq) < 0:
            raise MemoryError
        return 0

    cdef int _remove_seq(self, uint64_t seq) except -1:
        cdef uint32_t low = 0, high = self.kept_count, middle
        while low < high:
            middle = low + (high - low) // 2
            if self.kept[middle].seq < seq:
                low = middle + 1
            else:
                high = middle
        if low < self.kept_count and self.kept[low].seq == seq:
            if not self.kept[low].is_dead:
                self._remove(low)
        elif sequences_insert(&self.removed.tree, seq) < 0:
            raise MemoryError
        return 0
