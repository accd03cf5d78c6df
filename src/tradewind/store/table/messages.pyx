"""What everybody calls on a store of messages: the contract of `contract.py`, on top of the core.

Owns nothing: every method is a way to ask or tell `MessageCore` something from Python. As it is,
the class keeps its messages in memory; `FileStore` is the one on disk.
"""

from array import array
from itertools import islice

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, qsort
from libc.string cimport memset
from tradewind.store.table.block cimport Block
from tradewind.store.table.expiry cimport (
    adopt_timers, is_too_old, leaves_marker, next_expiry, next_to_expire, start_timers)
from tradewind.store.table.message_core cimport MARK_FLOOR, MessageCore
from tradewind.store.table.overdue cimport begin_limits, begin_trimming, remove_overdue, is_overdue
from tradewind.store.table.record_index cimport NO_RECORD, RecordIndex, records_from, records_seq
from tradewind.store.format.records cimport RECORD_MIN, Record, header_value
from tradewind.store.format.sequence_tree cimport sequences_count_in
from tradewind.store.table.subject_ends cimport note_lasts, unknown_lasts
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectFilter
from tradewind.store.format.timing_wheel cimport TimingWheel
from tradewind.containers.buffer cimport (
    Buffer, buffer_append, buffer_free, buffer_init, buffer_size,
)

from tradewind.errors import CorruptRecord
from tradewind.store.table.audit import verify_store
from tradewind.store.contract import (
    DiscardedError, NotFoundError, StoredMessage, StoreState, SubjectState)

cdef enum:
    # So many messages are looked at for the newest of a pattern before its subjects are.
    LOOK_BACK_MAX = 65536
    # So many last messages of subjects are looked for one by one.
    FEW_UNKNOWN = 64
    LASTS_TRIES = 3

cdef uint64_t SEQUENCE_MAX = (<uint64_t>1 << 62) - 1
cdef uint64_t TOMBSTONE = <uint64_t>1 << 62
TIME_MIN, TIME_MAX = -2**63, 2**63 - 1


cdef int compare_sequences(const void* one, const void* other) noexcept nogil:
    cdef uint64_t first = (<uint64_t*>one)[0], second = (<uint64_t*>other)[0]
    return (first > second) - (first < second)


cdef uint64_t last_accepted_in(Block block, uint64_t seq, SubjectFilter chosen,
                               uint64_t* steps) noexcept nogil:
    """The last live sequence <= seq of a loaded block that passes; 0 if there is none, or if
    `steps` are used up before.
    """
    cdef RecordIndex* records = &block.records
    cdef uint32_t entry = records_from(records, seq + 1)
    while entry and steps[0]:
        entry -= 1
        steps[0] -= 1
        if records.offsets[entry] != NO_RECORD and chosen.accepts(records.subject_ids[entry]):
            return records_seq(records, entry)
    return 0


