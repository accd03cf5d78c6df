"""The messages of one stream: sequences, subjects, limits, removal.

The same code for files and for memory. Owns the blocks, the subject index and the totals. Where a
block is stored, and when it reaches the disk, is decided by its keeper (`keeper.BlockKeeper`). This
module appends, finds and removes one message; operations on many are in modules of functions on a
store: `newest`, `counts`, `purging`, `expiry`, `overdue`, `losses`. The records of removals on disk
are in `marks`.

Invariants, checked by `verify()` and by every model test
- msgs and bytes are the sums over the blocks; each subject's total counts its live messages;
- first_seq is the lowest live sequence, last_seq + 1 if there is none, 0 in a store that had none
  yet and was not purged; last_seq never goes down;
- every block but the last holds a live message, or tombstones for a block before it.
"""

from itertools import islice

from tradewind.saturated cimport CLOCK_SLACK_NS, later
from tradewind.store.format.records cimport (
    MEMORY_RECORD_MAX, RECORD_MAX, RECORD_MIN, SUBJECT_MAX, record_is_intact, record_size,
    write_record)
from tradewind.store.format.sequence_tree cimport sequences_contains
from tradewind.store.format.timing_wheel cimport timers_add, timers_forget
from tradewind.store.table.bounded_walk cimport block_from
from tradewind.store.table.counts cimport count_from, sequence_from, sequence_that_keeps
from tradewind.store.table.expiry cimport (
    adopt_timers, aging_at, has_expired, is_too_old, leaves_marker, next_expiry, next_timed_out,
    next_to_expire, start_timers)
from tradewind.store.table.losses cimport forget_damaged, has_known_lengths, read_damaged
from tradewind.store.table.marks cimport (
    MARK_PREVIOUS, MARK_UNIT, mark_floor, write_floor, write_last_seq, write_lengths, write_mark)
from tradewind.store.table.newest cimport LastSearch, find_unknown, last_accepted
from tradewind.store.table.overdue cimport (
    begin_limits, begin_trimming, is_overdue, make_room, remove_overdue, trim_subject)
from tradewind.store.table.purging cimport (
    PurgeRange, first_passing, listed_range, purge_all, purge_listed, purge_some)
from tradewind.store.table.recount cimport renumber_subjects
from tradewind.store.table.residency cimport evict, forget_pages, limit_mappings, note_reading
from tradewind.store.table.scan cimport load_block_index
from tradewind.store.table.subject_ends cimport find_end

from tradewind.errors import CorruptRecord, StoreError
from tradewind.store.contract import (
    DiscardedError, NotFoundError, MessageCopy, StoreLimits, StoreState, SubjectState)
from tradewind.store.format.layout import BLOCK_NUMBER_MAX
from tradewind.store.table.totals_audit import verify_store
from tradewind.store.table.keeper import MemoryKeeper

cdef enum:
    # A larger gap in the sequences starts a new block instead of filling an index, and so does a
    # message that is this far after the first one of its block: gaps are bits there.
    GAP_ROLL_MIN = 65536
    SPAN_ROLL_MIN = 4194304
    EVICTION_CHECK_LOADS = 8
    MAPPING_CHECK_LOADS = 256
    # A new block begins with up to four marks; most of it should be left for messages.
    BLOCK_BYTES_MIN = 250
    MEMORY_OVERHEAD = 16
    # A block that is smaller, in a store with more, takes stamps in any order.
    RUN_BYTES_MIN = 65536
    RUN_BLOCKS_MAX = 1024
    # This many subjects are freed in one step.
    FREED_PER_STEP = 65536
    # Why messages go, as in `tradewind.chain.chain_entries`.
    REASON_DELETED = 1
    REASON_PURGED = 2
    REASON_LIMITS = 3

# Bits 62 and 63 of a record's sequence are flags.
cdef uint64_t SEQUENCE_MAX = (<uint64_t>1 << 62) - 1
cdef uint64_t TOMBSTONE = <uint64_t>1 << 62
cdef uint64_t SKIP = <uint64_t>1 << 63
TIME_MIN, TIME_MAX = -2**63, 2**63 - 1


