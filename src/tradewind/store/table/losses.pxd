"""Messages that were lost; the code and the explanation are in losses.pyx."""

from libc.stdint cimport uint64_t
from tradewind.store.format.records cimport Record
from tradewind.store.table.block cimport Block
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.format.lengths cimport has_header_block, is_plain_header
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectIndex

# As `MessageStore.read` and `forget_message`, when the record is not what was stored.
cdef int read_damaged(MessageStore store, Block block, uint64_t seq, Record* record) except -1
cdef int forget_damaged(MessageStore store, Block block, uint64_t seq, bint tombstone) except -1


cdef inline bint has_known_lengths(SubjectIndex index, Block block,
                                   const Record* record) noexcept:
    """Whether a record that `Block.read` returned, with a good checksum, is divided into subject,
    header and payload as it was when the index was made.
    """
    cdef SubjectEntry* entry = index.entries[record.subject_id]
    if entry == NULL or entry.name_size != record.subject_size:
        return False
    return not has_header_block(record) \
        or is_plain_header(record.header, record.header_size) != block.is_odd(record.seq)
