"""Limits the memory of the blocks of a store.

Owns what is released and in which order: indexes, inflated bytes, mappings and pages. Everything
released is rebuilt when it is needed. The store decides when to check.
"""

from tradewind.store.files.file_mapping import mappings_alive

cdef enum:
    READS_IN_ROW_MIN = 256
    READS_ELSEWHERE_MAX = 2048

# The mappings of all streams; Linux allows a process about 65,000.
MAPPINGS_MAX = 16384


cdef int forget_pages(list blocks) except -1:
    """Release the pages read from files, which would count as memory of the process."""
    cdef Block block
    for block in blocks:
        block.forget_pages()
    return 0


cdef int note_reading(MessageStore store, Block block) except -1:
    """Note that a message of another block is read. The pages of a block that was read through are
    released, and those of all blocks after many scattered reads, because they count as memory of
    the process.
    """
    store.reads_elsewhere += 1
    if store.reading is not None and store.reads_in_row >= READS_IN_ROW_MIN:
        store.reading.forget_pages()
    elif store.reads_elsewhere >= READS_ELSEWHERE_MAX:
        store.reads_elsewhere = 0
        forget_pages(store.blocks)
    store.reads_in_row, store.reading = 0, block
    return 0


cdef int limit_mappings(list blocks, Block kept) except -1:
    """Release mapped files if all streams together have too many."""
    cdef Block block
    if mappings_alive() > MAPPINGS_MAX:
        for block in blocks:
            if block is not kept:
                block.unmap()
    return 0


cdef int evict(list blocks, uint64_t bytes_max, Block last, Block kept) except -1:
    """Release the least recently used indexes until they fit."""
    total = sum(block.memory_bytes for block in blocks)
    if total <= bytes_max:
        return 0
    for block in sorted(blocks, key=by_use):
        if block is last or block is kept:
            continue
        total -= block.memory_bytes
        block.release()
        total += block.memory_bytes
        if total <= bytes_max:
            break
    return 0


def by_use(Block block not None):
    """The tick of a block's last use."""
    return block.used
