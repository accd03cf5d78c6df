"""Group commit for all streams: which stores are written, which are synced, and when a round is
complete.

Owns the order of events between the stores and the threads that run their commits. It opens no
file, starts no thread and reads no clock: a job is handed to `run`, and `complete` is called when
it is done, in the thread that owns the stores. `tradewind.server.threads.sync_threads` runs jobs in
threads, and `tradewind.testing.fake_syncer` whenever a test says so.

The owner says that a store has `changed`, or marks it for the end of the turn (`mark_dirty`,
`end_turn`). Changes have a *round*: a number that rises per store. `on_synced(store, round)` says
that everything of this round or a lower one is as safe as the mode of the store promises:

- ALWAYS: on disk. All changes while one commit runs share the next one.
- INTERVAL: with the operating system; it is on disk after `interval_ns` at the latest.
- ASYNC: in memory; written when enough has come together or a few milliseconds have passed, and
  on disk as with INTERVAL. The official server too lets `persist_mode: async` win over `always`.

Whether a store is synced now, with others or later is decided in one place, `changed`.

Invariants
- a store has at most one commit under way, so its rounds are kept in order;
- no round is forgotten: each completes, or its store has failed and `on_failure` was called;
- a failure is that of one store; no other notices;
- a full disk is tried again every `RETRY_NS`, and `on_resumed` says that there is room again.
  Earlier marked changes are then stored: the rounds go on.

Company: publishers that wait for each acknowledgement. A store that commits as soon as it can
leaves all but the first of them to the next commit: two such publishers would never share one. So a
commit waits until as many wait for it as the last one has answered or left waiting, though not
longer than a sync takes: later it would have been better not to wait. Stores for which that was in
vain of late only try it now and then. Only these publishers wait: the loop goes on.
"""

from libc.stdint cimport int64_t, uint64_t
from tradewind cimport invariants
from tradewind.saturated cimport later
from tradewind.store.commits.commit cimport Commit, SyncTarget

from bisect import bisect_left
from enum import Enum

from tradewind.errors import StoreError
from tradewind.faults import INTERNAL_ERROR, Faults

cdef enum:
    # Where more wait than this a commit is shared by enough of them.
    COMPANY_MAX = 32
    HOLD_NS_MAX = 1000000
    TRUST_MAX = 8
    # A store that is not trusted tries once in so many commits.
    TRY_COMMITS = 16

RETRY_NS = 1_000_000_000
IDLE_NS = 1_000_000_000
# As the official server: a write is worth it from this size on, and waits no longer than that.
ASYNC_BYTES_MIN = 16 * 1024
ASYNC_WAIT_NS = 8_000_000
INTERVAL_NS = 120_000_000_000
# Upper bounds of the histogram of sync times; one more bucket is for all above.
HISTOGRAM_NS = tuple(100_000 << shift for shift in range(16))


class SyncMode(Enum):
    """The promise of an acknowledgement."""

    ALWAYS = "always"
    INTERVAL = "interval"
    ASYNC = "async"


cdef class SyncStatistics:
    """Counts of the work since the start; times are sums.

    `histogram`: how many commits took at most HISTOGRAM_NS[i]; the last bucket is for all above.
    """

    def __cinit__(self):
        self.histogram = [0] * (len(HISTOGRAM_NS) + 1)


cdef class SyncJob:
    """A commit on its way through a worker; `run` is the worker's part."""

    def __init__(self, SyncEntry entry not None, Commit commit not None, uint64_t number,
                 int64_t waiting_since_ns):
        self.entry = entry
        self.commit = commit
        self.round = number
        self.waiting_since_ns = waiting_since_ns

    def run(self, clock_ns):
        """Sync. An error is stored in the commit: it never ends a worker."""
        cdef int64_t start_ns
        try:
            start_ns = clock_ns()
            self.commit.run()
            self.run_ns = clock_ns() - start_ns
        except BaseException as error:  # even a bug must not leave a store waiting, nor promise
            self.commit.error = StoreError(f"a sync ended by a fault of the program: {error!r}")


cdef class SyncEntry:
    """A store and its progress. Created by `Syncer.attach`."""

    def __init__(self, SyncTarget target not None, mode, on_synced, on_failure, on_resumed):
        self.target = target
        self.mode = mode
        self.syncs_always = mode is SyncMode.ALWAYS
        self.writes_always = mode is SyncMode.INTERVAL
        self.on_synced = on_synced
        self.on_failure = on_failure
        self.on_resumed = on_resumed
        self.is_attached = True
        self.trust = 1


