"""Group commit for all streams: who is written, who is synced, and when a promise is kept.

Owns the order of things between the stores and whoever runs their commits. It opens no file,
starts no thread and reads no clock: a job is handed to `run`, and `completed` is called when it is
done, in the thread that owns the stores. `tradewind.server.syncer` runs jobs in threads, and
`tradewind.testing.syncer` whenever a test says so.

The owner marks a store that it has changed and gets a *round*: a number that rises per store. At
the end of the turn `end_turn` begins what is to be done, and `on_synced(store, round)` says that
everything marked with this round or a lower one is as safe as the mode of the store promises:

- ALWAYS: on disk. All changes while one commit runs share the next one.
- INTERVAL: with the operating system; it is on disk after `interval_ns` at the latest.
- ASYNC: in memory; written when enough has come together or a few milliseconds have passed, and
  on disk as with INTERVAL. The official server too lets `persist_mode: async` win over `always`.

What holds
- a store has at most one commit under way, so its rounds are kept in order;
- no round is forgotten: each is kept, or its store has failed and `on_failure` was called;
- a failure is that of one store; no other notices;
- a full disk is tried again every `RETRY_NS`, and `on_resumed` says that there is room again. What
  was marked before it is kept then: the rounds go on.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

import msgspec

from tradewind.durations import later
from tradewind.errors import StoreError
from tradewind.store.commit import Commit
from tradewind.store.syncer_core import HISTOGRAM_NS, SyncEntry, SyncerCore, SyncJob

RETRY_NS: Final = 1_000_000_000
IDLE_NS: Final = 1_000_000_000
# As the official server: a write is worth it from this size on, and waits no longer than that.
ASYNC_BYTES_MIN: Final = 16 * 1024
ASYNC_WAIT_NS: Final = 8_000_000
INTERVAL_NS: Final = 120_000_000_000


class SyncMode(Enum):
    """What an acknowledgement promises."""

    ALWAYS = "always"
    INTERVAL = "interval"
    ASYNC = "async"


class SyncTarget(Protocol):
    """What is synced: a `FileStore`, or a `ConsumerFiles`."""

    @property
    def is_dirty(self) -> bool:
        """Whether a commit has anything to do."""

    @property
    def unwritten_bytes(self) -> int:
        """What the operating system has not got yet."""

    @property
    def wants_commit(self) -> bool:
        """Whether something waits for a commit that must not wait for the interval."""

    @property
    def failure(self) -> StoreError | None:
        """Why it takes no changes any more."""

    def flush(self) -> None:
        """Write to the operating system."""

    def begin_commit(self) -> Commit | None:
        """What there is to sync now; None if nothing."""

    def finish_commit(self, commit: Commit) -> None:
        """It is synced, or raises the error of the commit."""

    def drop_commit(self, commit: Commit) -> None:
        """It has ended, and its owner has given up the target: only a failure still matters."""

    def resume(self) -> bool:
        """Try again after a full disk; false if it is still full, or broken for good."""

    def mark_idle(self) -> None:
        """No change for a while."""


class SyncStatistics(msgspec.Struct):
    """What was done since the start; times are sums."""

    commits: int = 0
    syncs: int = 0
    failures: int = 0
    rounds: int = 0
    sync_ns: int = 0
    waiting_ns: int = 0
    running: int = 0
    read_only: int = 0
    # How many commits took at most HISTOGRAM_NS[i]; the last one is for all above.
    histogram: list[int] = msgspec.field(default_factory=lambda: [0] * (len(HISTOGRAM_NS) + 1))


def _nothing(_: SyncTarget) -> None:
    pass


class Syncer(SyncerCore):
    """See the module. All methods are for the thread that owns the stores."""

    def __init__(self, run: Callable[[SyncJob], None], *, interval_ns: int = INTERVAL_NS) -> None:
        if interval_ns <= 0:
            raise ValueError(f"interval_ns is {interval_ns}, it must be above 0")
        super().__init__(run, IDLE_NS)
        self.interval_ns = interval_ns
        self.statistics: SyncStatistics = SyncStatistics()
        # In the order in which they came; the time of their next step is in the core.
        self._unwritten: dict[SyncEntry, None] = {}
        self._unsynced: dict[SyncEntry, None] = {}
        self._failed: dict[SyncEntry, None] = {}

    # -------------------------------------------------------------- stores

    def attach(
        self,
        target: SyncTarget,
        *,
        on_synced: Callable[[SyncTarget, int], None],
        on_failure: Callable[[SyncTarget, StoreError], None],
        on_resumed: Callable[[SyncTarget], None] = _nothing,
        mode: SyncMode = SyncMode.ALWAYS,
    ) -> SyncEntry:
        """Take care of a store from now on; gives what the short ways want to know of it."""
        assert id(target) not in self._entries, "a store is attached once"
        entry = SyncEntry(target, mode, on_synced, on_failure, on_resumed)
        entry.syncs_always = mode is SyncMode.ALWAYS
        self._entries[id(target)] = entry
        return entry

    def detach(self, target: SyncTarget, when_free: Callable[[], None] = lambda: None) -> None:
        """Forget a store that is deleted or closed; none of its callbacks is called any more.

        `when_free` is called as soon as no commit uses its files: at once, or when the one under
        way has ended. Only then may they be closed.
        """
        entry = self._entries.pop(id(target))
        entry.is_attached = False
        self._forget(entry)
        if entry.has_failed:
            self.statistics.read_only -= 1
        if entry.job is None:
            when_free()
        else:
            entry.when_free = when_free

    def _forget(self, entry: SyncEntry) -> None:
        self.release(entry)
        self.forget_time(entry)
        for table in (self._marked, self._failed, self._quiet):
            table.pop(entry, None)

    def forget_time(self, entry: SyncEntry) -> None:
        """Neither a write nor a sync of this store waits for its time."""
        entry.waits_for_interval = False
        self._unwritten.pop(entry, None)
        self._unsynced.pop(entry, None)

    # -------------------------------------------------------------- the loop's side

    def begin_later(self, entry: SyncEntry, now_ns: int) -> None:
        """The next step of a store whose promise need not wait for the disk."""
        if entry.mode is SyncMode.INTERVAL:
            if not self._attempt(entry, entry.target.flush, now_ns):
                return
        elif entry.target.unwritten_bytes >= ASYNC_BYTES_MIN:
            if not self._attempt(entry, entry.target.flush, now_ns):
                return
            self._unwritten.pop(entry, None)
        elif entry.target.unwritten_bytes:
            self._unwritten[entry] = None
            self._write_at_ns = self._write_at_ns or now_ns + ASYNC_WAIT_NS
        self._sync_later(entry, now_ns)
        if not entry.has_failed:
            self.keep_round(entry, now_ns)

    def _sync_later(self, entry: SyncEntry, now_ns: int) -> None:
        if entry.target.wants_commit and entry.job is None:
            self.begin_commit(entry, now_ns)
        elif entry.target.is_dirty:
            self._unsynced[entry] = None
            entry.waits_for_interval = entry.mode is SyncMode.INTERVAL and not self._is_draining
            self._sync_at_ns = self._sync_at_ns or later(now_ns, self.interval_ns)

    def go_on(self, entry: SyncEntry, now_ns: int) -> None:
        """More to do for a store that nobody has marked: names, or blocks to remove."""
        if entry.mode is SyncMode.ALWAYS or entry.target.wants_commit or self._is_draining:
            self.begin_commit(entry, now_ns)
        else:
            self._sync_later(entry, now_ns)

    # -------------------------------------------------------------- failures

    def _attempt(self, entry: SyncEntry, step: Callable[[], None], now_ns: int) -> bool:
        try:
            step()
        except StoreError as error:
            self.fail(entry, error, now_ns)
            return False
        except Exception as error:
            self.fault(entry, error, now_ns)
            return False
        return True

    def fail(self, entry: SyncEntry, error: StoreError, now_ns: int) -> None:
        """Say it once; what was marked stays marked, in case the disk gets room."""
        if entry.has_failed or not entry.is_attached:
            return
        entry.has_failed = True
        self._forget(entry)
        self.statistics.failures += 1
        self.statistics.read_only += 1
        self._failed[entry] = None
        self._retry_at_ns = self._retry_at_ns or now_ns + RETRY_NS
        # The store knows the cause if it was read-only before we came.
        entry.on_failure(entry.target, entry.target.failure or error)

    def _retry(self, now_ns: int) -> None:
        for entry in list(self._failed):
            # Not before the commit under way has ended: it may have failed for good.
            try:
                if entry.is_attached and entry.job is None and entry.target.resume():
                    self._resume(entry, now_ns)
            except Exception as error:
                self.fault(entry, error, now_ns)

    def _resume(self, entry: SyncEntry, now_ns: int) -> None:
        del self._failed[entry]
        entry.has_failed = False
        self.statistics.read_only -= 1
        entry.on_resumed(entry.target)
        entry.is_marked = True
        self.begin_entry(entry, now_ns)

    # -------------------------------------------------------------- time

    def tick(self, now_ns: int) -> None:
        """Do what is due."""
        for entry in list(self._held):
            if now_ns >= entry.held_until_ns:
                self.begin_entry(entry, now_ns)
        if 0 < self._write_at_ns <= now_ns:
            self._write_at_ns, unwritten, self._unwritten = 0, self._unwritten, {}
            for entry in unwritten:
                if entry.is_attached:
                    self._attempt(entry, entry.target.flush, now_ns)
        if 0 < self._sync_at_ns <= now_ns:
            self._sync_at_ns, unsynced, self._unsynced = 0, self._unsynced, {}
            for entry in unsynced:
                entry.waits_for_interval = False
                if not entry.is_attached or entry.has_failed:
                    continue
                if entry.job is None:
                    self.begin_commit(entry, now_ns)
                else:
                    self._sync_later(entry, now_ns)
        if 0 < self._retry_at_ns <= now_ns:
            self._retry_at_ns = 0
            self._retry(now_ns)
            if self._failed:
                self._retry_at_ns = now_ns + RETRY_NS
        if 0 < self._idle_at_ns <= now_ns:
            self._idle_at_ns = 0
            self._mark_idle(now_ns)
        self.rearm()

    def _mark_idle(self, now_ns: int) -> None:
        """Stores without a change for a while write down how far they are."""
        quiet, self._quiet = self._quiet, {}
        for entry in quiet:
            if entry.job or entry.has_failed or entry.is_marked or not entry.is_attached:
                continue
            if now_ns - entry.touched_ns >= IDLE_NS:
                self._attempt(entry, entry.target.mark_idle, now_ns)
            else:
                self._quiet[entry] = None
        if self._quiet:
            self._idle_at_ns = now_ns + IDLE_NS

    def begin_drain(self, now_ns: int) -> None:
        """From now on every change is synced as soon as possible, whatever the mode; for the end.

        It is over when `is_idle`: everything is on disk but what has failed.
        """
        self._is_draining = True
        for entry in list(self._entries.values()):
            entry.waits_for_interval = False
            if entry.job is None and (entry.is_marked or entry.target.is_dirty):
                self.begin_entry(entry, now_ns)

    def unsafe_targets(self) -> list[SyncTarget]:
        """The stores that have changes which are not on disk."""
        return [entry.target for entry in self._entries.values() if entry.target.is_dirty]
