"""The pending removals by limits: all at once could take long, so they are done in steps.

Owns the order of these steps. Their state is in the store (`message_store.pxd`), which changes
between two of them: messages come, and others are removed.

1. Is any subject above its limit? Only the totals are read, in the order of subject numbers, so a
   store that is within its limits reads no block.
2. One walk through all messages, oldest first, removes those whose subject has too many. Every
   message that the walk has passed belongs to a subject within its limit. So an append removes one
   message of its subject if that was within the limit before, and leaves one that was not to the
   walk.
3. The excess in number or bytes is removed from the front, subjects first: cutting the front before
   would take messages that fit. Until then an append removes none from the front, and then only a
   few while there is more to do here.

A crash in between loses nothing of this: a start applies all limits, and until that is done there
is no promise that a message is gone.
"""

from libc.stdint cimport uint32_t
from tradewind.store.table.block cimport Block
from tradewind.store.table.record_index cimport NO_RECORD, RecordIndex, records_from, records_seq
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectIndex

cdef enum:
    # This many reads of a number in memory cost about as much as one removal.
    LOOKS_PER_REMOVAL = 16
    # Building the index of a block of this many bytes costs as much as one.
    LOADED_BYTES_PER_REMOVAL = 256
    # Messages that one append removes from the front at once; fewer while steps do that.
    CUT_PER_APPEND = 10000
    CUT_PER_APPEND_OVERDUE = 2


cdef int begin_trimming(MessageStore store) except -1:
    store.trims = store.subject_msgs_max > 0
    store.trims_messages = False
    store.trim_id = 0
    store.trim_epoch = store.index.epoch
    return 0


cdef int begin_limits(MessageStore store) except -1:
    begin_trimming(store)
    store.cuts_front = not store.discard_new
    return 0


cdef bint is_overdue(MessageStore store) noexcept:
    return (store.trims or store.cuts_front) and not store.read_only


cdef inline void spend(uint64_t* budget, uint64_t cost) noexcept nogil:
    budget[0] -= min(budget[0], cost)


cdef bint remove_overdue(MessageStore store, uint64_t* budget) except -1:
    if store.has_open_damage:
        # Totals may count lost messages; when all is counted the subjects are checked again.
        store.trims = False
    if store.trims and not store.trims_messages and find_excess(store, budget):
        store.trims_messages = True
        store.trim_from = store.first_seq
    if store.trims and store.trims_messages:
        trim_some(store, budget)
    if store.trims:
        return False
    if store.cuts_front:
        store.cuts_front = not cut_front(store, budget)
    return not store.cuts_front


cdef bint find_excess(MessageStore store, uint64_t* budget) except -1:
    """Whether a subject has too many messages; `trims` becomes false when all were checked and none
    has.
    """
    cdef SubjectIndex index = store.index
    cdef uint32_t first, last
    cdef uint64_t count
    if store.trim_epoch != index.epoch:
        store.trim_epoch = index.epoch      # the subjects are renumbered
        store.trim_id = 0
    first = last = store.trim_id
    count = min(budget[0], <uint64_t>index.entry_count) * LOOKS_PER_REMOVAL
    while last < index.entry_count and last - first < count:
        if index.entries[last] != NULL \
                and index.entries[last].total > <uint64_t>store.subject_msgs_max:
            return True
        last += 1
    spend(budget, (last - first) // LOOKS_PER_REMOVAL)
    store.trim_id = last
    if last >= index.entry_count:
        store.trims = False
    return False


cdef int trim_some(MessageStore store, uint64_t* budget) except -1:
    """Continue the walk; `trims` becomes false at its end."""
    cdef uint64_t seq
    while budget[0]:
        seq = next_excessive(store, budget)
        if seq == 0:
            return 0
        store.trim_from = seq + 1
        spend(budget, 1)
        store.forget_message(seq, True)
    return 0


cdef uint64_t next_excessive(MessageStore store, uint64_t* budget) except? 0:
    """Find the next message whose subject has too many; 0 at the end, or if the budget is used
    up.
    """
    cdef Py_ssize_t low = 0, high = len(store.blocks), middle
    cdef uint64_t seq
    cdef Block block
    while low < high:
        middle = (low + high) // 2
        if (<Block>store.blocks[middle]).last_seq < store.trim_from:
            low = middle + 1
        else:
            high = middle
    while low < len(store.blocks):
        block = <Block>store.blocks[low]
        low += 1
        if block.live_msgs == 0:
            continue
        if budget[0] == 0:
            return 0
        if not block.is_loaded():
            spend(budget, block.size // LOADED_BYTES_PER_REMOVAL)
        store.load_index(block)
        seq = excessive_in(store, block, budget)
        if seq:
            return seq
        if budget[0] == 0:
            return 0
        store.trim_from = block.last_seq + 1
    store.trims = False
    return 0


cdef uint64_t excessive_in(MessageStore store, Block block, uint64_t* budget) noexcept:
    """Find the next such message in one loaded block."""
    cdef RecordIndex* records = &block.records
    cdef SubjectIndex index = store.index
    cdef uint32_t first = records_from(records, store.trim_from), entry = first
    cdef uint32_t subject_id
    cdef uint64_t found = 0, most = <uint64_t>store.subject_msgs_max
    cdef uint64_t count = min(budget[0], <uint64_t>records.count) * LOOKS_PER_REMOVAL
    while entry < records.count and entry - first < count:
        subject_id = records.subject_ids[entry]
        if records.offsets[entry] != NO_RECORD and subject_id < index.entry_count \
                and index.entries[subject_id] != NULL and index.entries[subject_id].total > most:
            found = records_seq(records, entry)
            break
        entry += 1
    spend(budget, (entry - first) // LOOKS_PER_REMOVAL)
    if found == 0 and entry < records.count:
        # Cut off here: the next step goes on with this one.
        store.trim_from = records_seq(records, entry)
        budget[0] = 0
    return found


cdef int make_room(MessageStore store) except -1:
    """Remove messages from the front after one was stored. If many small ones make way for a large
    one, or for lowered limits, this goes in steps.
    """
    cdef uint64_t budget = CUT_PER_APPEND_OVERDUE if store.cuts_front else CUT_PER_APPEND
    if store.trims:
        store.cuts_front = not store.discard_new
    elif not cut_front(store, &budget):
        store.cuts_front = True
    return 0


cdef bint cut_front(MessageStore store, uint64_t* budget) except -1:
    """Remove the excess from the front; false if the budget is used up before.

    A stream that refuses new messages keeps the old ones instead.
    """
    if store.discard_new:
        return True
    while store.msgs and (store.msgs_max > 0 and store.msgs > <uint64_t>store.msgs_max
                          or store.bytes_max > 0 and store.bytes > <uint64_t>store.bytes_max):
        if budget[0] == 0:
            return False
        budget[0] -= 1
        store.forget_message(store.first_seq, False)
    return True


cdef int trim_subject(MessageStore store, bytes subject, uint64_t keep) except -1:
    """Remove the oldest messages of a subject until only `keep` are left."""
    cdef SubjectEntry* entry = store.index.find(subject, <uint32_t>len(subject))
    cdef uint64_t seq
    while entry != NULL and entry.total > keep:
        seq = store.first_of(entry)
        if store.has_open_damage:
            # The total may count lost messages: never take a good one in their place. The limit
            # is applied when all is counted.
            return 0
        store.forget_message(seq, True)
        entry = store.index.find(subject, <uint32_t>len(subject))
    return 0
