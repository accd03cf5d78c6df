"""The records of removals that a store writes into its last block, besides the messages.

Owns which records are written when. Marks are Tradewind's own records, with sequence 0, whose time
field defines their meaning (see records.pxd); the official server skips them. Tombstones are its
own.

Messages removed by limits stay removed, although limits write nothing while messages come and go
- Every removal except one from the front by a limit leaves a tombstone after the record that caused
  it. The latter only move `limit_floor`, and each commit records that (`write_floor`) after all
  that it covers. So everything that a commit promises to be gone is stated in its bytes; it never
  has to follow from the limits, which may have room again by then.
- Uncommitted bytes count only as far as they arrived in one piece: recovery drops the rest. It
  therefore starts from a state that the store really had, plus messages that a limit had removed
  meanwhile. All of those are older than what was live, of their subject or of all, so the limits,
  applied once more, subjects first, take them before they could take anything that was live.
- The messages shown by a start are promised immediately, although the limits may have removed
  messages just then. Until the next commit that follows from the limits once more. So the floor is
  recorded before anything that could make room: by `apply_limits`, and by `write_last_seq` if a
  limit took the last message.
- A block that goes may take the record with it: the next commit writes it again, and no file is
  removed before that commit is known to be on disk.
"""

from tradewind.store.format.lengths cimport MARK_LENGTHS
from tradewind.store.format.records cimport RECORD_MIN, Record, mark_time
from tradewind.store.table.block cimport Block

cdef uint64_t TOMBSTONE = <uint64_t>1 << 62

MARK_SYNCED_KIND = MARK_SYNCED
MARK_FLOOR_KIND = MARK_FLOOR
MARK_PREVIOUS_KIND = MARK_PREVIOUS
MARK_UNIT_KIND = MARK_UNIT
MARK_LENGTHS_KIND = MARK_LENGTHS


cpdef int write_mark(MessageStore store, uint64_t kind, uint64_t value) except -1:
    """Append a mark. There must be a last block."""
    store.last.append_mark(TOMBSTONE, mark_time(kind, value))
    return 0


cpdef int write_lengths(MessageStore store, uint64_t bytes_min=1) except -1:
    """Write a mark for the lengths of the messages since the last one, if they have this many
    bytes.
    """
    cdef Block last = store.last
    if last is None or last.unproved < bytes_min or not store.keeps_tombstones \
            or last.patched or last.compressed:
        return 0
    last.append_lengths()
    return 0


cdef int mark_floor(MessageStore store) except -1:
    """Write tombstones for messages that a limit has removed from the front, before another
    removal.

    Tradewind's own record of that is the floor; the official server does not know about it, and
    would let removed messages come back when a later removal makes room. Only those that are still
    in a block with live messages need one.
    """
    cdef uint64_t seq, low = store.marked_floor
    cdef Block block
    if store.limit_floor <= store.marked_floor:
        return 0
    store.marked_floor = store.limit_floor    # first: a new block on the way comes back here
    for block in store.blocks:
        if block.live_msgs:
            for seq in block.indexed_between(low, store.limit_floor):
                write_tombstone(store, seq)
            break
    return 0


cpdef int write_floor(MessageStore store) except -1:
    """Record the removals by limits from the front; see the top of this module.

    If blocks were removed, record all removals from the front: then their files may go in any
    order.
    """
    cdef uint64_t floor = store.limit_floor
    if store.blocks_went:
        floor = max(floor, store.first_seq)
    if floor <= store.written_floor or not store.blocks:
        return 0
    store.prepare_room(RECORD_MIN, store.last_seq)
    write_mark(store, MARK_FLOOR, floor)
    store.written_floor = floor
    store.blocks_went = False
    return 0


def mark_limit_floor(MessageStore store not None):
    """Record on disk the removals by limits, and all lengths, before the store is closed."""
    if store.blocks:
        mark_floor(store)
        write_floor(store)
        write_lengths(store)


cdef int write_tombstone(MessageStore store, uint64_t seq) except -1:
    """Write a tombstone for a message that was already removed."""
    store.prepare_room(RECORD_MIN, store.last_seq)
    store.last.append_mark(seq | TOMBSTONE, store.last_timestamp)
    return 0


cdef int write_last_seq(MessageStore store) except -1:
    """Record the last sequence in the last block; called before a block is removed."""
    cdef Record record
    if not store.keeps_tombstones or store.last_seq == 0 \
            or store.written_last_seq == store.last_seq \
            and store.written_last_block == store.last.number:
        return 0
    if store.read(store.last_seq, &record) == 0:
        return 0
    if store.limit_floor > store.written_floor:
        # The last message may have displaced others; without it the limits have room again.
        write_mark(store, MARK_FLOOR, store.limit_floor)
        store.written_floor = store.limit_floor
    store.last.append_mark(store.last_seq | TOMBSTONE, store.last_timestamp)
    store.written_last_seq = store.last_seq
    store.written_last_block = store.last.number
    return 0


def repeat_last(MessageStore store not None):
    """Record the last sequence in the last block again."""
    store.written_last_seq = 0
    write_last_seq(store)


def write_again(MessageStore store not None, list removed not None):
    """Repeat records that only damaged bytes may have held: tombstones of these messages, the floor
    of limits, and the last sequence.
    """
    for seq in removed:
        if seq >= store.limit_floor and not store.is_live(seq):
            write_tombstone(store, seq)
    store.written_floor = 0
    store.blocks_went = True
    write_floor(store)
    repeat_last(store)
