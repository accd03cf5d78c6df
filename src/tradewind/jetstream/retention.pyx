"""Streams that retain messages for their consumers: when the last one is done, the message is
removed.

Owns the decision. In a work queue any acknowledgement removes a message; by interest it stays until
every consumer that wants its subject has acknowledged it. In both cases mirrors and sources are
asked too: they need a message until they have a durable copy of it. It runs in the middle of a
delivery, so it changes the store and nothing else; the stream is marked, and writes at the end of
the turn.

An acknowledgement counts whether or not the removal succeeds: a message that a store could not
remove, because it accepts no changes, is remembered and removed when the store accepts them again.
"""

from itertools import islice

from libc.stdint cimport uint32_t, uint64_t
from tradewind.consumer.taker cimport Taker
from tradewind.store.table.block cimport Block
from tradewind.store.table.record_index cimport records_find
from tradewind.store.format.records cimport Record
from tradewind.store.format.sequence_set cimport SequenceSet
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectFilter

from tradewind.errors import StoreError

cdef enum:
    REASON_ACKNOWLEDGED = 4     # as in `tradewind.chain.chain_entries`
    # More messages than this are not removed in one turn: one acknowledgement may be for all.
    REMOVED_PER_TURN_MAX = 10000


cdef class Retention(DoneListener):
    """The retention of one stream. `demand` has its takers."""

    def __init__(self, Ingest ingest not None, MessageStore store not None, Turn turn not None,
                 demand not None, bint any_ack):
        self.ingest = ingest
        self.store = store
        self.turn = turn
        self.any_ack = any_ack
        self.demand = demand
        self.refused = SequenceSet()
        self.put_off = SequenceSet()
        self.waiting = []

    cdef int message_done(self, Participant consumer, uint64_t seq) except -1:
        """Called when a consumer no longer needs this message."""
        if not self._puts_off(seq) and self._take_out(seq, consumer):
            self.turn.mark_dirty(self.ingest)
        return 0

    cdef bint _puts_off(self, uint64_t seq) except -1:
        """Whether to postpone the removal, because enough was removed in this turn."""
        if self.turn.monotonic_ns != self.turn_ns:
            self.turn_ns = self.turn.monotonic_ns
            self.removed = 0
        self.removed += 1
        if self.removed <= REMOVED_PER_TURN_MAX:
            return False
        if self.put_off_count == 0:
            self.ingest.deadline_changed()
        self.put_off_count += self.put_off.insert(seq)
        return True

    cdef uint64_t _remove_put_off(self, uint64_t budget) except? 0xFFFFFFFFFFFFFFFF:
        """Remove up to `budget` postponed messages; returns how many."""
        cdef uint64_t count = 0, seq
        if self.put_off_count == 0:
            return 0
        for seq in list(islice(self.put_off, min(budget, <uint64_t>REMOVED_PER_TURN_MAX))):
            self.put_off_count -= self.put_off.delete(seq)
            self._take_out(seq, None)
            count += 1
        if self.put_off_count == 0:
            waiting, self.waiting = self.waiting, []
            for told in waiting:
                told()
        return count

    def when_removed(self, told not None):
        """Call `told` when all messages acknowledged up to now are removed, or the store has
        refused to remove them.
        """
        if self.put_off_count:
            self.waiting.append(told)
        else:
            told()

    cdef bint _take_out(self, uint64_t seq, Participant without) except -1:
        """Remove a message that `without` does not need, unless another taker does."""
        try:
            if (not self.any_ack or self.is_copied) and self._is_needed(seq, without):
                return False
            return self.store.remove(seq, reason=REASON_ACKNOWLEDGED)
        except StoreError:
            self.refused.insert(seq)
            return False

    def remove_refused(self):
        """Remove what the store has refused to remove, now that it accepts changes again."""
        cdef SequenceSet refused = self.refused
        self.refused = SequenceSet()
        for seq in refused:
            self.message_done(None, seq)

    cdef bint _is_needed(self, uint64_t seq, Participant without) except -1:
        """Whether another consumer still wants a message; a missing message is not needed."""
        cdef Record record
        cdef SubjectEntry* entry
        if len(self.demand) == 1 and without in self.demand:
            return False
        if self.store.read(seq, &record) != 0:
            return False
        entry = self.store.index.find(record.subject, record.subject_size)
        if entry == NULL:
            return True     # unknown, so it must stay
        return self._is_wanted(
            self.demand.groups(record.subject[:record.subject_size]), seq, entry.id, without)

    cdef bint _is_wanted(self, list groups, uint64_t seq, uint32_t subject_id,
                         Participant without) except -1:
        """Whether a consumer of these groups, which match the subject, needs a message."""
        cdef Py_ssize_t _index, count, place
        cdef list members
        for group in groups:
            members = group.members
            count = len(members)
            place = group.start
            for _index in range(count):
                place = place + 1 if place + 1 < count else 0
                consumer = members[place]
                if consumer is not without \
                        and (<Taker?>consumer).part.needs_message(seq, subject_id):
                    # Asked first the next time: until it is done, no other need be asked.
                    group.start = place - 1
                    return True
        return False

    # -------------------------------------------------------------- a consumer has gone

    def begin_sweep(self, uint64_t last_seq):
        """Begin to search for messages up to a sequence that no consumer needs; called when a
        consumer is deleted or wants less.
        """
        self.sweep_from = 1
        self.sweep_to = max(self.sweep_to, last_seq)

    @property
    def is_sweeping(self):
        """Whether `sweep_step` has something to do."""
        return self.put_off_count > 0 or (self.sweep_to > 0 and not self.store.read_only)

    def sweep_step(self, uint64_t budget=0xFFFFFFFFFFFFFFFF):
        """Examine up to `budget` messages; returns how many were removed.

        A work queue retains messages that have not been delivered yet.
        """
        cdef uint64_t before = self.store.msgs, needed_from
        if not self.is_sweeping:
            return 0
        budget -= self._remove_put_off(budget)
        if not self.sweep_to or self.store.read_only:
            pass
        elif not self.any_ack and not len(self.demand):
            self.store.purge()
            self.sweep_to = 0
        else:
            # A consumer of everything needs all that has not been delivered to it yet.
            needed_from = self.demand.needed_from
            if needed_from and needed_from <= self.sweep_to:
                self.sweep_to = needed_from - 1
            self._sweep(budget)
        if self.store.msgs != before:
            self.turn.mark_dirty(self.ingest)
        return before - self.store.msgs

    cdef int _sweep(self, uint64_t budget) except -1:
        cdef SubjectFilter everything = SubjectFilter(self.store.index, ())
        cdef Block block
        cdef SubjectEntry* entry
        cdef uint32_t subject_id, epoch = self.store.index.epoch
        cdef uint64_t seq
        cdef dict groups = {}
        while budget:
            budget -= 1
            seq = self.store.next_matching(self.sweep_from, everything)
            if seq == 0 or seq > self.sweep_to:
                self.sweep_to = 0
                return 0
            self.sweep_from = seq + 1
            block = self.store.block_of(seq)
            subject_id = block.records.subject_ids[records_find(&block.records, seq)]
            if subject_id >= self.store.index.entry_count:
                continue
            entry = self.store.index.entries[subject_id]
            if entry == NULL:
                continue        # unknown, so it must stay
            if epoch != self.store.index.epoch:
                epoch = self.store.index.epoch
                groups.clear()
            takers = groups.get(subject_id)
            if takers is None:
                takers = groups[subject_id] = self.demand.groups(entry.name[:entry.name_size])
            if (self.any_ack and not takers) or self._is_wanted(takers, seq, subject_id, None):
                continue
            try:
                self.store.remove(seq, reason=REASON_ACKNOWLEDGED)
            except StoreError:
                self.refused.insert(seq)
        return 0
