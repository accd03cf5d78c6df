"""State of the syncer; the explanation is in syncer.pyx."""

from libc.stdint cimport int64_t, uint64_t
from tradewind.store.commits.commit cimport Commit, SyncTarget


cdef class SyncJob:
    cdef readonly SyncEntry entry
    cdef readonly Commit commit
    cdef readonly uint64_t round
    cdef readonly int64_t waiting_since_ns
    cdef public int64_t run_ns              # how long it took


cdef class SyncEntry:
    cdef readonly SyncTarget target
    cdef readonly object mode               # SyncMode
    cdef bint syncs_always                  # ... is ALWAYS
    cdef bint writes_always                 # ... is INTERVAL
    cdef object on_synced
    cdef object on_failure
    cdef object on_resumed
    cdef object when_free                   # None, or called when no job uses its files
    cdef readonly uint64_t rounds           # so many have begun, the last of them with `job`
    cdef readonly uint64_t kept
    cdef bint is_marked                     # it has changed since the last round began
    cdef int64_t marked_ns
    cdef readonly SyncJob job               # or None
    cdef readonly bint has_failed
    cdef bint is_attached
    cdef readonly bint is_fenced            # no commit begins, see `Syncer.fence`
    cdef int64_t touched_ns
    # Company, see syncer.pyx. The owner says how many wait for a promise of this store.
    cdef public uint64_t waiters
    cdef uint64_t carried                   # ... of which so many have a part in the job
    cdef uint64_t expected                  # so many publish at the same time, as it seems
    cdef int64_t held_until_ns              # the next commit waits for company; 0: it does not
    cdef int trust                          # how often that was worth it of late
    cdef int passed                         # commits that have not waited since the last try


cdef class SyncStatistics:
    cdef readonly uint64_t commits
    cdef readonly uint64_t syncs
    cdef readonly uint64_t failures
    cdef readonly uint64_t rounds
    cdef readonly int64_t sync_ns
    cdef readonly int64_t waiting_ns
    cdef readonly int running
    cdef readonly int read_only
    cdef readonly list histogram


cdef class Syncer:
    cdef object _run                        # given a SyncJob, has it run
    cdef public object faults               # Faults
    cdef readonly SyncStatistics statistics
    cdef public int64_t interval_ns         # between the syncs of a store that need not wait
    cdef dict _entries                      # id of the target -> SyncEntry
    # Each SyncEntry -> None, in the order in which they came:
    cdef dict _marked                       # to begin at the end of the turn
    cdef dict _held                         # wait for company
    cdef dict _unwritten                    # are written at _write_at_ns
    cdef dict _unsynced                     # are synced at _sync_at_ns
    cdef dict _failed                       # are tried again at _retry_at_ns
    cdef dict _quiet                        # have nothing to do
    # The next steps of what waits; 0: there is none.
    cdef int64_t _write_at_ns
    cdef int64_t _sync_at_ns
    cdef int64_t _retry_at_ns
    cdef int64_t _idle_at_ns
    cdef bint _has_moved                    # one of them was set since the alarm was
    cdef bint _is_draining
    cdef int64_t _sync_ns                   # what the sync of one file takes of late
    cdef public object set_alarm            # None, or called with the time of an earlier deadline
    cdef public int64_t alarm_ns            # the last one it was set to; 0: none

    cpdef void changed(self, SyncEntry entry, int64_t now_ns) except *
    cpdef void end_turn(self, int64_t now_ns) except *
    cpdef void complete(self, SyncJob job, int64_t now_ns) except *
    cpdef void arm(self) except *
    cdef int _keep_marked(self, SyncEntry entry, int64_t now_ns) except -1
    cdef bint _is_held(self, SyncEntry entry, int64_t now_ns) except -1
    cdef int _commit(self, SyncEntry entry, int64_t now_ns, bint is_round) except -1
    cdef int _write(self, SyncEntry entry, int64_t now_ns) except -1
    cdef int _sync_later(self, SyncEntry entry, int64_t now_ns) except -1
    cdef int _keep(self, SyncEntry entry, uint64_t kept, int64_t waited_ns) except -1
    cdef int _finish(self, SyncEntry entry, SyncJob job, int64_t now_ns) except -1
    cdef int _count(self, SyncJob job) except -1
    cdef int _after_commit(self, SyncEntry entry, int64_t now_ns) except -1
    cdef int _fail(self, SyncEntry entry, error, int64_t now_ns) except -1
    cdef int _fault(self, SyncEntry entry, error, int64_t now_ns) except -1
    cdef int _forget(self, SyncEntry entry) except -1
    cdef int _release(self, SyncEntry entry) except -1
    cdef int64_t _once(self, int64_t set_ns, int64_t time_ns) noexcept
    cdef int64_t _next_ns(self) except -1
