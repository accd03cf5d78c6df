"""State of the order of subjects; the code and the explanation are in subject_order.pyx."""

from libc.stdint cimport uint32_t
from tradewind.store.table.subject_entry cimport SubjectEntry

cdef enum:
    ORDER_CHUNK_MAX = 256

ctypedef struct OrderChunk:
    uint32_t count
    SubjectEntry* entries[ORDER_CHUNK_MAX]

ctypedef struct SubjectOrder:
    OrderChunk** chunks         # none is empty; their names ascend
    uint32_t chunk_count
    uint32_t chunk_capacity
    uint32_t ordered            # subjects below this id are in it

ctypedef struct OrderPlace:
    uint32_t chunk
    uint32_t entry


cdef OrderPlace order_from(const SubjectOrder* order, const char* name,
                           uint32_t size) noexcept nogil
cdef SubjectEntry* order_next(const SubjectOrder* order, OrderPlace* place) noexcept nogil
cdef int order_insert(SubjectOrder* order, SubjectEntry* entry) noexcept nogil
cdef void order_remove(SubjectOrder* order, const SubjectEntry* entry) noexcept nogil
cdef void order_free(SubjectOrder* order) noexcept nogil
cdef bint starts_with(const SubjectEntry* entry, const char* head, uint32_t size) noexcept nogil
