"""The messages of one stream: sequences, subjects, limits, removal.

The same code for files and for memory. Owns the blocks, the subject index and the totals. What a
block lies in, and when it reaches the disk, is the business of its keeper (`keeper.BlockKeeper`).

Invariants, checked by `verify()` and by every model test
- msgs and bytes are the sums over the blocks; each subject's total counts its live messages;
- first_seq is the lowest live sequence, last_seq + 1 if there is none, 0 in a store that had none
  yet and was not purged; last_seq never goes down;
- every block but the last holds a live message, or tombstones for a block before it.

What limits removed stays away, although they write nothing while messages come and go
- Every removal but one from the front by a limit leaves a tombstone behind the record that caused
  it. The latter only move `limit_floor`, and each commit writes that down (`write_floor`) behind
  all that it covers. So everything that a commit promises is gone is said to be gone in its
  bytes; it never has to follow from the limits, which may have room again by then.
- What is not committed counts only as far as it arrived in one piece: recovery drops the rest. It
  therefore starts from a state that the store really had, plus messages that a limit had removed
  meanwhile. All of those are older than what was live, of their subject or of all, so the limits,
  applied once more, subjects first, take them before they could take anything that was live.
- What a start shows is promised at once, though the limits may have removed messages just then.
  Until the next commit that follows from the limits once more. So the floor is said in front of
  whatever could make room: by `apply_limits`, and by `write_last_seq` if a limit took the last
  message.
- A block that goes may take the word with it: the next commit says it again, and no file is removed
  before that commit is known to be on disk.
"""

from tradewind.saturated cimport later
from tradewind.store.format.records cimport (
    RECORD_MAX, RECORD_MIN, SUBJECT_MAX, mark_time, record_is_intact, record_size, write_record,
)
from tradewind.store.table.recount cimport renumber_subjects
from tradewind.store.table.residency cimport evict, forget_pages, limit_mappings
from tradewind.store.table.scan cimport load_block_index
from tradewind.store.format.sequence_tree cimport sequences_contains
from tradewind.store.table.subject_ends cimport note_first, note_last
from tradewind.store.format.timing_wheel cimport timers_add, timers_forget

from tradewind.errors import CorruptRecord, StoreError
from tradewind.store.contract import StoreLimits
from tradewind.store.format.layout import BLOCK_NUMBER_MAX
from tradewind.store.table.keeper import MemoryKeeper

cdef enum:
    # A larger gap in the sequences starts a new block instead of filling an index, and so does a
    # message that is this far behind the first one of its block: gaps are bits there.
    GAP_ROLL_MIN = 65536
    SPAN_ROLL_MIN = 4194304
    EVICTION_CHECK_LOADS = 8
    MAPPING_CHECK_LOADS = 256
    READS_IN_ROW_MIN = 256
    READS_ELSEWHERE_MAX = 2048
    # A new block begins with up to four marks; most of it should be left for messages.
    BLOCK_BYTES_MIN = 250
    MEMORY_OVERHEAD = 16
    # Messages that one append removes from the front at once; fewer while steps do that.
    CUT_PER_APPEND = 10000
    CUT_PER_APPEND_OVERDUE = 2

# Marks of our own: records with sequence 0, whose time says what they mean, see records.pxd.
MARK_SYNCED_KIND = MARK_SYNCED
MARK_FLOOR_KIND = MARK_FLOOR
MARK_PREVIOUS_KIND = MARK_PREVIOUS

# Bit 62 of a record's sequence is a flag.
cdef uint64_t SEQUENCE_MAX = (<uint64_t>1 << 62) - 1
cdef uint64_t TOMBSTONE = <uint64_t>1 << 62
cdef uint64_t SKIP = <uint64_t>1 << 63


cdef class StoreListener:
    """Whoever keeps count of the messages of a store; this one does nothing."""

    cdef int message_removed(self, uint64_t seq, uint32_t subject_id) except -1:
        """A live message is about to be removed, for whatever reason."""
        return 0

    cdef int all_removed(self) except -1:
        """All messages were removed at once; the next sequence is the one behind the last."""
        return 0


