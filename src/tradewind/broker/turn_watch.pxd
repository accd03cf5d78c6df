"""State of the watch over turns; the code and the explanation are in turn_watch.py.

That module is compiled Python, because every turn and every step of a turn calls it.
"""

import cython

from libc.stdint cimport int64_t

cdef int64_t refresh_ns


cdef class KindOfTurn:
    cdef readonly int64_t count
    cdef readonly int64_t longest_ns
    cdef readonly int64_t unreported    # since its last line in the log
    cdef int64_t _quiet_until_ns


cdef class StepSum:
    cdef int64_t count
    cdef int64_t sum_ns
    cdef int64_t longest_ns
    cdef object detail                  # of the longest step


cdef class TurnWatch:
    cdef public int64_t budget_ns
    # Called with one line for every turn above the budget; None: only the log is used.
    cdef public object on_excess
    cdef public bint saw_commits        # commits have ended in this turn
    cdef readonly int64_t longest_ns    # by processor time, also below the budget
    cdef readonly dict kinds            # kind -> KindOfTurn, of the turns above the budget
    cdef object _log
    cdef object _monotonic_ns
    cdef object _thread_ns
    cdef int64_t _turn_ns               # when the turn began, which is the end of the previous one
    cdef int64_t step_ns               # when the step began
    cdef int64_t _read_ns               # when the processor time was last read
    cdef int64_t _used_ns               # the value of the processor time at `_read_ns`
    cdef dict _steps                    # kind -> StepSum, of this turn

    cpdef int64_t begin(self) except -1

    @cython.locals(now_ns=int64_t, step_ns=int64_t, step=StepSum)
    cpdef int64_t lap(self, kind, detail) except -1

    @cython.locals(now_ns=int64_t, used_ns=int64_t, end_ns=int64_t)
    cpdef int end_turn(self) except -1

    @cython.locals(
        known=KindOfTurn, step=StepSum, longest=StepSum, rest_ns=int64_t,
        largest_ns=int64_t)
    cdef _exceeded(self, int64_t used_ns, int64_t end_ns, int64_t now_ns)
