"""State of the watch over turns; the code and the explanation are in turn_watch.pyx."""

from libc.stdint cimport int64_t

cdef class TurnWatch:
    cdef public int64_t budget_ns
    # Told of every turn above the budget, as one line; None: only the log is.
    cdef public object on_excess
    cdef public bint saw_commits        # commits have ended in this turn
    cdef readonly int64_t longest_ns    # by processor time, also below the budget
    cdef readonly dict kinds            # kind -> KindOfTurn, of the turns above the budget
    cdef object log
    cdef object monotonic_ns
    cdef object thread_ns
    cdef int64_t turn_ns                # when the turn began: the end of the one before
    cdef int64_t step_ns                # when the step began
    cdef int64_t read_ns                # when the processor time was read
    cdef int64_t used_ns                # what it was then
    cdef dict steps                     # kind -> StepSum, of this turn

    cpdef int64_t begin(self) except -1
    cpdef int64_t lap(self, kind, detail) except -1
    cpdef int end_turn(self) except -1
