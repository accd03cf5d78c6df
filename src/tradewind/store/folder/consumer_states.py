"""Writes the states of a stream's consumers to disk, in groups like messages.

Owns which states are waiting, being written or not yet durable. The states themselves belong to the
consumers: a marked state is read when the next commit begins, so marking the same consumer a
thousand times costs one write. There are two ways to write a state:

- as a whole: o.dat is replaced by renaming, so a crash leaves the old state or a newer one, never a
  part. The rename becomes durable with the next commit.
- changes only: a record is appended to a log (`ack_log`) that all consumers of the stream share,
  and is durable with its commit, with one sync for all of them. The cost of an acknowledgement
  therefore depends neither on the number of pending messages nor on other consumers.

A small state is written as a whole: that is cheap, and nats-server finds it after a crash of this
server. A large one goes to the log, until its records are as large as the state. If a client waits
for its acknowledgement to be stored (`is_urgent`), the log is always used; few of those commits
also write a whole state, because each costs two more syncs. Records of a consumer become obsolete
when an o.dat without them is durable, and a log is removed when all of its records are obsolete.
`fold` does this for a clean shutdown. All records that follow one o.dat are in one log, so after an
interrupted write nothing that follows is used.

A commit has the shape of `FileStore`'s: the loop begins it (writes), a worker runs it (syncs), the
loop finishes it (renames). A state is kept when `kept_ticket` of its consumer has reached its
ticket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol

from tradewind.errors import StoreError
from tradewind.store.commits.commit import Commit, SyncTarget
from tradewind.store.format.ack_log import (
    log_header,
    log_name,
    log_record,
    next_number,
    with_trailer,
)
from tradewind.store.format.layout import CONSUMER_FILE, TEMPORARY_SUFFIX

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk, DiskFile

# States written as a whole by one commit: each is a file, and a sync that others wait for.
COMMIT_FILES_MAX = 8
# Of commits that somebody waits for, one in this many writes one.
URGENT_COMMITS_PER_FILE = 8
# A state with at most this many messages is small.
SMALL_ENTRIES_MAX = 1000
# The records of a consumer may have this many bytes, or as many as its state.
LOG_BYTES_MIN = 65_536
# And a log this many, or as many as the states of those with records in it.
LOG_FILE_BYTES_MIN = 4_194_304
_NO_TICKET = 1 << 62


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
class _Log:
    """A log. `users` are the consumers with records in it that may count, each with the number of
    the o.dat which the last of them follows.
    """

    number: int
    size: int = 0
    is_named: bool = False  # its name is durable
    users: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Written:
    """What there is on disk of a consumer. `number` is that of its o.dat: 0 until we have written
    that, and while another one is on its way.
    """

    source: StateSource
    number: int = 0
    whole_bytes: int = 0
    log: _Log | None = None  # where the records are that follow
    log_bytes: int = 0

    def start_over(self) -> None:
        """No record can follow what there is; another o.dat is needed."""
        self.number = self.log_bytes = 0
        self.log = None


@dataclass(slots=True)
class _Change:
    """A state on its way; `ticket` is that of the oldest mark in it that is not durable.

    `number` is that of the o.dat being written, 0 for a record of the log. `is_lazy`: it is not
    only for those who wait for an answer.
    """

    consumer: str
    ticket: int
    is_lazy: bool = False
    number: int = 0
    whole_bytes: int = 0
    file: DiskFile | None = None
    is_deleted: bool = False


class ConsumerStates:
    """What of the consumers below `folder` (a stream's `obs`) is to reach the disk.

    A change goes from `_urgent` or `_waiting` to `_writing`. As a record of the log it is durable
    when that is synced; `_logged` are those that nobody has begun to sync. As a whole it continues
    to `_renamed` (in place, its name not durable), to `_naming` (the name is being synced), and is
    gone when it is durable.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self.seal: Callable[[str, bytes], bytes] | None = None  # None: they are not encrypted
        self._disk = disk
        self._folder = folder
        self._written: dict[str, _Written] = {}
        self._urgent: dict[str, _Change] = {}
        self._waiting: dict[str, _Change] = {}
        self._logged: dict[str, _Change] = {}
        self._writing: list[_Change] = []
        self._in_flight: dict[str, list[_Change]] = {}  # the same by consumer, during a commit
        self._renamed: dict[str, _Change] = {}
        self._naming: dict[str, _Change] = {}
        self._logs: dict[int, _Log] = {}
        self._log: _Log | None = None  # the one that is written
        self._log_file: DiskFile | None = None  # ... while it is open
        self._last_number = 0
        self._urgent_commits = 0
        self._committing: Commit | None = None
        self._is_folding = False
        self._ticket = 0

    # ---------------------------------------------------------------- what is to be written

    def mark(self, consumer: str, source: StateSource, *, is_urgent: bool = False) -> int:
        """This state has changed; returns the ticket by which to know that it is on disk."""
        self._ticket += 1
        written = self._written.get(consumer)
        if written is None:
            self._written[consumer] = _Written(source)
        else:
            written.source = source
        self._wait(_Change(consumer, self._ticket, is_lazy=not is_urgent), is_urgent=is_urgent)
        return self._ticket

    def _wait(self, change: _Change, *, is_urgent: bool) -> None:
        """The newest state of a consumer waits under the oldest ticket."""
        for table in (self._urgent, self._waiting):
            if (earlier := table.pop(change.consumer, None)) is not None:
                change.ticket = min(change.ticket, earlier.ticket)
                change.is_lazy = change.is_lazy or earlier.is_lazy
                is_urgent = is_urgent or table is self._urgent
        (self._urgent if is_urgent else self._waiting)[change.consumer] = change

    def is_waiting(self, consumer: str) -> bool:
        """Whether something of a consumer is in no commit yet, nor in the log."""
        waiting = self._waiting.get(consumer)
        return consumer in self._urgent or (waiting is not None and waiting.ticket != _NO_TICKET)

    def found(self, logs: Mapping[int, Iterable[str]], number: int) -> None:
        """These logs are there, with records of these consumers, and an o.dat with this number. No
        number is used again; a log goes when its consumers have a new o.dat.
        """
        self._last_number = max([self._last_number, number, *logs])
        for log, users in logs.items():
            if log not in self._logs:
                self._logs[log] = _Log(log, users=dict.fromkeys(users, 0))

    def forget(self, consumer: str) -> None:
        """The consumer is deleted: nothing more of it is written."""
        for table in (self._urgent, self._waiting, self._logged, self._renamed, self._naming):
            table.pop(consumer, None)
        for change in self._writing:
            change.is_deleted = change.is_deleted or change.consumer == consumer
        self._in_flight.pop(consumer, None)
        self._written.pop(consumer, None)
        for log in self._logs.values():
            log.users.pop(consumer, None)

    def fold(self) -> None:
        """From now on everything is written as a whole, and so is what has records in a log: for
        the end.
        """
        self._is_folding = True
        for log in self._logs.values():
            self._fold_users(log)

    def _fold_users(self, log: _Log) -> None:
        for consumer in log.users:
            if consumer in self._written:
                self._wait_for_fold(consumer)

    def _wait_for_fold(self, consumer: str) -> None:
        """Its state is in the log already: nobody waits for it to be written as a whole."""
        self._wait(_Change(consumer, _NO_TICKET, is_lazy=True), is_urgent=False)

    @property
    def is_dirty(self) -> bool:
        """Whether a commit has anything to do."""
        return bool(self._urgent or self._waiting or self._logged or self._renamed)

    def kept_ticket(self, consumer: str) -> int:
        """Every state of a consumer marked with this ticket or a lower one is durable."""
        tables = (self._naming, self._renamed, self._logged)
        logged = [change for change in self._in_flight.get(consumer, ()) if not change.number]
        found = [table[consumer] for table in tables if consumer in table]
        return min(self._below(chain(found, logged)), self.written_ticket(consumer))

    def written_ticket(self, consumer: str) -> int:
        """Every state of a consumer marked with this ticket or a lower one survives a kill."""
        tables = (self._urgent, self._waiting)
        whole = [change for change in self._in_flight.get(consumer, ()) if change.number]
        return self._below(chain(whole, (t[consumer] for t in tables if consumer in t)))

    def _below(self, changes: Iterable[_Change]) -> int:
        return min(chain((change.ticket for change in changes), [self._ticket + 1])) - 1

    def _changes(self) -> Iterator[_Change]:
        """All that is not durable."""
        yield from self._naming.values()
        yield from self._renamed.values()
        yield from (change for change in self._writing if not change.is_deleted)
        yield from self._logged.values()
        yield from self._urgent.values()
        yield from self._waiting.values()

    # ---------------------------------------------------------------- commits

    def begin_commit(self, now_ns: int) -> Commit | None:
        """Write what is waiting; None if there is nothing to do or a commit is under way.

        StoreError leaves everything waiting, to be tried again.
        """
        if self._committing is not None or not self.is_dirty:
            return None
        self._naming, self._renamed = self._renamed, {}
        folders = [f"{self._folder}/{consumer}" for consumer in self._naming]
        try:
            self._end_large_log()
            self._write_urgent(now_ns)
            for change in list(islice(self._waiting.values(), self._room_for_files())):
                # Not before it is written: changes that were taken and not kept are missing in all
                # records that follow, so the state has to be written as a whole.
                self._write(change, now_ns)
                del self._waiting[change.consumer]
            files = [change.file for change in self._writing if change.file is not None]
            if self._logged or any(not change.number for change in self._writing):
                files.append(self._open_log(now_ns))
                folders += [] if self._log is None or self._log.is_named else [self._log_folder]
        except StoreError:
            self._write_all_again()
            raise
        self._writing.extend(self._logged.values())
        self._logged = {}
        for change in self._writing:
            self._in_flight.setdefault(change.consumer, []).append(change)
        self._committing = Commit(self._disk, 0, (0, 0), files=files, folders=folders)
        return self._committing

    def _room_for_files(self) -> int:
        """How many states may be written as a whole for which nobody waits."""
        if not self._writing:
            return COMMIT_FILES_MAX
        self._urgent_commits += 1
        return 1 if self._urgent_commits % URGENT_COMMITS_PER_FILE == 1 else 0

    def _write_urgent(self, now_ns: int) -> None:
        """All that the log can take, and as many others as a commit may have."""
        room = COMMIT_FILES_MAX
        for change in list(self._urgent.values()):
            wants_fold = change.is_lazy and self._is_small(change)
            if self._append(change, now_ns):
                del self._urgent[change.consumer]
                self._writing.append(change)
                if wants_fold:
                    self._wait_for_fold(change.consumer)
            elif room > 0:
                room -= 1
                del self._urgent[change.consumer]
                self._write_aside(change, now_ns)

    def _write(self, change: _Change, now_ns: int) -> None:
        """In the way that fits it."""
        if change.ticket == _NO_TICKET or self._is_small(change):
            self._write_aside(change, now_ns)
        elif self._append(change, now_ns):
            self._writing.append(change)
        else:
            self._write_aside(change, now_ns)

    def _is_small(self, change: _Change) -> bool:
        return self._written[change.consumer].source.entry_count <= SMALL_ENTRIES_MAX

    def write(self, consumer: str, now_ns: int) -> bool:
        """Have a waiting state outlive this process at once; false if that takes a commit."""
        change = self._urgent.get(consumer)
        if change is None:
            return consumer not in self._waiting
        wants_fold = change.is_lazy and self._is_small(change)
        try:
            if not self._append(change, now_ns):
                return False
        except StoreError:
            self._written[consumer].start_over()
            return False
        finally:
            if self._committing is None:
                self._close_log()
        del self._urgent[consumer]
        if (earlier := self._logged.get(consumer)) is not None:
            change.ticket = min(change.ticket, earlier.ticket)
        self._logged[consumer] = change
        if wants_fold:
            self._wait_for_fold(consumer)
        return True

    # ---------------------------------------------------------------- the log

    def _append(self, change: _Change, now_ns: int) -> bool:
        """Write what has changed to the log; false if the state is to be written as a whole."""
        written = self._written[change.consumer]
        if (
            not written.number
            or self._is_folding
            or written.log_bytes >= max(LOG_BYTES_MIN, written.whole_bytes)
            or (written.log is not None and written.log is not self._log)
            or (changes := written.source.take_changes()) is None
        ):
            return False
        file, log = self._open_log(now_ns), self._log
        assert log is not None
        record = log_record(log.number, log.size, change.consumer, written.number, changes)
        log.users[change.consumer] = written.number
        written.log = log
        file.write(record, log.size)
        log.size += len(record)
        written.log_bytes += len(record)
        return True

    def _open_log(self, now_ns: int) -> DiskFile:
        """The log that is written, which is made if there is none; open until `_close_log`."""
        log = self._log
        if log is None:
            log = _Log(self._next_number(now_ns))
            self._log_file = self._disk.create(self._log_path(log), replace=True)
            self._log = self._logs[log.number] = log
        elif self._log_file is None:
            self._log_file = self._disk.open(self._log_path(log))
        assert self._log_file is not None, "a log that is being written is open"
        if not log.size:
            # Also if the disk has refused it before: nothing counts in a log without it.
            header = log_header(log.number)
            self._log_file.write(header, 0)
            log.size = len(header)
        return self._log_file

    def _end_large_log(self) -> None:
        """What follows goes to another one, when those who have records in this one are written as
        a whole; not before all of it is being synced.
        """
        log = self._log
        if log is None or log.size < LOG_FILE_BYTES_MIN or self._logged:
            return
        users = [self._written[consumer] for consumer in log.users if consumer in self._written]
        if log.size >= sum(written.whole_bytes for written in users):
            self._leave_log()

    def _leave_log(self) -> None:
        """Nothing more is appended to it, and those who have records in it need an o.dat."""
        self._close_log()
        log, self._log = self._log, None
        if log is not None:
            self._fold_users(log)

    def _close_log(self) -> None:
        if self._log_file is not None:
            self._log_file.close()
            self._log_file = None

    def _remove_unused_logs(self) -> None:
        """No record in them counts now."""
        for log in [log for log in self._logs.values() if not log.users]:
            if log is self._log:
                self._leave_log()
            del self._logs[log.number]
            # One that is left over is found by the next start.
            with suppress(StoreError):
                self._disk.remove(self._log_path(log))

    @property
    def _log_folder(self) -> str:
        return self._folder.rpartition("/")[0]

    def _log_path(self, log: _Log) -> str:
        return f"{self._log_folder}/{log_name(log.number)}"

    def _next_number(self, now_ns: int) -> int:
        self._last_number = next_number(self._last_number, now_ns)
        return self._last_number

    # ---------------------------------------------------------------- whole states

    def _write_aside(self, change: _Change, now_ns: int) -> None:
        self._writing.append(change)
        written = self._written[change.consumer]
        written.start_over()
        change.number = self._next_number(now_ns)
        content = with_trailer(written.source.encode_whole(now_ns), change.number)
        if self.seal is not None:
            content = self.seal(change.consumer, content)
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
        self._close_log()
        if self._log is not None and self._log_folder in commit.folders:
            self._log.is_named = True
        for consumer, change in self._naming.items():
            for log in self._logs.values():
                if log.users.get(consumer, change.number) < change.number:
                    del log.users[consumer]
        self._naming, self._in_flight = {}, {}
        while self._writing:
            change = self._writing[-1]
            if change.number and not change.is_deleted:
                try:
                    self._put_in_place(change)
                except StoreError:
                    self._write_all_again()
                    raise
            self._close(self._writing.pop())
        self._remove_unused_logs()

    def _put_in_place(self, change: _Change) -> None:
        """A whole state is synced."""
        self._disk.rename(self._path(change) + TEMPORARY_SUFFIX, self._path(change))
        written = self._written[change.consumer]
        written.number = change.number
        written.whole_bytes = change.whole_bytes
        self._renamed[change.consumer] = change

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
        self._remove_unused_logs()

    # ---------------------------------------------------------------- failures

    def _write_all_again(self) -> None:
        """After a failure nobody knows what is durable: all of it is written as a whole, and what
        is in the log counts as long as it has to.
        """
        urgent = set(self._urgent)
        changes = list(self._changes())
        self._close(*self._writing)
        self._urgent, self._waiting, self._logged = {}, {}, {}
        self._writing, self._renamed, self._naming, self._in_flight = [], {}, {}, {}
        for change in changes:
            self._written[change.consumer].start_over()
            again = _Change(change.consumer, change.ticket, change.is_lazy)
            self._wait(again, is_urgent=change.consumer in urgent)
        self._leave_log()

    def _close(self, *changes: _Change) -> None:
        for change in changes:
            if change.file is not None:
                change.file.close()
                change.file = None

    def _path(self, change: _Change) -> str:
        return f"{self._folder}/{change.consumer}/{CONSUMER_FILE}"


class ConsumerFiles(SyncTarget):
    """Consumer states for the syncer, with a clock for the times in the files.

    A round of the syncer is not enough to know that a state is kept, because names become durable
    with the commit after: `on_progress` is called when `states` may know more.

    A consumer passes over what a limit has removed. If that was for messages which a kill takes
    back, what was removed is there again, and a state that knows of it would say that it was
    acknowledged. So `write_stream` hands the stream to the system before any state.
    """

    is_fenced = False  # nothing is written: it belongs to something that is not durable yet

    def __init__(
        self,
        states: ConsumerStates,
        wall_ns: Callable[[], int],
        on_progress: Callable[[], None] = lambda: None,
        write_stream: Callable[[], None] = lambda: None,
    ) -> None:
        self.states = states
        self._wall_ns = wall_ns
        self._on_progress = on_progress
        self._write_stream = write_stream

    def has_changes(self) -> bool:
        """Whether a commit has anything to do."""
        return self.states.is_dirty

    def begin_commit(self) -> Commit | None:
        """See `ConsumerStates.begin_commit`."""
        if self.states.is_dirty:
            self._write_stream()
        commit = self.states.begin_commit(self._wall_ns())
        self._on_progress()
        return commit

    def write(self, consumer: str) -> bool:
        """See `ConsumerStates.write`; false also if the stream cannot be written."""
        if self.is_fenced:
            return False
        try:
            self._write_stream()
        except StoreError:
            return False
        return self.states.write(consumer, self._wall_ns())

    def finish_commit(self, commit: Commit) -> None:
        """See `ConsumerStates.finish_commit`."""
        self.states.finish_commit(commit)
        self._on_progress()

    def drop_commit(self, commit: Commit) -> None:  # noqa: ARG002
        """See `SyncTarget`."""
        self.states.drop_commit()
