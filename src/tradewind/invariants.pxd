"""Whether the borders between packages look at what must hold; the explanation is in
invariants.pyx.
"""

from tradewind.containers.buffer cimport Buffer

cdef bint checked                   # set once, when the module is loaded


cdef inline bint is_sound(const Buffer* buffer) noexcept nogil:
    """Whether the numbers of a buffer can be true."""
    return buffer.begin <= buffer.end <= buffer.capacity \
        and (buffer.data != NULL or buffer.capacity == 0)
