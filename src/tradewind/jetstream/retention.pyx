"""Streams that keep messages for their consumers: when the last one is done, the message goes.

Owns the decision. In a work queue any acknowledgement removes a message; by interest it stays until
every consumer that wants its subject has acknowledged it. It runs in the middle of a delivery, so
it changes the store and nothing else; the stream is marked, and writes at the end of the turn.

An acknowledgement counts whatever becomes of the removal: what a store that takes no changes could
not remove is remembered, and goes when it takes them again.
"""

from libc.stdint cimport uint32_t, uint64_t
from tradewind.consumer.delivery cimport Delivery
from tradewind.store.records cimport Record
from tradewind.store.sequence_set cimport SequenceSet
from tradewind.store.subject_index cimport SubjectEntry

from tradewind.errors import StoreError


cdef class Retention(Settled):
    """One per stream with such a retention. `demand` has its consumers, each a Delivery."""

    def __init__(self, Ingest ingest not None, MessageCore store not None, Turn turn not None,
                 demand not None, bint any_ack):
        self.ingest = ingest
        self.store = store
        self.turn = turn
        self.any_ack = any_ack
        self.demand = demand
        self.refused = SequenceSet()

    cdef int settle(self, Participant consumer, uint64_t seq) except -1:
        """A consumer does not need this message any more."""
        if self._take_out(seq, consumer):
            self.turn.mark_dirty(self.ingest)
        return 0

    cdef bint _take_out(self, uint64_t seq, Participant without) except -1:
        """Remove a message that `without` does not need, unless another one does."""
        try:
            if not self.any_ack and self._is_needed(seq, without):
                return False
            return (<object>self.store).remove(seq)
        except StoreError:
            self.refused.insert(seq)
            return False

    def remove_refused(self):
        """The store takes changes again: remove what it has refused to."""
        cdef SequenceSet refused = self.refused
        self.refused = SequenceSet()
        for seq in refused:
            self.settle(None, seq)

    cdef bint _is_needed(self, uint64_t seq, Participant without) except -1:
        """Whether another consumer still wants it; a message that is gone is not needed."""
        cdef Record record
        cdef SubjectEntry* entry
        cdef uint32_t subject_id
        cdef Py_ssize_t _index, count, place
        cdef list members
        if len(self.demand) == 1 and without in self.demand:
            return False
        if self.store.read(seq, &record) != 0:
            return False
        entry = self.store.index.find(record.subject, record.subject_size)
        if entry == NULL:
            return True     # nobody knows
        subject_id = entry.id
        for lane in self.demand.lanes(record.subject[:record.subject_size]):
            members = lane.members
            count = len(members)
            place = lane.start
            for _index in range(count):
                place = place + 1 if place + 1 < count else 0
                consumer = members[place]
                if consumer is not without and (<Delivery?>consumer).needs_message(seq, subject_id):
                    # It is asked first the next time: until it is done nobody else need be.
                    lane.start = place - 1
                    return True
        return False

    def remove_unneeded(self, uint64_t first_seq, uint64_t last_seq):
        """A consumer has gone or wants less: remove what nobody needs in this range; gives how
        many messages that were. A work queue keeps what nobody has been given yet.
        """
        cdef uint64_t seq
        cdef uint64_t removed = 0
        for message in (<object>self.store).messages(first_seq):
            seq = message.seq
            if seq > last_seq:
                break
            if self.any_ack and (not self.demand.has_takers(message.subject)
                                 or self._is_needed(seq, None)):
                continue
            if self._take_out(seq, None):
                removed += 1
        if removed:
            self.turn.mark_dirty(self.ingest)
        return removed
