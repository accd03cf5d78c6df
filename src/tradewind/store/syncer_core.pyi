from collections.abc import Callable
from typing import Any, Final

from tradewind.errors import StoreError
from tradewind.faults import Faults
from tradewind.store.commit import Commit
from tradewind.store.syncer import SyncMode

HISTOGRAM_NS: Final[tuple[int, ...]]

class SyncJob:
    entry: SyncEntry
    commit: Commit
    round: int
    waiting_since_ns: int
    run_ns: int
    def __init__(
        self, entry: SyncEntry, commit: Commit, number: int, waiting_since_ns: int
    ) -> None: ...
    def run(self, clock_ns: Callable[[], int]) -> None: ...

class SyncEntry:
    target: Any
    mode: SyncMode
    syncs_always: bool
    on_synced: Callable[[Any, int], None]
    on_failure: Callable[[Any, StoreError], None]
    on_resumed: Callable[[Any], None]
    rounds: int
    kept: int
    is_marked: bool
    marked_ns: int
    job: SyncJob | None
    has_failed: bool
    touched_ns: int
    is_attached: bool
    when_free: Callable[[], None] | None
    waits_for_interval: bool
    waiters: int
    expected: int
    held_until_ns: int
    def __init__(
        self,
        target: Any,
        mode: SyncMode,
        on_synced: Callable[[Any, int], None],
        on_failure: Callable[[Any, StoreError], None],
        on_resumed: Callable[[Any], None],
    ) -> None: ...

class SyncerCore:
    faults: Faults
    statistics: Any
    _entries: dict[int, SyncEntry]
    _marked: dict[SyncEntry, None]
    _held: dict[SyncEntry, None]
    _quiet: dict[SyncEntry, None]
    _write_at_ns: int
    _sync_at_ns: int
    _retry_at_ns: int
    _idle_at_ns: int
    idle_ns: int
    _is_draining: bool
    sync_ns: int
    set_alarm: Callable[[int], None] | None
    alarm_ns: int
    def __init__(self, run: Callable[[SyncJob], None], idle_ns: int) -> None: ...
    def write_through(self, target: Any, now_ns: int) -> bool: ...
    def mark_dirty(self, target: Any, now_ns: int) -> int: ...
    def end_turn(self, now_ns: int) -> None: ...
    def fault(self, entry: SyncEntry, error: Exception, now_ns: int) -> None: ...
    def begin_entry(self, entry: SyncEntry, now_ns: int) -> None: ...
    def release(self, entry: SyncEntry) -> None: ...
    def begin_commit(self, entry: SyncEntry, now_ns: int) -> None: ...
    def keep_round(self, entry: SyncEntry, now_ns: int) -> None: ...
    def completed(self, job: SyncJob, now_ns: int) -> None: ...
    def rearm(self) -> None: ...
    def next_deadline_ns(self) -> int | None: ...
    @property
    def is_idle(self) -> bool: ...
