"""Turns the results of recovery into the messages of a store; nothing of it is written.

Owns the totals that follow from blocks. The statements of the blocks and their marks are determined
by others (`folder.recover`, `repair.index_summary`).
"""

from libc.stdint cimport int64_t, uint64_t
from tradewind.store.table.block cimport Block
from tradewind.store.table.message_store cimport MessageStore


def adopt_blocks(MessageStore store not None, list blocks not None, uint64_t last_seq,
                 int64_t last_timestamp):
    """Adopt blocks that recovery has read; the subjects are in `index` already."""
    cdef Block block
    store.blocks = blocks
    store.recent = None
    store.last = blocks[len(blocks) - 1]
    store.msgs = sum(block.live_msgs for block in blocks)
    store.bytes = sum(block.live_bytes for block in blocks)
    store.last_seq = last_seq
    store.last_timestamp = last_timestamp
    store.first_seq = last_seq + 1 if last_seq else 0
    for block in blocks:
        if block.live_msgs:
            store.first_seq = block.first_seq
            break
    if store.last.size == 0:
        store.last.reset_index()
    store.load_index(store.last)


def drop_leading_blocks(MessageStore store not None):
    """Drop leading blocks with neither a live message nor a needed tombstone."""
    cdef Block block
    while (<Block>store.blocks[0]).live_msgs == 0 and store.blocks[0] is not store.last:
        store.drop_block(<Block>store.blocks[0])
    for block in list(store.blocks):
        store.drop_if_empty(block)


def drop_below(MessageStore store not None, uint64_t floor):
    """Drop everything below a floor that a mark on disk states; nothing is written."""
    store.written_floor = floor     # first: the block that states so may go on the way
    while store.msgs and store.first_seq < floor:
        store.forget_message(store.first_seq, False)
    store.limit_floor = max(store.limit_floor, floor)
    store.first_seq = max(store.first_seq, <uint64_t>1)


def forget_recovered(MessageStore store not None, uint64_t seq):
    """Forget a message that a tombstone on disk states to be deleted; nothing is written."""
    return store.forget_message(seq, False) == 0
