"""Whether the boundaries between packages check their invariants; explained in invariants.pyx."""

from tradewind.containers.buffer cimport Buffer

cdef bint checked                   # set once, when the module is loaded


cdef inline bint is_sound(const Buffer* buffer) noexcept nogil:
    """Whether the fields of a buffer are consistent."""
    return buffer.begin <= buffer.end <= buffer.capacity \
        and (buffer.data != NULL or buffer.capacity == 0)
