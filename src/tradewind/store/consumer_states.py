"""The o.dat files of a stream's consumers, written in groups as messages are.

Owns which states are waiting, being written or not durable yet. The states themselves belong to
the consumers: a marked one is read when the next commit begins, so marking the same consumer a
thousand times costs one write. The file is replaced by renaming: a crash leaves the old state or a
newer one, never a part.

A commit has the shape of `FileStore`'s: the loop begins it (writes aside), a worker runs it
(syncs), the loop finishes it (renames). The rename becomes durable with the commit after, which is
why a state counts as kept only when `synced_ticket` has reached its ticket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from tradewind.errors import StoreError
from tradewind.store.commit import Commit
from tradewind.store.consumer_file import ConsumerState, encode_consumer_state
from tradewind.store.layout import CONSUMER_FILE, TEMPORARY_SUFFIX

if TYPE_CHECKING:
    from tradewind.store.disk import Disk, DiskFile

# Each file of a commit is open until it ends, and each costs a sync.
COMMIT_FILES_MAX = 256


@dataclass(slots=True)
class _Change:
    """A state on its way; `ticket` is that of the oldest mark in it that is not durable."""

    consumer: str
    state: ConsumerState
    ticket: int
    file: DiskFile | None = None
    is_deleted: bool = False


class ConsumerStates:
    """What of the consumers below `folder` (a stream's `obs`) is to reach the disk.

    A change goes from `_waiting` to `_writing` (aside, not synced), to `_renamed` (in place, its
    name not durable), to `_naming` (the name is being synced), and is gone when it is durable.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._waiting: dict[str, _Change] = {}
        self._writing: list[_Change] = []
        self._renamed: dict[str, _Change] = {}
        self._naming: dict[str, _Change] = {}
        self._committing: Commit | None = None
        self._ticket = 0

    def mark(self, consumer: str, state: ConsumerState) -> int:
        """This state has changed; gives the ticket by which to know that it is on disk."""
        self._ticket += 1
        self._wait(consumer, state, self._ticket)
        return self._ticket

    def forget(self, consumer: str) -> None:
        """The consumer is deleted: nothing of it is written any more."""
        for table in (self._waiting, self._renamed, self._naming):
            table.pop(consumer, None)
        for change in self._writing:
            change.is_deleted = change.is_deleted or change.consumer == consumer

    @property
    def is_dirty(self) -> bool:
        """Whether a commit has anything to do."""
        return bool(self._waiting or self._renamed)

    @property
    def synced_ticket(self) -> int:
        """Every state marked with this ticket or a lower one is durable."""
        return min((change.ticket for change in self._changes()), default=self._ticket + 1) - 1

    def _changes(self) -> Iterator[_Change]:
        """All that is not durable; of one consumer the newest comes last."""
        yield from self._naming.values()
        yield from self._renamed.values()
        yield from (change for change in self._writing if not change.is_deleted)
        yield from self._waiting.values()

    def begin_commit(self, now_ns: int) -> Commit | None:
        """Write what is waiting aside; None if there is nothing to do or a commit is under way.

        StoreError leaves everything waiting, to be tried again.
        """
        if self._committing is not None or not self.is_dirty:
            return None
        files = []
        for change in list(islice(self._waiting.values(), COMMIT_FILES_MAX)):
            self._writing.append(self._waiting.pop(change.consumer))
            try:
                files.append(self._write_aside(change, now_ns))
            except StoreError:
                self._write_all_again()
                raise
        self._naming, self._renamed = self._renamed, {}
        folders = [f"{self._folder}/{consumer}" for consumer in self._naming]
        self._committing = Commit(self._disk, 0, (0, 0), files=files, folders=folders)
        return self._committing

    def _write_aside(self, change: _Change, now_ns: int) -> DiskFile:
        change.file = self._disk.create(self._path(change) + TEMPORARY_SUFFIX, replace=True)
        change.file.write(encode_consumer_state(change.state, now_ns), 0)
        return change.file

    def finish_commit(self, commit: Commit) -> None:
        """The worker is done. Raises its error; then everything is waiting again."""
        assert commit is self._committing
        self._committing = None
        if commit.error is not None:
            self._write_all_again()
            raise commit.error
        self._naming = {}
        while self._writing:
            change = self._writing[-1]
            if not change.is_deleted:
                try:
                    self._disk.rename(self._path(change) + TEMPORARY_SUFFIX, self._path(change))
                except StoreError:
                    self._write_all_again()
                    raise
                self._renamed[change.consumer] = change
            self._close(self._writing.pop())

    def drop_commit(self) -> None:
        """The one under way has ended without anybody who waits for it: all is waiting again."""
        self._committing = None
        self._write_all_again()

    def commit(self, now_ns: int) -> None:
        """All of it now, in this thread; for tests, tools and the end."""
        while (commit := self.begin_commit(now_ns)) is not None:
            commit.run()
            self.finish_commit(commit)

    def _write_all_again(self) -> None:
        """After a failure nobody knows what is durable."""
        changes = list(self._changes())
        self._close(*self._writing)
        self._waiting, self._writing, self._renamed, self._naming = {}, [], {}, {}
        for change in changes:
            self._wait(change.consumer, change.state, change.ticket)

    def _wait(self, consumer: str, state: ConsumerState, ticket: int) -> None:
        """The newest state of a consumer waits under the oldest ticket."""
        waiting = self._waiting.setdefault(consumer, _Change(consumer, state, ticket))
        waiting.state = state
        waiting.ticket = min(waiting.ticket, ticket)

    def _close(self, *changes: _Change) -> None:
        for change in changes:
            if change.file is not None:
                change.file.close()
                change.file = None

    def _path(self, change: _Change) -> str:
        return f"{self._folder}/{change.consumer}/{CONSUMER_FILE}"


class ConsumerFiles:
    """Consumer states as a `SyncTarget`, with a clock for the times in the files.

    A round of the syncer is not enough to know that a state is kept, because names become durable
    with the commit after: ask `states.synced_ticket`.
    """

    failure: StoreError | None = None  # nothing is lost by a failure, so it can be tried again
    unwritten_bytes = 0
    wants_commit = False

    def __init__(self, states: ConsumerStates, wall_ns: Callable[[], int]) -> None:
        self.states = states
        self._wall_ns = wall_ns

    @property
    def is_dirty(self) -> bool:
        """Whether a commit has anything to do."""
        return self.states.is_dirty

    def flush(self) -> None:
        """States are written by commits only."""

    def begin_commit(self) -> Commit | None:
        """See `ConsumerStates.begin_commit`."""
        return self.states.begin_commit(self._wall_ns())

    def finish_commit(self, commit: Commit) -> None:
        """See `ConsumerStates.finish_commit`."""
        self.states.finish_commit(commit)

    def drop_commit(self, commit: Commit) -> None:  # noqa: ARG002
        """See `SyncTarget`."""
        self.states.drop_commit()

    def resume(self) -> bool:
        """The next commit writes everything again."""
        return True

    def mark_idle(self) -> None:
        """Nothing to say."""
