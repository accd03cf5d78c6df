"""The states of a stream's consumers on their way to the disk, written in groups as messages are.

Owns which states are waiting, being written or not durable yet. The states themselves belong to
the consumers: a marked one is read when the next commit begins, so marking the same consumer a
thousand times costs one write. There are two ways to write one:

- as a whole: o.dat is replaced by renaming, so a crash leaves the old state or a newer one, never a
  part. The rename becomes durable with the commit after.
- what has changed: a record is appended to the log beside it (`ack_log`), and durable with its
  commit. So what an acknowledgement costs does not depend on how much is pending.

A small state is written as a whole: that is cheap, and nats-server finds it after a crash of ours.
A large one goes to the log, until that has grown as large as the state. Somebody who waits for an
acknowledgement to be kept (`is_urgent`) always gets the log, because it takes one commit less. A
log goes when an o.dat without it is durable; `fold` has all of them go, for a clean end.

A commit has the shape of `FileStore`'s: the loop begins it (writes), a worker runs it (syncs), the
loop finishes it (renames). A state is kept when `synced_ticket` has reached its ticket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol

from tradewind.errors import StoreError
from tradewind.store.ack_log import (
    HEADER_BYTES,
    log_header,
    log_name,
    log_record,
    next_number,
    with_trailer,
)
from tradewind.store.commit import Commit
from tradewind.store.layout import CONSUMER_FILE, TEMPORARY_SUFFIX

if TYPE_CHECKING:
    from tradewind.store.disk import Disk, DiskFile

# Each file of a commit is open until it ends, and each costs a sync.
COMMIT_FILES_MAX = 256
# A state with at most so many messages is small.
SMALL_ENTRIES_MAX = 1000
# A log may have so many bytes, or as many as the state that it follows.
LOG_BYTES_MIN = 65_536


class StateSource(Protocol):
    """Whoever has the state of a consumer."""

    @property
    def entry_count(self) -> int:
        """How many messages it names: what writing all of it costs."""

    def encode_whole(self, now_ns: int) -> bytes:
        """All of it, as an o.dat; what changes from here on is noted."""

    def take_changes(self) -> bytes | None:
        """What has changed since it was taken last; None if only all of it can be had."""


@dataclass(slots=True)
class _Written:
    """What there is on disk of a consumer. `number` is that of the log which may follow its o.dat:
    0 until we have written that, and while another one is on its way.
    """

    number: int = 0
    log_bytes: int = 0  # 0: there is no log
    is_named: bool = False  # the name of the log is durable
    whole_bytes: int = 0
    last_number: int = 0
    outdated: list[int] = field(default_factory=list)  # logs to be removed

    def leave_log(self) -> None:
        """Nothing is appended any more; it counts until another o.dat is durable."""
        if self.log_bytes:
            self.outdated.append(self.number)
        self.number = self.log_bytes = 0
        self.is_named = False


@dataclass(slots=True)
class _Change:
    """A state on its way; `ticket` is that of the oldest mark in it that is not durable.

    `is_lazy`: somebody wants it saved, not only those who wait for an answer. `number` is that of
    the o.dat being written, 0 for a record of the log.
    """

    consumer: str
    source: StateSource
    ticket: int
    is_lazy: bool = False
    number: int = 0
    whole_bytes: int = 0
    file: DiskFile | None = None
    is_deleted: bool = False


class ConsumerStates:
    """What of the consumers below `folder` (a stream's `obs`) is to reach the disk.

    A change goes from `_waiting` to `_writing`. As a record of the log it is durable when that is
    synced; `_logged` are those that nobody has begun to sync. As a whole it goes on to `_renamed`
    (in place, its name not durable), to `_naming` (the name is being synced), and is gone when it
    is durable.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._waiting: dict[str, _Change] = {}
        self._logged: dict[str, _Change] = {}
        self._writing: list[_Change] = []
        self._renamed: dict[str, _Change] = {}
        self._naming: dict[str, _Change] = {}
        self._written: dict[str, _Written] = {}
        self._sources: dict[str, StateSource] = {}  # of those with a log
        self._committing: Commit | None = None
        self._is_folding = False
        self._ticket = 0

    # ---------------------------------------------------------------- what is to be written

    def mark(self, consumer: str, source: StateSource, *, is_urgent: bool = False) -> int:
        """This state has changed; gives the ticket by which to know that it is on disk."""
        self._ticket += 1
        self._wait(_Change(consumer, source, self._ticket, is_lazy=not is_urgent))
        return self._ticket

    def found(self, consumer: str, numbers: Iterable[int], number: int) -> None:
        """There are logs of these numbers, and an o.dat with this one: none is used again."""
        if consumer not in self._written:
            numbers = list(numbers)
            last = max([number, *numbers])
            self._written[consumer] = _Written(last_number=last, outdated=numbers)

    def forget(self, consumer: str) -> None:
        """The consumer is deleted: nothing of it is written any more."""
        for table in (self._waiting, self._logged, self._renamed, self._naming):
            table.pop(consumer, None)
        for change in self._writing:
            change.is_deleted = change.is_deleted or change.consumer == consumer
        self._written.pop(consumer, None)
        self._sources.pop(consumer, None)

    def fold(self) -> None:
        """From now on everything is written as a whole, and so is what has a log: for the end."""
        self._is_folding = True
        for consumer, source in list(self._sources.items()):
            self.mark(consumer, source)

    @property
    def is_dirty(self) -> bool:
        """Whether a commit has anything to do."""
        return bool(self._waiting or self._logged or self._renamed)

    @property
    def synced_ticket(self) -> int:
        """Every state marked with this ticket or a lower one is durable."""
        return self._below(self._changes())

    @property
    def written_ticket(self) -> int:
        """Every state marked with this ticket or a lower one outlives this process."""
        whole = (change for change in self._writing if change.number and not change.is_deleted)
        return self._below(chain(whole, self._waiting.values()))

    def _below(self, changes: Iterable[_Change]) -> int:
        return min((change.ticket for change in changes), default=self._ticket + 1) - 1

    def _changes(self) -> Iterator[_Change]:
        """All that is not durable; of one consumer the newest comes last."""
        yield from self._naming.values()
        yield from self._renamed.values()
        yield from (change for change in self._writing if not change.is_deleted)
        yield from self._logged.values()
        yield from self._waiting.values()

    def _wait(self, change: _Change) -> None:
        """The newest state of a consumer waits under the oldest ticket."""
        self._join(self._waiting, change)

    def _join(self, table: dict[str, _Change], change: _Change) -> None:
        earlier = table.setdefault(change.consumer, change)
        if earlier is not change:
            earlier.source = change.source
            earlier.ticket = min(earlier.ticket, change.ticket)
            earlier.is_lazy = earlier.is_lazy or change.is_lazy

    # ---------------------------------------------------------------- commits

    def begin_commit(self, now_ns: int) -> Commit | None:
        """Write what is waiting; None if there is nothing to do or a commit is under way.

        StoreError leaves everything waiting, to be tried again.
        """
        if self._committing is not None or not self.is_dirty:
            return None
        self._naming, self._renamed = self._renamed, {}
        folders = dict.fromkeys(self._naming)
        try:
            for change in list(islice(self._waiting.values(), COMMIT_FILES_MAX)):
                self._begin(change, self._waiting)
                if not self._append(change, folders):
                    self._write_aside(change, now_ns)
            for change in list(islice(self._logged.values(), COMMIT_FILES_MAX)):
                self._begin(change, self._logged)
                self._open_log(change, folders)
        except StoreError:
            self._write_all_again()
            raise
        files = [change.file for change in self._writing if change.file is not None]
        paths = [f"{self._folder}/{consumer}" for consumer in folders]
        self._committing = Commit(self._disk, 0, (0, 0), files=files, folders=paths)
        return self._committing

    def _begin(self, change: _Change, table: dict[str, _Change]) -> None:
        del table[change.consumer]
        self._writing.append(change)
        if (logged := self._logged.pop(change.consumer, None)) is not None:
            # Both are durable when the newer one is.
            change.ticket = min(change.ticket, logged.ticket)

    def write(self, consumer: str) -> bool:
        """Have a waiting state outlive this process at once; false if that takes a commit."""
        change = self._waiting.get(consumer)
        if change is None:
            return True
        try:
            if not self._append(change, {}):
                return False
        except StoreError:
            self._start_over(change)
            return False
        finally:
            self._close(change)
        del self._waiting[consumer]
        self._join(self._logged, change)
        return True

    def _append(self, change: _Change, folders: dict[str, None]) -> bool:
        """Write what has changed to the log; false if the state is to be written as a whole."""
        written = self._written.setdefault(change.consumer, _Written())
        if (
            not written.number
            or self._is_folding
            or (change.is_lazy and change.source.entry_count <= SMALL_ENTRIES_MAX)
            or written.log_bytes >= max(LOG_BYTES_MIN, written.whole_bytes)
            or (body := change.source.take_changes()) is None
        ):
            return False
        file = self._open_log(change, folders)
        record = log_record(written.number, written.log_bytes, body)
        file.write(record, written.log_bytes)
        written.log_bytes += len(record)
        return True

    def _open_log(self, change: _Change, folders: dict[str, None]) -> DiskFile:
        """It is synced together with its name, until that is known to be durable."""
        consumer = change.consumer
        written = self._written[consumer]
        path = f"{self._folder}/{consumer}/{log_name(written.number)}"
        if written.log_bytes:
            file = change.file = self._disk.open(path)
        else:
            file = change.file = self._disk.create(path, replace=True)
            file.write(log_header(written.number), 0)
            written.log_bytes = HEADER_BYTES
            self._sources[consumer] = change.source
        if not written.is_named:
            folders[consumer] = None
        return file

    def _write_aside(self, change: _Change, now_ns: int) -> None:
        written = self._written[change.consumer]
        written.last_number = change.number = next_number(written.last_number, now_ns)
        written.leave_log()
        content = with_trailer(change.source.encode_whole(now_ns), change.number)
        change.whole_bytes = len(content)
        change.file = self._disk.create(self._path(change) + TEMPORARY_SUFFIX, replace=True)
        change.file.write(content, 0)

    def finish_commit(self, commit: Commit) -> None:
        """The worker is done. Raises its error; then everything is waiting again."""
        assert commit is self._committing
        self._committing = None
        if commit.error is not None:
            self._write_all_again()
            raise commit.error
        self._remove_outdated()
        while self._writing:
            change = self._writing[-1]
            if not change.is_deleted:
                try:
                    self._put_in_place(change)
                except StoreError:
                    self._write_all_again()
                    raise
            self._close(self._writing.pop())

    def _put_in_place(self, change: _Change) -> None:
        """What was written is synced."""
        written = self._written[change.consumer]
        if not change.number:
            written.is_named = True
            return
        self._disk.rename(self._path(change) + TEMPORARY_SUFFIX, self._path(change))
        written.number = change.number
        written.whole_bytes = change.whole_bytes
        self._renamed[change.consumer] = change

    def _remove_outdated(self) -> None:
        """The names of these o.dat are durable: nobody needs the logs of those before them."""
        for consumer, change in self._naming.items():
            written = self._written[consumer]
            outdated = [number for number in written.outdated if number < change.number]
            written.outdated = [number for number in written.outdated if number >= change.number]
            for number in outdated:
                # One that is left over is removed after the next start.
                with suppress(StoreError):
                    self._disk.remove(f"{self._folder}/{consumer}/{log_name(number)}")
            if not written.log_bytes:
                self._sources.pop(consumer, None)
        self._naming = {}

    def drop_commit(self) -> None:
        """The one under way has ended without anybody who waits for it: all is waiting again."""
        self._committing = None
        self._write_all_again()

    def commit(self, now_ns: int) -> None:
        """All of it now, in this thread; for tests, tools and the end."""
        while (commit := self.begin_commit(now_ns)) is not None:
            commit.run()
            self.finish_commit(commit)

    def close(self, now_ns: int) -> None:
        """All of it now, and as a whole: o.dat says everything, and there are no logs."""
        self.fold()
        self.commit(now_ns)

    # ---------------------------------------------------------------- failures

    def _write_all_again(self) -> None:
        """After a failure nobody knows what is durable."""
        changes = list(self._changes())
        self._close(*self._writing)
        self._waiting, self._writing, self._renamed, self._naming = {}, [], {}, {}
        self._logged = {}
        for change in changes:
            self._start_over(change)
            self._wait(_Change(change.consumer, change.source, change.ticket, change.is_lazy))

    def _start_over(self, change: _Change) -> None:
        """The log cannot go on, so the state is going to be written as a whole."""
        if (written := self._written.get(change.consumer)) is not None:
            written.leave_log()

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
    with the commit after: `on_progress` is called when `states` may know more.
    """

    failure: StoreError | None = None  # nothing is lost by a failure, so it can be tried again
    unwritten_bytes = 0
    wants_commit = False

    def __init__(
        self,
        states: ConsumerStates,
        wall_ns: Callable[[], int],
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        self.states = states
        self._wall_ns = wall_ns
        self._on_progress = on_progress

    @property
    def is_dirty(self) -> bool:
        """Whether a commit has anything to do."""
        return self.states.is_dirty

    def flush(self) -> None:
        """States are written by commits only."""

    def begin_commit(self) -> Commit | None:
        """See `ConsumerStates.begin_commit`."""
        commit = self.states.begin_commit(self._wall_ns())
        self._on_progress()
        return commit

    def finish_commit(self, commit: Commit) -> None:
        """See `ConsumerStates.finish_commit`."""
        self.states.finish_commit(commit)
        self._on_progress()

    def drop_commit(self, commit: Commit) -> None:  # noqa: ARG002
        """See `SyncTarget`."""
        self.states.drop_commit()

    def resume(self) -> bool:
        """The next commit writes everything again."""
        return True

    def mark_idle(self) -> None:
        """Nothing to say."""
