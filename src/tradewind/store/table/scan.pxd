"""Reading blocks from end to end; the code is in scan.pyx."""

from tradewind.store.table.block cimport Block
from tradewind.store.table.subject_index cimport SubjectIndex

cdef int load_block_index(Block block, SubjectIndex index, bint adding=*) except -1
