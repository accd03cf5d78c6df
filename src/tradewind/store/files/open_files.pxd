"""State of the open block files; the code and the explanation are in open_files.pyx."""

from libc.stdint cimport uint32_t, uint64_t

cdef class BlockFile:
    cdef public str path
    cdef bytes _system_path             # the same for the system; None: not needed so far
    cdef readonly object cipher         # BlockCipher; None: the file is not encrypted
    cdef OpenFiles _files
    cdef object _held                   # the open DiskFile; None: it is closed
    cdef int _descriptor                # of `_held`; -1: there is none, or it is simulated
    cdef uint32_t _pins                 # commits under way that sync it
    cdef bint _unsynced
    cdef bint _sync_failed

    cdef int write_from(self, const char* data, size_t size, uint64_t offset) except -1
    cpdef bint pin(self) except -1
    cpdef int unpin(self) except -1
    cpdef int rest(self) except -1
    cdef int pinned_descriptor(self) noexcept
    cdef const char* system_path(self) except NULL
    cdef void note_failed_sync(self) noexcept


cdef class OpenFiles:
    cdef readonly object disk
    cdef object _held                   # OrderedDict of BlockFile, the least recently used first
    cdef BlockFile _latest              # the last of them, or None: not known
    cdef OpenFiles _joined              # the pool that has taken over the files, or None

    cdef object hold(self, BlockFile file)
