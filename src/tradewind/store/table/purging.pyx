"""Removing many messages on request: some that match, or all at once.

Owns how a purge of everything begins a new block and which records it writes there.
`MessageStore.purge_steps` decides in which steps the rest is removed.
"""

from array import array

from libc.stdint cimport uint32_t
from tradewind.containers.buffer cimport Buffer, buffer_free, buffer_init
from tradewind.store.format.records cimport RECORD_MIN
from tradewind.store.table.bounded_walk cimport Reach, next_within
from tradewind.store.table.listed_ids cimport listed_at, listed_count
from tradewind.store.table.marks cimport MARK_FLOOR, write_mark
from tradewind.store.table.subject_index cimport SubjectEntry

cdef enum:
    # This many first messages of subjects are searched for one by one.
    UNKNOWN_MAX = 16
    REASON_PURGED = 2       # as in `tradewind.chain.chain_entries`

cdef uint64_t TOMBSTONE = <uint64_t>1 << 62


cdef uint64_t purge_some(MessageStore store, SubjectFilter chosen, uint64_t seq, uint64_t below,
                         uint64_t count, uint64_t work) except? 0xFFFFFFFFFFFFFFFF:
    """Remove up to `count` matching messages in [seq, below); returns where to continue, 0 at the
    end. The search may cost `work`.
    """
    cdef Reach reach
    if chosen.everything:
        while store.msgs and store.first_seq < below:
            if count == 0:
                return store.first_seq
            count -= 1
            store.forget_message(store.first_seq, True)
        return 0
    reach.work_left = work
    seq = next_within(store, seq, chosen, &reach)
    while seq and seq < below:
        if count == 0:
            return seq
        count -= 1
        store.forget_message(seq, True)
        seq = next_within(store, seq + 1, chosen, &reach)
    if seq == 0 and reach.work_left == 0 and reach.passed + 1 < below:
        return reach.passed + 1
    return 0


cdef object listed_range(MessageStore store, SubjectFilter chosen, PurgeRange* found):
    """The messages of the few subjects that pass, ascending, if each has one; otherwise None."""
    cdef Buffer listed
    cdef SubjectEntry* entry
    cdef uint32_t number
    cdef uint64_t seq
    cdef bint is_single = True
    cdef uint32_t unknown = 0
    singles = array("Q")
    buffer_init(&listed)
    found.is_known = False
    found.first = 0xFFFFFFFFFFFFFFFF
    found.end = 0
    try:
        if not chosen.passing(&listed):
            return None
        for number in range(listed_count(&listed)):
            entry = store.index.entries[listed_at(&listed, number)]
            is_single = is_single and entry.total == 1
            unknown += entry.first_seq == 0
            if unknown > UNKNOWN_MAX:
                return None     # a walk through the stream, in steps, is better
            seq = store.first_of(entry)
            if seq == 0:
                return None     # it had lost messages only
            found.first = min(found.first, seq)
            if is_single:
                singles.append(seq)
            else:
                seq = store.last_of(entry)
            found.end = max(found.end, seq + 1)
        found.is_known = True
    finally:
        buffer_free(&listed)
    return array("Q", sorted(singles)) if is_single else None


cdef uint64_t first_passing(MessageStore store, SubjectFilter chosen, uint64_t seq) except? 0:
    """The first message at or after `seq` that passes; 0 if there is none."""
    cdef PurgeRange found
    if chosen.is_narrow:
        listed_range(store, chosen, &found)
        if found.is_known and (found.first >= seq or found.end <= seq):
            return found.first if seq < found.end else 0
    return store.next_matching(seq, chosen)


cdef uint64_t purge_listed(MessageStore store, uint64_t[::1] singles, uint64_t place,
                           uint64_t below, uint64_t count) except? 0xFFFFFFFFFFFFFFFF:
    """Remove up to `count` of the listed messages; returns the index of the next one."""
    while place < <uint64_t>singles.shape[0] and count:
        if singles[place] >= below:
            return singles.shape[0]
        store.forget_message(singles[place], True)
        place += 1
        count -= 1
    return place


cdef int purge_all(MessageStore store) except -1:
    """Remove everything by beginning a new block, after the last sequence."""
    cdef list dropped = store.blocks
    if store.last_seq == 0:
        return begin_with_first(store)
    fresh = store.block_keeper.open_block(store.last.number + 1)
    if store.chain is not None and store.msgs:
        store.chain.remove(store.first_seq, store.last_seq, REASON_PURGED)
    store.blocks = []
    store.recent = None
    store.index.reset()
    store.recount.cancel()
    store.timers.clear()
    store.schedules.clear()
    store.msgs = 0
    store.bytes = 0
    store.first_seq = store.last_seq + 1
    store.last = fresh
    store.last.reset_index()
    store.last.start_after(store.last_seq)
    store.blocks.append(store.last)
    store.block_keeper.block_opened()
    if store.keeps_tombstones:
        store.last.append_mark(store.last_seq | TOMBSTONE, store.last_timestamp)
        write_mark(store, MARK_FLOOR, store.last_seq + 1)
        store.limit_floor = store.written_floor = store.marked_floor = store.last_seq + 1
    store.block_keeper.blocks_dropped(dropped)
    if store.listener is not None:
        store.listener.all_removed()
    return 0


cdef int begin_with_first(MessageStore store) except -1:
    """Report 1 as the first sequence of a store that never had a message, not 0, as nats-server
    does to show that it was purged, or that this sequence was requested.
    """
    if store.first_seq == 0 and store.keeps_tombstones and store.last is not None:
        store.prepare_room(RECORD_MIN, 1)
        write_mark(store, MARK_FLOOR, 1)
        store.written_floor = 1
    store.first_seq = 1
    return 0
