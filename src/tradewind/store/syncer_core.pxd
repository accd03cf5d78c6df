"""State of the syncer that every turn looks at; the explanation is in syncer_core.pyx."""

from libc.stdint cimport int64_t, uint64_t
from tradewind.store.file_core cimport FileCore


cdef class SyncEntry:
    cdef readonly object target
    cdef FileCore files                     # the target, if it is a store of messages
    cdef public object mode                 # SyncMode
    cdef public bint syncs_always           # ... is ALWAYS
    cdef readonly object on_synced
    cdef readonly object on_failure
    cdef readonly object on_resumed
    cdef public uint64_t rounds             # so many have begun, the last of them with `job`
    cdef public uint64_t kept
    cdef public bint is_marked
    cdef public int64_t marked_ns
    cdef public object job                  # SyncJob, or None
    cdef public bint has_failed
    cdef public int64_t touched_ns
    cdef public bint is_attached
    cdef public object when_free            # None, or called when no job uses its files
    cdef public bint waits_for_interval     # written is enough for its promise, it is synced later


cdef class SyncerCore:
    cdef public object statistics           # SyncStatistics
    cdef public dict _entries               # id of the target -> SyncEntry
    cdef public dict _marked                # SyncEntry -> None, in the order they were marked
    cdef public dict _quiet
    cdef public object _idle_at_ns
    cdef public int64_t idle_ns             # a store without a change for so long is quiet

    cdef bint write_entry(self, SyncEntry entry, int64_t now_ns) except -1
