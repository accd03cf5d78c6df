"""The sync of a file; the code and the explanation are in file_sync.pyx."""

cdef int sync_named(int descriptor, const char* path) noexcept nogil
