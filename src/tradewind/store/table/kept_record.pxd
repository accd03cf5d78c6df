"""State of a held record; the explanation is in kept_record.pyx."""

from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.format.records cimport Record
from tradewind.containers.buffer cimport Buffer

cdef class KeptRecord:
    cdef object keeper      # holds the record where it is; None: it is in `moved`, or there is none
    cdef Buffer moved       # a copy of the record

    cdef int keep(self, MessageStore store, Record* record) except -1
    cdef int let_go(self) except -1
