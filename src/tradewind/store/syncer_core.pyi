from collections.abc import Callable
from typing import Any

from tradewind.errors import StoreError
from tradewind.store.syncer import SyncMode

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
    job: Any
    has_failed: bool
    touched_ns: int
    is_attached: bool
    when_free: Callable[[], None] | None
    waits_for_interval: bool
    def __init__(
        self,
        target: Any,
        mode: SyncMode,
        on_synced: Callable[[Any, int], None],
        on_failure: Callable[[Any, StoreError], None],
        on_resumed: Callable[[Any], None],
    ) -> None: ...

class SyncerCore:
    statistics: Any
    _entries: dict[int, SyncEntry]
    _marked: dict[SyncEntry, None]
    _quiet: dict[SyncEntry, None]
    _idle_at_ns: int | None
    idle_ns: int
    def write_through(self, target: Any, now_ns: int) -> bool: ...
    def sync_alone(self, target: Any, now_ns: int) -> bool: ...
