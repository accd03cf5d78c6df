"""State of the quick way of schedules; the code and the explanation are in schedule_intake.pyx."""

from libc.stdint cimport int64_t, uint32_t
from tradewind.containers.buffer cimport Buffer

cdef class ScheduleIntake:
    cdef list _patterns             # the subjects of the stream, as bytes
    cdef Buffer header              # of the message that was read last, as it is stored

    cdef bint read(self, const char* subject, uint32_t subject_size, const char* header,
                   uint32_t header_size, int64_t now_ns, int64_t* due_ns) except -1
    cdef bint _is_taken(self, const char* subject, uint32_t size) noexcept
