"""State of the watch over turns; the code and the explanation are in turn_watch.pyx."""

from libc.stdint cimport int64_t

cdef class TurnWatch:
    cdef public int64_t budget_ns
    # Called with one line for every turn above the budget; None: only the log is used.
    cdef public object on_excess
    cdef public bint saw_commits        # commits have ended in this turn
    cdef readonly int64_t longest_ns    # by processor time, also below the budget
    cdef readonly dict kinds            # kind -> KindOfTurn, of the turns above the budget
    cdef object log
    cdef object monotonic_ns
    cdef object thread_ns
    cdef int64_t turn_ns                # when the turn began, which is the end of the previous one
    cdef int64_t step_ns                # when the step began
    cdef int64_t read_ns                # when the processor time was last read
    cdef int64_t used_ns                # the value of the processor time at `read_ns`
    cdef dict steps                     # kind -> StepSum, of this turn

    cpdef int64_t begin(self) except -1
    cpdef int64_t lap(self, kind, detail) except -1
    cpdef int end_turn(self) except -1
