"""The newest messages: of a subject, of a pattern, of each subject that matches.

Owns the search. The index holds the last message of most subjects; a request for those up to a
sequence may need an older one, and then the blocks are walked back, once for all subjects.

A search goes in steps, because its cost depends on the number of subjects, patterns and messages.
The store may change between two of them. A subject that has got a newer message meanwhile is found
with its older one; if that is gone, with one up to `at_most`, which the caller may raise. New
subjects are ignored. If the subjects are renumbered, the search begins again.
"""

from array import array

from libc.stdlib cimport calloc, free, qsort
from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init, buffer_size)
from tradewind.store.format.records cimport Record
from tradewind.store.table.block cimport Block
from tradewind.store.table.listed_ids cimport listed_at, listed_count
from tradewind.store.table.record_index cimport NO_RECORD, RecordIndex, records_from, records_seq
from tradewind.store.table.subject_ends cimport note_lasts, unknown_lasts

cdef enum:
    # This many messages are searched for the newest of a pattern before its subjects are.
    LOOK_BACK_MAX = 65536
    # The costs of turning to a block, of reading its index, of finding the end of a subject in
    # blocks, and of examining a subject; the unit is about a nanosecond, as with
    # `SubjectFilter.work`.
    BLOCK_WORK = 4096
    LOAD_WORK = 2_000_000
    END_WORK = 65536
    SUBJECT_WORK = 8
    # More than this are sorted only when they are asked for.
    SORTED_MAX = 10_000
    # This many last messages of subjects are searched for one by one.
    FEW_UNKNOWN = 64
    LASTS_TRIES = 3
    # For `wanted`.
    OLDER = 1
    LATER = 2

cdef uint64_t ALL_WORK = <uint64_t>1 << 62


cdef int compare_sequences(const void* one, const void* other) noexcept nogil:
    cdef uint64_t first = (<LastFound*>one).seq, second = (<LastFound*>other).seq
    return (first > second) - (first < second)


