"""Reading blocks from end to end; the code is in scan.pyx."""

from tradewind.store.block cimport Block
from tradewind.store.subject_index cimport SubjectIndex

cdef int load_block_index(Block block, SubjectIndex index, bint adding=*) except -1
