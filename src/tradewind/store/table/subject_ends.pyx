"""Finds the first and the last message of a subject when they are not in the index.

Owns the search: through the blocks from either end, and through one of them. After a start none of
these ends is known, and a caller that wants all of them must not walk through a block once per
subject. So a search that does not find its subject soon goes through the whole block, and records
the ends it meets of all others: each message is examined once for all subjects together, not once
for each.
"""

from tradewind.store.table.record_index cimport NO_RECORD, RecordIndex, records_seq

from tradewind.errors import StoreError

cdef enum:
    # A subject that is found within so many messages was looked for alone.
    FOUND_SOON_MAX = 256


cdef inline SubjectEntry* entry_at(SubjectIndex index, RecordIndex* records,
                                   uint32_t place) noexcept:
    """The subject of a live message; NULL if the message is not live."""
    cdef uint32_t subject_id = records.subject_ids[place]
    if records.offsets[place] == NO_RECORD or subject_id >= index.entry_count:
        return NULL
    return index.entries[subject_id]


cdef uint64_t note_last(SubjectIndex index, Block block, uint32_t subject_id) noexcept:
    cdef RecordIndex* records = &block.records
    cdef SubjectEntry* entry
    cdef uint32_t place = records.count
    cdef uint64_t found = 0
    while place:
        place -= 1
        entry = entry_at(index, records, place)
        if entry == NULL:
            continue
        if entry.id == subject_id and found == 0:
            found = records_seq(records, place)
        elif entry.last_seq == 0 and entry.last_block == block.number and entry.id != subject_id:
            entry.last_seq = records_seq(records, place)
        if found and records.count - place <= FOUND_SOON_MAX:
            break
    return found


cdef uint64_t note_first(SubjectIndex index, Block block, uint32_t subject_id) noexcept:
    cdef RecordIndex* records = &block.records
    cdef SubjectEntry* entry
    cdef uint32_t place, live = 0
    cdef uint64_t found = 0
    for place in range(records.count):
        entry = entry_at(index, records, place)
        if entry == NULL:
            continue
        live += 1
        if entry.id == subject_id and found == 0:
            found = records_seq(records, place)
        elif entry.first_seq == 0 and entry.first_block == block.number \
                and entry.id != subject_id:
            entry.first_seq = records_seq(records, place)
        if found and live <= FOUND_SOON_MAX:
            break
    return found


cdef uint32_t note_lasts(SubjectIndex index, Block block) noexcept:
    """Record the last messages of subjects in a block; returns how many became known."""
    cdef RecordIndex* records = &block.records
    cdef SubjectEntry* entry
    cdef uint32_t place = records.count, count = 0
    while place:
        place -= 1
        entry = entry_at(index, records, place)
        if entry != NULL and entry.last_seq == 0:
            entry.last_seq = records_seq(records, place)
            entry.last_block = block.number
            count += 1
    return count


cdef uint32_t unknown_lasts(SubjectIndex index, uint32_t place, uint64_t count) noexcept:
    cdef uint32_t unknown = 0
    while place < index.entry_count and count:
        if index.entries[place] != NULL and index.entries[place].total \
                and index.entries[place].last_seq == 0:
            unknown += 1
        place += 1
        count -= 1
    return unknown


cdef uint64_t find_end(MessageStore store, SubjectEntry* entry, bint is_last) except? 0:
    """Search for the last or first live message of a subject, and record it."""
    cdef Py_ssize_t index = len(store.blocks) - 1 if is_last else 0
    cdef Py_ssize_t step = -1 if is_last else 1
    cdef Block block
    while 0 <= index < len(store.blocks):
        block = <Block>store.blocks[index]
        index += step
        if block.live_msgs == 0 or block.number < entry.first_block \
                or block.number > entry.last_block:
            continue
        store.load_index(block)
        if is_last:
            entry.last_seq = note_last(store.index, block, entry.id)
            store.end_walks += 1
            if entry.last_seq:
                entry.last_block = block.number
                return entry.last_seq
        else:
            entry.first_seq = note_first(store.index, block, entry.id)
            store.end_walks += 1
            if entry.first_seq:
                entry.first_block = block.number
                return entry.first_seq
    if store.has_open_damage:
        return 0
    end = "last" if is_last else "first"
    raise StoreError(
        f"stream {store.name!r}: subject {entry.name[:entry.name_size]!r} has no {end} message")