cdef uint64_t last_accepted_in(Block block, uint64_t seq, SubjectFilter chosen,
                               uint64_t* steps) noexcept nogil:
    """Find the last live sequence <= seq of a loaded block that passes; 0 if there is none, or if
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


cdef uint64_t last_accepted(MessageStore store, SubjectFilter chosen, uint64_t up_to) except? 0:
    """The newest sequence at or below `up_to` that passes; 0 if there is none."""
    cdef LastSearch search = LastSearch()
    search.begin(store, chosen, up_to, up_to, 1, True)
    search.step(ALL_WORK)
    return search.newest()


cdef uint64_t last_up_to(MessageStore store, SubjectEntry* entry, uint64_t up_to) except? 0:
    """The newest message of a subject at or below a sequence; 0 if there is none."""
    cdef uint64_t found
    cdef Block block
    if entry.first_seq > up_to:
        return 0
    found = store.last_of(entry)
    if found <= up_to:
        return found
    for block in reversed(store.blocks):
        if block.number < entry.first_block:
            break
        if block.live_msgs == 0 or block.first_seq > up_to:
            continue
        store.load_index(block)
        found = block.last_of(min(up_to, block.last_seq), entry.id)
        if found:
            return found
    return 0


cdef object find_unknown(MessageStore store, uint64_t step):
    return _find_unknown(store, step)


def _find_unknown(MessageStore store not None, uint64_t step):
    """Walk back through the blocks once. If a change of the store invalidates the part already
    passed, it begins again, and finally completes in one go.
    """
    cdef uint64_t lost = store.lasts_lost, left = step
    cdef uint32_t number = 0xFFFFFFFF, unknown = 0, place = 0, tries = LASTS_TRIES
    cdef Block block
    while place < store.index.entry_count:
        unknown += unknown_lasts(store.index, place, step)
        place += <uint32_t>min(step, <uint64_t>(store.index.entry_count - place))
        if place < store.index.entry_count:
            yield unknown
    if unknown <= FEW_UNKNOWN:
        return
    while unknown:
        if tries and (left == 0 or lost != store.lasts_lost):
            if left == 0:
                yield unknown
            left = step
            if lost != store.lasts_lost:
                lost, number, tries = store.lasts_lost, 0xFFFFFFFF, tries - 1
            unknown = unknown_lasts(store.index, 0, 0xFFFFFFFF)
        block = store._block_before(number)
        if block is None:
            return
        number = block.number
        if block.live_msgs:
            store.load_index(block)
            store.end_walks += 1
            left -= min(left, <uint64_t>block.records.count)
            unknown -= min(unknown, note_lasts(store.index, block))


cdef class LastSearch:
    """A search for the newest message of every subject that passes, or the newest of them all."""

    def __cinit__(self):
        buffer_init(&self.found)
        buffer_init(&self.listed)
        self.phase = SEARCH_OVER

    def __dealloc__(self):
        buffer_free(&self.found)
        buffer_free(&self.listed)
        free(self.wanted)

    cdef int begin(self, MessageStore store, SubjectFilter chosen, uint64_t up_to, uint64_t at_most,
                   size_t count_max, bint only_newest) except -1:
        """Prepare the search for its first step."""
        self.store = store
        self.chosen = chosen
        self.up_to = up_to
        self.at_most = at_most
        self.count_max = count_max
        self.only_newest = only_newest
        self.literals = list(frozenset(chosen.patterns)) if chosen.all_literal() else None
        return self._begin_again()

    cdef int _begin_again(self) except -1:
        buffer_clear(&self.found)
        free(self.wanted)
        self.wanted = NULL
        self.is_sorted = False
        self.is_listed = False
        self.older_count = 0
        self.epoch = self.store.index.epoch
        self.ids = self.store.index.entry_count
        self.position = 0
        self.phase = SEARCH_PATTERNS
        if self.only_newest and self.literals is None:
            self.phase = SEARCH_NEWEST
        return 0

    cdef size_t count(self) noexcept nogil:
        """The number of messages found so far."""
        return buffer_size(&self.found) // sizeof(LastFound)

    cdef uint64_t newest(self) noexcept nogil:
        """The newest message found, once the search is over; 0: there is none."""
        cdef size_t count = self.count()
        return self.first()[count - 1].seq if count else 0

    cdef LastFound* first(self) noexcept nogil:
        """The oldest message found, once the search is over; the others follow."""
        return <LastFound*>(self.found.data + self.found.begin)

    cdef int replace_gone(self) except -1:
        """Replace messages that were removed between two steps by newer ones of their subject, if
        there is one up to `at_most`.
        """
        cdef SubjectEntry* entry
        cdef LastFound* found
        cdef Record record
        cdef uint64_t seq
        cdef size_t index
        if self.steps == 1 or self.epoch != self.store.index.epoch:
            return 0
        for index in range(self.count()):
            found = self.first() + index
            if self.store.read(found.seq, &record) == 0:
                continue
            entry = self.store.index.entries[found.subject_id]
            seq = 0 if entry == NULL else self.store.last_of(entry)
            if 0 < seq <= self.at_most:
                found.seq = seq
                self.is_sorted = False
        self._sort()
        return 0

    cpdef bint step(self, uint64_t work_max) except -1:
        """Search for about `work_max`; returns whether more is left."""
        self.work = 0
        self.steps += 1
        if self.phase != SEARCH_OVER and self.epoch != self.store.index.epoch:
            self._begin_again()
        while self.phase != SEARCH_OVER:
            if self.work >= work_max:
                return True
            self._advance(work_max)
        return False

    def sequences(self):
        """The sequences found, ascending, as 8 bytes each. A worker may call it, if they are
        many.
        """
        found = array("Q")
        cdef uint64_t[::1] sequences
        cdef size_t index
        self._sort()
        if self.count():
            found.frombytes(bytes(self.count() * sizeof(uint64_t)))
            sequences = found
            for index in range(self.count()):
                sequences[index] = self.first()[index].seq
        return found

    cdef int _advance(self, uint64_t work_max) except -1:
        """Do a part of the present phase, within the rest of the step."""
        if self.phase == SEARCH_NEWEST:
            return self._look_back()
        if self.phase == SEARCH_PATTERNS:
            if self.literals is None and (self.chosen.build(work_max - self.work)
                                          or self.chosen.arrange(work_max - self.work)):
                self.work = work_max
            else:
                self._list_few()
                self.phase = SEARCH_SUBJECTS
            return 0
        if self.phase == SEARCH_SUBJECTS:
            return self._ask_subjects(work_max)
        if self.phase == SEARCH_LATER:
            return self._ask_later(work_max)
        return self._walk_block(self.up_to if self.phase == SEARCH_OLDER else self.at_most)

    # -------------------------------------------------------------- the newest of a pattern

    cdef int _look_back(self) except -1:
        """Search among the newest messages, where a pattern that matches many subjects is found
        quickly. For one that matches few, the subjects are examined instead, so that the stream is
        not walked as a whole.
        """
        cdef MessageStore store = self.store
        cdef Block block
        cdef uint64_t found, steps = LOOK_BACK_MAX, before = self.chosen.work
        self.chosen.prepare()
        for block in reversed(store.blocks):
            if block.live_msgs == 0 or block.first_seq > self.up_to:
                continue
            if not block.is_loaded():
                self.work += LOAD_WORK
                steps -= min(steps, <uint64_t>LOOK_BACK_MAX // 2)
                store.load_index(block)
            steps -= min(steps, <uint64_t>BLOCK_WORK)
            found = last_accepted_in(
                block, min(self.up_to, block.last_seq), self.chosen, &steps)
            if found:
                self._take(found, 0)
                return self._end()
            if steps == 0:
                self.phase = SEARCH_PATTERNS
                break
        else:
            if self.at_most <= self.up_to:
                return self._end()
            self.up_to = self.at_most
        self.work += LOOK_BACK_MAX - steps + self.chosen.work - before
        return 0

    # -------------------------------------------------------------- subjects

    cdef int _list_few(self) except -1:
        """Find the matching subjects without examining the others, if they are few."""
        if self.literals is None:
            buffer_clear(&self.listed)
            self.is_listed = self.chosen.passing(&self.listed)
            self.work += listed_count(&self.listed) * SUBJECT_WORK
        return 0

    cdef int _ask_subjects(self, uint64_t work_max) except -1:
        cdef SubjectEntry* entry
        cdef uint64_t before
        cdef bytes subject
        cdef uint32_t end = self.ids if self.literals is None else <uint32_t>len(self.literals)
        if self.is_listed:
            end = listed_count(&self.listed)
        elif self.literals is None:
            self.chosen.prepare()
        while self.position < end:
            if self.work >= work_max:
                return 0
            self.work += SUBJECT_WORK
            if self.literals is not None:
                subject = <bytes>self.literals[self.position]
                entry = self.store.index.find(subject, <uint32_t>len(subject))
                self.work += len(subject)
            elif self.is_listed:
                entry = self.store.index.entries[listed_at(&self.listed, self.position)]
            else:
                before = self.chosen.work
                entry = self.store.index.entries[self.position]
                if entry != NULL and not self.chosen.accepts(self.position):
                    entry = NULL
                self.work += self.chosen.work - before
            self.position += 1
            if entry != NULL and entry.id < self.ids:
                self._ask(entry)
                if self.count() > self.count_max and not self.only_newest:
                    return self._end()
        return self._end_subjects()

    cdef int _ask(self, SubjectEntry* entry) except -1:
        """Take the newest message of a subject, or note which one is wanted."""
        cdef uint64_t seq
        if self.only_newest and 0 < entry.last_seq <= self.newest():
            return 0
        if entry.first_seq > self.up_to:
            return self._want(entry, LATER)
        seq = self._last_of(entry)
        if seq == 0:
            return 0        # it had lost messages only
        return self._take(seq, entry.id) if seq <= self.up_to else self._want(entry, OLDER)

    cdef uint64_t _last_of(self, SubjectEntry* entry) except? 0:
        cdef uint64_t walks = self.store.end_walks
        cdef uint64_t seq = self.store.last_of(entry)
        self.work += (self.store.end_walks - walks) * END_WORK
        return seq

    cdef int _want(self, SubjectEntry* entry, uint8_t kind) except -1:
        if self.wanted == NULL:
            self.first_block = 0xFFFFFFFF
            self.wanted = <uint8_t*>calloc(self.ids, 1)
            if self.wanted == NULL:
                raise MemoryError
        self.wanted[entry.id] = kind
        if kind == OLDER:
            self.older_count += 1
            self.first_block = min(self.first_block, entry.first_block)
        return 0

    cdef int _take(self, uint64_t seq, uint32_t subject_id) except -1:
        cdef LastFound found
        if self.only_newest:
            if seq <= self.newest():
                return 0
            buffer_clear(&self.found)
        found.seq = seq
        found.subject_id = subject_id
        if buffer_append(&self.found, <const char*>&found, sizeof(LastFound)) != 0:
            raise MemoryError
        return 0

    cdef int _end_subjects(self) except -1:
        """Continue with older messages, if some are wanted, after all subjects were examined."""
        self.block_number = 0xFFFFFFFF
        self.phase = SEARCH_OLDER if self.phase == SEARCH_SUBJECTS else SEARCH_LATER_OLDER
        if self.older_count == 0:
            return self._end_walk()
        return 0

    cdef int _ask_later(self, uint64_t work_max) except -1:
        """Take the newest message up to `at_most` for subjects without one up to `up_to`."""
        cdef SubjectEntry* entry
        cdef uint64_t seq
        while self.position < self.ids:
            if self.work >= work_max:
                return 0
            self.work += 1
            entry = self.store.index.entries[self.position]
            if self.wanted[self.position] and entry != NULL:
                self.work += SUBJECT_WORK
                self.wanted[self.position] = 0
                seq = self._last_of(entry)
                if 0 < seq <= self.at_most:
                    self._take(seq, entry.id)
                elif seq and entry.first_seq <= self.at_most:
                    self._want(entry, OLDER)
            self.position += 1
        return self._end_subjects()

    # -------------------------------------------------------------- blocks

    cdef int _walk_block(self, uint64_t limit) except -1:
        """Walk back through one more block, for all wanted subjects."""
        cdef Block block = self.store._block_before(self.block_number)
        cdef uint32_t entry, subject_id
        if block is None or block.number < self.first_block \
                or (self.only_newest and block.last_seq < self.newest()):
            return self._end_walk()
        self.block_number = block.number
        if block.live_msgs == 0 or block.first_seq > limit:
            self.work += SUBJECT_WORK
            return 0
        if not block.is_loaded():
            self.work += LOAD_WORK
            self.store.load_index(block)
        entry = records_from(&block.records, min(limit, block.last_seq) + 1)
        self.work += BLOCK_WORK + entry
        while entry:
            entry -= 1
            subject_id = block.records.subject_ids[entry]
            if block.records.offsets[entry] == NO_RECORD or subject_id >= self.ids \
                    or self.wanted[subject_id] != OLDER:
                continue
            self.wanted[subject_id] = 0
            self.older_count -= 1
            self._take(records_seq(&block.records, entry), subject_id)
            if self.only_newest or self.older_count == 0:
                return self._end_walk()
            if self.count() > self.count_max:
                return self._end()
        return 0

    cdef int _end_walk(self) except -1:
        """End the walk: the remaining subjects have no message up to the limit."""
        self.older_count = 0
        if self.phase == SEARCH_LATER_OLDER or self.wanted == NULL \
                or self.at_most <= self.up_to or (self.only_newest and self.count()):
            return self._end()
        self.position = 0
        self.phase = SEARCH_LATER
        return 0

    cdef int _end(self) except -1:
        self.phase = SEARCH_OVER
        free(self.wanted)
        self.wanted = NULL
        if self.count() <= SORTED_MAX:
            self._sort()
        return 0

    cdef int _sort(self) except -1:
        """Sort the messages found, without the interpreter lock."""
        if not self.is_sorted and self.count() > 1:
            with nogil:
                qsort(self.first(), self.count(), sizeof(LastFound), compare_sequences)
        self.is_sorted = True
        return 0
