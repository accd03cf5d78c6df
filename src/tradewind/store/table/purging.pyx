"""Removing many messages on request: some that match, or all at once.

Owns how a purge of everything begins a new block and what is recorded there.
`MessageStore.purge_steps` decides in which steps the rest goes.
"""

from tradewind.store.format.records cimport RECORD_MIN
from tradewind.store.table.bounded_walk cimport Reach, next_within
from tradewind.store.table.marks cimport MARK_FLOOR, write_mark

cdef enum:
    REASON_PURGED = 2       # as in `tradewind.chain.chain_entries`

cdef uint64_t TOMBSTONE = <uint64_t>1 << 62


cdef uint64_t purge_some(MessageStore store, SubjectFilter chosen, uint64_t seq, uint64_t below,
                         uint64_t count, uint64_t work) except? 0xFFFFFFFFFFFFFFFF:
    """Remove up to `count` that match in [seq, below); returns where to continue, 0 at the end.
    Looking for them may cost `work`.
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


cdef int purge_all(MessageStore store) except -1:
    """Begin again in a new block, behind the last sequence."""
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
    """A store that never had a message reports 1 as its first sequence from now on, not 0, by which
    nats-server shows that it was purged, or that this sequence was requested.
    """
    if store.first_seq == 0 and store.keeps_tombstones and store.last is not None:
        store.prepare_room(RECORD_MIN, 1)
        write_mark(store, MARK_FLOOR, 1)
        store.written_floor = 1
    store.first_seq = 1
    return 0
