"""Times of schedules; the code and the explanation are in schedule_times.pyx."""

from libc.stdint cimport uint32_t
from tradewind.store.table.message_store cimport MessageStore

cdef int end_schedule(MessageStore store, const char* subject, uint32_t subject_size) except -1
