"""The newest messages: of a subject, of a pattern, of each subject that matches.

Owns the search. The index holds the last message of most subjects; a request for those up to a
sequence may need an older one, and then the blocks are walked back, once for all subjects.
"""

from libc.stdlib cimport calloc, free, qsort
from libc.string cimport memset
from tradewind.containers.buffer cimport buffer_append, buffer_size
from tradewind.store.table.block cimport Block
from tradewind.store.table.record_index cimport NO_RECORD, RecordIndex, records_from, records_seq

cdef enum:
    # So many messages are looked at for the newest of a pattern before its subjects are.
    LOOK_BACK_MAX = 65536


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


cdef uint64_t last_accepted(MessageStore store, SubjectFilter chosen, uint64_t up_to) except? 0:
    """The newest sequence at or below `up_to` that passes; 0 if there is none.

    A pattern that matches many subjects is found quickly among the newest messages. For one that
    matches few, the subjects are asked instead, so that the stream is not walked as a whole.
    """
    cdef SubjectEntry* entry
    cdef Block block
    cdef uint64_t best = 0, steps = LOOK_BACK_MAX
    cdef uint32_t index
    if chosen.is_literal:
        entry = store.index.find(chosen.literal, <uint32_t>len(chosen.literal))
        return 0 if entry == NULL else last_up_to(store, entry, up_to)
    chosen.prepare()
    for block in reversed(store.blocks):
        if block.live_msgs == 0 or block.first_seq > up_to:
            continue
        store.load_index(block)
        best = last_accepted_in(block, min(up_to, block.last_seq), chosen, &steps)
        if best:
            return best
        if steps == 0:
            break
    else:
        return 0
    for _ in store.find_lasts():
        pass
    for index in range(store.index.entry_count):
        entry = store.index.entries[index]
        if entry == NULL or 0 < entry.last_seq <= best or not chosen.accepts(index):
            continue
        best = max(best, last_up_to(store, entry, up_to))
    return best


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


cdef int collect_last(MessageStore store, SubjectFilter chosen, uint64_t up_to, size_t count_max,
                      Buffer* found) except -1:
    """Those that pass are asked one by one; subjects that have only newer messages are searched
    later.
    """
    cdef OlderOnes older
    cdef SubjectEntry* entry
    cdef bytes subject
    cdef uint32_t index
    memset(&older, 0, sizeof(OlderOnes))
    try:
        if chosen.all_literal():
            for subject in set(chosen.patterns):
                entry = store.index.find(subject, <uint32_t>len(subject))
                if entry != NULL:
                    collect_one(store, entry, up_to, found, &older)
        else:
            if count_max == <size_t>-1:
                for _ in store.find_lasts():
                    pass
            chosen.prepare()
            for index in range(store.index.entry_count):
                if store.index.entries[index] != NULL and chosen.accepts(index):
                    collect_one(store, store.index.entries[index], up_to, found, &older)
                    if buffer_size(found) // sizeof(uint64_t) > count_max:
                        break
        if older.count:
            collect_older(store, &older, up_to, count_max, found)
    finally:
        free(older.wanted)
    if buffer_size(found):
        qsort(found.data + found.begin, buffer_size(found) // sizeof(uint64_t),
              sizeof(uint64_t), compare_sequences)
    return 0


cdef int collect_one(MessageStore store, SubjectEntry* entry, uint64_t up_to, Buffer* found,
                      OlderOnes* older) except -1:
    """Append the newest message of a subject, or remember that an older one is wanted."""
    cdef uint64_t seq
    if entry.first_seq > up_to:
        return 0
    seq = store.last_of(entry)
    if seq == 0:
        return 0        # it had lost messages only
    if seq <= up_to:
        if buffer_append(found, <const char*>&seq, sizeof(uint64_t)) != 0:
            raise MemoryError
        return 0
    if older.wanted == NULL:
        older.ids = store.index.entry_count
        older.first_block = 0xFFFFFFFF
        older.wanted = <uint8_t*>calloc(older.ids, 1)
        if older.wanted == NULL:
            raise MemoryError
    if entry.id < older.ids:
        older.wanted[entry.id] = 1
        older.count += 1
        older.first_block = min(older.first_block, entry.first_block)
    return 0


cdef int collect_older(MessageStore store, OlderOnes* older, uint64_t up_to, size_t count_max,
                        Buffer* found) except -1:
    """Walk back through the blocks, once for all of these subjects."""
    cdef Block block
    cdef uint32_t entry, subject_id
    cdef uint64_t seq
    for block in reversed(store.blocks):
        if block.number < older.first_block:
            return 0
        if block.live_msgs == 0 or block.first_seq > up_to:
            continue
        store.load_index(block)
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
