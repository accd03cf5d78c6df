from collections.abc import Callable, Sized
from typing import Protocol

from tradewind.errors import StoreError
from tradewind.store.commits.commit import SyncTarget
from tradewind.store.commits.syncer import SyncEntry, Syncer
from tradewind.store.folder.filestore import FileStore
from tradewind.stream.ingest import Ingest
from tradewind.stream.stream import Stream

class Audience(Protocol):
    """The objects that wait for the messages of a stream; provided by the engine."""

    @property
    def demand(self) -> Sized:
        """The takers of messages; if it is empty, none has to be woken."""
    def wake_consumers(self) -> None:
        """Wake the consumers, because more messages may be visible."""
    @property
    def companions(self) -> Sized:
        """The companions of the stream."""
    def tell_companions(self) -> None:
        """Notify companions that more messages have become durable."""
    def resumed(self) -> None:
        """Called when the stream takes messages again, after a full disk."""

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
