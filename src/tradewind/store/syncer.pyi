from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Protocol

from tradewind.errors import StoreError
from tradewind.faults import Faults
from tradewind.store.folder.commit import Commit

RETRY_NS: Final[int]
IDLE_NS: Final[int]
ASYNC_BYTES_MIN: Final[int]
ASYNC_WAIT_NS: Final[int]
INTERVAL_NS: Final[int]
HISTOGRAM_NS: Final[tuple[int, ...]]

class SyncMode(Enum):
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

class SyncStatistics:
    @property
    def commits(self) -> int: ...
    @property
    def syncs(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def rounds(self) -> int: ...
    @property
    def sync_ns(self) -> int: ...
    @property
    def waiting_ns(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def read_only(self) -> int: ...
    @property
    def histogram(self) -> list[int]: ...

class SyncJob:
    run_ns: int
    def __init__(
        self, entry: SyncEntry, commit: Commit, number: int, waiting_since_ns: int
    ) -> None: ...
    @property
    def entry(self) -> SyncEntry: ...
    @property
    def commit(self) -> Commit: ...
    @property
    def round(self) -> int: ...
    @property
    def waiting_since_ns(self) -> int: ...
    def run(self, clock_ns: Callable[[], int]) -> None: ...

class SyncEntry:
    waiters: int
    def __init__(
        self,
        target: SyncTarget,
        mode: SyncMode,
        on_synced: Callable[[Any, int], None],
        on_failure: Callable[[Any, StoreError], None],
        on_resumed: Callable[[Any], None] | None,
    ) -> None: ...
    @property
    def target(self) -> Any: ...
    @property
    def mode(self) -> SyncMode: ...
    @property
    def rounds(self) -> int: ...
    @property
    def kept(self) -> int: ...
    @property
    def job(self) -> SyncJob | None: ...
    @property
    def has_failed(self) -> bool: ...
    @property
    def is_fenced(self) -> bool: ...

class Syncer:
    faults: Faults
    set_alarm: Callable[[int], None] | None
    alarm_ns: int
    interval_ns: int
    def __init__(self, run: Callable[[SyncJob], None], *, interval_ns: int = ...) -> None: ...
    @property
    def statistics(self) -> SyncStatistics: ...
    def attach(
        self,
        target: SyncTarget,
        *,
        on_synced: Callable[[Any, int], None],
        on_failure: Callable[[Any, StoreError], None],
        on_resumed: Callable[[Any], None] | None = None,
        mode: SyncMode = ...,
    ) -> SyncEntry: ...
    def detach(self, target: SyncTarget, when_free: Callable[[], None] | None = None) -> None: ...
    def changed(self, entry: SyncEntry, now_ns: int) -> None: ...
    def mark_dirty(self, target: SyncTarget, now_ns: int) -> int: ...
    def sync_soon(self, target: SyncTarget, now_ns: int) -> None: ...
    def fence(self, target: SyncTarget) -> None: ...
    def lift_fence(self, target: SyncTarget, now_ns: int) -> None: ...
    def end_turn(self, now_ns: int) -> None: ...
    def complete(self, job: SyncJob, now_ns: int) -> None: ...
    def arm(self) -> None: ...
    def tick(self, now_ns: int) -> None: ...
    def next_deadline_ns(self) -> int | None: ...
    def begin_drain(self, now_ns: int) -> None: ...
    def unsafe_targets(self) -> list[Any]: ...
    @property
    def is_idle(self) -> bool: ...