cdef class Syncer:
    """The syncer of all streams; see the module. All methods are for the thread that owns the
    stores.
    """

    def __init__(self, run, *, int64_t interval_ns=INTERVAL_NS):
        if interval_ns <= 0:
            raise ValueError(f"interval_ns is {interval_ns}, it must be above 0")
        self._run = run
        self.interval_ns = interval_ns
        self.faults = Faults()
        self.statistics = SyncStatistics()
        self._entries = {}
        self._marked = {}
        self._held = {}
        self._unwritten = {}
        self._unsynced = {}
        self._failed = {}
        self._quiet = {}

    # -------------------------------------------------------------- stores

    def attach(self, target not None, *, on_synced not None, on_failure not None, on_resumed=None,
               mode=SyncMode.ALWAYS):
        """Add a store; returns the entry that `changed` takes."""
        assert id(target) not in self._entries, "a store is attached once"
        cdef SyncEntry entry = SyncEntry(target, mode, on_synced, on_failure, on_resumed)
        self._entries[id(target)] = entry
        return entry

    def detach(self, target not None, when_free=None):
        """Drop a store that is deleted or closed; none of its callbacks is called any more.

        `when_free` is called as soon as no commit uses its files: immediately, or when the one in
        progress has ended. Only then may they be closed.
        """
        cdef SyncEntry entry = self._entries.pop(id(target))
        entry.is_attached = False
        self._forget(entry)
        if entry.has_failed:
            self.statistics.read_only -= 1
        if entry.job is not None:
            entry.when_free = when_free
        elif when_free is not None:
            when_free()

    cdef int _forget(self, SyncEntry entry) except -1:
        """Remove a store from all tables of deadlines."""
        self._release(entry)
        for table in (self._marked, self._unwritten, self._unsynced, self._failed, self._quiet):
            table.pop(entry, None)
        return 0

    # -------------------------------------------------------------- changes

    cpdef void changed(self, SyncEntry entry, int64_t now_ns) except *:
        """Decide whether a store is synced now, together with changes of others, or later; called
        after its last change of a turn.

        An error here does not affect the other stores.
        """
        if not entry.is_marked:
            entry.is_marked = True
            entry.marked_ns = now_ns
        if entry.has_failed or not entry.is_attached or entry.is_fenced:
            return      # a callback of another store may have detached this one
        entry.touched_ns = now_ns
        try:
            if entry.target.failure is not None:
                self._fail(entry, entry.target.failure, now_ns)
            elif not entry.syncs_always and not self._is_draining:
                self._write(entry, now_ns)
                self._sync_later(entry, now_ns)
                self._keep_marked(entry, now_ns)
            elif entry.job is None and (
                    entry.waiters >= entry.expected and entry.held_until_ns == 0
                    or not self._is_held(entry, now_ns)):
                self._commit(entry, now_ns, True)
            # Else it is for the next commit: one is under way, or waits for company.
        except Exception as error:
            self._fault(entry, error, now_ns)

    def mark_dirty(self, target not None, int64_t now_ns):
        """Mark a store that may change again before `end_turn`; returns the round that will contain
        the change.
        """
        cdef SyncEntry entry = self._entries[id(target)]
        if not entry.is_marked:
            entry.is_marked = True
            entry.marked_ns = now_ns
            self._marked[entry] = None
        elif entry.held_until_ns:
            self._marked[entry] = None
        return entry.rounds + 1

    def fence(self, target not None):
        """Begin no commit of this store: its content must not be on disk before something else is.
        """
        cdef SyncEntry entry = self._entries[id(target)]
        entry.is_fenced = True

    def lift_fence(self, target not None, int64_t now_ns):
        """Allow commits of the store again. A store that was detached meanwhile is ignored."""
        cdef SyncEntry entry = self._entries.get(id(target))
        if entry is not None:
            entry.is_fenced = False
            self.changed(entry, now_ns)

    cpdef void end_turn(self, int64_t now_ns) except *:
        """Begin the commits of marked stores, and set the alarm."""
        cdef dict marked = self._marked
        cdef SyncEntry entry
        if marked:
            self._marked = {}
            for entry in marked:
                if entry.is_marked:
                    self.changed(entry, now_ns)
        if self._has_moved:
            self.arm()

    cdef int _keep_marked(self, SyncEntry entry, int64_t now_ns) except -1:
        """Complete the round of a store whose mode does not wait for a commit."""
        if not entry.has_failed:
            entry.is_marked = False
            entry.rounds += 1
            self.statistics.rounds += 1
            self._keep(entry, entry.rounds, now_ns - entry.marked_ns)
        return 0

    cdef bint _is_held(self, SyncEntry entry, int64_t now_ns) except -1:
        """Whether the commit that could begin now should wait for company."""
        cdef bint is_complete = entry.waiters >= entry.expected
        if entry.held_until_ns == 0:
            if is_complete or entry.waiters == 0 or entry.expected > COMPANY_MAX \
                    or self._is_draining or self._sync_ns == 0:
                return False
            if entry.trust == 0:
                entry.passed += 1
                if entry.passed < TRY_COMMITS:
                    return False
            entry.passed = 0
            entry.held_until_ns = now_ns + min(self._sync_ns, <int64_t>HOLD_NS_MAX)
            self._held[entry] = None
            self._has_moved = True
            return True
        if not is_complete and now_ns < entry.held_until_ns and not self._is_draining:
            return True
        if is_complete:
            entry.trust = min(entry.trust + 1, <int>TRUST_MAX)
        elif entry.trust:
            entry.trust -= 1
        self._release(entry)
        return False

    cdef int _release(self, SyncEntry entry) except -1:
        """Stop waiting for company."""
        if entry.held_until_ns:
            entry.held_until_ns = 0
            self._held.pop(entry, None)
        return 0

    cdef int _write(self, SyncEntry entry, int64_t now_ns) except -1:
        """Write a store's bytes to the system, if its mode requires it or a write is worthwhile."""
        cdef int64_t unwritten_bytes = 0
        if not entry.writes_always:
            unwritten_bytes = entry.target.unwritten_bytes
            if unwritten_bytes < ASYNC_BYTES_MIN:
                if unwritten_bytes:
                    self._unwritten[entry] = None
                    self._write_at_ns = self._once(self._write_at_ns, now_ns + ASYNC_WAIT_NS)
                return 0
            self._unwritten.pop(entry, None)
        try:
            entry.target.flush()
        except StoreError as error:
            self._fail(entry, error, now_ns)
        return 0

    cdef int _sync_later(self, SyncEntry entry, int64_t now_ns) except -1:
        """Sync written bytes after the interval, unless something waits for a commit."""
        if entry.has_failed:
            return 0
        if entry.job is None and entry.target.wants_commit():
            self._commit(entry, now_ns, False)
        elif entry not in self._unsynced and entry.target.has_changes():
            self._unsynced[entry] = None
            self._sync_at_ns = self._once(self._sync_at_ns, later(now_ns, self.interval_ns))
        return 0

    cdef int _commit(self, SyncEntry entry, int64_t now_ns, bint is_round) except -1:
        """Hand all changes of the store to a worker; `is_round` if they are a round too."""
        cdef Commit commit = None
        cdef int64_t waiting_since_ns = entry.marked_ns if entry.is_marked else now_ns
        if entry.is_fenced:
            return 0
        try:
            commit = entry.target.begin_commit()
        except StoreError as error:
            return self._fail(entry, error, now_ns)
        if not entry.syncs_always:
            self._unwritten.pop(entry, None)
            self._unsynced.pop(entry, None)
        if is_round:
            entry.is_marked = False
            entry.rounds += 1
            self.statistics.rounds += 1
        if commit is None:
            if is_round:
                self._keep(entry, entry.rounds, now_ns - waiting_since_ns)
            return 0
        entry.carried = entry.waiters
        entry.job = SyncJob(entry, commit, entry.rounds, waiting_since_ns)
        self.statistics.running += 1
        try:
            self._run(entry.job)
        except Exception as error:
            self.faults.contain("syncer", error)
            commit.error = StoreError(f"a sync could not begin: {error!r}")
            self.complete(entry.job, now_ns)
        return 0

    cdef int _keep(self, SyncEntry entry, uint64_t kept, int64_t waited_ns) except -1:
        """Notify the owner that a round is complete."""
        if invariants.checked:
            assert kept <= entry.rounds, (kept, entry.rounds)
            assert entry.job is None or kept < entry.job.round or not entry.syncs_always, (
                "what is under way is not kept yet")
        if kept > entry.kept:
            entry.kept = kept
            self.statistics.waiting_ns += waited_ns
            entry.on_synced(entry.target, kept)
        return 0

    # -------------------------------------------------------------- a worker is done

    cpdef void complete(self, SyncJob job, int64_t now_ns) except *:
        """Called when a worker is done with a job; the next one of this store begins if needed."""
        cdef SyncEntry entry = job.entry
        try:
            assert entry.job is job
            entry.job = None
            self._count(job)
            if entry.is_attached:
                self._finish(entry, job, now_ns)
                return
            entry.target.drop_commit(job.commit)
            if entry.when_free is not None:
                entry.when_free()
        except Exception as error:
            self._fault(entry, error, now_ns)

    cdef int _finish(self, SyncEntry entry, SyncJob job, int64_t now_ns) except -1:
        """Finish the commit in the store, and complete its round."""
        failure = None
        try:
            entry.target.finish_commit(job.commit)
        except StoreError as error:
            failure = error
        if job.commit.error is None:
            entry.expected = entry.waiters
            entry.waiters -= min(entry.carried, entry.waiters)
            entry.carried = 0
            # Even if the store failed meanwhile, while removing a block.
            self._keep(entry, job.round, now_ns - job.waiting_since_ns)
        if entry.has_failed or not entry.is_attached:
            return 0
        if failure is not None:
            return self._fail(entry, failure, now_ns)
        return self._after_commit(entry, now_ns)

    cdef int _count(self, SyncJob job) except -1:
        cdef SyncStatistics numbers = self.statistics
        cdef Commit commit = job.commit
        numbers.running -= 1
        numbers.commits += 1
        numbers.syncs += len(commit.files) + len(commit.asides) + len(commit.folders)
        numbers.sync_ns += job.run_ns
        numbers.histogram[bisect_left(HISTOGRAM_NS, job.run_ns)] += 1
        if commit.last_seq and not commit.has_chores:
            # Only commits of messages, for which publishers wait; a single slow one means little.
            self._sync_ns += (job.run_ns - self._sync_ns) // (8 if self._sync_ns else 1)
        return 0

    cdef int _after_commit(self, SyncEntry entry, int64_t now_ns) except -1:
        """Continue after a commit with changes that have arrived meanwhile, or that it has left."""
        if entry.is_marked:
            self._marked.pop(entry, None)
            self.changed(entry, now_ns)
        elif entry.target.has_changes():
            if not entry.syncs_always and not self._is_draining:
                self._sync_later(entry, now_ns)
            elif self._is_draining or entry.target.wants_another():
                self._commit(entry, now_ns, False)      # names, or blocks to remove
        else:
            self._quiet[entry] = None
            if not self._idle_at_ns:
                self._idle_at_ns = self._once(0, now_ns + IDLE_NS)
        return 0

    # -------------------------------------------------------------- failures

    cdef int _fail(self, SyncEntry entry, error, int64_t now_ns) except -1:
        """Report a failure once; marked changes stay marked, in case the disk gets room."""
        if entry.has_failed or not entry.is_attached:
            return 0
        entry.has_failed = True
        self._forget(entry)
        self.statistics.failures += 1
        self.statistics.read_only += 1
        self._failed[entry] = None
        self._retry_at_ns = self._once(self._retry_at_ns, now_ns + RETRY_NS)
        # The store knows the cause if it was read-only before we came.
        entry.on_failure(entry.target, entry.target.failure or error)
        return 0

    cdef int _fault(self, SyncEntry entry, error, int64_t now_ns) except -1:
        """Contain an internal error in the work for one store, whose promises end as if its disk
        had failed.
        """
        self.faults.contain("syncer", error, str(getattr(entry.target, "name", "")))
        try:
            self._fail(entry, StoreError(INTERNAL_ERROR), now_ns)
        except Exception as another:
            self.faults.contain("syncer", another)
        return 0

    def _retry(self, int64_t now_ns):
        cdef SyncEntry entry
        for entry in list(self._failed):
            # Not before the commit under way has ended: it may have failed for good.
            try:
                if entry.is_attached and entry.job is None and entry.target.resume():
                    del self._failed[entry]
                    entry.has_failed = False
                    self.statistics.read_only -= 1
                    if entry.on_resumed is not None:
                        entry.on_resumed(entry.target)
                    self.changed(entry, now_ns)
            except Exception as error:
                self._fault(entry, error, now_ns)
        if self._failed:
            self._retry_at_ns = now_ns + RETRY_NS

    # -------------------------------------------------------------- time

    def tick(self, int64_t now_ns):
        """Do the work that is due."""
        cdef SyncEntry entry
        for entry in list(self._held):
            if now_ns >= entry.held_until_ns:
                self.changed(entry, now_ns)
        if 0 < self._write_at_ns <= now_ns:
            self._write_at_ns, unwritten, self._unwritten = 0, self._unwritten, {}
            for entry in unwritten:
                self._try(entry, (<object>entry.target).flush, now_ns)
        if 0 < self._sync_at_ns <= now_ns:
            self._sync_at_ns, unsynced, self._unsynced = 0, self._unsynced, {}
            for entry in unsynced:
                self._try(entry, self._sync_now, now_ns, entry, now_ns)
        if 0 < self._retry_at_ns <= now_ns:
            self._retry_at_ns = 0
            self._retry(now_ns)
        if 0 < self._idle_at_ns <= now_ns:
            self._idle_at_ns = 0
            self._mark_idle(now_ns)
        self.arm()

    def _try(self, SyncEntry entry not None, step, int64_t now_ns, *arguments):
        """Run a step of a store that may have gone or failed by now, without affecting the others.
        """
        if not entry.is_attached or entry.has_failed:
            return
        try:
            step(*arguments)
        except StoreError as error:
            self._fail(entry, error, now_ns)
        except Exception as error:
            self._fault(entry, error, now_ns)

    def _sync_now(self, SyncEntry entry not None, int64_t now_ns):
        if entry.job is None:
            self._commit(entry, now_ns, False)
        else:
            self._sync_later(entry, now_ns)

    def sync_soon(self, target not None, int64_t now_ns):
        """Sync the present changes of a store, although its mode would let them wait."""
        cdef SyncEntry entry = self._entries.get(id(target))
        if entry is not None and entry.job is None and not entry.is_fenced:
            self._try(entry, self._sync_now, now_ns, entry, now_ns)

    def _mark_idle(self, int64_t now_ns):
        """Let stores without a change for a while record how far they are synced."""
        cdef SyncEntry entry
        quiet, self._quiet = self._quiet, {}
        for entry in quiet:
            if entry.job is not None or entry.is_marked or entry.has_failed:
                continue
            if now_ns - entry.touched_ns >= IDLE_NS:
                self._try(entry, (<object>entry.target).mark_idle, now_ns)
            else:
                self._quiet[entry] = None
        if self._quiet:
            self._idle_at_ns = now_ns + IDLE_NS

    cdef int64_t _once(self, int64_t set_ns, int64_t time_ns) noexcept:
        """Keep a deadline that is set; otherwise use `time_ns`."""
        if set_ns:
            return set_ns
        self._has_moved = True
        return time_ns

    cdef int64_t _next_ns(self) except -1:
        """When `tick` has something to do; 0: never."""
        cdef int64_t first_ns = 0
        cdef int64_t[4] times = [
            self._write_at_ns, self._sync_at_ns, self._retry_at_ns, self._idle_at_ns]
        cdef SyncEntry entry
        cdef int index
        for index in range(4):
            if times[index] and (first_ns == 0 or times[index] < first_ns):
                first_ns = times[index]
        for entry in self._held:
            if first_ns == 0 or entry.held_until_ns < first_ns:
                first_ns = entry.held_until_ns
        return first_ns

    cpdef void arm(self) except *:
        """Have the alarm set for the next deadline."""
        cdef int64_t first_ns
        self._has_moved = False
        if self.set_alarm is None:
            return
        first_ns = self._next_ns()
        if first_ns and (self.alarm_ns == 0 or first_ns < self.alarm_ns):
            self.alarm_ns = first_ns
            self.set_alarm(first_ns)

    def next_deadline_ns(self):
        """When `tick` has something to do; None if never."""
        return self._next_ns() or None

    # -------------------------------------------------------------- the end

    def begin_drain(self, int64_t now_ns):
        """Sync every change as soon as possible from now on, in any mode; for shutdown.

        It is complete when `is_idle`: everything is on disk except what has failed.
        """
        cdef SyncEntry entry
        self._is_draining = True
        for entry in list(self._entries.values()):
            if entry.job is None and (entry.is_marked or entry.target.has_changes()):
                self.changed(entry, now_ns)

    def unsafe_targets(self):
        """The stores with changes that are not on disk."""
        cdef SyncEntry entry
        return [entry.target for entry in self._entries.values() if entry.target.has_changes()]

    @property
    def is_idle(self):
        """Whether no commit is in progress and nothing waits for one that could begin."""
        return self.statistics.running == 0 and not self._marked and not self._held
