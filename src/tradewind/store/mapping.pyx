"""A file in memory, without a descriptor.

Owns one read-only mapping of the operating system and gives it back when nobody looks at it any
more. The mapping of the standard library keeps a copy of the descriptor as long as it lives; with
a block of every stream mapped, a server would run out of them. Only `disk` makes these.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno
from posix.mman cimport MADV_DONTNEED, MAP_FAILED, MAP_SHARED, PROT_READ, madvise, mmap, munmap

import os

cdef Py_ssize_t alive = 0


cdef class FileMapping:
    """The first `size` bytes of an open file; size is above 0. OSError if the system refuses."""

    cdef void* data
    cdef size_t size
    cdef object __weakref__

    def __cinit__(self, int descriptor, size_t size):
        global alive
        self.data = mmap(NULL, size, PROT_READ, MAP_SHARED, descriptor, 0)
        if self.data == MAP_FAILED:
            self.data = NULL
            raise OSError(errno, os.strerror(errno))
        self.size = size
        alive += 1

    def __dealloc__(self):
        global alive
        if self.data != NULL:
            munmap(self.data, self.size)
            alive -= 1

    def __len__(self):
        return self.size

    def forget_pages(self):
        """Let what was read not count as memory of the process; it stays readable."""
        madvise(self.data, self.size, MADV_DONTNEED)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


def mappings_alive():
    """How many there are in this process; the system allows about 65,000."""
    return alive
