"""Memory of the blocks of a store; the explanation is in residency.pyx."""

from libc.stdint cimport uint64_t
from tradewind.store.table.block cimport Block
from tradewind.store.table.message_store cimport MessageStore

cdef int limit_mappings(list blocks, Block kept) except -1
cdef int forget_pages(list blocks) except -1
cdef int note_reading(MessageStore store, Block block) except -1
cdef int evict(list blocks, uint64_t bytes_max, Block last, Block kept) except -1
