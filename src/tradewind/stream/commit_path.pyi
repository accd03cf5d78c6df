from collections.abc import Callable, Sized
from typing import Protocol

from tradewind.errors import StoreError
from tradewind.store.commits.commit import SyncTarget
from tradewind.store.commits.syncer import SyncEntry, Syncer
from tradewind.store.folder.filestore import FileStore
from tradewind.stream.ingest import Ingest
from tradewind.stream.stream import Stream

class Audience(Protocol):
    """Who waits for the messages of a stream; given by the engine."""

    @property
    def demand(self) -> Sized:
        """Who takes messages; nobody is woken where there are none."""
    def wake_consumers(self) -> None:
        """There may be more to see."""
    @property
    def companions(self) -> Sized:
        """What lives beside the stream."""
    def tell_companions(self) -> None:
        """More of what the stream has stored is safe."""
    def resumed(self) -> None:
        """The stream takes messages again, after a full disk."""

class CommitPath:
    audience: Audience | None
    def __init__(self, stream: Stream, ingest: Ingest, files: FileStore | None) -> None: ...
    @property
    def ingest(self) -> Ingest: ...
    @property
    def entry(self) -> SyncEntry | None: ...
    def attach(self, syncer: Syncer) -> None: ...
    def detach(self, when_free: Callable[[], object]) -> None: ...
    def commit_changes(self, now_ns: int) -> None: ...
    def kept(self, _store: SyncTarget, number: int) -> None: ...
    def show(self) -> None: ...
    def failed(self, _store: SyncTarget, error: StoreError) -> None: ...
    def resumed(self, _store: SyncTarget) -> None: ...
    def when_durable(self, done: Callable[[StoreError | None], None]) -> None: ...
    def tell(self, error: StoreError | None, kept: int | None = None) -> None: ...
