"""State of the deadlines of the engine; the code and the explanation are in timers.py.

That module is compiled Python, because every turn asks for the earliest deadline.
"""

import cython

from libc.stdint cimport int64_t


cdef class Timers:
    cdef list _heap         # entries whose time differs from that in `_due` are skipped
    cdef dict _due          # id of the owner -> its deadline
    cdef int64_t _added

    cpdef set(self, owner, due_ns)     # which may be beyond 64 bits

    @cython.locals(first=tuple)
    cpdef next_ns(self)
