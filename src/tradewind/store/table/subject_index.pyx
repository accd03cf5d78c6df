"""The subjects of a stream: name -> id, totals, and where the first and the last message are.

Owns one entry per subject that has live messages. Blocks have only subject ids per message, so
whether a message matches a filter is one array access: a filter checks each subject once and caches
the result. It never reads a message; an unknown first or last sequence is 0, and the store finds it
in the blocks.

Ids are assigned in order and never reused, so a cached result stays valid; when most ids are dead
the store renumbers them, and a new `epoch` makes the filters start over.

A filter that matches few of many subjects does not check them all: it has them sorted by name
(`arrange`), and examines only those with the beginning of a pattern (`passing`).
"""

from array import array
from os import urandom

from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset
from tradewind.route.sublist cimport subject_is_literal, subject_matches, subject_valid
from tradewind.containers.buffer cimport Buffer, buffer_free, buffer_init
from tradewind.store.table.listed_ids cimport listed_add, listed_at, listed_count
from tradewind.store.table.subject_order cimport (
    OrderPlace, order_free, order_from, order_insert, order_next, order_remove, starts_with)
from tradewind.containers.table cimport (
    table_find, table_free, table_hash, table_init, table_insert, table_remove)

cdef enum:
    RENUMBER_IDS_MIN = 65536
    # More patterns than this are not checked one by one.
    PATTERNS_LISTED_MAX = 4
    # The costs of entering a token of a pattern, and of checking a subject at all; the unit is a
    # word of 64 patterns, about a nanosecond.
    TOKEN_WORK = 64
    SUBJECT_WORK = 64
    # ... and to put a subject in its place in the order of names.
    ORDER_WORK = 512
    # Fewer subjects than this are checked one by one, as are those of more patterns.
    NARROW_SUBJECTS_MIN = 1024
    NARROW_PATTERNS_MAX = 256
    # This many subjects are sampled to find out whether a filter matches few; it does if at most
    # one in this many begins as one of its patterns does.
    SAMPLE_SIZE = 64
    NARROW_SHARE = 8
    # This many are freed at once when all are forgotten.
    FREED_MIN = 4096
    # ... and with each that is new.
    FREED_PER_SUBJECT = 4
    # More subjects than this with the beginning of a pattern are too many to be listed in one go.
    LISTED_MAX = 32768


cdef inline bint is_before(const SubjectEntry* one, const SubjectEntry* other) noexcept nogil:
    cdef int order = memcmp(&one.name[0], &other.name[0], min(one.name_size, other.name_size))
    return order < 0 or (order == 0 and one.name_size < other.name_size)


cdef bytes beginning(bytes pattern):
    """The tokens before the first wildcard, with the dot after them."""
    cdef list tokens = []
    for token in pattern.split(b"."):
        if token in (b"*", b">"):
            break
        tokens.append(token + b".")
    return b"".join(tokens)


