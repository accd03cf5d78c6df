"""Messages that were lost; the code and the explanation are in losses.pyx."""

from libc.stdint cimport uint64_t
from tradewind.store.format.records cimport Record
from tradewind.store.table.block cimport Block
from tradewind.store.table.message_store cimport MessageStore

# As `MessageStore.read` and `forget_message`, when the record is not what was stored.
cdef int read_damaged(MessageStore store, Block block, uint64_t seq, Record* record) except -1
cdef int forget_damaged(MessageStore store, Block block, uint64_t seq, bint tombstone) except -1