cdef inline void forget_times(MessageCore store, uint64_t seq) noexcept:
    """A message is gone: it neither expires nor is it due."""
    if store.timers.table.count:
        timers_forget(&store.timers.table, seq)
    if store.schedules.table.count:
        timers_forget(&store.schedules.table, seq)


cdef int read_damaged(MessageCore store, Block block, uint64_t seq, Record* record) except -1:
    """The bytes of a file have changed since they were verified: go on with what is good in it."""
    if block is store.last:
        if block.has_faulted() and block.read_anew(seq, record):
            return 0
        store.block_keeper.record_damaged(block)
        return 1
    store.block_keeper.block_damaged(block)
    return block.read(seq, record)


cdef class MessageCore:
    """Append, find and remove; `MessageStore` adds the methods that everybody else calls."""

    def __init__(self, str name not None, limits=None, uint64_t block_bytes_max=8 * 1024 * 1024,
                 uint64_t index_bytes_max=256 * 1024 * 1024, seed=None, keeper=None):
        self.name = name
        self.keeps_tombstones = keeper is not None
        self.block_keeper = MemoryKeeper(name) if keeper is None else keeper
        self.blocks = []
        self.index = SubjectIndex(seed)
        self.timers = TimingWheel(seed)
        self.schedules = TimingWheel(seed)
        self.recount = Recount()
        self.block_bytes_max = max(block_bytes_max, <uint64_t>BLOCK_BYTES_MIN)
        self.index_bytes_max = index_bytes_max
        self.first_seq = 0
        self.set_limits(limits or StoreLimits())

    def set_limits(self, limits):
        """New limits; `apply_limits` removes what is too much under them."""
        if self.keeps_tombstones:
            # What the old limits removed must not come back under wider ones.
            self.write_floor()
        self.limits = limits
        self.msgs_max = limits.msgs_max
        self.bytes_max = limits.bytes_max
        self.age_max_ns = limits.age_max_ns
        self.subject_msgs_max = limits.subject_msgs_max
        self.discard_new = limits.discard_new
        self.message_ttl = limits.message_ttl
        self.marks_expired = limits.marks_expired

    # -------------------------------------------------------------- blocks

    def add_block(self):
        """Seal the last block and start the next one."""
        cdef Block fresh, previous = self.last
        number = 1 if self.last is None else <uint64_t>self.last.number + 1
        if number > BLOCK_NUMBER_MAX:
            raise StoreError(f"stream {self.name!r}: there is no block behind {BLOCK_NUMBER_MAX}")
        if not self.recount.is_under_way() and self.index.needs_renumbering():
            renumber_subjects(self.index, self.blocks)
        if previous is not None:
            previous.seal()
            self.block_keeper.block_sealed(previous)
            self.evict(previous)
        fresh = self.block_keeper.open_block(number)
        fresh.reset_index()
        fresh.start_after(self.last_seq)
        self.blocks.append(fresh)
        self.last = fresh
        self.uses += 1
        fresh.used = self.uses
        self.block_keeper.block_opened()
        if previous is not None and self.keeps_tombstones:
            # Whether the block before arrived whole can be told by this after a crash.
            self.mark(MARK_PREVIOUS, (<uint64_t>previous.number << 32) | previous.size)
        if previous is not None and previous.live_msgs == 0:
            self.drop_if_empty(previous)
            self.advance_first()

    cdef Block block_of(self, uint64_t seq):
        """The block that speaks of a sequence, or None."""
        cdef Py_ssize_t low = 0, high = len(self.blocks), middle
        cdef Block block
        if self.last is not None and seq >= self.last.first_seq and seq <= self.last.last_seq:
            return self.last
        block = self.recent
        if block is not None and block.first_seq <= seq and seq <= block.last_seq:
            return block
        while low < high:
            middle = (low + high) // 2
            block = <Block>self.blocks[middle]
            if block.last_seq < seq:
                low = middle + 1
            else:
                high = middle
        if low == len(self.blocks):
            return None
        block = <Block>self.blocks[low]
        if block.first_seq > seq:
            return None
        self.recent = block
        return block

    cdef bint is_there(self, uint64_t seq) except -1:
        """Whether there is a message of this sequence, without loading a block."""
        cdef Block block
        if seq < self.first_seq or seq > self.last_seq:
            return False
        block = self.block_of(seq)
        return block is not None and block.live_msgs > 0 \
            and not sequences_contains(&block.deleted.tree, seq)

    cpdef int load_index(self, Block block) except -1:
        """Have the block's index in memory; others are dropped when that is too much."""
        self.uses += 1
        block.used = self.uses
        if block.is_loaded():
            if block.mapped_data == NULL and block.written:
                self.maps_since_check += 1
                if self.maps_since_check >= MAPPING_CHECK_LOADS:
                    self.maps_since_check = 0
                    limit_mappings(self.blocks, block)
            return 0
        try:
            status = load_block_index(block, self.index)
        except CorruptRecord:
            status = 1      # the file is gone, or shorter than it was
        if status != 0:
            self.block_keeper.block_damaged(block)
        block.forget_pages()
        self.loads_since_check += 1
        if self.loads_since_check >= EVICTION_CHECK_LOADS or block.owned:
            self.loads_since_check = 0
            self.evict(block)
        return 0

    cdef int note_reading(self, Block block) except -1:
        """A message of another block than before is read. A block that was read through is left to
        the system, and all are when many were read here and there: else it counts as our memory.
        """
        self.reads_elsewhere += 1
        if self.reading is not None and self.reads_in_row >= READS_IN_ROW_MIN:
            self.reading.forget_pages()
        elif self.reads_elsewhere >= READS_ELSEWHERE_MAX:
            self.reads_elsewhere = 0
            forget_pages(self.blocks)
        self.reads_in_row, self.reading = 0, block
        return 0

    def take_salvaged(self, Block block not None, list lost not None):
        """Go on without these messages of a block; its bytes hold all others.

        The totals are right at once; those of the subjects only after a recount, for nobody knows
        which subjects the lost messages had.
        """
        cdef uint64_t msgs = block.live_msgs, size = block.live_bytes, seq
        cdef uint64_t first_seq = block.first_seq
        cdef Block other
        block.lose(lost)
        for seq in lost:
            forget_times(self, seq)
        if load_block_index(block, self.index, True) != 0:
            raise CorruptRecord(block.path, 0, "the block cannot be read in spite of its repair")
        block.recount()
        self.msgs -= msgs - block.live_msgs
        self.bytes -= size - block.live_bytes
        self.unsettled = True
        self.first_seq = self.last_seq + 1
        for other in self.blocks:
            if other.live_msgs:
                self.first_seq = other.first_seq
                break
        if lost:
            self.forget_ends(first_seq, block.last_seq)
        if block.number < self.recount.below:
            self.recount.restart()

    cdef int forget_ends(self, uint64_t first, uint64_t last) except -1:
        """No subject may remember a message between these that is gone."""
        cdef uint32_t index
        cdef SubjectEntry* entry
        for index in range(self.index.entry_count):
            entry = self.index.entries[index]
            if entry == NULL:
                continue
            if first <= entry.first_seq <= last and not self.is_there(entry.first_seq):
                entry.first_seq = 0
            if first <= entry.last_seq <= last and not self.is_there(entry.last_seq):
                entry.last_seq = 0
        return 0

    @property
    def counted_below(self):
        """Of a recount of the subjects: blocks below this number are counted."""
        return self.recount.below

    def count_block(self, Block block not None):
        """Count the messages of the next block by subject; it may turn out to be damaged."""
        self.load_index(block)
        self.recount.add(block, self.index)

    def finish_count(self):
        """All blocks are counted; the last one a moment ago."""
        self.recount.finish(self.index)

    def evict(self, Block kept=None):
        """Release the least recently used block indexes until they fit into `index_bytes_max`."""
        evict(self.blocks, self.index_bytes_max, self.last, kept)

    def adopt(self, list blocks not None, uint64_t last_seq, int64_t last_timestamp):
        """Take over blocks that recovery has read; the subjects are in `index` already."""
        cdef Block block
        self.blocks = blocks
        self.recent = None
        self.last = blocks[len(blocks) - 1]
        self.msgs = sum(block.live_msgs for block in blocks)
        self.bytes = sum(block.live_bytes for block in blocks)
        self.last_seq = last_seq
        self.last_timestamp = last_timestamp
        self.first_seq = last_seq + 1 if last_seq else 0
        for block in blocks:
            if block.live_msgs:
                self.first_seq = block.first_seq
                break
        if self.last.size == 0:
            self.last.reset_index()
        self.load_index(self.last)

    def clear(self):
        """Forget all subjects, for a recovery that has to read the blocks again."""
        self.index.reset()

    def drop_leading_blocks(self):
        """Blocks with neither a live message nor a needed tombstone are of no use to anybody."""
        cdef Block block
        while (<Block>self.blocks[0]).live_msgs == 0 and self.blocks[0] is not self.last:
            self.drop_block(<Block>self.blocks[0])
        for block in list(self.blocks):
            self.drop_if_empty(block)

    def drop_below(self, uint64_t floor):
        """A floor mark on disk says that everything below it is removed; nothing is written."""
        self.written_floor = floor     # first: the block that says so may go on the way
        while self.msgs and self.first_seq < floor:
            self.forget_message(self.first_seq, False)
        self.limit_floor = max(self.limit_floor, floor)
        self.first_seq = max(self.first_seq, <uint64_t>1)

    def forget(self, uint64_t seq):
        """A tombstone on disk says that a message is deleted; nothing is written."""
        return self.forget_message(seq, False) == 0

    # -------------------------------------------------------------- append

    cdef int prepare_room(self, uint64_t size, uint64_t seq) except -1:
        """A last block that takes `size` more bytes for sequence `seq`."""
        if self.last is None:
            self.add_block()
        elif self.last.compressed \
                or (self.last.size and self.last.size + size > max(
                    self.block_bytes_max, self.unit_end)):
            self.add_block()
        elif self.last.records.count and (
                seq > self.last.indexed_to() + GAP_ROLL_MIN
                or self.last.live_msgs and seq > self.last.first_seq + SPAN_ROLL_MIN):
            self.add_block()
        return 0

    def begin_unit(self, uint64_t size):
        """Have the next messages in one block, which may grow by `size` bytes for it.

        A write that is cut off leaves the beginning of a block, never its end alone.
        """
        self.prepare_room(size, self.last_seq + 1)
        if size <= 0xFFFFFFFF:
            self.last.room(<uint32_t>size)      # all of it at once
        self.unit_end = self.last.size + size

    def end_unit(self):
        """Blocks are as large as always again."""
        self.unit_end = 0

    cdef uint64_t append(self, const char* subject, uint32_t subject_size,
                         const char* header, uint32_t header_size,
                         const char* payload, uint32_t payload_size, int64_t timestamp,
                         int64_t ttl_ns=0) except 0:
        """Store a message under the next sequence, then let the limits remove what is too much.

        `ttl_ns` is what its Nats-TTL header says, which is where a restart finds it again.
        """
        cdef uint64_t size = record_size(subject_size, header_size, payload_size)
        cdef uint64_t counted = self.stored_size(subject_size, header_size, payload_size)
        cdef uint64_t seq = self.last_seq + 1
        cdef SubjectEntry* entry
        cdef char* target
        if self.read_only:
            self.block_keeper.check_writable()
        if size > RECORD_MAX or subject_size > SUBJECT_MAX or subject_size == 0:
            self._refuse_size(size, subject_size)
        if seq > SEQUENCE_MAX:
            self.refuse_sequence(seq)
        self.prepare_room(size, seq)
        target = self.last.room(<uint32_t>size)
        entry = self.index.find_or_add(subject, subject_size)
        if entry == NULL:
            raise MemoryError
        if ttl_ns > 0:
            self.last.ttl_count += 1
            if self.message_ttl and timers_add(
                    &self.timers.table, seq, later(timestamp, ttl_ns)) != 0:
                raise MemoryError
        write_record(target, &self.last.key, seq, timestamp, subject, subject_size,
                     header, header_size, payload, payload_size)
        self.last.commit_message(seq, timestamp, <uint32_t>size, <uint32_t>counted, entry.id)
        if entry.total == 0:
            entry.first_seq = seq
            entry.first_block = self.last.number
        entry.total += 1
        entry.last_seq = seq
        entry.last_block = self.last.number
        if self.msgs == 0:
            self.first_seq = seq
        self.msgs += 1
        self.bytes += counted
        self.last_seq = seq
        self.last_timestamp = timestamp
        if self.subject_msgs_max > 0 and entry.total > <uint64_t>self.subject_msgs_max \
                and (not self.trims or entry.total == <uint64_t>self.subject_msgs_max + 1):
            self._trim_subject(subject[:subject_size], self.subject_msgs_max)
        if (self.msgs_max > 0 and self.msgs > <uint64_t>self.msgs_max) or (
                self.bytes_max > 0 and self.bytes > <uint64_t>self.bytes_max):
            self._make_room()
        return seq

    cdef int _make_room(self) except -1:
        """A message was stored: others go from the front. The many small ones in the place of a
        large one, or of limits that were lowered, go in steps (overdue.pyx).
        """
        cdef uint64_t budget = CUT_PER_APPEND_OVERDUE if self.cuts_front else CUT_PER_APPEND
        if self.trims:
            self.cuts_front = not self.discard_new
        elif not self.cut_front(&budget):
            self.cuts_front = True
        return 0

    def _refuse_size(self, uint64_t size, uint32_t subject_size):
        if subject_size == 0 or subject_size > SUBJECT_MAX:
            raise StoreError(f"a subject of {subject_size} bytes cannot be stored; 1 to"
                             f" {SUBJECT_MAX} are possible")
        raise StoreError(
            f"a record of {size} bytes cannot be stored; at most {RECORD_MAX} are possible")

    def refuse_sequence(self, uint64_t seq):
        """It cannot be kept in a file, and would come back as something else."""
        raise StoreError(f"sequence {seq} cannot be stored; the highest one is {SEQUENCE_MAX}")

    def _trim_subject(self, bytes subject, uint64_t keep):
        """Remove the oldest messages of a subject until only `keep` are left."""
        cdef SubjectEntry* entry = self.index.find(subject, <uint32_t>len(subject))
        while entry != NULL and entry.total > keep:
            seq = self.first_of(entry)
            if self.unsettled:
                # The total may count lost messages: never take a good one in their place. The limit
                # is applied when all is counted.
                return
            self.forget_message(seq, True)
            entry = self.index.find(subject, <uint32_t>len(subject))

    def skip(self, uint64_t through, int64_t timestamp):
        """Use up all sequences up to `through` without messages."""
        if self.read_only:
            self.block_keeper.check_writable()
        if through <= self.last_seq:
            return
        if through > SEQUENCE_MAX:
            self.refuse_sequence(through)
        self.prepare_room(RECORD_MIN, through)
        # The mark says what the stream says from now on, so that a start finds the same.
        timestamp = max(self.last_timestamp, timestamp)
        self.last.append_mark(through | SKIP, timestamp)
        self.last_seq = through
        self.last_timestamp = timestamp
        if self.msgs == 0:
            self.first_seq = through + 1

    # -------------------------------------------------------------- look-up

    cdef int read(self, uint64_t seq, Record* record) except -1:
        """The record of a live sequence; 1 if there is none. Valid until the store changes or loads
        a block: whoever needs it longer has to hold its `keeper`, or a copy.

        What lies in a file is verified every time: the system reads it again from the disk whenever
        it likes, long after the index of the block was built.
        """
        cdef Block block
        if seq < self.first_seq or seq > self.last_seq:
            return 1
        block = self.block_of(seq)
        if block is None:
            return 1
        if block is not self.reading:
            self.note_reading(block)
        self.reads_in_row += 1
        self.load_index(block)
        try:
            if block.read(seq, record) != 0:
                return 1
        except CorruptRecord:
            return read_damaged(self, block, seq, record)
        if block.mapped_data <= record.start < block.mapped_data + block.mapped_size \
                and not record_is_intact(&block.key, record):
            return read_damaged(self, block, seq, record)
        return 0

    cdef object keeper(self, const Record* record):
        """As long as somebody holds this, what `read` gave just now stays there. None: it may move.
        """
        cdef Block block = self.reading
        if block.mapped_data <= record.start < block.mapped_data + block.mapped_size:
            return block.mapped
        return None

    cdef uint64_t next_matching(self, uint64_t seq, SubjectFilter chosen) except? 0:
        """The first live sequence >= seq whose subject passes; 0 if there is none."""
        cdef Py_ssize_t low = 0, high = len(self.blocks), middle
        cdef Block block
        cdef SubjectEntry* entry = NULL
        cdef uint64_t found
        if self.msgs == 0 or seq > self.last_seq:
            return 0
        seq = max(seq, self.first_seq)
        if chosen.literal is not None:
            entry = self.index.find(chosen.literal, <uint32_t>len(chosen.literal))
            if entry == NULL:
                return 0
            if entry.last_seq and entry.last_seq < seq:
                return 0
            if entry.first_seq and entry.first_seq >= seq:
                return entry.first_seq
        chosen.prepare()
        block = self.recent
        if block is not None and block.first_seq <= seq and seq <= block.last_seq:
            # Most often the next one is behind the one that was read last.
            self.load_index(block)
            found = block.next_accepted(seq, chosen)
            if found:
                return found
        while low < high:
            middle = (low + high) // 2
            if (<Block>self.blocks[middle]).last_seq < seq:
                low = middle + 1
            else:
                high = middle
        while low < len(self.blocks):
            block = <Block>self.blocks[low]
            low += 1
            if block.live_msgs == 0 or (entry != NULL and block.number < entry.first_block):
                continue
            if entry != NULL and block.number > entry.last_block:
                return 0
            self.load_index(block)
            found = block.next_accepted(seq, chosen)
            if found:
                return found
        return 0

    cdef uint64_t last_of(self, SubjectEntry* entry) except? 0:
        """The highest live sequence of a subject; 0 if all that it had is lost."""
        return entry.last_seq or self.find_end(entry, True)

    cdef uint64_t first_of(self, SubjectEntry* entry) except? 0:
        """The lowest one."""
        return entry.first_seq or self.find_end(entry, False)

    cdef uint64_t find_end(self, SubjectEntry* entry, bint is_last) except? 0:
        """Look for the last or first live message of a subject, and remember it."""
        cdef Py_ssize_t index = len(self.blocks) - 1 if is_last else 0
        cdef Py_ssize_t step = -1 if is_last else 1
        cdef Block block
        while 0 <= index < len(self.blocks):
            block = <Block>self.blocks[index]
            index += step
            if block.live_msgs == 0 or block.number < entry.first_block \
                    or block.number > entry.last_block:
                continue
            self.load_index(block)
            if is_last:
                entry.last_seq = note_last(self.index, block, entry.id)
                self.end_walks += 1
                if entry.last_seq:
                    entry.last_block = block.number
                    return entry.last_seq
            else:
                entry.first_seq = note_first(self.index, block, entry.id)
                self.end_walks += 1
                if entry.first_seq:
                    entry.first_block = block.number
                    return entry.first_seq
        if self.unsettled:
            return 0
        end = "last" if is_last else "first"
        raise StoreError(
            f"stream {self.name!r}: subject {entry.name[:entry.name_size]!r} has no {end} message")

    cdef int64_t first_timestamp(self) except? -1:
        cdef Block block
        if self.msgs == 0:
            return 0
        block = self.block_of(self.first_seq)
        return block.first_timestamp

    # -------------------------------------------------------------- removal

    cdef int forget_message(self, uint64_t seq, bint tombstone) except -1:
        """Remove a live message from all totals; 1 if it is not live."""
        cdef Block block
        cdef Record record
        cdef SubjectEntry* entry
        cdef uint32_t size
        cdef int64_t first_timestamp
        if seq < self.first_seq or seq > self.last_seq:
            return 1
        block = self.block_of(seq)
        if block is None:
            return 1
        if block is not self.reading:
            self.note_reading(block)
        self.reads_in_row += 1
        self.load_index(block)
        try:
            if block.read(seq, &record) != 0:
                return 1
        except CorruptRecord:
            return self.forget_damaged(block, seq, tombstone)
        if tombstone and self.keeps_tombstones:
            # Whatever can fail comes first: memory and disk must not disagree about this message.
            self.mark_floor()
            self.prepare_room(RECORD_MIN, self.last_seq)
            self.load_index(block)
        first_timestamp = block.first_time_without(seq)
        if block.read(seq, &record) != 0:
            return 1
        entry = self.index.find(record.subject, record.subject_size)
        if entry == NULL:
            return self.forget_damaged(block, seq, tombstone)
        size = <uint32_t>self.stored_size(
            record.subject_size, record.header_size, record.payload_size)
        if self.listener is not None:
            self.listener.message_removed(seq, entry.id)
        if self.recount.is_under_way():
            self.recount.removed(block, seq, entry.id)
        if entry.total:
            entry.total -= 1
        if entry.total == 0 and not self.unsettled:
            self.index.forget(entry)
        else:
            if seq == entry.first_seq:
                entry.first_seq = 0
                entry.first_block = block.number
            if seq == entry.last_seq:
                entry.last_seq = 0
                entry.last_block = block.number
                self.lasts_lost += 1
            if entry.total == 1 and not self.unsettled:
                # One is left: whichever end is known is both.
                entry.first_seq = entry.last_seq = entry.first_seq or entry.last_seq
        forget_times(self, seq)
        block.drop(seq, size, first_timestamp)
        self.msgs -= 1
        self.bytes -= size
        if tombstone and self.keeps_tombstones:
            self.last.append_mark(seq | TOMBSTONE, record.timestamp)
        elif seq == self.first_seq:
            self.limit_floor = seq + 1
        if block.live_msgs == 0:
            self.drop_if_empty(block)
        elif self.keeps_tombstones and not block.queued and block is not self.last \
                and block.is_sparse(block.tombstones):
            self.block_keeper.block_sparse(block)
        if seq == self.first_seq:
            self.advance_first()
        return 0

    cdef int forget_damaged(self, Block block, uint64_t seq, bint tombstone) except -1:
        """The same for a message whose record has changed in its file since it was verified."""
        if block is self.last:
            self.add_block()
        self.block_keeper.block_damaged(block)
        return self.forget_message(seq, tombstone) if self.is_there(seq) else 1

    cdef int mark_floor(self) except -1:
        """Tombstones for what a limit has removed from the front, before another removal.

        We say that by the floor; the official server does not know about it, and would let removed
        messages come back when a removal behind them makes room. Only those that are still in a
        block with live messages need one.
        """
        cdef uint64_t seq, low = self.marked_floor
        cdef Block block
        if self.limit_floor <= self.marked_floor:
            return 0
        self.marked_floor = self.limit_floor    # first: a new block on the way comes back here
        for block in self.blocks:
            if block.live_msgs:
                for seq in block.indexed_between(low, self.limit_floor):
                    self.write_tombstone(seq)
                break
        return 0

    cdef int end_schedule(self, const char* subject, uint32_t subject_size) except -1:
        """A message comes that is not a schedule: one that its subject has is not due any more."""
        cdef SubjectEntry* entry = self.index.find(subject, subject_size)
        cdef SubjectFilter chosen
        cdef uint64_t seq
        if entry == NULL:
            return 0
        if not self.shadows_schedules:
            timers_forget(&self.schedules.table, self.last_of(entry))
            return 0
        chosen = SubjectFilter(self.index, (subject[:subject_size],))
        seq = self.next_matching(0, chosen)
        while seq:
            timers_forget(&self.schedules.table, seq)
            seq = self.next_matching(seq + 1, chosen)
        return 0

    def write_tombstone(self, uint64_t seq):
        """Write down that a message is gone; it is gone already."""
        self.prepare_room(RECORD_MIN, self.last_seq)
        self.last.append_mark(seq | TOMBSTONE, self.last_timestamp)

    def write_again(self, list removed not None):
        """Damaged bytes may have said these things, and nothing else may say them: that these
        messages are gone, how far limits have come, and the sequences.
        """
        for seq in removed:
            if seq >= self.limit_floor and not self.is_there(seq):
                self.write_tombstone(seq)
        self.written_floor = 0
        self.blocks_went = True
        self.write_floor()
        self.repeat_last()

    cpdef int write_floor(self) except -1:
        """Write down what limits have removed from the front; see the top of this module.

        When blocks went, all that is gone from the front: then their files may go in any order.
        """
        cdef uint64_t floor = self.limit_floor
        if self.blocks_went:
            floor = max(floor, self.first_seq)
        if floor <= self.written_floor or not self.blocks:
            return 0
        self.prepare_room(RECORD_MIN, self.last_seq)
        self.mark(MARK_FLOOR, floor)
        self.written_floor = floor
        self.blocks_went = False
        return 0

    cpdef int mark(self, uint64_t kind, uint64_t value) except -1:
        """A record with sequence 0, which the official server passes over; see layout.py. There
        must be a last block.
        """
        self.last.append_mark(TOMBSTONE, mark_time(kind, value))
        return 0

    cdef int advance_first(self) except -1:
        """Find the new first sequence and drop blocks without live messages."""
        cdef Block block
        # First, for it must be right also if a block cannot be made.
        self.first_seq = self.last_seq + 1
        for block in self.blocks:
            if block.live_msgs:
                self.first_seq = block.first_seq
                break
        if self.last is not None and self.last.live_msgs == 0 \
                and self.last.size >= max(self.block_bytes_max // 2, <uint64_t>(8 * RECORD_MIN)):
            # A last block full of dead records would be kept for ever; its successor remembers the
            # last sequence.
            self.add_block()
            return 0
        while (<Block>self.blocks[0]).live_msgs == 0 and self.blocks[0] is not self.last:
            self.drop_block(<Block>self.blocks[0])
        return 0

    cdef int write_last_seq(self) except -1:
        """Before a block goes: the last one must tell how far the sequences have come."""
        cdef Record record
        if not self.keeps_tombstones or self.last_seq == 0 \
                or self.written_last_seq == self.last_seq \
                and self.written_last_block == self.last.number:
            return 0
        if self.read(self.last_seq, &record) == 0:
            return 0
        if self.limit_floor > self.written_floor:
            # The last message may have pushed out others; without it the limits have room again.
            self.mark(MARK_FLOOR, self.limit_floor)
            self.written_floor = self.limit_floor
        self.last.append_mark(self.last_seq | TOMBSTONE, self.last_timestamp)
        self.written_last_seq = self.last_seq
        self.written_last_block = self.last.number
        return 0

    cpdef int drop_block(self, Block block) except -1:
        """A block that nobody needs goes, but not what it alone may have said."""
        self.write_last_seq()
        self.written_floor = 0
        self.blocks_went = True
        self.blocks.remove(block)
        self.recent = None
        self.block_keeper.blocks_dropped([block])
        return 0

    def repeat_last(self):
        """Let the last block tell how far the sequences have come, whatever was said before."""
        self.written_last_seq = 0
        self.write_last_seq()

    cdef int drop_if_empty(self, Block block) except -1:
        """Drop a sealed block without live messages, unless an older one needs its tombstones."""
        if block.live_msgs == 0 and block is not self.last and block.tombstones == 0 \
                and block in self.blocks:
            self.drop_block(block)
        return 0

    cdef bint cut_front(self, uint64_t* budget) except -1:
        """Remove from the front what is too much; false if the budget is used up before.

        A stream that refuses new messages keeps the old ones instead.
        """
        if self.discard_new:
            return True
        while self.msgs and (self.msgs_max > 0 and self.msgs > <uint64_t>self.msgs_max
                             or self.bytes_max > 0 and self.bytes > <uint64_t>self.bytes_max):
            if budget[0] == 0:
                return False
            budget[0] -= 1
            self.forget_message(self.first_seq, False)
        return True

    cdef uint64_t stored_size(self, uint64_t subject_size, uint64_t header_size,
                              uint64_t payload_size) noexcept nogil:
        """What a message counts in `bytes`: its record; in memory as the official server counts."""
        if self.keeps_tombstones:
            return record_size(subject_size, header_size, payload_size)
        return MEMORY_OVERHEAD + subject_size + header_size + payload_size
