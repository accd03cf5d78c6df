"""Rounds of group commit: what happens to a busy store in almost every turn.

Owns what the syncer knows of each store, and the way of a round from its mark to its promise;
`Syncer`, the subclass, explains it and has everything that is rare.

Company: publishers that wait for each acknowledgement. A store that commits as soon as it can
leaves all but the first of them to the next commit: two such publishers would never share one. So
a commit waits until as many wait for it as the last one has answered or left waiting, though not
longer than a sync takes: later it would have been better not to wait. Stores for which that was in
vain of late only try it now and then. Nobody but these publishers waits: the loop goes on.
"""

from libc.stdint cimport int64_t, uint64_t
from tradewind.store.commit cimport Commit
from tradewind.store.file_core cimport FileCore

from bisect import bisect_left

from tradewind.errors import StoreError
from tradewind.faults import INTERNAL_ERROR, Faults

cdef enum:
    # Where more wait than this a commit is shared by enough of them.
    COMPANY_MAX = 32
    HOLD_NS_MAX = 1000000
    TRUST_MAX = 8
    # A store that is not trusted tries once in so many commits.
    TRY_COMMITS = 16

# Upper bounds of the histogram of sync times; one more bucket is for all above.
HISTOGRAM_NS = tuple(100_000 << shift for shift in range(16))


cdef class SyncJob:
    """A commit on its way through a worker; `run` is the worker's part."""

    def __init__(self, SyncEntry entry not None, Commit commit not None, uint64_t number,
                 int64_t waiting_since_ns):
        self.entry = entry
        self.commit = commit
        self.round = number
        self.waiting_since_ns = waiting_since_ns

    def run(self, clock_ns):
        """Sync. Whatever goes wrong is kept in the commit: a worker never ends by it."""
        cdef int64_t start_ns
        try:
            start_ns = clock_ns()
            self.commit.run()
            self.run_ns = clock_ns() - start_ns
        except BaseException as error:  # even a bug must not leave a store waiting, nor promise
            self.commit.error = StoreError(f"a sync ended by a fault of the program: {error!r}")


cdef class SyncEntry:
    """A store and how far it is."""

    def __init__(self, target, mode, on_synced, on_failure, on_resumed):
        self.target = target
        self.files = target if isinstance(target, FileCore) else None
        self.mode = mode
        self.on_synced = on_synced
        self.on_failure = on_failure
        self.on_resumed = on_resumed
        self.is_attached = True
        self.trust = 1


