"""The one place that decides whether the bytes of an open file are durable.

Owns the system calls of a sync. A descriptor outlives the name of its file: bytes written to a file
that was removed, moved away or replaced are synced without an error, and are missing at the next
start. So a sync holds only if the name still leads to this very file. Both the loop's own syncs
(`OsFile.sync`) and the threads of the group commit, which have no interpreter, ask here.
"""

from libc.errno cimport EINTR, ENOENT, ENOTDIR, ESTALE, errno
from posix.stat cimport fstat, stat, struct_stat
from tradewind.system_calls cimport sync_data

import os


cdef int sync_named(int descriptor, const char* path) noexcept nogil:
    """Sync a file; returns the errno if that fails, or if `path` does not lead to it (any more).

    ENOENT: nothing has its name. ESTALE: something else has. NULL: it has no name yet, because a
    rename is to follow, which fails if the file is gone.
    """
    cdef struct_stat opened, named
    while sync_data(descriptor) != 0:
        if errno != EINTR:
            return errno
    if path == NULL:
        return 0
    if fstat(descriptor, &opened) != 0:
        return errno
    if stat(path, &named) != 0:
        return ENOENT if errno == ENOTDIR else errno
    if opened.st_ino != named.st_ino or opened.st_dev != named.st_dev:
        return ESTALE
    return 0


def sync_descriptor(int descriptor, path):
    """Sync a file; OSError. `path` is None for a file that has no name yet."""
    cdef bytes name = None if path is None else os.fsencode(path)
    cdef const char* given = NULL
    cdef int error
    if name is not None:
        given = name
    with nogil:
        error = sync_named(descriptor, given)
    if error:
        raise OSError(error, os.strerror(error))