cdef class MessageStore(MessageCore):
    """A stream's messages in memory; see FileStore for the one on disk."""

    def store(self, bytes subject not None, bytes header not None, bytes payload not None,
              int64_t timestamp_ns, int64_t ttl_ns=0):
        """Append a message and give its sequence; `ttl_ns` is what its Nats-TTL header says."""
        return self.append(subject, <uint32_t>len(subject), header, <uint32_t>len(header), payload,
                           <uint32_t>len(payload), timestamp_ns, ttl_ns)

    def set_limits(self, limits):
        """New limits; `apply_limits` removes what is too much under them."""
        cdef bint had_ttl = self.message_ttl
        MessageCore.set_limits(self, limits)
        if self.message_ttl and not had_ttl:
            start_timers(self, 0)
        elif had_ttl and not self.message_ttl:
            self.timers.clear()

    def check_room(self, bytes subject not None, uint64_t header_size, uint64_t payload_size,
                   bint per_subject=False, uint64_t more_msgs=0, uint64_t more_bytes=0,
                   uint64_t more_of_subject=0):
        """With discard new: DiscardedError if this message does not fit, with the official text.

        So much `more` comes before it.
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

    def counted_size(self, message):
        """What a message counts in `bytes`."""
        return self.stored_size(len(message.subject), len(message.header), len(message.payload))

    def _size_of(self, uint64_t seq):
        cdef Record record
        if self.read(seq, &record) != 0:
            return 0
        return self.stored_size(record.subject_size, record.header_size, record.payload_size)

    cdef object _copy(self, const Record* record):
        return StoredMessage(record.seq, record.timestamp, record.subject[:record.subject_size],
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
        """A compiled filter for `next_message` and the like; keep it, it remembers its verdicts."""
        return SubjectFilter(self.index, patterns)

    def next_message(self, patterns, uint64_t seq):
        """The first message at or behind `seq` that passes (patterns, or a filter); NotFoundError
        at the end.
        """
        cdef SubjectFilter chosen = (
            patterns if isinstance(patterns, SubjectFilter) else self.filter(patterns))
        cdef uint64_t found = self.next_matching(seq, chosen)
        if found == 0:
            raise NotFoundError(f"stream {self.name!r} has no matching message from {seq} on")
        return self.get(found)

    def next_sequence(self, uint64_t seq, patterns):
        """The sequence of the first message at or behind `seq` that passes; 0 if there is none."""
        return self.next_matching(seq, self.filter(patterns))

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
        cdef uint64_t best = self.last_accepted(self.filter((subject,)), up_to or self.last_seq)
        if best == 0:
            raise NotFoundError(f"stream {self.name!r} has no message on {subject!r}")
        return self.get(best)

    cdef uint64_t last_accepted(self, SubjectFilter chosen, uint64_t up_to) except? 0:
        """The newest sequence at or below `up_to` that passes; 0 if there is none.

        A pattern for many subjects is found soon among the newest messages. For one that matches
        few, the subjects are asked instead, so that not the whole stream is walked through.
        """
        cdef SubjectEntry* entry
        cdef Block block
        cdef uint64_t best = 0, steps = LOOK_BACK_MAX
        cdef uint32_t index
        if chosen.is_literal:
            entry = self.index.find(chosen.literal, <uint32_t>len(chosen.literal))
            return 0 if entry == NULL else self.last_up_to(entry, up_to)
        chosen.prepare()
        for block in reversed(self.blocks):
            if block.live_msgs == 0 or block.first_seq > up_to:
                continue
            self.load_index(block)
            best = last_accepted_in(block, min(up_to, block.last_seq), chosen, &steps)
            if best:
                return best
            if steps == 0:
                break
        else:
            return 0
        for _ in self.find_lasts():
            pass
        for index in range(self.index.entry_count):
            entry = self.index.entries[index]
            if entry == NULL or 0 < entry.last_seq <= best or not chosen.accepts(index):
                continue
            best = max(best, self.last_up_to(entry, up_to))
        return best

    cdef uint64_t last_up_to(self, SubjectEntry* entry, uint64_t up_to) except? 0:
        """The newest message of a subject at or below a sequence; 0 if there is none."""
        cdef uint64_t found
        cdef Block block
        if entry.first_seq > up_to:
            return 0
        found = self.last_of(entry)
        if found <= up_to:
            return found
        for block in reversed(self.blocks):
            if block.number < entry.first_block:
                break
            if block.live_msgs == 0 or block.first_seq > up_to:
                continue
            self.load_index(block)
            found = block.last_of(min(up_to, block.last_seq), entry.id)
            if found:
                return found
        return 0

    def last_sequences(self, patterns, uint64_t up_to=0):
        """The newest sequence of every matching subject, ascending, as 8 bytes each."""
        cdef Buffer found
        buffer_init(&found)
        try:
            self.collect_last(self.filter(patterns), up_to or self.last_seq, <size_t>-1, &found)
            sequences = array("Q")
            if buffer_size(&found):
                sequences.frombytes((found.data + found.begin)[:buffer_size(&found)])
            return sequences
        finally:
            buffer_free(&found)

    def last_sequence(self, patterns):
        """The newest sequence of all matching subjects; 0 if there is none."""
        return self.last_accepted(self.filter(patterns), self.last_seq)

    def find_lasts(self, uint64_t step=0xFFFFFFFFFFFFFFFF):
        """Find the last messages of all subjects if many are not known, as after a start.

        One walk back through the blocks, which gives after about `step` messages each time how many
        are left. If the store changes there so that what was passed is not true any more it begins
        again, and goes through in one go in the end.
        """
        cdef uint64_t lost = self.lasts_lost, left = step
        cdef uint32_t number = 0xFFFFFFFF, unknown = unknown_lasts(self.index), tries = LASTS_TRIES
        cdef Block block
        if unknown <= FEW_UNKNOWN:
            return
        while unknown:
            if tries and (left == 0 or lost != self.lasts_lost):
                if left == 0:
                    yield unknown
                left = step
                if lost != self.lasts_lost:
                    lost, number, tries = self.lasts_lost, 0xFFFFFFFF, tries - 1
                unknown = unknown_lasts(self.index)
            block = self._block_before(number)
            if block is None:
                return
            number = block.number
            if block.live_msgs:
                self.load_index(block)
                self.end_walks += 1
                left -= min(left, <uint64_t>block.records.count)
                unknown -= min(unknown, note_lasts(self.index, block))

    cdef Block _block_before(self, uint32_t number):
        """The last block below a number, or None."""
        cdef Block block
        for block in reversed(self.blocks):
            if block.number < number:
                return block
        return None

    cdef int collect_last(self, SubjectFilter chosen, uint64_t up_to, size_t count_max,
                          Buffer* found) except -1:
        """Append the same as numbers; only some of them if there are more than `count_max`."""
        cdef OlderOnes older
        cdef SubjectEntry* entry
        cdef bytes subject
        cdef uint32_t index
        memset(&older, 0, sizeof(OlderOnes))
        try:
            if chosen.all_literal():
                for subject in set(chosen.patterns):
                    entry = self.index.find(subject, <uint32_t>len(subject))
                    if entry != NULL:
                        self._collect_one(entry, up_to, found, &older)
            else:
                if count_max == <size_t>-1:
                    for _ in self.find_lasts():
                        pass
                chosen.prepare()
                for index in range(self.index.entry_count):
                    if self.index.entries[index] != NULL and chosen.accepts(index):
                        self._collect_one(self.index.entries[index], up_to, found, &older)
                        if buffer_size(found) // sizeof(uint64_t) > count_max:
                            break
            if older.count:
                self._collect_older(&older, up_to, count_max, found)
        finally:
            free(older.wanted)
        if buffer_size(found):
            qsort(found.data + found.begin, buffer_size(found) // sizeof(uint64_t),
                  sizeof(uint64_t), compare_sequences)
        return 0

    cdef int _collect_one(self, SubjectEntry* entry, uint64_t up_to, Buffer* found,
                          OlderOnes* older) except -1:
        """Append the newest message of a subject, or remember that an older one is wanted."""
        cdef uint64_t seq
        if entry.first_seq > up_to:
            return 0
        seq = self.last_of(entry)
        if seq == 0:
            return 0        # it had lost messages only
        if seq <= up_to:
            if buffer_append(found, <const char*>&seq, sizeof(uint64_t)) != 0:
                raise MemoryError
            return 0
        if older.wanted == NULL:
            older.ids = self.index.entry_count
            older.first_block = 0xFFFFFFFF
            older.wanted = <uint8_t*>calloc(older.ids, 1)
            if older.wanted == NULL:
                raise MemoryError
        if entry.id < older.ids:
            older.wanted[entry.id] = 1
            older.count += 1
            older.first_block = min(older.first_block, entry.first_block)
        return 0

    cdef int _collect_older(self, OlderOnes* older, uint64_t up_to, size_t count_max,
                            Buffer* found) except -1:
        """Walk back through the blocks, once for all of these subjects."""
        cdef Block block
        cdef uint32_t entry, subject_id
        cdef uint64_t seq
        for block in reversed(self.blocks):
            if block.number < older.first_block:
                return 0
            if block.live_msgs == 0 or block.first_seq > up_to:
                continue
            self.load_index(block)
            entry = records_from(&block.records, min(up_to, block.last_seq) + 1)
            while entry:
                entry -= 1
                subject_id = block.records.subject_ids[entry]
                if block.records.offsets[entry] == NO_RECORD or subject_id >= older.ids \
                        or not older.wanted[subject_id]:
                    continue
                older.wanted[subject_id] = 0
                older.count -= 1
                seq = records_seq(&block.records, entry)
                if buffer_append(found, <const char*>&seq, sizeof(uint64_t)) != 0:
                    raise MemoryError
                if older.count == 0 or buffer_size(found) // sizeof(uint64_t) > count_max:
                    return 0
        return 0

    def remove(self, uint64_t seq, *, erase=False):
        """Delete a message, with `erase` also its bytes; false if it is not there."""
        cdef Block block = self.block_of(seq)
        cdef uint32_t offset = 0
        if self.read_only:
            self.block_keeper.check_writable()
        if erase and block is not None:
            self.load_index(block)
            offset = block._offset_of(seq)
        if self.forget_message(seq, True) != 0:
            return False
        if erase:
            self.block_keeper.erase_record(block, seq, offset)
        return True

    def purge(self, bytes pattern=b"", *, uint64_t below=0, uint64_t keep=0):
        """Delete what matches, below a sequence, or all but the newest `keep`; gives how many."""
        return sum(self.purge_steps(pattern, below=below, keep=keep))

    def purge_steps(self, bytes pattern=b"", *, uint64_t below=0, uint64_t keep=0,
                    uint64_t step=0xFFFFFFFFFFFFFFFF):
        """The same, at most `step` messages at a time; gives how many after each.

        The store may change between two steps; what is stored there stays.
        """
        cdef uint64_t before = self.msgs, last = self.last_seq, seq = 0
        cdef SubjectFilter chosen = self.filter((pattern,) if pattern else ())
        if self.read_only:
            self.block_keeper.check_writable()
        if below and keep:
            raise ValueError("purge takes a sequence or a number to keep, not both")
        if chosen.everything and not below and not keep:
            self._purge_all()
            yield before
            return
        if keep:
            below = self._sequence_that_keeps(chosen, keep)
        if chosen.everything and below > max(last, <uint64_t>1):
            yield self.compact(below)
            return
        below = min(below, last + 1) if below else last + 1
        while True:
            before = self.msgs
            seq = self._purge_some(chosen, seq, below, step)
            yield before - self.msgs
            if seq == 0:
                return
            if self.read_only:
                self.block_keeper.check_writable()

    cdef uint64_t _purge_some(self, SubjectFilter chosen, uint64_t seq, uint64_t below,
                              uint64_t count) except? 0xFFFFFFFFFFFFFFFF:
        """Remove up to `count` that match in [seq, below); gives where to go on, 0 at the end."""
        if chosen.everything:
            while self.msgs and self.first_seq < below:
                if count == 0:
                    return self.first_seq
                count -= 1
                self.forget_message(self.first_seq, True)
            return 0
        seq = self.next_matching(seq, chosen)
        while seq and seq < below:
            if count == 0:
                return seq
            count -= 1
            self.forget_message(seq, True)
            seq = self.next_matching(seq + 1, chosen)
        return 0

    def _sequence_that_keeps(self, SubjectFilter chosen, uint64_t keep):
        """The sequence from which exactly `keep` matching messages remain; 1 if there are no more.

        Blocks are counted from the nearer end, and only one is walked through.
        """
        cdef uint64_t total = self.msgs, left, count
        cdef Block block
        if not chosen.everything:
            _, total = self.index.matching_total(chosen)
        if total <= keep:
            return 1
        chosen.prepare()
        left = total - keep
        if left <= keep:
            for block in self.blocks:
                count = self._count_in(block, chosen)
                if left < count:
                    return self._matching_in(block, chosen, left)
                left -= count
            return 1
        left = keep
        for block in reversed(self.blocks):
            count = self._count_in(block, chosen)
            if left <= count:
                return self._matching_in(block, chosen, count - left)
            left -= count
        return 1

    def _count_in(self, Block block not None, SubjectFilter chosen not None):
        """How many messages of a block pass."""
        cdef SubjectEntry* entry
        if block.live_msgs == 0 or chosen.everything:
            return block.live_msgs
        if chosen.literal is not None:
            entry = self.index.find(chosen.literal, <uint32_t>len(chosen.literal))
            if entry == NULL or not entry.first_block <= block.number <= entry.last_block:
                return 0
        self.load_index(block)
        return block.count_accepted(block.first_seq, chosen)

    def _matching_in(self, Block block not None, SubjectFilter chosen not None, uint64_t index):
        """The sequence of a message of a block by its place among those that pass."""
        cdef uint64_t seq
        self.load_index(block)
        seq = block.next_accepted(block.first_seq, chosen)
        while index and seq:
            seq = block.next_accepted(seq + 1, chosen)
            index -= 1
        return seq or 1

    def _purge_all(self):
        cdef list dropped = self.blocks
        if self.last_seq == 0:
            self._begin_with_first()
            return
        fresh = self.block_keeper.open_block(self.last.number + 1)
        self.blocks = []
        self.recent = None
        self.index.reset()
        self.recount.cancel()
        self.timers.clear()
        self.schedules.clear()
        self.msgs = 0
        self.bytes = 0
        self.first_seq = self.last_seq + 1
        self.last = fresh
        self.last.reset_index()
        self.last.start_after(self.last_seq)
        self.blocks.append(self.last)
        self.block_keeper.block_opened()
        if self.keeps_tombstones:
            self.last.append_mark(self.last_seq | TOMBSTONE, self.last_timestamp)
            self.mark(MARK_FLOOR, self.last_seq + 1)
            self.limit_floor = self.written_floor = self.marked_floor = self.last_seq + 1
        self.block_keeper.blocks_dropped(dropped)
        if self.listener is not None:
            self.listener.all_removed()

    def _begin_with_first(self):
        """A store that had no message yet says 1 as its first sequence from now on, not 0: that is
        how nats-server tells that somebody has purged it, or asked for that sequence.
        """
        if self.first_seq == 0 and self.keeps_tombstones and self.last is not None:
            self.prepare_room(RECORD_MIN, 1)
            self.mark(MARK_FLOOR, 1)
            self.written_floor = 1
        self.first_seq = 1

    def compact(self, uint64_t seq):
        """Delete everything below `seq`; gives how many messages that were."""
        cdef uint64_t before = self.msgs
        if self.read_only:
            self.block_keeper.check_writable()
        if seq > self.last_seq:
            if seq - 1 > SEQUENCE_MAX:
                self.refuse_sequence(seq - 1)
            self._purge_all()
            self.skip(seq - 1, self.last_timestamp)
            return before
        while self.msgs and self.first_seq < seq:
            self.forget_message(self.first_seq, True)
        return before - self.msgs

    def expire(self, int64_t now_ns, *, uint64_t limit=0, expired=None):
        """Delete what is older than the age limit or its own time to live; gives how many.

        At most `limit` if it is not 0. `expired` is told of each after it is gone, and must not
        change the store. Ends in front of one that needs a marker (`next_to_mark`).
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
            # What a time to live removes does not follow from the limits, nor does a gap.
            self.forget_message(seq, seq != self.first_seq or not is_too_old(self, now_ns))
            count += 1
            if expired is not None:
                expired(message)
        return count

    def next_to_mark(self, int64_t now_ns):
        """The message that has expired and waits for a marker to take its place; None if `expire`
        can go on without one.
        """
        cdef uint64_t seq = 0 if self.read_only or not self.marks_expired \
            else next_to_expire(self, now_ns)
        return self.get(seq) if seq and leaves_marker(self, seq) else None

    def next_expiry_ns(self):
        """When `expire` will have something to do, or earlier; None if never."""
        return None if self.read_only else next_expiry(self)

    def adopt_timers(self, TimingWheel found not None, uint64_t stamp):
        """Timers from before a restart, complete for all sequences below `stamp`."""
        adopt_timers(self, found)
        start_timers(self, stamp)

    def note_schedule(self, uint64_t seq, int64_t due_ns):
        """The message that was stored last is a schedule, which is due then."""
        self.last.schedule_count += 1
        self.schedules.add(seq, due_ns)

    def forget_schedule(self, bytes subject not None):
        """A schedule of this subject is not due any more."""
        if self.schedules.table.count:
            self.end_schedule(subject, <uint32_t>len(subject))

    def sequences_with(self, bytes name not None, uint64_t from_seq):
        """The messages from a sequence on that have a header of this name, which is not empty.

        Schedules are looked for in the blocks that have any.
        """
        cdef Record record
        cdef Block block
        cdef size_t size = 0
        cdef bytes line = name + b":"
        cdef bint is_schedule = name == b"Nats-Schedule"
        cdef SubjectFilter everything = self.filter()
        cdef uint64_t seq
        found = array("Q")
        for block in list(self.blocks):
            if block.live_msgs == 0 or block.last_seq < from_seq \
                    or (is_schedule and block.schedule_count == 0):
                continue
            self.load_index(block)
            everything.prepare()
            seq = block.next_accepted(max(from_seq, block.first_seq), everything)
            while seq:
                if self.read(seq, &record) == 0 and record.header_size and header_value(
                        &record, line, len(line), &size) != NULL and size:
                    found.append(seq)
                seq = block.next_accepted(seq + 1, everything)
        return found

    def apply_limits(self, int64_t now_ns, expired=None):
        """Bring the store under its limits; gives how many messages went. `expired`: see `expire`.

        Subjects first, as while running: cutting the front first would take messages that fit.
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
        """The same in steps, except for what expires: `limit_step` until it is false."""
        begin_limits(self)

    def begin_trimming(self):
        """In steps, too: the limit of messages per subject alone."""
        begin_trimming(self)

    @property
    def is_overdue(self):
        """Whether `limit_step` has something to do."""
        return is_overdue(self)

    def limit_step(self, uint64_t budget=0xFFFFFFFFFFFFFFFF):
        """Go on with what limits have left to remove; whether there is more. `budget` is about how
        many messages.
        """
        cdef uint64_t before
        cdef bint is_done
        if not is_overdue(self):
            return False
        before = self.limit_floor
        is_done = remove_overdue(self, &budget)
        if self.keeps_tombstones and self.limit_floor > before:
            # Before anything else is removed: the limits may have room again then.
            self.write_floor()
        return not is_done

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
        """How many live messages from `seq` on pass; counts ids in memory, reads no message."""
        return self.count_from(
            patterns if isinstance(patterns, SubjectFilter) else self.filter(patterns), seq)

    cdef uint64_t count_from(self, SubjectFilter chosen, uint64_t seq) except? 0:
        """The same; blocks are counted from the nearer end."""
        cdef Py_ssize_t low = 0, high = len(self.blocks), middle, index
        cdef Block block
        cdef uint64_t total = 0
        if seq > self.last_seq:
            return 0
        if seq <= self.first_seq:
            return self._count_all(chosen)
        chosen.prepare()
        while low < high:
            middle = (low + high) // 2
            if (<Block>self.blocks[middle]).last_seq < seq:
                low = middle + 1
            else:
                high = middle
        if chosen.everything or self.unsettled or len(self.blocks) - low <= low + 1:
            for index in range(low, len(self.blocks)):
                total += self._count_block_from(self.blocks[index], chosen, seq)
            return total
        for index in range(low):
            total += self._count_block_from(self.blocks[index], chosen, 0)
        block = self.blocks[low]
        total += self._count_block_from(block, chosen, 0)
        total -= self._count_block_from(block, chosen, seq)
        return self._count_all(chosen) - total

    def _count_all(self, SubjectFilter chosen not None):
        cdef SubjectEntry* entry
        if chosen.everything:
            return self.msgs
        if chosen.is_literal:
            entry = self.index.find(chosen.literal, <uint32_t>len(chosen.literal))
            return 0 if entry == NULL else entry.total
        return self.index.matching_total(chosen)[1]

    cdef uint64_t _count_block_from(self, Block block, SubjectFilter chosen,
                                    uint64_t seq) except? 0:
        """The same in one block; the filter is prepared."""
        cdef SubjectEntry* entry
        if block.live_msgs == 0 or block.last_seq < seq:
            return 0
        if chosen.everything:
            seq = max(seq, block.first_seq)
            return block.last_seq - seq + 1 - sequences_count_in(
                &block.deleted.tree, seq, block.last_seq)
        if chosen.is_literal:
            entry = self.index.find(chosen.literal, <uint32_t>len(chosen.literal))
            if entry == NULL or not entry.first_block <= block.number <= entry.last_block:
                return 0
        self.load_index(block)
        return block.count_accepted(seq, chosen)

    def sequence_at(self, timestamp_ns):
        """The first live sequence stored at or after a time; last_seq + 1 if there is none.

        A time that does not fit into 64 bits is before or behind all messages.
        """
        return self.sequence_from(min(max(timestamp_ns, TIME_MIN), TIME_MAX))

    cdef uint64_t sequence_from(self, int64_t timestamp_ns) except? 0:
        cdef Block block
        cdef Record record
        cdef uint64_t seq
        cdef SubjectFilter everything = self.filter()
        cdef bint is_there
        for block in self.blocks:
            if block.live_msgs == 0 or block.last_timestamp < timestamp_ns:
                continue
            self.load_index(block)
            seq = block.first_seq
            while seq and seq <= block.last_seq:
                try:
                    is_there = block.read(seq, &record) == 0
                except CorruptRecord:
                    is_there = self.read(seq, &record) == 0
                if is_there and record.timestamp >= timestamp_ns:
                    return seq
                seq = block.next_accepted(seq + 1, everything)
        return self.last_seq + 1

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
        """The totals now."""
        deleted = self.last_seq - self.first_seq + 1 - self.msgs if self.msgs else 0
        return StoreState(self.msgs, self.bytes, self.first_seq, self.first_timestamp(),
                          self.last_seq, self.last_timestamp, self.index.live_count, deleted,
                          self.lost)

    @property
    def lost(self):
        """What could not be read, as far as it was not removed since."""
        return self.block_keeper.lost

    def mark_limit_floor(self):
        """Say on disk what a limit has removed, before the store is closed."""
        if self.blocks:
            self.mark_floor()
            self.write_floor()

    def verify(self):
        """Assert every invariant by counting again; for tests and tools."""
        verify_store(self)
        assert all(self.is_live(seq) for seq, _ in self.timers.pending())

    def is_live(self, uint64_t seq):
        """Whether there is a message of this sequence; reads nothing."""
        return self.is_there(seq)

    def load_all(self):
        """Have the index of every block in memory, whatever it costs; for `verify`."""
        for block in self.blocks:
            self.load_index(block)
            yield block
