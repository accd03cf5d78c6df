"""The way of a change from the end of its turn to the acknowledgement, in the one order there is.

    append   a message was stored or removed in this turn            Ingest, Upkeep
    end      the turn ends: what need not wait leaves                CommitPath.commit_changes
    write    the system gets the bytes, one write per block          Syncer, FileStore.begin_commit
    sync     a thread syncs them, with all that came meanwhile       server/threads
    confirm  what is synced is safe: `synced_seq` moves              FileStore.finish_commit
    reply    acknowledgements leave                                  CommitPath.show, Ingest
    wake     consumers may send it, and requests that waited go on   CommitPath.show, tell

Owns who waits for the commits of one stream. How far a stream goes before it acknowledges
depends on its mode: in memory nothing is written, with `sync_interval` the sync comes later, with
`persist_mode: async` the write too. That is decided in one place, `Syncer.changed`. Never touches a
file itself, and never waits.

A change that cannot be written or synced ends the commits of this stream (`failed`): all waiters
get the error. When a full disk has room again the stream goes on (`resumed`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from tradewind.errors import StoreError

if TYPE_CHECKING:
    from tradewind.store.commits.commit import SyncTarget
    from tradewind.store.commits.syncer import SyncEntry, Syncer
    from tradewind.store.folder.filestore import FileStore
    from tradewind.stream.ingest import Ingest
    from tradewind.stream.stream import Stream


class Audience(Protocol):
    """The objects that wait for the messages of a stream; provided by the engine."""

    def wake_consumers(self) -> None:
        """Wake the consumers, because more messages may be visible."""

    def tell_companions(self) -> None:
        """Notify companions that more messages have become durable."""

    def resumed(self) -> None:
        """Called when the stream takes messages again, after a full disk."""


class CommitPath:
    """The commits of one stream. A stream in files takes part in commits from `attach` to
    `detach`.
    """

    def __init__(self, stream: Stream, ingest: Ingest, files: FileStore | None) -> None:
        self.audience: Audience | None = None
        self.takers: dict[Any, list[bytes]] = {}
        self.has_companions = False
        self.ingest = ingest
        self.entry: SyncEntry | None = None
        self._syncer: Syncer | None = None
        self._stream = stream
        self._files = files
        self._waiting: deque[tuple[int, Callable[[StoreError | None], None]]] = deque()

    # -------------------------------------------------------------- life

    def attach(self, syncer: Syncer) -> None:
        """Commit the changes of a stream in files from now on."""
        if self._files is not None:
            self._syncer = syncer
            self.entry = syncer.attach(
                self._files,
                on_synced=self.kept,
                on_failure=self.failed,
                on_resumed=self.resumed,
                mode=self._stream.sync_mode,
            )

    def detach(self, when_free: Callable[[], None]) -> None:
        """Take no further part; `when_free` is called as soon as no commit uses the files."""
        if self._syncer is None or self._files is None:
            when_free()
            return
        syncer, self._syncer, self.entry = self._syncer, None, None
        syncer.detach(self._files, when_free)

    # -------------------------------------------------------------- the path

    def commit_changes(self, now_ns: int) -> None:
        """Called at the end of a turn in which the stream changed."""
        ingest, entry = self.ingest, self.entry
        if entry is None or self._syncer is None or self._files is None:
            self.show()
            return
        failure = self._files.failure
        if failure is not None:
            self._stream.failed(failure)
        elif ingest.waits:
            ingest.end_turn()
            entry.waiters = ingest.replies.count
        self._syncer.changed(entry, now_ns)

    def kept(self, _store: SyncTarget, number: int) -> None:
        """Called when the syncer has stored this round."""
        self.show()
        if self._waiting:
            self.tell(None, number)

    def show(self) -> None:
        """Acknowledge the durable messages, and wake the consumers that may see more."""
        self.ingest.acknowledge_through(self.ingest.visible())
        if self.takers and self.audience is not None:
            self.audience.wake_consumers()
        if self.has_companions and self.audience is not None:
            self.audience.tell_companions()

    # -------------------------------------------------------------- failures

    def failed(self, _store: SyncTarget, error: StoreError) -> None:
        """Refuse everything that waits; called after a disk error or an internal error."""
        self._stream.failed(error)
        self.tell(error)

    def resumed(self, _store: SyncTarget) -> None:
        """Continue; called when the disk has room again."""
        self.ingest.acknowledge_through(self.ingest.visible())
        if self.audience is not None:
            self.audience.resumed()

    # -------------------------------------------------------------- requests

    def when_durable(self, done: Callable[[StoreError | None], None]) -> None:
        """Call `done` when all changes so far are as durable as the stream promises, or with the
        error if they will not be.
        """
        if self._syncer is None or self._files is None:
            done(None)
        elif self._files.failure is not None:
            done(self._files.failure)
        else:
            now_ns = self.ingest.turn.monotonic_ns
            number = self._syncer.mark_dirty(self._files, now_ns)
            self._waiting.append((number, done))
            self.ingest.turn.mark_dirty(self.ingest)

    def tell(self, error: StoreError | None, kept: int | None = None) -> None:
        """Notify those who wait for a commit; with `kept`, those up to this round."""
        while self._waiting and (kept is None or self._waiting[0][0] <= kept):
            _, done = self._waiting.popleft()
            try:
                done(error)
            except Exception as fault:
                self.ingest.router.faults.contain("request", fault, self._stream.place)