cdef class MessageStore:
    """The messages of a stream: in memory, unless a keeper has their blocks elsewhere."""

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
        self.ahead = []
        self.removing = REASON_LIMITS
        self.block_bytes_max = max(block_bytes_max, <uint64_t>BLOCK_BYTES_MIN)
        self.index_bytes_max = index_bytes_max
        self.first_seq = 0
        self.set_limits(limits or StoreLimits())

    def set_limits(self, limits):
        """Set new limits; `apply_limits` removes what exceeds them."""
        cdef bint had_ttl = self.message_ttl
        if self.keeps_tombstones:
            # Messages removed by the old limits must not come back under wider ones.
            write_floor(self)
        self.limits = limits
        self.msgs_max = limits.msgs_max
        self.bytes_max = limits.bytes_max
        self.age_max_ns = limits.age_max_ns
        self.subject_msgs_max = limits.subject_msgs_max
        self.discard_new = limits.discard_new
        self.message_ttl = limits.message_ttl
        self.marks_expired = limits.marks_expired
        if self.message_ttl and not had_ttl:
            start_timers(self, 0)
        elif had_ttl and not self.message_ttl:
            self.timers.clear()

    # -------------------------------------------------------------- blocks

    def add_block(self, uint64_t least=1):
        """Seal the last block and start the next one; `least` is the lowest number for it."""
        cdef Block fresh, previous = self.last
        number = least if self.last is None else max(least, <uint64_t>self.last.number + 1)
        if number > BLOCK_NUMBER_MAX:
            raise StoreError(f"stream {self.name!r}: there is no block after {BLOCK_NUMBER_MAX}")
        if not self.recount.is_under_way() and self.index.needs_renumbering():
            renumber_subjects(self.index, self.blocks)
        if previous is not None:
            write_lengths(self)
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
            # After a crash this reveals whether the block before arrived whole.
            write_mark(self, MARK_PREVIOUS, (<uint64_t>previous.number << 32) | previous.size)
        if previous is not None and previous.live_msgs == 0:
            self.drop_if_empty(previous)
            self.advance_first()

    cdef Block block_of(self, uint64_t seq):
        """The block whose range includes a sequence, or None."""
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

    cpdef bint is_live(self, uint64_t seq) except -1:
        """Whether a sequence has a live message, without loading a block."""
        cdef Block block
        if seq < self.first_seq or seq > self.last_seq:
            return False
        block = self.block_of(seq)
        return block is not None and block.live_msgs > 0 \
            and not sequences_contains(&block.deleted.tree, seq)

    cpdef int load_index(self, Block block) except -1:
        """Load the block's index into memory; drops others if they use too much."""
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

    def evict(self, Block kept=None):
        """Release the least recently used block indexes until they fit into `index_bytes_max`."""
        evict(self.blocks, self.index_bytes_max, self.last, kept)

    def clear(self):
        """Forget all subjects, for a recovery that has to read the blocks again."""
        self.index.reset()

    def forget_pages(self):
        """Release the pages read from all files, which would count as memory of the process."""
        forget_pages(self.blocks)

    def free_steps(self):
        """Release the memory of all subjects, in steps: readers find nothing from then on."""
        self.msgs = self.bytes = 0
        self.first_seq = self.last_seq + 1
        self.index.reset()
        while self.index.free_some(FREED_PER_STEP):
            yield

    cpdef int drop_block(self, Block block) except -1:
        """Drop an unneeded block, but preserve facts that only it may have recorded."""
        write_last_seq(self)
        self.written_floor = 0
        self.blocks_went = True
        self.blocks.remove(block)
        self.recent = None
        self.block_keeper.blocks_dropped([block])
        return 0

    cdef int drop_if_empty(self, Block block) except -1:
        """Drop a sealed block without live messages, unless an older one needs its tombstones."""
        if block.live_msgs == 0 and block is not self.last and block.tombstones == 0 \
                and block in self.blocks:
            self.drop_block(block)
        return 0

    cdef int advance_first(self) except -1:
        """Find the new first sequence and drop blocks without live messages."""
        cdef Block block
        # First, because it must be correct even if a block cannot be created.
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

    # -------------------------------------------------------------- append

    def store(self, bytes subject not None, bytes header not None, bytes payload not None,
              int64_t timestamp_ns, int64_t ttl_ns=0):
        """Append a message and return its sequence; `ttl_ns` is the value of its Nats-TTL header.
        """
        return self.append(subject, <uint32_t>len(subject), header, <uint32_t>len(header), payload,
                           <uint32_t>len(payload), timestamp_ns, ttl_ns)

    cdef uint64_t append(self, const char* subject, uint32_t subject_size,
                         const char* header, uint32_t header_size,
                         const char* payload, uint32_t payload_size, int64_t timestamp,
                         int64_t ttl_ns=0) except 0:
        """Store a message under the next sequence, then let the limits remove what exceeds them.

        `ttl_ns` is the value of its Nats-TTL header, where a restart finds it again.
        """
        cdef uint64_t size = record_size(subject_size, header_size, payload_size)
        cdef uint64_t counted = self.stored_size(subject_size, header_size, payload_size)
        cdef uint64_t seq = self.last_seq + 1
        cdef SubjectEntry* entry
        cdef char* target
        if self.read_only:
            self.block_keeper.check_writable()
        if size > self.record_max() or subject_size > SUBJECT_MAX or subject_size == 0:
            self._refuse_size(size, subject_size)
        if seq > SEQUENCE_MAX:
            self._refuse_sequence(seq)
        if timestamp < self.last_timestamp:
            self.begin_run(timestamp)
        self.prepare_room(size, seq)
        if self.last.lengths_unknown:
            self._prove_lengths()
        target = self.last.room(<uint32_t>size)
        entry = self.index.find_or_add(subject, subject_size)
        if entry == NULL:
            raise MemoryError
        if ttl_ns > 0:
            self.last.ttl_count += 1
            if self.message_ttl and timers_add(
                    &self.timers.table, seq, later(timestamp, ttl_ns)) != 0:
                raise MemoryError
        if self.chain is not None:
            # The last thing that can fail, and in front of whatever the message pushes out.
            self.chain.add(seq, timestamp, subject, subject_size, header, header_size,
                           payload, payload_size)
        write_record(target, &self.last.key, seq, timestamp, subject, subject_size,
                     header, header_size, payload, payload_size)
        self.last.commit_message(seq, timestamp, <uint32_t>size, <uint32_t>counted, entry.id)
        if self.last.note_lengths(seq, subject_size, header, header_size, <uint32_t>size) \
                and self.keeps_tombstones:
            self._prove_lengths()
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
            trim_subject(self, subject[:subject_size], self.subject_msgs_max)
        if (self.msgs_max > 0 and self.msgs > <uint64_t>self.msgs_max) or (
                self.bytes_max > 0 and self.bytes > <uint64_t>self.bytes_max):
            make_room(self)
        return seq

    cdef int _prove_lengths(self) except -1:
        """Write a mark among messages, for which a unit has not reserved any room."""
        self.last.append_lengths()
        if self.unit_end:
            self.unit_end += RECORD_MIN
        return 0

    cpdef int begin_run(self, int64_t timestamp) except -1:
        """Begin a new block for a message older than the last one, if the clock was or is wrong:
        the stamps of a block must ascend, and index.db records only their ends. Not within a unit,
        nor for very many small blocks.
        """
        if self.last is not None and self.last.records.count and self.unit_end == 0 \
                and later(timestamp, CLOCK_SLACK_NS) < self.last_timestamp \
                and (self.last.size >= RUN_BYTES_MIN or len(self.blocks) < RUN_BLOCKS_MAX):
            self.add_block()
        return 0

    cdef int prepare_room(self, uint64_t size, uint64_t seq) except -1:
        """Ensure a last block that has room for `size` more bytes at sequence `seq`."""
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

    def begin_unit(self, uint64_t size, uint64_t count):
        """Put the next `count` messages into one block, which may grow by `size` bytes for it.

        A mark before them states so. A write that is cut off leaves the beginning of a block, never
        its end alone.
        """
        size += RECORD_MIN
        self.prepare_room(size, self.last_seq + 1)
        self.unit_last_seq = self.last_seq + count
        if size <= 0xFFFFFFFF:
            self.last.room(<uint32_t>size)      # all of it at once
        self.unit_end = self.last.size + size
        if self.keeps_tombstones:
            write_mark(self, MARK_UNIT, count)

    def end_unit(self):
        """Return to the ordinary block size; after a failure, close the unit with a mark."""
        if self.unit_end and self.keeps_tombstones and self.last_seq < self.unit_last_seq:
            write_mark(self, MARK_UNIT, 0)
        self.unit_end = 0

    def _refuse_size(self, uint64_t size, uint32_t subject_size):
        if subject_size == 0 or subject_size > SUBJECT_MAX:
            raise StoreError(f"a subject of {subject_size} bytes cannot be stored; 1 to"
                             f" {SUBJECT_MAX} are possible")
        raise StoreError(
            f"a record of {size} bytes cannot be stored; at most {self.record_max()} are possible")

    cdef uint32_t record_max(self) noexcept:
        """The size of the largest possible record."""
        return RECORD_MAX if self.keeps_tombstones else MEMORY_RECORD_MAX

    def _refuse_sequence(self, uint64_t seq):
        """StoreError for a sequence that would be read back from a file as something else."""
        raise StoreError(f"sequence {seq} cannot be stored; the highest one is {SEQUENCE_MAX}")

    def skip(self, uint64_t through, int64_t timestamp):
        """Skip all sequences up to `through` without messages."""
        if self.read_only:
            self.block_keeper.check_writable()
        if through <= self.last_seq:
            return
        if through > SEQUENCE_MAX:
            self._refuse_sequence(through)
        self.prepare_room(RECORD_MIN, through)
        # The mark states what the stream reports from now on, so that a start finds the same.
        timestamp = max(self.last_timestamp, timestamp)
        self.last.append_mark(through | SKIP, timestamp)
        self.last_seq = through
        self.last_timestamp = timestamp
        if self.msgs == 0:
            self.first_seq = through + 1

    cdef uint64_t stored_size(self, uint64_t subject_size, uint64_t header_size,
                              uint64_t payload_size) noexcept nogil:
        """The size of a message in `bytes`: its record; in memory as the official server counts."""
        if self.keeps_tombstones:
            return record_size(subject_size, header_size, payload_size)
        return MEMORY_OVERHEAD + subject_size + header_size + payload_size

    def counted_size(self, message):
        """The size of a message in `bytes`."""
        return self.stored_size(len(message.subject), len(message.header), len(message.payload))

    def _size_of(self, uint64_t seq):
        cdef Record record
        if self.read(seq, &record) != 0:
            return 0
        return self.stored_size(record.subject_size, record.header_size, record.payload_size)

    def check_room(self, bytes subject not None, uint64_t header_size, uint64_t payload_size,
                   bint per_subject=False, uint64_t more_msgs=0, uint64_t more_bytes=0,
                   uint64_t more_of_subject=0):
        """With discard new: DiscardedError with the official text if this message does not fit.

        `more_bytes` precede it.
        """
        cdef SubjectEntry* entry = self.index.find(subject, <uint32_t>len(subject))
        cdef uint64_t total = (entry.total if entry != NULL else 0) + more_of_subject
        cdef bint replaces = self.subject_msgs_max > 0 and total >= <uint64_t>self.subject_msgs_max
        cdef uint64_t size = self.stored_size(<uint32_t>len(subject), header_size, payload_size)
        if replaces and per_subject:
            raise DiscardedError("maximum messages per subject exceeded")
        if self.msgs_max > 0 and self.msgs + more_msgs >= <uint64_t>self.msgs_max \
                and not replaces:
            raise DiscardedError("maximum messages exceeded")
        if self.bytes_max > 0 and self.bytes + more_bytes + size > <uint64_t>self.bytes_max:
            if not replaces or entry == NULL \
                    or size > self._size_of(self.first_of(entry)):
                raise DiscardedError("maximum bytes exceeded")

    # -------------------------------------------------------------- look-up

    cdef int read(self, uint64_t seq, Record* record) except -1:
        """Read the record of a live sequence; 1 if there is none. Valid until the store changes or
        loads a block: code that needs it longer has to hold its `keeper`, or a copy.

        Bytes from a file are verified every time: the system may read them again from the disk at
        any time, long after the index of the block was built.
        """
        cdef Block block
        if seq < self.first_seq or seq > self.last_seq:
            return 1
        block = self.block_of(seq)
        if block is None:
            return 1
        if block is not self.reading:
            note_reading(self, block)
        self.reads_in_row += 1
        self.load_index(block)
        try:
            if block.read(seq, record) != 0:
                return 1
        except CorruptRecord:
            return read_damaged(self, block, seq, record)
        if block.mapped_data <= record.start < block.mapped_data + block.mapped_size \
                and (not record_is_intact(&block.key, record)
                     or not has_known_lengths(self.index, block, record)):
            return read_damaged(self, block, seq, record)
        return 0

    cdef object keeper(self, const Record* record):
        """The object that keeps the result of `read` in place while held. None: it may move."""
        cdef Block block = self.reading
        if block.mapped_data <= record.start < block.mapped_data + block.mapped_size:
            return block.mapped
        return None

    cdef uint64_t next_matching(self, uint64_t seq, SubjectFilter chosen) except? 0:
        """The first live sequence >= seq whose subject passes; 0 if there is none."""
        cdef Py_ssize_t low
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
            # Most often the next one follows the one that was read last.
            self.load_index(block)
            found = block.next_accepted(seq, chosen)
            if found:
                return found
        low = block_from(self, seq)
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
        """The highest live sequence of a subject; 0 if all its messages are lost."""
        return entry.last_seq or find_end(self, entry, True)

    cdef uint64_t first_of(self, SubjectEntry* entry) except? 0:
        """The lowest live sequence of a subject; 0 if all its messages are lost."""
        return entry.first_seq or find_end(self, entry, False)

    cpdef int64_t first_timestamp(self) except? -1:
        cdef Block block
        if self.msgs == 0:
            return 0
        block = self.block_of(self.first_seq)
        return block.first_timestamp

    cdef object _copy(self, const Record* record):
        return MessageCopy(record.seq, record.timestamp, record.subject[:record.subject_size],
                             record.header[:record.header_size],
                             record.payload[:record.payload_size])

    def get(self, uint64_t seq):
        """The message of a sequence; NotFoundError if there is none."""
        cdef Record record
        if self.read(seq, &record) != 0:
            raise NotFoundError(f"stream {self.name!r} has no message {seq}{self._why(seq)}")
        return self._copy(&record)

    def _why(self, uint64_t seq):
        lost = self.lost
        return ": it was lost by damage" if lost is not None and seq in lost.sequences else ""

    def filter(self, patterns=()):
        """A compiled filter for `next_message` and the like; keep it, because it caches its
        results. A filter of this store is returned as it is.
        """
        return patterns if isinstance(patterns, SubjectFilter) \
            else SubjectFilter(self.index, patterns)

    def next_message(self, patterns, uint64_t seq):
        """The first message at or after `seq` that passes; NotFoundError at the end."""
        cdef SubjectFilter chosen = self.filter(patterns)
        cdef uint64_t found = self.next_matching(seq, chosen)
        if found == 0:
            raise NotFoundError(f"stream {self.name!r} has no matching message from {seq} on")
        return self.get(found)

    def next_sequence(self, uint64_t seq, patterns):
        """The sequence of the first message at or after `seq` that passes; 0 if there is none."""
        return first_passing(self, self.filter(patterns), seq)

    def subjects_between(self, uint64_t first, uint64_t last):
        """The subjects of the live messages of a range of sequences, each once."""
        cdef Record record
        cdef SubjectFilter everything = self.filter()
        cdef uint64_t seq = self.next_matching(first, everything)
        cdef set found = set()
        while seq and seq <= last:
            if self.read(seq, &record) == 0:
                found.add(record.subject[:record.subject_size])
            seq = self.next_matching(seq + 1, everything)
        return found

    def last_message(self, bytes subject not None, uint64_t up_to=0):
        """The newest message (at or below `up_to`) whose subject matches a literal or a pattern."""
        cdef uint64_t best = last_accepted(self, self.filter((subject,)), up_to or self.last_seq)
        if best == 0:
            raise NotFoundError(f"stream {self.name!r} has no message on {subject!r}")
        return self.get(best)

    def last_sequences(self, patterns, uint64_t up_to=0):
        """The newest sequence of every matching subject, ascending, as 8 bytes each."""
        search = self.search_last(patterns, up_to)
        for _ in self.find_lasts():
            pass
        search.step(<uint64_t>1 << 62)
        return search.sequences()

    def search_last(self, patterns, uint64_t up_to=0):
        """The newest sequence of every matching subject, as a search in steps."""
        cdef LastSearch search = LastSearch()
        up_to = up_to or self.last_seq
        search.begin(self, self.filter(patterns), up_to, up_to, <size_t>-1, False)
        return search

    def last_sequence(self, patterns):
        """The newest sequence of all matching subjects; 0 if there is none."""
        return last_accepted(self, self.filter(patterns), self.last_seq)

    def find_lasts(self, uint64_t step=0xFFFFFFFFFFFFFFFF):
        """Find the last messages of all subjects if many are unknown, as after a start; yields
        after about `step` messages how many are left.
        """
        return find_unknown(self, step)

    cdef Block _block_before(self, uint32_t number):
        """The last block below a number, or None."""
        cdef Py_ssize_t low = 0, high = len(self.blocks), middle
        while low < high:
            middle = (low + high) // 2
            if (<Block>self.blocks[middle]).number < number:
                low = middle + 1
            else:
                high = middle
        return <Block>self.blocks[low - 1] if low else None

    def subjects(self, bytes pattern=b"", uint32_t offset=0, uint32_t limit=100_000):
        """Live messages per matching subject."""
        return self.index.names_and_totals(
            self.filter((pattern,) if pattern else ()), limit, offset)

    def subject_state(self, bytes subject not None):
        """Total, first and last sequence of one subject; None if it has no messages."""
        cdef SubjectEntry* entry = self.index.find(subject, <uint32_t>len(subject))
        if entry == NULL:
            return None
        first_seq, last_seq = self.first_of(entry), self.last_of(entry)
        if first_seq == 0:
            return None     # it had lost messages only
        return SubjectState(entry.total, first_seq, last_seq)

    def count_matching(self, patterns, uint64_t seq=0):
        """Count the matching live messages from `seq` on; uses ids in memory, reads no message."""
        return count_from(self, self.filter(patterns), seq)

    def sequence_at(self, timestamp_ns):
        """The first live sequence stored at or after a time; last_seq + 1 if there is none.

        A time that does not fit into 64 bits is before or after all messages.
        """
        return sequence_from(self, min(max(timestamp_ns, TIME_MIN), TIME_MAX))

    def messages(self, uint64_t seq=0):
        """All live messages from a sequence on; the store may change meanwhile."""
        chosen = self.filter()
        found = self.next_matching(seq, chosen)
        while found:
            yield self.get(found)
            found = self.next_matching(found + 1, chosen)

    def deleted_sequences(self, uint32_t limit=100_000):
        """The sequences between first and last that have no message, ascending; at most `limit`."""
        return list(islice(self._each_deleted(), limit))

    def _each_deleted(self):
        cdef Block block
        expected = self.first_seq
        for block in self.blocks:
            if block.live_msgs:
                yield from range(expected, block.first_seq)
                yield from block.deleted
                expected = block.last_seq + 1
        if self.msgs:
            yield from range(expected, self.last_seq + 1)

    @property
    def state(self):
        """The present totals."""
        deleted = self.last_seq - self.first_seq + 1 - self.msgs if self.msgs else 0
        return StoreState(self.msgs, self.bytes, self.first_seq, self.first_timestamp(),
                          self.last_seq, self.last_timestamp, self.index.live_count, deleted,
                          self.lost)

    @property
    def lost(self):
        """The unreadable messages that were not removed since."""
        return self.block_keeper.lost

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
            note_reading(self, block)
        self.reads_in_row += 1
        self.load_index(block)
        try:
            if block.read(seq, &record) != 0:
                return 1
        except CorruptRecord:
            return forget_damaged(self, block, seq, tombstone)
        if tombstone and self.keeps_tombstones:
            # Calls that can fail come first: memory and disk must agree about this message.
            mark_floor(self)
            self.prepare_room(RECORD_MIN, self.last_seq)
            self.load_index(block)
        first_timestamp = block.first_time_without(seq)
        if block.read(seq, &record) != 0:
            return 1
        entry = self.index.find(record.subject, record.subject_size)
        if entry == NULL or entry.id != record.subject_id:
            return forget_damaged(self, block, seq, tombstone)
        size = <uint32_t>self.stored_size(
            record.subject_size, record.header_size, record.payload_size)
        if self.chain is not None:
            self.chain.remove(seq, seq, self.removing)
        if self.listener is not None:
            self.listener.message_removed(seq, entry.id)
        if self.recount.is_under_way():
            self.recount.removed(block, seq, entry.id)
        if entry.total:
            entry.total -= 1
        if entry.total == 0 and not self.has_open_damage:
            self.index.forget(entry)
        else:
            if seq == entry.first_seq:
                entry.first_seq = 0
                entry.first_block = block.number
            if seq == entry.last_seq:
                entry.last_seq = 0
                entry.last_block = block.number
                self.lasts_lost += 1
            if entry.total == 1 and not self.has_open_damage:
                entry.first_seq = entry.last_seq = entry.first_seq or entry.last_seq  # one is left
        self.forget_times(seq)
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

    cdef void forget_times(self, uint64_t seq) noexcept:
        """Remove a removed message from the timers and schedules."""
        if self.timers.table.count:
            timers_forget(&self.timers.table, seq)
        if self.schedules.table.count:
            timers_forget(&self.schedules.table, seq)

    def remove(self, uint64_t seq, *, erase=False, int reason=REASON_DELETED):
        """Delete a message, with `erase` also its bytes; false if there is none. `reason` is for a
        chain (`tradewind.chain.chain_entries`).
        """
        cdef Block block = self.block_of(seq)
        cdef uint32_t offset = 0
        if self.read_only:
            self.block_keeper.check_writable()
        if erase and block is not None:
            self.load_index(block)
            offset = block._offset_of(seq)
        self.removing = reason
        try:
            if self.forget_message(seq, True) != 0:
                return False
        finally:
            self.removing = REASON_LIMITS
        if erase:
            self.block_keeper.erase_record(block, seq, offset)
        return True

    def purge(self, bytes pattern=b"", *, uint64_t below=0, uint64_t keep=0):
        """Delete matching messages, below a sequence, or all but the newest `keep`; returns how
        many.
        """
        return sum(self.purge_steps(pattern, below=below, keep=keep))

    def purge_steps(self, patterns=b"", *, uint64_t below=0, uint64_t keep=0,
                    uint64_t step=0xFFFFFFFFFFFFFFFF, uint64_t work=0xFFFFFFFFFFFFFFFF):
        """Purge at most `step` messages at a time; yields the number after each step. Accepts a
        filter instead of a pattern.

        A step searches for about `work` nanoseconds. The store may change between two steps;
        messages stored there stay.
        """
        cdef uint64_t before = self.msgs, last = self.last_seq, seq = 0
        cdef SubjectFilter chosen = self.filter(
            ((patterns,) if patterns else ()) if isinstance(patterns, bytes) else patterns)
        cdef PurgeRange found
        if self.read_only:
            self.block_keeper.check_writable()
        if below and keep:
            raise ValueError("purge takes a sequence or a number to keep, not both")
        if chosen.everything and not below and not keep:
            purge_all(self)
            yield before
            while self.index.free_some(FREED_PER_STEP):
                yield 0
            return
        if keep:
            below = sequence_that_keeps(self, chosen, keep)
        if chosen.everything and below > max(last, <uint64_t>1):
            yield self.compact(below)
            return
        below = min(below, last + 1) if below else last + 1
        while chosen.arrange(work):
            yield 0
        singles = listed_range(self, chosen, &found)
        if found.is_known:
            seq, below = found.first, min(below, found.end)
        if singles is not None:
            seq = 0
        while True:
            before = self.msgs
            self.removing = REASON_PURGED
            try:
                if singles is not None:
                    seq = purge_listed(self, singles, seq, below, step)
                    is_over = seq == len(singles)
                else:
                    seq = purge_some(self, chosen, seq, below, step, work)
                    is_over = seq == 0
            finally:
                self.removing = REASON_LIMITS
            yield before - self.msgs
            if is_over:
                return
            if self.read_only:
                self.block_keeper.check_writable()

    def compact(self, uint64_t seq):
        """Delete everything below `seq`; returns the number of messages."""
        cdef uint64_t before = self.msgs
        if self.read_only:
            self.block_keeper.check_writable()
        if seq > self.last_seq:
            if seq - 1 > SEQUENCE_MAX:
                self._refuse_sequence(seq - 1)
            purge_all(self)
            self.skip(seq - 1, self.last_timestamp)
            return before
        self.removing = REASON_PURGED
        try:
            while self.msgs and self.first_seq < seq:
                self.forget_message(self.first_seq, True)
        finally:
            self.removing = REASON_LIMITS
        return before - self.msgs

    # -------------------------------------------------------------- limits and times

    def apply_limits(self, int64_t now_ns, expired=None):
        """Bring the store under its limits; returns how many messages were removed. `expired`: see
        `expire`.

        Subjects come first, as while running: cutting the front first would remove messages that
        fit.
        """
        cdef uint64_t before = self.msgs
        if self.read_only:
            return 0
        begin_limits(self)
        while self.limit_step():
            pass
        self.expire(now_ns, expired=expired)
        return before - self.msgs

    def begin_limits(self):
        """Apply the limits in steps, except expiry: call `limit_step` until it returns false."""
        begin_limits(self)

    def begin_trimming(self):
        """Apply only the limit of messages per subject, in steps."""
        begin_trimming(self)

    @property
    def is_overdue(self):
        """Whether `limit_step` has something to do."""
        return is_overdue(self)

    def limit_step(self, uint64_t budget=0xFFFFFFFFFFFFFFFF):
        """Continue the removals by limits; returns whether there are more. `budget` is roughly a
        number of messages.
        """
        cdef uint64_t before
        cdef bint is_done
        if not is_overdue(self):
            return False
        before = self.limit_floor
        is_done = remove_overdue(self, &budget)
        if self.keeps_tombstones and self.limit_floor > before:
            # Before anything else is removed: the limits may have room again then.
            write_floor(self)
        return not is_done

    def expire(self, int64_t now_ns, *, uint64_t limit=0, expired=None):
        """Delete messages older than the age limit or their own time to live; returns how many.

        At most `limit` if it is not 0. `expired` is called for each after its removal, and must not
        change the store. Ends before a message that needs a marker (`next_to_mark`).
        """
        cdef uint64_t count = 0
        cdef uint64_t seq
        if self.read_only:
            return 0
        while (limit == 0 or count < limit) and self.msgs:
            seq = next_to_expire(self, now_ns)
            if seq == 0 or leaves_marker(self, seq):
                break
            message = None if expired is None else self.get(seq)
            # Removals by a time to live do not follow from the limits, nor do gaps.
            self.forget_message(seq, seq != self.first_seq or not is_too_old(self, now_ns))
            count += 1
            if expired is not None:
                expired(message)
        return count

    def next_to_mark(self, int64_t now_ns):
        """The expired message that waits to be replaced by a marker; None if `expire` can continue
        without one.
        """
        cdef uint64_t seq = 0 if self.read_only or not self.marks_expired \
            else next_to_expire(self, now_ns)
        return self.get(seq) if seq and leaves_marker(self, seq) else None

    def aging_at(self, uint64_t from_seq, int64_t now_ns=TIME_MAX):
        """(sequence, time) of the first message from a sequence on that ages; None if none does."""
        return aging_at(self, from_seq, now_ns)

    def timed_out(self, int64_t now_ns):
        """A message whose own time to live has passed; 0 if there is none. The result stays the
        same until it is removed or put off.
        """
        return 0 if self.read_only else next_timed_out(self, now_ns)

    def put_off(self, uint64_t seq, int64_t until_ns):
        """Postpone the check of an expired message, because it is still needed."""
        if timers_add(&self.timers.table, seq, until_ns) != 0:
            raise MemoryError

    def has_expired(self, uint64_t seq, int64_t now_ns):
        """Whether a message exists and has expired."""
        return has_expired(self, seq, now_ns)

    def leaves_marker(self, uint64_t seq):
        """Whether an expired message is to be replaced by a marker."""
        return leaves_marker(self, seq)

    def spare(self, uint64_t seq):
        """Stop the timer of a message whose time to live has passed; returns whether it had one."""
        return timers_forget(&self.timers.table, seq)

    def next_expiry_ns(self, int64_t now_ns=TIME_MAX):
        """When `expire` will have something to do, or earlier; None if never."""
        return None if self.read_only else next_expiry(self, now_ns)

    def adopt_timers(self, TimingWheel found not None, uint64_t stamp):
        """Adopt timers from before a restart, complete for all sequences below `stamp`."""
        adopt_timers(self, found)
        start_timers(self, stamp)

    # -------------------------------------------------------------- for checks

    def verify(self):
        """Assert every invariant by recounting; for tests and tools."""
        verify_store(self)
        assert all(self.is_live(seq) for seq, _ in self.timers.pending())

    def load_all(self):
        """Load the index of every block into memory, without a limit; for `verify`."""
        for block in self.blocks:
            self.load_index(block)
            yield block