cdef class SubjectIndex:
    """The index of one stream. Publishers choose the subjects, so without a `seed` it is
    unpredictable.
    """

    def __cinit__(self, seed=None):
        table_init(&self.names, int.from_bytes(urandom(8), "little") if seed is None else seed)

    def __dealloc__(self):
        cdef uint32_t index
        for index in range(self.entry_count):
            free(self.entries[index])
        free(self.entries)
        self.free_some(0xFFFFFFFF)
        order_free(&self.order)
        table_free(&self.names)

    @property
    def seed(self):
        """The secret that determines the places in the table of names."""
        return self.names.seed

    @property
    def unmoved(self):
        """Old slots of the table of names that are still to be moved, see `containers.table`."""
        return 0 if self.names.old == NULL else self.names.old.capacity - self.names.old.moved

    cdef SubjectEntry* find(self, const char* name, uint32_t size) noexcept nogil:
        """The entry of a subject with live messages, or NULL."""
        return <SubjectEntry*>table_find(
            &self.names, table_hash(&self.names, name, size), name, size)

    cdef SubjectEntry* find_or_add(self, const char* name, uint32_t size) noexcept nogil:
        """Find the entry of a subject, created with a total of 0 if it is new; NULL without
        memory.
        """
        cdef uint32_t hash_value = table_hash(&self.names, name, size)
        cdef SubjectEntry* entry = <SubjectEntry*>table_find(&self.names, hash_value, name, size)
        cdef SubjectEntry** entries
        cdef uint32_t capacity
        if entry != NULL:
            return entry
        if self.remain_count:
            self.free_some(FREED_PER_SUBJECT)
        if self.entry_count == self.entry_capacity:
            capacity = self.entry_capacity * 2 if self.entry_capacity else 16
            entries = <SubjectEntry**>realloc(self.entries, capacity * sizeof(SubjectEntry*))
            if entries == NULL:
                return NULL
            self.entries = entries
            self.memory_bytes += (capacity - self.entry_capacity) * sizeof(SubjectEntry*)
            self.entry_capacity = capacity
        entry = <SubjectEntry*>calloc(1, sizeof(SubjectEntry) + size)
        if entry == NULL:
            return NULL
        entry.id = self.entry_count
        entry.name_size = size
        memcpy(&entry.name[0], name, size)
        if table_insert(&self.names, hash_value, &entry.name[0], size, entry) != 0:
            free(entry)
            return NULL
        self.entries[self.entry_count] = entry
        if self.order.ordered and self.order.ordered == self.entry_count:
            if order_insert(&self.order, entry) == 0:
                self.order.ordered += 1
        self.entry_count += 1
        self.live_count += 1
        self.memory_bytes += sizeof(SubjectEntry) + size
        return entry

    cdef bint put_in_order(self, uint64_t work_max) except -1:
        """Sort subjects by name for about `work_max`; returns whether more are left. Once it is
        complete, it stays so.
        """
        cdef uint64_t work = 0
        cdef SubjectEntry* entry
        while self.order.ordered < self.entry_count:
            if work >= work_max:
                return True
            entry = self.entries[self.order.ordered]
            if entry != NULL:
                work += ORDER_WORK
                if order_insert(&self.order, entry) != 0:
                    raise MemoryError
            else:
                work += 1
            self.order.ordered += 1
        return False

    cdef void forget(self, SubjectEntry* entry) noexcept nogil:
        """Remove a subject whose last message was removed."""
        table_remove(&self.names, table_hash(&self.names, &entry.name[0], entry.name_size),
                     &entry.name[0], entry.name_size)
        if entry.id < self.order.ordered:
            order_remove(&self.order, entry)
        self.entries[entry.id] = NULL
        self.live_count -= 1
        self.memory_bytes -= sizeof(SubjectEntry) + entry.name_size
        free(entry)

    def reset(self):
        """Forget all subjects; filters notice. If they are many, their memory is released
        gradually: with `free_some`, and with new subjects.
        """
        self.free_some(0xFFFFFFFF)
        self.remains = self.entries
        self.remain_count = self.entry_count
        self.entries = NULL
        table_free(&self.names)
        order_free(&self.order)
        self.entry_count = 0
        self.entry_capacity = 0
        self.live_count = 0
        self.epoch += 1
        self.memory_bytes = 0
        self.free_some(FREED_MIN)

    cdef bint free_some(self, uint32_t count) noexcept nogil:
        """Free the memory of up to `count` subjects of an index that was reset; returns whether
        there are more.
        """
        while self.remain_count and count:
            self.remain_count -= 1
            count -= 1
            free(self.remains[self.remain_count])
        if self.remain_count == 0:
            free(self.remains)
            self.remains = NULL
        return self.remain_count > 0

    cdef bint needs_renumbering(self) noexcept nogil:
        return self.entry_count >= RENUMBER_IDS_MIN and self.live_count < self.entry_count // 4

    cdef int renumber(self, uint32_t* new_ids) noexcept nogil:
        """Close the gaps that dead ids left; fills new_ids[old id] for every old id (SUBJECT_NONE
        if dead).
        """
        cdef uint32_t index, count = 0
        cdef bint is_ordered = self.order.ordered == self.entry_count
        if not is_ordered:
            order_free(&self.order)
        for index in range(self.entry_count):
            new_ids[index] = SUBJECT_NONE
            if self.entries[index] != NULL:
                new_ids[index] = count
                self.entries[index].id = count
                self.entries[count] = self.entries[index]
                count += 1
        self.entry_count = count
        if is_ordered:
            self.order.ordered = count
        self.epoch += 1
        return 0

    # -------------------------------------------------------------- for Python callers

    def columns(self):
        """The (names, ends, totals, first blocks, last blocks) of all subjects for index.db; by
        name, if they are sorted.
        """
        cdef uint32_t index
        cdef SubjectEntry* entry
        cdef OrderPlace place = OrderPlace(0, 0)
        cdef bint is_ordered = self.order.ordered == self.entry_count
        names = bytearray()
        ends, totals = array("Q"), array("Q")
        first_blocks, last_blocks = array("I"), array("I")
        for index in range(self.entry_count):
            entry = order_next(&self.order, &place) if is_ordered else self.entries[index]
            if entry != NULL and entry.total:
                names += entry.name[:entry.name_size]
                ends.append(len(names))
                totals.append(entry.total)
                first_blocks.append(entry.first_block)
                last_blocks.append(entry.last_block)
        return bytes(names), ends, totals, first_blocks, last_blocks

    def adopt_columns(self, bytes names not None, uint64_t[::1] ends, uint64_t[::1] totals,
                      unsigned int[::1] first_blocks, unsigned int[::1] last_blocks):
        """Fill an empty index from such columns; the ends of each subject stay unknown until they
        are needed. If the names ascend, the subjects are sorted from the beginning.
        """
        cdef const char* data = names
        cdef uint64_t start = 0
        cdef Py_ssize_t index
        cdef SubjectEntry* entry
        cdef SubjectEntry* previous = NULL
        for index in range(ends.shape[0]):
            entry = self.find_or_add(data + start, <uint32_t>(ends[index] - start))
            if entry == NULL:
                raise MemoryError
            if index == 0:
                self.put_in_order(<uint64_t>-1)     # later ones are added to it
            elif self.order.ordered and not is_before(previous, entry):
                order_free(&self.order)
            previous = entry
            entry.total = totals[index]
            entry.first_block = first_blocks[index]
            entry.last_block = last_blocks[index]
            start = ends[index]

    def names_and_totals(self, SubjectFilter chosen=None, uint32_t limit=0xFFFFFFFF,
                         uint32_t offset=0):
        """The {subject: live messages} of the subjects that pass a filter, a page of them in the
        order of their ids.
        """
        cdef uint32_t index, passed = 0
        cdef SubjectEntry* entry
        result = {}
        if chosen is not None:
            chosen.prepare()
        for index in range(self.entry_count):
            entry = self.entries[index]
            if entry == NULL or entry.total == 0 \
                    or (chosen is not None and not chosen.accepts(index)):
                continue
            passed += 1
            if passed <= offset:
                continue
            if len(result) == limit:
                break
            result[entry.name[:entry.name_size]] = entry.total
        return result

    def matching_total(self, SubjectFilter chosen not None):
        """The (number of subjects, sum of their messages) that pass a filter."""
        cdef uint32_t index, subjects = 0
        cdef uint64_t messages = 0
        cdef SubjectEntry* entry
        cdef bytes pattern
        cdef Buffer listed
        if chosen.all_literal() and chosen.pattern_count < self.entry_count:
            for pattern in frozenset(chosen.patterns):
                entry = self.find(pattern, <uint32_t>len(pattern))
                if entry != NULL and entry.total:
                    subjects += 1
                    messages += entry.total
            return subjects, messages
        buffer_init(&listed)
        try:
            if chosen.passing(&listed):
                subjects = listed_count(&listed)
                for index in range(subjects):
                    messages += self.entries[listed_at(&listed, index)].total
                return subjects, messages
        finally:
            buffer_free(&listed)
        chosen.prepare()
        for index in range(self.entry_count):
            if self.entries[index] != NULL and self.entries[index].total and chosen.accepts(index):
                subjects += 1
                messages += self.entries[index].total
        return subjects, messages