cdef class SyncerCore:
    """The subclass has `fail`, which ends the promises of one store, `begin_later` for those that
    need not wait for the disk, and `go_on` for stores that have more to do than they promised.
    """

    def __init__(self, run, int64_t idle_ns):
        self._run = run
        self.faults = Faults()
        self.idle_ns = idle_ns
        self._entries = {}
        self._marked = {}
        self._held = {}
        self._quiet = {}

    # -------------------------------------------------------------- the loop's side

    cdef bint write_entry(self, SyncEntry entry, int64_t now_ns) except -1:
        cdef FileCore files = entry.files
        if not entry.waits_for_interval or entry.job is not None or entry.is_marked \
                or files is None or files.is_waiting() or files.failure is not None:
            return False
        entry.touched_ns = now_ns
        try:
            files.write_last()
        except StoreError as error:
            self.fail(entry, error, now_ns)
            return False
        return True

    def write_through(self, target not None, int64_t now_ns):
        """Write a store that is going to be synced by the interval anyway; false: mark it instead.
        """
        return self.write_entry(self._entries[id(target)], now_ns)

    cdef int mark_entry(self, SyncEntry entry, int64_t now_ns) except -1:
        if not entry.is_marked:
            entry.is_marked = True
            entry.marked_ns = now_ns
            self._marked[entry] = None
        elif entry.held_until_ns:
            self._marked[entry] = None
        return 0

    def mark_dirty(self, target not None, int64_t now_ns):
        """The store has changed; gives the round with which the change is kept."""
        cdef SyncEntry entry = self._entries[id(target)]
        self.mark_entry(entry, now_ns)
        return entry.rounds + 1

    cdef int finish_turn(self, int64_t now_ns) except -1:
        cdef dict marked = self._marked
        cdef SyncEntry entry
        if not marked:
            return 0
        self._marked = {}
        for entry in marked:
            try:
                self.begin(entry, now_ns)
            except Exception as error:
                self._fault(entry, error, now_ns)
        self.arm()
        return 0

    cdef int _fault(self, SyncEntry entry, error, int64_t now_ns) except -1:
        """A fault of ours in the work for one store: its promises end, as if its disk had failed.
        """
        self.faults.contain("syncer", error, str(getattr(entry.target, "name", "")))
        try:
            self.fail(entry, StoreError(INTERNAL_ERROR), now_ns)
        except Exception as another:
            self.faults.contain("syncer", another)
        return 0

    def fault(self, SyncEntry entry not None, error not None, int64_t now_ns):
        """The same for the subclass."""
        self._fault(entry, error, now_ns)

    def end_turn(self, int64_t now_ns):
        """Write and begin to sync what was marked."""
        self.finish_turn(now_ns)

    cdef int begin(self, SyncEntry entry, int64_t now_ns) except -1:
        """The next step of a store: what it is depends on its mode."""
        if entry.has_failed or not entry.is_attached:
            return 0    # a callback of another store may have detached this one
        failure = entry.target.failure if entry.files is None else entry.files.failure
        if failure is not None:
            self.fail(entry, failure, now_ns)
            return 0
        entry.touched_ns = now_ns
        if not entry.syncs_always and not self._is_draining:
            self.begin_later(entry, now_ns)
        elif entry.job is None and not self._is_held(entry, now_ns):
            self.commit(entry, now_ns, True)
        return 0

    def begin_entry(self, SyncEntry entry not None, int64_t now_ns):
        """`begin` for the subclass, which goes on with the next store whatever happens."""
        try:
            self.begin(entry, now_ns)
        except Exception as error:
            self._fault(entry, error, now_ns)

    cdef bint _is_held(self, SyncEntry entry, int64_t now_ns) except -1:
        """Whether the commit that could begin now had better wait for company."""
        cdef bint waits = entry.held_until_ns != 0
        cdef bint is_complete = entry.waiters >= entry.expected
        if not waits:
            if is_complete or entry.waiters == 0 or entry.expected > COMPANY_MAX \
                    or self._is_draining or self.sync_ns == 0:
                return False
            if entry.trust == 0:
                entry.passed += 1
                if entry.passed < TRY_COMMITS:
                    return False
            entry.passed = 0
            entry.held_until_ns = now_ns + min(self.sync_ns, <int64_t>HOLD_NS_MAX)
            self._held[entry] = None
            return True
        if not is_complete and now_ns < entry.held_until_ns and not self._is_draining:
            return True
        if is_complete:
            entry.trust = min(entry.trust + 1, <int>TRUST_MAX)
        elif entry.trust:
            entry.trust -= 1
        self.release(entry)
        return False

    def release(self, SyncEntry entry not None):
        """A store waits for company no longer."""
        if entry.held_until_ns:
            entry.held_until_ns = 0
            self._held.pop(entry, None)

    cdef int commit(self, SyncEntry entry, int64_t now_ns, bint is_promise) except -1:
        """Hand everything that the store has to a worker; `is_promise`: it is a round too."""
        cdef Commit commit = None
        cdef int64_t waiting_since_ns
        try:
            if entry.files is not None:
                commit = entry.files.begin_short()
            if commit is None:
                commit = entry.target.begin_commit()
        except StoreError as error:
            self.fail(entry, error, now_ns)
            return 0
        if not entry.syncs_always:
            self.forget_time(entry)
        waiting_since_ns = entry.marked_ns if entry.is_marked else now_ns
        if is_promise:
            self._next_round(entry)
        if commit is None:
            if is_promise:
                self.keep(entry, entry.rounds, now_ns - waiting_since_ns)
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

    def begin_commit(self, SyncEntry entry not None, int64_t now_ns):
        """A commit of which nobody was promised anything."""
        try:
            self.commit(entry, now_ns, False)
        except Exception as error:
            self._fault(entry, error, now_ns)

    cdef int _next_round(self, SyncEntry entry) except -1:
        entry.is_marked = False
        entry.rounds += 1
        self.statistics.rounds += 1
        return 0

    cdef int keep(self, SyncEntry entry, uint64_t kept, int64_t waited_ns) except -1:
        if kept > entry.kept:
            entry.kept = kept
            self.statistics.waiting_ns += waited_ns
            entry.on_synced(entry.target, kept)
        return 0

    def keep_round(self, SyncEntry entry not None, int64_t now_ns):
        """What was marked is as safe as the mode of the store promises, without a commit."""
        cdef int64_t waited_ns = now_ns - entry.marked_ns
        self._next_round(entry)
        self.keep(entry, entry.rounds, waited_ns)

    # -------------------------------------------------------------- the worker's side

    def completed(self, SyncJob job not None, int64_t now_ns):
        """A worker is done with a job; the next one of this store begins if there is need."""
        self.complete(job, now_ns)

    cdef int complete(self, SyncJob job, int64_t now_ns) except -1:
        try:
            self._complete(job, now_ns)
        except Exception as error:
            self._fault(job.entry, error, now_ns)
        return 0

    cdef int _complete(self, SyncJob job, int64_t now_ns) except -1:
        cdef SyncEntry entry = job.entry
        cdef Commit commit = job.commit
        assert entry.job is job
        entry.job = None
        self._count(job)
        if not entry.is_attached:
            entry.target.drop_commit(commit)
            if entry.when_free is not None:
                entry.when_free()
            return 0
        failure = None
        try:
            if commit.is_short:
                entry.files.finish_short(commit)
            else:
                entry.target.finish_commit(commit)
        except StoreError as error:
            failure = error
        if commit.error is None:
            entry.expected = entry.waiters
            entry.waiters -= min(entry.carried, entry.waiters)
            entry.carried = 0
            # Also if the store failed on the way from there, at removing a block.
            self.keep(entry, job.round, now_ns - job.waiting_since_ns)
        if entry.has_failed or not entry.is_attached:
            return 0
        if failure is not None:
            self.fail(entry, failure, now_ns)
        elif entry.is_marked:
            self._marked.pop(entry, None)
            self.begin(entry, now_ns)
        elif entry.target.is_dirty:
            self.go_on(entry, now_ns)
        else:
            self._quiet[entry] = None
            if not self._idle_at_ns:
                self._idle_at_ns = now_ns + self.idle_ns
        return 0

    cdef int _count(self, SyncJob job) except -1:
        cdef Commit commit = job.commit
        numbers = self.statistics
        numbers.running -= 1
        numbers.commits += 1
        numbers.syncs += len(commit.files) + len(commit.folders)
        numbers.sync_ns += job.run_ns
        numbers.histogram[bisect_left(HISTOGRAM_NS, job.run_ns)] += 1
        if commit.is_short:
            # A single slow one does not tell much.
            self.sync_ns += (job.run_ns - self.sync_ns) // (8 if self.sync_ns else 1)
        return 0

    # -------------------------------------------------------------- time

    cdef int64_t next_ns(self) except -1:
        """When the subclass has something to do (`tick`); 0: never."""
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

    cdef int arm(self) except -1:
        """Have the alarm set for the next deadline."""
        cdef int64_t first_ns
        if self.set_alarm is None:
            return 0
        first_ns = self.next_ns()
        if first_ns and (self.alarm_ns == 0 or first_ns < self.alarm_ns):
            self.alarm_ns = first_ns
            self.set_alarm(first_ns)
        return 0

    def rearm(self):
        """`arm` for the subclass."""
        self.arm()

    def next_deadline_ns(self):
        """When `tick` has something to do; None if never."""
        return self.next_ns() or None

    @property
    def is_idle(self):
        """Whether no commit is under way and nothing waits for one that could begin."""
        return self.statistics.running == 0 and not self._marked and not self._held
