"""The contract of a message store for compiled callers; the code is in messages.pyx."""

from tradewind.store.message_core cimport MessageCore
from tradewind.store.records cimport Record


cdef class MessageStore(MessageCore):
    cdef object _copy(self, const Record* record)