cdef class SubjectFilter:
    """A compiled set of subject patterns for one stream; the empty set matches everything."""

    def __init__(self, SubjectIndex index not None, patterns=()):
        cdef bytes pattern
        self.index = index
        self.patterns = tuple(patterns)
        for pattern in self.patterns:
            if not subject_valid(pattern, <uint32_t>len(pattern), False):
                raise ValueError(f"invalid subject {pattern!r}")
        self.everything = not self.patterns or b">" in self.patterns
        self.literal = None
        if len(self.patterns) == 1 \
                and subject_is_literal(self.patterns[0], <uint32_t>len(self.patterns[0])):
            self.literal = self.patterns[0]
        self.is_literal = self.literal is not None
        self.literal_id = SUBJECT_NONE
        self.epoch = index.epoch
        self.pattern_pointers = <const char**>malloc(max(len(self.patterns), 1) * sizeof(char*))
        self.pattern_sizes = <uint32_t*>malloc(max(len(self.patterns), 1) * sizeof(uint32_t))
        if self.pattern_pointers == NULL or self.pattern_sizes == NULL:
            raise MemoryError
        for pattern in self.patterns:
            self.pattern_pointers[self.pattern_count] = pattern
            self.pattern_sizes[self.pattern_count] = <uint32_t>len(pattern)
            self.pattern_count += 1

    def __dealloc__(self):
        free(self.verdicts)
        free(self.pattern_pointers)
        free(self.pattern_sizes)

    cdef bint _matches(self, const char* subject, uint32_t size) noexcept nogil:
        cdef uint32_t index
        cdef uint64_t before
        cdef bint is_match
        self.work += SUBJECT_WORK + size
        if self.many is not None:
            before = self.many.work
            is_match = self.many.matches(subject, size)
            self.work += self.many.work - before
            return is_match
        for index in range(self.pattern_count):
            if subject_matches(
                    subject, size, self.pattern_pointers[index], self.pattern_sizes[index]):
                return True
        return False

    cdef bint build(self, uint64_t work_max) except -1:
        """Prepare for checking subjects; returns whether more of that is left."""
        if self.many is None:
            if self.pattern_count <= PATTERNS_LISTED_MAX or self.everything:
                return False
            self.many = PatternSet(self.patterns, self.index.seed)
        return not self.many.is_complete and self.many.build(max(work_max // TOKEN_WORK, 1))

    cpdef bint judge(self, uint64_t work_max) except -1:
        """Check subjects in advance for about `work_max`; returns whether there are more. Changes
        between two steps do not matter: each is checked once in the end.
        """
        cdef uint64_t limit = self.work + work_max
        if self.everything or self.is_literal:
            return False
        if self.build(work_max):
            return True
        if self.epoch != self.index.epoch:
            self.judged = 0
        self.prepare()
        while self.judged < self.index.entry_count:
            if self.work >= limit:
                return True
            self.work += 1
            self.accepts(self.judged)
            self.judged += 1
        return False

    cdef int prepare(self) except -1:
        """Check the subjects added since the last call; `accepts` may be called until a subject is
        added.
        """
        cdef uint32_t capacity
        cdef uint8_t* verdicts
        cdef SubjectEntry* entry
        if self.everything:
            return 0
        if self.is_literal:
            # There is one result, so it takes no memory per subject.
            entry = self.index.find(self.literal, <uint32_t>len(self.literal))
            self.literal_id = SUBJECT_NONE if entry == NULL else entry.id
            return 0
        self.build(<uint64_t>-1)
        if self.epoch != self.index.epoch:
            self.epoch = self.index.epoch
            if self.verdicts != NULL:
                memset(self.verdicts, 0, self.verdict_capacity)
        if self.verdict_capacity < self.index.entry_count:
            capacity = max(self.index.entry_count * 2, <uint32_t>64)
            # Fresh pages are zero: unused ones cost nothing.
            verdicts = <uint8_t*>calloc(capacity, 1)
            if verdicts == NULL:
                raise MemoryError
            if self.verdict_capacity:
                memcpy(verdicts, self.verdicts, self.verdict_capacity)
            free(self.verdicts)
            self.verdicts = verdicts
            self.verdict_capacity = capacity
        return 0

    cdef bint accepts(self, uint32_t subject_id) noexcept nogil:
        """Whether messages of this subject pass; `prepare` must have been called since the subject
        was added.
        """
        cdef SubjectEntry* entry
        if self.everything:
            return True
        if self.literal_id != SUBJECT_NONE:
            return subject_id == self.literal_id
        if subject_id >= self.index.entry_count:
            return False
        if subject_id >= self.verdict_capacity:
            # Added since: a damaged block was found on the way.
            entry = self.index.entries[subject_id]
            return entry != NULL and self._matches(&entry.name[0], entry.name_size)
        if self.verdicts[subject_id] == 0:
            entry = self.index.entries[subject_id]
            if entry == NULL:
                return False
            self.verdicts[subject_id] = 2 if self._matches(&entry.name[0], entry.name_size) else 1
        return self.verdicts[subject_id] == 2

    cdef bint all_literal(self) except -1:
        """Whether no pattern has a wildcard; then the subjects can be looked up."""
        cdef uint32_t index
        for index in range(self.pattern_count):
            if not subject_is_literal(self.pattern_pointers[index], self.pattern_sizes[index]):
                return False
        return self.pattern_count > 0

    # -------------------------------------------------------------- few of many subjects

    cdef int _find_heads(self) except -1:
        """Compute (beginning of matching subjects, whether it is the whole subject): sorted, and
        none of them covers another. The list is empty if any subject may match.
        """
        cdef bytes pattern, head
        cdef bytes widest = None
        heads = set()
        for pattern in self.patterns:
            if subject_is_literal(pattern, <uint32_t>len(pattern)):
                heads.add((pattern, True))
            else:
                heads.add((beginning(pattern), False))
        self.heads = []
        for head, is_whole in sorted(heads):
            if widest is not None and head.startswith(widest):
                continue
            if not is_whole:
                widest = head
                if not head:
                    self.heads = []
                    return 0
            self.heads.append((head, is_whole))
        return 0

    cdef bint narrows(self) except -1:
        """Whether the filter matches few of many subjects, according to a sample."""
        cdef uint32_t count = self.index.entry_count, number, asked = 0, begun = 0
        cdef SubjectEntry* entry
        cdef bytes head
        if self.everything or count < NARROW_SUBJECTS_MIN \
                or self.pattern_count > NARROW_PATTERNS_MAX:
            return False
        if self.heads is None:
            self._find_heads()
        if not self.heads:
            return False
        for number in range(SAMPLE_SIZE):
            entry = self.index.entries[<uint64_t>number * 2654435761 % count]
            if entry == NULL:
                continue
            asked += 1
            for head, _ in self.heads:
                if starts_with(entry, head, <uint32_t>len(head)):
                    begun += 1
                    break
        return begun * NARROW_SHARE <= asked

    cpdef bint arrange(self, uint64_t work_max) except -1:
        """Have the subjects sorted if the filter matches few of them; returns whether more of that
        is left.
        """
        return self.narrows() and not self.all_literal() and self.index.put_in_order(work_max)

    @property
    def is_narrow(self):
        """Whether the matching subjects are found without examining the others."""
        return self.narrows() and (self.all_literal()
                                   or self.index.order.ordered == self.index.entry_count)

    cdef bint passing(self, Buffer* ids) except -1:
        """List the ids of the matching subjects, if they are few; False: all subjects have to be
        examined.
        """
        cdef SubjectIndex index = self.index
        cdef SubjectEntry* entry
        cdef OrderPlace place
        cdef uint32_t seen = 0
        cdef bytes head
        cdef bint is_whole
        if not self.is_narrow:
            return False
        self.build(<uint64_t>-1)
        for head, is_whole in self.heads:
            if is_whole:
                entry = index.find(head, <uint32_t>len(head))
                if entry != NULL and entry.total and listed_add(ids, entry.id) != 0:
                    raise MemoryError
                continue
            place = order_from(&index.order, head, <uint32_t>len(head))
            while True:
                entry = order_next(&index.order, &place)
                if entry == NULL or not starts_with(entry, head, <uint32_t>len(head)):
                    break
                seen += 1
                if seen > LISTED_MAX:
                    return False
                if entry.total and self._matches(&entry.name[0], entry.name_size) \
                        and listed_add(ids, entry.id) != 0:
                    raise MemoryError
        return True

    def matches(self, bytes subject not None):
        """Whether a literal subject passes, stored or not."""
        self.build(<uint64_t>-1)
        return self.everything or self._matches(subject, <uint32_t>len(subject))
