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
for its acknowledgement to be stored (`is_urgent`), the log is always used, and then also for what
else changes in that state, because a whole state costs two more syncs: it is written now and then,
and when nothing has changed for a while (`fold_quiet`). Records of a consumer become obsolete
when an o.dat without them is durable, and a log is removed when all of its records are obsolete.
`fold` does this for a clean shutdown. All records that follow one o.dat are in one log, so after an
interrupted write nothing that follows is used.

A commit has the shape of `FileStore`'s: the loop begins it (writes), a worker runs it (syncs), the
loop finishes it (renames). A state is durable when `kept_ticket` of its consumer has reached its
ticket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from tradewind.errors import StoreError
from tradewind.store.commits.commit import Commit, SyncTarget
from tradewind.store.files.open_files import open_files
from tradewind.store.folder.ack_log_file import AckLogFile
from tradewind.store.format.ack_log import log_name, next_number, record_prefix, with_trailer
from tradewind.store.format.layout import CONSUMER_FILE, TEMPORARY_SUFFIX

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk, DiskFile

# States written as a whole by one commit: each is a file, and a sync that others wait for.
COMMIT_FILES_MAX = 8
# One of this many commits with waiting clients writes one.
URGENT_COMMITS_PER_FILE = 8
# While a small state is in the log, this many times it may be saved there before it is folded.
SAVES_PER_FOLD = 10
# A state with at most this many messages is small.
SMALL_ENTRIES_MAX = 1000
# The records of a consumer may have this many bytes, or as many as its state.
LOG_BYTES_MIN = 65_536
# And a log this many, or as many as the states of those with records in it.
LOG_FILE_BYTES_MIN = 4_194_304
_NO_TICKET = 1 << 62


class StateSource(Protocol):
    """The owner of a consumer's state."""

    @property
    def entry_count(self) -> int:
        """The number of messages in the state, which determines the cost of writing it."""

    def encode_whole(self, now_ns: int) -> bytes:
        """Encode the whole state as an o.dat; later changes are noted."""

    def take_changes(self) -> bytes | None:
        """Encode the changes since the last call; None if only the whole state can be encoded."""


class WrittenState:
    """The state of a consumer on disk. `number` is that of its o.dat: 0 until this server has
    written one, and while another one is in progress.
    """

    def __init__(self, source: StateSource) -> None:
        self.source = source
        self.number = 0
        self.whole_bytes = 0
        self.log: AckLogFile | None = None  # where the records are that follow
        self.log_bytes = 0
        self.prefix = b""  # ... and how they begin
        self.saves = 0  # in the log, since it was written as a whole
        # How records begin that follow the o.dat which another one is about to replace.
        self.replaced_prefix = b""

    def start_over(self) -> None:
        """Require another o.dat, because no record can follow the present one."""
        self.number = self.log_bytes = 0
        self.log = None
        self.replaced_prefix = b""


class StateChange:
    """A state on its way; `ticket` is that of the oldest mark in it that is not durable.

    `number` is that of the o.dat being written, 0 for a record of the log. `is_lazy`: not only
    clients that wait for an answer need it. `wants_whole`: its records are to be folded.
    `is_logged`: all of it is in records as well.
    """

    def __init__(self, consumer: str, ticket: int, *, is_lazy: bool) -> None:
        self.consumer = consumer
        self.ticket = ticket
        self.is_lazy = is_lazy
        self.wants_whole = ticket == _NO_TICKET
        self.number = 0
        self.whole_bytes = 0
        self.file: DiskFile | None = None
        self.is_deleted = False
        self.is_logged = False

    def join(self, earlier: StateChange) -> None:
        """Stand for an earlier change of the same state as well."""
        self.ticket = min(self.ticket, earlier.ticket)
        self.is_lazy = self.is_lazy or earlier.is_lazy
        self.wants_whole = self.wants_whole or earlier.wants_whole


