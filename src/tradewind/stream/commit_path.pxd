"""State of a stream's path through commits; the code and the explanation are in commit_path.py.

That module is compiled Python, because every turn in which a stream changes takes this way.
"""

import cython

from libc.stdint cimport int64_t, uint64_t
from tradewind.store.folder.filestore cimport FileStore
from tradewind.store.commits.syncer cimport SyncEntry, Syncer
from tradewind.stream.ingest cimport Ingest


cdef class CommitPath:
    cdef readonly Ingest ingest
    cdef FileStore _files                   # None: in memory
    cdef object _stream                     # Stream: words the errors, knows its mode
    cdef Syncer _syncer                     # None: not attached, or in memory
    cdef readonly SyncEntry entry           # None: the same
    cdef public object audience             # Audience; None: no one waits for messages
    cdef public dict takers                 # Taker -> its filters; all are woken
    cdef public bint has_companions         # told of durable messages
    # (round of the syncer, callback once it is stored), oldest first.
    cdef object _waiting                    # deque

    @cython.locals(ingest=Ingest, entry=SyncEntry)
    cpdef void commit_changes(self, int64_t now_ns) except *
    cpdef void show(self) except *
