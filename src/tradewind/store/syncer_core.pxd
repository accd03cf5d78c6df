"""State of the syncer that every turn looks at; the explanation is in syncer_core.pyx."""

from libc.stdint cimport int64_t, uint64_t
from tradewind.store.commit cimport Commit
from tradewind.store.file_core cimport FileCore


cdef class SyncJob:
    cdef readonly SyncEntry entry
    cdef readonly Commit commit
    cdef readonly uint64_t round
    cdef readonly int64_t waiting_since_ns
    cdef public int64_t run_ns              # how long it took


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
    cdef public SyncJob job                 # or None
    cdef public bint has_failed
    cdef public int64_t touched_ns
    cdef public bint is_attached
    cdef public object when_free            # None, or called when no job uses its files
    cdef public bint waits_for_interval     # written is enough for its promise, it is synced later
    # Company, see syncer_core.pyx. The owner says how many wait for a promise of this store.
    cdef public uint64_t waiters
    cdef uint64_t carried                   # ... of which so many have a part in the job
    cdef readonly uint64_t expected         # so many publish at the same time, as it seems
    cdef readonly int64_t held_until_ns     # the next commit waits for company; 0: it does not
    cdef int trust                          # how often that was worth it of late
    cdef int passed                         # commits that have not waited since the last try


cdef class SyncerCore:
    cdef object _run                        # given a SyncJob, has it run
    cdef public object faults               # Faults
    cdef public object statistics           # SyncStatistics
    cdef public dict _entries               # id of the target -> SyncEntry
    cdef public dict _marked                # SyncEntry -> None, in the order they were marked
    cdef public dict _held                  # ... that wait for company
    cdef public dict _quiet
    # The next steps of what waits; 0: there is none.
    cdef public int64_t _write_at_ns
    cdef public int64_t _sync_at_ns
    cdef public int64_t _retry_at_ns
    cdef public int64_t _idle_at_ns
    cdef public int64_t idle_ns             # a store without a change for so long is quiet
    cdef public bint _is_draining
    cdef readonly int64_t sync_ns           # what the sync of one file takes of late
    cdef public object set_alarm            # None, or called with the time of an earlier deadline
    cdef public int64_t alarm_ns            # the last one it was told; 0: none

    cdef bint write_entry(self, SyncEntry entry, int64_t now_ns) except -1
    cdef int mark_entry(self, SyncEntry entry, int64_t now_ns) except -1
    cdef int finish_turn(self, int64_t now_ns) except -1
    cdef int begin(self, SyncEntry entry, int64_t now_ns) except -1
    cdef bint _is_held(self, SyncEntry entry, int64_t now_ns) except -1
    cdef int commit(self, SyncEntry entry, int64_t now_ns, bint is_promise) except -1
    cdef int _next_round(self, SyncEntry entry) except -1
    cdef int keep(self, SyncEntry entry, uint64_t kept, int64_t waited_ns) except -1
    cdef int complete(self, SyncJob job, int64_t now_ns) except -1
    cdef int _complete(self, SyncJob job, int64_t now_ns) except -1
    cdef int _fault(self, SyncEntry entry, error, int64_t now_ns) except -1
    cdef int _count(self, SyncJob job) except -1
    cdef int64_t next_ns(self) except -1
    cdef int arm(self) except -1