class ConsumerStates:
    """The changed states of the consumers below `folder` (a stream's `obs`).

    A change goes from `_urgent` or `_waiting` to `_writing`. As a record of the log it is durable
    when that is synced; `_logged` are those whose sync has not begun. As a whole it continues to
    `_renamed` (in place, its name not durable), to `_naming` (the name is being synced), and is
    dropped when it is durable.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self.seal: Callable[[str, bytes], bytes] | None = None  # None: they are not encrypted
        self._disk = disk
        self._files = open_files(disk)
        self._folder = folder
        self._written: dict[str, WrittenState] = {}
        self._urgent: dict[str, StateChange] = {}
        self._waiting: dict[str, StateChange] = {}
        self._logged: dict[str, StateChange] = {}
        self._writing: list[StateChange] = []
        self._in_flight: dict[str, list[StateChange]] = {}  # the same by consumer, during a commit
        self._renamed: dict[str, StateChange] = {}
        self._naming: dict[str, StateChange] = {}
        self._logs: dict[int, AckLogFile] = {}
        self._log: AckLogFile | None = None  # the one that is written
        self._last_number = 0
        self._urgent_commits = 0
        self._committing: Commit | None = None
        self._is_folding = False
        self._ticket = 0

    # ---------------------------------------------------------------- what is to be written

    def mark(self, consumer: str, source: StateSource, *, is_urgent: bool = False) -> int:
        """Note that a state has changed; returns the ticket that identifies it until it is on
        disk.
        """
        if is_urgent:
            return self.mark_urgent(consumer, source)
        self._take_ticket(consumer, source)
        self._wait(StateChange(consumer, self._ticket, is_lazy=True), self._waiting)
        return self._ticket

    def mark_urgent(self, consumer: str, source: StateSource) -> int:
        """Note that a state has changed, and that a client waits for it; returns the ticket."""
        self._take_ticket(consumer, source)
        self._wait(StateChange(consumer, self._ticket, is_lazy=False), self._urgent)
        return self._ticket

    def _take_ticket(self, consumer: str, source: StateSource) -> None:
        self._ticket += 1
        written = self._written.get(consumer)
        if written is None:
            self._written[consumer] = WrittenState(source)
        else:
            written.source = source

    def _wait(self, change: StateChange, wanted: dict[str, StateChange]) -> None:
        """Queue the newest state of a consumer under its oldest ticket, in the table `wanted` or a
        more urgent one.
        """
        earlier = self._waiting.pop(change.consumer, None) if self._waiting else None
        if earlier is not None:
            change.join(earlier)
        earlier = self._urgent.pop(change.consumer, None) if self._urgent else None
        if earlier is not None:
            change.join(earlier)
            wanted = self._urgent
        wanted[change.consumer] = change

    def is_waiting(self, consumer: str) -> bool:
        """Whether a change of a consumer is neither in a commit nor in the log yet."""
        waiting = self._waiting.get(consumer)
        return consumer in self._urgent or (waiting is not None and waiting.ticket != _NO_TICKET)

    def found(self, logs: Mapping[int, Iterable[str]], number: int) -> None:
        """Note the logs found, with records of these consumers, and an o.dat with this number. No
        number is used again; a log is removed when its consumers have a new o.dat.
        """
        self._last_number = max(self._last_number, number)
        for log, users in logs.items():
            self._last_number = max(self._last_number, log)
            if log not in self._logs:
                found = AckLogFile(log, self._log_path(log), dict.fromkeys(users, 0))
                self._logs[log] = found

    def forget(self, consumer: str) -> None:
        """Write nothing more of a consumer, which is deleted."""
        for table in (self._urgent, self._waiting, self._logged, self._renamed, self._naming):
            table.pop(consumer, None)
        for change in self._writing:
            change.is_deleted = change.is_deleted or change.consumer == consumer
        if self._committing is not None:
            # The folder is about to be removed: that must not end the commit for the others.
            self._committing.given_up.add(f"{self._folder}/{consumer}")
        self._in_flight.pop(consumer, None)
        self._written.pop(consumer, None)
        for log in self._logs.values():
            log.users.pop(consumer, None)

    def fold(self) -> None:
        """Write everything as a whole from now on, including states with records in a log; for the
        end.
        """
        self._is_folding = True
        for log in self._logs.values():
            self._fold_users(log)

    def fold_quiet(self) -> bool:
        """Fold small states with records in the log into whole states with the next commit; called
        after a quiet time. False if there are none.
        """
        if self._log is not None:
            self._log.rest()
            for consumer in self._log.users:
                written = self._written.get(consumer)
                if written is not None and written.source.entry_count <= SMALL_ENTRIES_MAX:
                    self._wait_for_fold(consumer)
        return bool(self._waiting)

    def _fold_users(self, log: AckLogFile) -> None:
        for consumer in log.users:
            if consumer in self._written:
                self._wait_for_fold(consumer)

    def _wait_for_fold(self, consumer: str) -> None:
        """Queue a state that is already in the log to be written as a whole, without urgency."""
        self._wait(StateChange(consumer, _NO_TICKET, is_lazy=True), self._waiting)

    @property
    def is_dirty(self) -> bool:
        """Whether a commit has anything to do."""
        return bool(self._urgent or self._waiting or self._logged or self._renamed)

    @property
    def wants_commit(self) -> bool:
        """Whether a commit has anything to do that would not be done with the next save anyway."""
        return bool(self._urgent or self._waiting or self._renamed)

    def kept_ticket(self, consumer: str) -> int:
        """Every state of a consumer marked with this ticket or a lower one is durable."""
        kept = self.written_ticket(consumer)
        for table in (self._naming, self._renamed, self._logged):
            if (change := table.get(consumer)) is not None:
                kept = min(kept, change.ticket - 1)
        for change in self._in_flight.get(consumer, ()):
            kept = min(kept, change.ticket - 1)
        return kept

    def written_ticket(self, consumer: str) -> int:
        """Every state of a consumer marked with this ticket or a lower one survives a kill."""
        written = self._ticket
        for table in (self._urgent, self._waiting):
            if (change := table.get(consumer)) is not None:
                written = min(written, change.ticket - 1)
        for change in self._in_flight.get(consumer, ()):
            if change.number and not change.is_logged:
                written = min(written, change.ticket - 1)
        return written

    def _changes(self) -> Iterator[StateChange]:
        """All changes that are not durable."""
        yield from self._naming.values()
        yield from self._renamed.values()
        yield from (change for change in self._writing if not change.is_deleted)
        yield from self._logged.values()
        yield from self._urgent.values()
        yield from self._waiting.values()

    # ---------------------------------------------------------------- commits

    def begin_commit(self, now_ns: int) -> Commit | None:
        """Write the waiting states; None if there are none, or a commit is in progress.

        After StoreError everything is still waiting, to be tried again.
        """
        if self._committing is not None or not self.is_dirty:
            return None
        folders: list[str] = []
        if self._renamed:
            self._naming, self._renamed = self._renamed, {}
            folders = [f"{self._folder}/{consumer}" for consumer in self._naming]
        try:
            self._end_large_log()
            self._write_urgent(now_ns)
            for change in self._some_waiting() if self._waiting else ():
                # Not before it is written: changes that were taken and not kept are missing in all
                # records that follow, so the state has to be written as a whole.
                self._write(change, now_ns)
                del self._waiting[change.consumer]
            asides: list[DiskFile] = []
            files: list[DiskFile] = []
            has_records = bool(self._logged)
            for change in self._writing:
                if change.file is not None:
                    asides.append(change.file)
                has_records = has_records or not change.number
            if has_records:
                self._pin_log(files, folders)
        except StoreError:
            self._write_all_again()
            raise
        self._writing.extend(self._logged.values())
        self._logged = {}
        for change in self._writing:
            self._in_flight.setdefault(change.consumer, []).append(change)
        self._committing = Commit(
            self._disk, 0, (0, 0), files=files, folders=folders, asides=asides
        )
        return self._committing

    def _some_waiting(self) -> list[StateChange]:
        """The states without urgency that may be written as a whole now."""
        room = COMMIT_FILES_MAX
        if self._writing:
            self._urgent_commits += 1
            room = 1 if self._urgent_commits % URGENT_COMMITS_PER_FILE == 1 else 0
        return list(islice(self._waiting.values(), room))

    def _write_urgent(self, now_ns: int) -> None:
        """Write the urgent states: to the log if possible, and as many others as a commit may
        have.
        """
        room = COMMIT_FILES_MAX
        for change in list(self._urgent.values()):
            if self._append(change, now_ns):
                del self._urgent[change.consumer]
                self._writing.append(change)
                if self._is_fold_due(change):
                    self._wait_for_fold(change.consumer)
            elif room > 0:
                room -= 1
                del self._urgent[change.consumer]
                self._write_aside(change, now_ns)

    def _write(self, change: StateChange, now_ns: int) -> None:
        """Write a change to the log or as a whole, whichever is cheaper."""
        is_whole = change.wants_whole or (
            self._is_small(change)
            and (self._written[change.consumer].log is None or self._is_fold_due(change))
        )
        if not is_whole and self._append(change, now_ns):
            self._writing.append(change)
        else:
            self._write_aside(change, now_ns)

    def _is_small(self, change: StateChange) -> bool:
        return self._written[change.consumer].source.entry_count <= SMALL_ENTRIES_MAX

    def _is_fold_due(self, change: StateChange) -> bool:
        """Whether a small state has been only in the log for long enough."""
        if change.wants_whole:
            return True
        if not change.is_lazy or not self._is_small(change):
            return False
        written = self._written[change.consumer]
        written.saves += 1
        return written.saves >= SAVES_PER_FOLD

    def write(self, consumer: str, now_ns: int) -> bool:
        """Write a waiting state so that it survives this process; false if that takes a commit."""
        change = self._urgent.get(consumer)
        if change is None:
            return consumer not in self._waiting
        try:
            if not self._append(change, now_ns) and not self._append_to_both(change):
                return False
        except StoreError:
            self._written[consumer].start_over()
            return False
        del self._urgent[consumer]
        if (earlier := self._logged.get(consumer)) is not None:
            change.ticket = min(change.ticket, earlier.ticket)
        self._logged[consumer] = change
        if self._is_fold_due(change):
            self._wait_for_fold(consumer)
        return True

    # ---------------------------------------------------------------- the log

    def _append(self, change: StateChange, now_ns: int) -> bool:
        """Write the changes to the log; false if the state is to be written as a whole."""
        written = self._written[change.consumer]
        if (
            not written.number
            or self._is_folding
            or written.log_bytes >= max(LOG_BYTES_MIN, written.whole_bytes)
            or (written.log is not None and written.log is not self._log)
            or (changes := written.source.take_changes()) is None
        ):
            return False
        log = self._log if self._log is not None else self._new_log(now_ns)
        if written.log is None:
            written.prefix = record_prefix(change.consumer, written.number)
            written.log = log
            log.users[change.consumer] = written.number
        written.log_bytes += log.append(written.prefix, changes)
        return True

    def _append_to_both(self, change: StateChange) -> bool:
        """Write changes to the log while another o.dat is in progress, once for it and once for the
        one that it replaces: whichever exists after a kill has its record. So clients that wait
        only for the system do not wait for the disk. False if that is not possible.
        """
        written, log = self._written[change.consumer], self._log
        if not written.replaced_prefix or log is None or self._is_folding:
            return False
        number = 0
        for whole in self._in_flight.get(change.consumer, ()):
            number = max(number, whole.number)
        if not number or (changes := written.source.take_changes()) is None:
            return False
        log.append(written.replaced_prefix, changes)
        written.prefix = record_prefix(change.consumer, number)
        written.log = log
        log.users[change.consumer] = number
        written.log_bytes += log.append(written.prefix, changes)
        return True

    def _append_before_whole(self, change: StateChange) -> bytes:
        """Write the changes that the next o.dat will contain to the log, for the time until it is
        in place; returns the prefix of records for the old one. Empty if there is none.
        """
        written = self._written[change.consumer]
        if written.log is None or written.log is not self._log or not written.number:
            return b""
        with suppress(StoreError):
            if (changes := written.source.take_changes()) is not None:
                written.log.append(written.prefix, changes)
                change.is_logged = True
                return written.prefix
        return b""

    def _new_log(self, now_ns: int) -> AckLogFile:
        """Create the log for future records."""
        number = self._next_number(now_ns)
        log = AckLogFile(number, self._log_path(number))
        log.create(self._files)
        self._log = self._logs[number] = log
        return log

    def _pin_log(self, files: list[DiskFile], folders: list[str]) -> None:
        """Have a commit sync the log, and its name if it is new."""
        log = self._log
        assert log is not None, "what was written to a log is in this one"
        if not log.is_named:
            folders.append(self._log_folder)
        if (file := log.pin()) is not None:
            files.append(file)

    def _end_large_log(self) -> None:
        """Continue with another log, once the consumers with records in this one are written as a
        whole; not before all of it is being synced.
        """
        log = self._log
        if log is None or log.size < LOG_FILE_BYTES_MIN or self._logged:
            return
        users = [self._written[consumer] for consumer in log.users if consumer in self._written]
        if log.size >= sum(written.whole_bytes for written in users):
            self._leave_log()

    def _leave_log(self) -> None:
        """Close the log; consumers with records in it need an o.dat."""
        log, self._log = self._log, None
        if log is not None:
            log.close()
            self._fold_users(log)

    def _remove_unused_logs(self) -> None:
        """Remove logs whose records are all obsolete."""
        for log in [log for log in self._logs.values() if not log.users]:
            if log is self._log:
                self._leave_log()
            del self._logs[log.number]
            # One that is left over is found by the next start.
            with suppress(StoreError):
                self._disk.remove(log.path)

    @property
    def _log_folder(self) -> str:
        return self._folder.rpartition("/")[0]

    def _log_path(self, number: int) -> str:
        return f"{self._log_folder}/{log_name(number)}"

    def _next_number(self, now_ns: int) -> int:
        self._last_number = next_number(self._last_number, now_ns)
        return self._last_number

    # ---------------------------------------------------------------- whole states

    def _write_aside(self, change: StateChange, now_ns: int) -> None:
        self._writing.append(change)
        written = self._written[change.consumer]
        replaced_prefix = self._append_before_whole(change)
        written.start_over()
        written.replaced_prefix = replaced_prefix
        written.saves = 0
        change.number = self._next_number(now_ns)
        content = with_trailer(written.source.encode_whole(now_ns), change.number)
        if self.seal is not None:
            content = self.seal(change.consumer, content)
        change.whole_bytes = len(content)
        change.file = self._disk.create(self._path(change) + TEMPORARY_SUFFIX, replace=True)
        change.file.write(content, 0)

    def finish_commit(self, commit: Commit) -> None:
        """End a commit in the loop. Raises its error; then everything is waiting again."""
        assert commit is self._committing
        self._committing = None
        if self._log is not None:
            self._log.unpin()
        if commit.error is not None:
            self._write_all_again()
            raise commit.error
        if self._log is not None and not self._log.is_named and self._log_folder in commit.folders:
            self._log.is_named = True
        if self._naming:
            self._end_naming()
        self._in_flight = {}
        while self._writing:
            change = self._writing[-1]
            if change.number and not change.is_deleted:
                try:
                    self._put_in_place(change)
                except StoreError:
                    self._write_all_again()
                    raise
            self._close_file(self._writing.pop())
        self._remove_unused_logs()

    def _end_naming(self) -> None:
        """Drop the records of states that are durable as a whole now."""
        for consumer, change in self._naming.items():
            for log in self._logs.values():
                if log.users.get(consumer, change.number) < change.number:
                    del log.users[consumer]
        self._naming = {}

    def _put_in_place(self, change: StateChange) -> None:
        """Rename a whole state that was synced."""
        self._disk.rename(self._path(change) + TEMPORARY_SUFFIX, self._path(change))
        written = self._written[change.consumer]
        written.number = change.number
        written.whole_bytes = change.whole_bytes
        self._renamed[change.consumer] = change

    def drop_commit(self) -> None:
        """End a commit without its result: everything is waiting again."""
        self._committing = None
        if self._log is not None:
            self._log.unpin()
        self._write_all_again()

    def commit(self, now_ns: int) -> None:
        """Run all commits now, in this thread; for tests, tools and the end."""
        while (commit := self.begin_commit(now_ns)) is not None:
            commit.run()
            self.finish_commit(commit)

    def close(self, now_ns: int) -> None:
        """Write everything as a whole and remove the logs."""
        self.fold()
        self.commit(now_ns)
        self._remove_unused_logs()

    # ---------------------------------------------------------------- failures

    def _write_all_again(self) -> None:
        """Write everything as a whole, because after a failure it is unknown what is durable; the
        records in the log count until then.
        """
        urgent = set(self._urgent)
        changes = list(self._changes())
        self._close(*self._writing)
        self._urgent, self._waiting, self._logged = {}, {}, {}
        self._writing, self._renamed, self._naming, self._in_flight = [], {}, {}, {}
        for change in changes:
            self._written[change.consumer].start_over()
            again = StateChange(change.consumer, change.ticket, is_lazy=change.is_lazy)
            self._wait(again, self._urgent if change.consumer in urgent else self._waiting)
        self._leave_log()

    def _close(self, *changes: StateChange) -> None:
        for change in changes:
            self._close_file(change)

    def _close_file(self, change: StateChange) -> None:
        if change.file is not None:
            change.file.close()
            change.file = None

    def _path(self, change: StateChange) -> str:
        return f"{self._folder}/{change.consumer}/{CONSUMER_FILE}"


class ConsumerFiles(SyncTarget):
    """Consumer states for the syncer, with a clock for the times in the files.

    A round of the syncer is not enough to know that a state is durable, because names become
    durable with the commit after: `on_progress` is called when `states` may know more.

    A consumer passes over messages that a limit has removed. If a kill undoes the messages that
    caused the removal, the removed ones exist again, and a state that knows of the removal would
    claim that they were acknowledged. So `write_stream` hands the stream to the system before any
    state.
    """

    def __init__(
        self,
        states: ConsumerStates,
        wall_ns: Callable[[], int],
        on_progress: Callable[[], None] = lambda: None,
        write_stream: Callable[[], None] = lambda: None,
        sync_soon: Callable[[], None] = lambda: None,
    ) -> None:
        # Nothing is written: it belongs to something that is not durable yet.
        self.is_fenced = False
        self.states = states
        self._sync_soon = sync_soon
        self._wall_ns = wall_ns
        self._on_progress = on_progress
        self._write_stream = write_stream

    def has_changes(self) -> bool:
        """Whether a commit has anything to do."""
        return self.states.is_dirty

    def wants_another(self) -> bool:
        """See `SyncTarget`. Changes that are only to be synced within the interval of the stream
        are not worth a commit of their own: with one for each, no two would share any.
        """
        return self.states.wants_commit

    def mark_idle(self) -> None:
        """See `SyncTarget`."""
        if self.states.fold_quiet():
            self._sync_soon()

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
        # The time is only needed for the name of a new log.
        return self.states.write(consumer, self._wall_ns() if self.states._log is None else 0)

    def finish_commit(self, commit: Commit) -> None:
        """See `ConsumerStates.finish_commit`."""
        self.states.finish_commit(commit)
        self._on_progress()

    def drop_commit(self, commit: Commit) -> None:  # noqa: ARG002
        """See `SyncTarget`."""
        self.states.drop_commit()
