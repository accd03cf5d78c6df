"""Consumer states on their way to the disk, for compiled callers; the code and the explanation are
in consumer_states.py.

That module is compiled Python, because every acknowledgement that a client waits for takes this
way.
"""

import cython

from libc.stdint cimport int64_t, uint64_t
from tradewind.store.commits.commit cimport Commit, SyncTarget
from tradewind.store.files.open_files cimport OpenFiles
from tradewind.store.folder.ack_log_file cimport AckLogFile


cdef class WrittenState:
    cdef public object source               # StateSource
    cdef public int64_t number
    cdef public Py_ssize_t whole_bytes
    cdef public AckLogFile log              # None: it has no records
    cdef public Py_ssize_t log_bytes
    cdef public bytes prefix
    cdef public int saves
    cdef public bytes replaced_prefix

    cpdef start_over(self)


cdef class StateChange:
    cdef public str consumer
    cdef public int64_t ticket
    cdef public bint is_lazy
    cdef public bint wants_whole
    cdef public int64_t number
    cdef public Py_ssize_t whole_bytes
    cdef public object file                 # DiskFile, or None
    cdef public bint is_deleted
    cdef public bint is_logged

    cpdef join(self, StateChange earlier)


cdef class ConsumerStates:
    cdef public object seal                 # Callable, or None
    cdef object _disk                       # Disk
    cdef OpenFiles _files
    cdef str _folder
    cdef dict _written                      # all of these have the names of consumers as keys
    cdef dict _urgent
    cdef dict _waiting
    cdef dict _logged
    cdef list _writing
    cdef dict _in_flight
    cdef dict _renamed
    cdef dict _naming
    cdef dict _logs                         # number -> AckLogFile
    cdef AckLogFile _log                    # the one that is written, or None
    cdef int64_t _last_number
    cdef uint64_t _urgent_commits
    cdef Commit _committing
    cdef bint _is_folding
    cdef int64_t _ticket

    cpdef int64_t mark_urgent(self, str consumer, object source) except -1

    @cython.locals(written=WrittenState)
    cdef _take_ticket(self, str consumer, object source)

    @cython.locals(earlier=StateChange)
    cdef _wait(self, StateChange change, dict wanted)

    @cython.locals(change=StateChange, earlier=StateChange)
    cpdef bint write(self, str consumer, object now_ns) except -1

    @cython.locals(kept=int64_t, change=StateChange)
    cpdef int64_t kept_ticket(self, str consumer) except -1

    @cython.locals(written=int64_t, change=StateChange)
    cpdef int64_t written_ticket(self, str consumer) except -1

    @cython.locals(change=StateChange)
    cpdef Commit begin_commit(self, object now_ns)

    @cython.locals(log=AckLogFile)
    cdef _pin_log(self, list files, list folders)

    @cython.locals(log=AckLogFile)
    cdef _end_large_log(self)
    cdef _remove_unused_logs(self)

    @cython.locals(change=StateChange)
    cpdef finish_commit(self, Commit commit)
    cdef _close_file(self, StateChange change)

    @cython.locals(written=WrittenState, log=AckLogFile)
    cdef bint _append(self, StateChange change, object now_ns) except -1

    @cython.locals(written=WrittenState, log=AckLogFile, whole=StateChange, number=int64_t)
    cdef bint _append_to_both(self, StateChange change) except -1

    @cython.locals(written=WrittenState)
    cdef bytes _append_before_whole(self, StateChange change)

    @cython.locals(written=WrittenState)
    cdef bint _is_fold_due(self, StateChange change) except -1
    cdef bint _is_small(self, StateChange change) except -1

    @cython.locals(change=StateChange)
    cdef int _write_urgent(self, object now_ns) except -1


cdef class ConsumerFiles(SyncTarget):
    cdef public bint is_fenced
    cdef readonly ConsumerStates states
    cdef object _wall_ns
    cdef object _on_progress
    cdef object _write_stream
    cdef object _sync_soon

    cpdef bint has_changes(self) except -1
    cpdef bint wants_another(self) except -1
    cpdef Commit begin_commit(self)
    cpdef bint write(self, str consumer) except -1
    cpdef void finish_commit(self, Commit commit) except *
    cpdef void drop_commit(self, Commit commit) except *
    cpdef void mark_idle(self) except *
