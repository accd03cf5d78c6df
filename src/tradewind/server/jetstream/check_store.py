"""`tradewind-server --check-store DIR`: verify an unused store without changing it.

Owns the walk over all accounts and streams, the results and their display. The recovery code of the
store does the work on an `UnchangedDisk`: it is the same code that a start runs, it verifies the
hash of every record, and repairs are only reported. Then index.db is opened and compared with the
blocks. The keys of encrypted streams come from the configuration file, if one is given.

Exit codes: 0 no damage, 1 damage was found, 2 the check or a part of it could not be done.
"""

from __future__ import annotations

import fcntl
import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from tradewind.errors import CorruptRecord, StoreError
from tradewind.server.jetstream.progress_lines import ProgressLines
from tradewind.server.jetstream.unchanged_disk import UnchangedDisk
from tradewind.store.files.disk import MissingFile, lock_owner
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.stream_folder import LOCK_FILE, NotReadable, StoreRoot, StreamFolder
from tradewind.store.format.index_file import decode_index
from tradewind.store.format.layout import (
    BATCHES_FOLDER,
    INDEX_FILE,
    JETSTREAM_FOLDER,
    MESSAGES_FOLDER,
    SCHEDULES_FILE,
    SOURCES_FILE,
    TIMERS_FILE,
    block_numbers,
)
from tradewind.store.format.side_files import decode_schedules, decode_sources
from tradewind.store.format.timing_wheel import TimingWheel
from tradewind.store.repair.damage import DAMAGE_FOLDER
from tradewind.store.repair.index_summary import fits

if TYPE_CHECKING:
    from tradewind.store.files.vault import MainKeyRing
    from tradewind.store.folder.recover import RecoveryReport

CLEAN, DAMAGED, CANNOT_RUN = 0, 1, 2
USAGE = "usage: tradewind-server --check-store DIR [--json FILE] [-c FILE]"


class CannotRun(StoreError):  # noqa: N818 - it names the state of the check
    """The folder holds nothing that could be checked."""


@dataclass(slots=True)
class Finding:
    """One damaged place: the file, the location in it, and the messages it costs."""

    path: str
    text: str
    offset: int = 0
    size: int = 0
    first_lost: int = 0
    last_lost: int = 0


@dataclass(slots=True)
class StreamResult:
    """The result for one stream's folder.

    `result` is "clean", "damaged" or "not checked". `notes` are facts that are not damage, such as
    a write that a crash has cut off.
    """

    account: str
    stream: str
    result: str = "clean"
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    blocks: int = 0
    records: int = 0
    consumers: int = 0
    damage: list[Finding] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def damaged(self, path: str, text: str, **place: int) -> None:
        """Record some damage."""
        self.result = "damaged"
        self.damage.append(Finding(path, text, **place))


@dataclass(slots=True)
class StoreResult:
    """The whole report; `--json` writes this structure."""

    folder: str
    result: str = "clean"
    streams: list[StreamResult] = field(default_factory=list)
    bytes_read: int = 0
    seconds: float = 0

    @property
    def exit_code(self) -> int:
        """The exit code; damage takes precedence over parts that could not be checked."""
        return {"clean": CLEAN, "damaged": DAMAGED}.get(self.result, CANNOT_RUN)


class StreamCheck:
    """The check of one stream; each method adds to the result and raises no error of the store."""

    def __init__(
        self,
        disk: Callable[[], UnchangedDisk],
        folder: StreamFolder,
        ring: MainKeyRing | None = None,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._ring = ring
        self._messages = f"{folder.path}/{MESSAGES_FOLDER}"
        self.result = StreamResult(folder.account, folder.stream)

    def run(self) -> StreamResult:
        """Run all checks, and return the result."""
        try:
            self._check()
        except NotReadable as error:
            self.result.result = "not checked"
            self.result.notes.append(str(error))
        except CorruptRecord as error:
            self.result.damaged(error.path, error.reason, offset=error.offset)
        except StoreError as error:
            self.result.damaged(self._folder.path, str(error))
        return self.result

    def _check(self) -> None:
        disk = self._folder.disk
        if self._folder.is_unfinished():
            self.result.notes.append("the creation of this stream was cut off; it holds no data")
            return
        try:
            self._folder.read_meta()
        except MissingFile as error:
            self.result.damaged(
                error.path,
                "the file is missing, so the stream's configuration is unknown; its messages are"
                " untouched: put the file and meta.sum back from a backup",
            )
            return
        last_seq = self._check_blocks()
        self._check_index(last_seq)
        self._check_side_files()
        self._check_consumers()
        if disk.exists(f"{self._folder.path}/{DAMAGE_FOLDER}"):
            self.result.notes.append(
                f"earlier damage was set aside in {self._folder.path}/{DAMAGE_FOLDER}"
            )
        if disk.exists(f"{self._folder.path}/{BATCHES_FOLDER}"):
            self.result.notes.append("unfinished batches were not checked")

    def _check_blocks(self) -> int:
        """Check every record of every block; returns the last sequence in them."""
        disk = self._disk()
        index_path = f"{self._messages}/{INDEX_FILE}"
        if disk.exists(index_path):
            disk.remove(index_path)
        store, report = self._open(disk)
        try:
            self._take_report(report)
            self._take_state(store)
            self._recount(store, self._messages)
        finally:
            close_blocks(store)
        return self.result.last_seq

    def _open(self, disk: UnchangedDisk) -> tuple[FileStore, RecoveryReport]:
        folder = StreamFolder(
            disk,
            disk.root,
            self._folder.account,
            self._folder.stream,
            ring=self._ring,
            converts=False,
        )
        # At time 0 nothing is too old.
        _, store, report = folder.open(0)
        return store, report

    def _take_state(self, store: FileStore) -> None:
        state, result = store.table.state, self.result
        result.messages, result.bytes = state.msgs, state.bytes
        result.first_seq, result.last_seq = state.first_seq, state.last_seq

    def _take_report(self, report: RecoveryReport) -> None:
        self.result.blocks, self.result.records = report.blocks, report.records
        self.result.lost = report.lost
        for entry in report.damage:
            path = f"{self._messages}/{entry.block}.blk"
            if entry.torn:
                self.result.notes.append(
                    f"{path}: byte {entry.offset}: {entry.size} bytes of a write that was cut off"
                )
                continue
            text = f"{entry.size} bytes are not records" if entry.size else "the file was cut"
            if entry.missing:
                text += f", {entry.missing} bytes are missing"
            text += _sequences_text(entry.first_lost, entry.last_lost)
            self.result.damaged(
                path,
                text,
                offset=entry.offset,
                size=entry.size,
                first_lost=entry.first_lost,
                last_lost=entry.last_lost,
            )

    def _recount(self, store: FileStore, path: str) -> None:
        try:
            store.verify()
        except AssertionError as error:
            self.result.damaged(path, f"the totals do not match the records: {error}")

    def _check_index(self, last_seq: int) -> None:
        """Check that the summary is intact, and correct if a start would trust it."""
        disk = self._disk()
        path = f"{self._messages}/{INDEX_FILE}"
        if not disk.exists(path):
            self.result.notes.append("there is no index.db; a start reads all blocks")
            return
        vault = self._folder.vault
        try:
            data = disk.read_file(path)
            if vault is not None:
                data = vault.unseal_index(data, path)
            index = decode_index(data, self._folder.stream, path)
        except CorruptRecord as error:
            self.result.damaged(path, error.reason, offset=error.offset)
            return
        if index.last_seq > last_seq:
            self.result.damaged(
                path,
                f"messages up to {index.last_seq} were stored, the blocks end at {last_seq}",
                first_lost=last_seq + 1,
                last_lost=index.last_seq,
            )
        numbers = block_numbers(disk.list_directory(self._messages))
        listed = [block.number for block in index.blocks]
        missing = sorted(set(listed) - set(numbers))
        if missing and listed[-1] in numbers:
            numbers = sorted({*numbers, *listed})
        store = FileStore(disk, self._messages, self._folder.stream, vault=vault)
        if vault is not None and listed[-1] in numbers:
            vault.blocks.read(listed[-1])
        if not fits(index, store, numbers):
            self.result.notes.append("index.db is older than the blocks; a start reads all of them")
            return
        if missing:
            # Nothing has been written since, so only a loss can explain it.
            for block in index.blocks:
                if block.number in missing:
                    first, last = block.first_seq, block.last_seq
                    self.result.damaged(
                        f"{self._messages}/{block.number}.blk",
                        "this block is missing" + _sequences_text(first, last),
                        first_lost=first,
                        last_lost=last,
                    )
            return
        if self.result.damage:
            self.result.notes.append("index.db was not compared with the damaged blocks")
            return
        store, _ = self._open(disk)
        try:
            self._take_state(store)
            self._recount(store, path)
        finally:
            close_blocks(store)

    def _check_side_files(self) -> None:
        for path, decode in (
            (f"{self._messages}/{TIMERS_FILE}", TimingWheel.decode),
            (f"{self._messages}/{SCHEDULES_FILE}", decode_schedules),
            (f"{self._folder.path}/{SOURCES_FILE}", decode_sources),
        ):
            try:
                decode(self._folder.disk.read_file(path), path)
            except MissingFile:
                continue
            except CorruptRecord as error:
                self.result.damaged(path, error.reason, offset=error.offset)

    def _check_consumers(self) -> None:
        consumers, skipped = self._folder.consumers()
        self.result.consumers = len(consumers)
        for consumer in consumers:
            if consumer.problem:
                self.result.damaged(consumer.meta.name, consumer.problem)
            delivered = consumer.state.delivered.stream_seq
            if delivered > self.result.last_seq:
                self.result.notes.append(
                    f"consumer {consumer.meta.name} was given {delivered},"
                    f" the stream ends at {self.result.last_seq}"
                )
        for folder in skipped:
            self.result.damaged(folder.path, folder.reason)


def _sequences_text(first: int, last: int) -> str:
    if last < first:
        return ""
    which = f"sequence {first} was" if first == last else f"sequences {first} to {last} were"
    return f"; {which} there"


def close_blocks(store: FileStore) -> None:
    """Release the mappings without writing anything."""
    for block in store.table.blocks:
        block.close()


def show(progress: ProgressLines, result: StreamResult) -> None:
    """Show one stream: its own line, and a line for each finding."""
    blocks = "1 block" if result.blocks == 1 else f"{result.blocks} blocks"
    progress.line(
        f"{result.account}/{result.stream}: {result.result}, {result.messages} messages,"
        f" {result.bytes} bytes in {blocks}, {result.consumers} consumers"
    )
    for finding in result.damage:
        place = f"byte {finding.offset}: " if finding.offset or finding.size else ""
        progress.line(f"    damage: {finding.path}: {place}{finding.text}")
    for note in result.notes:
        progress.line(f"    note: {note}")


def allow_many_files() -> None:
    """Raise the limit of open files: each mapped block of an open store takes a descriptor."""
    with suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def store_root(folder: str) -> str:
    """The store folder, given with or without its `jetstream`. CannotRun if there is none."""
    path = Path(folder)
    if (path / JETSTREAM_FOLDER).is_dir():
        return str(path.resolve())
    if path.name == JETSTREAM_FOLDER and path.is_dir():
        return str(path.resolve().parent)
    raise CannotRun(f"{folder}: not a store; a store folder contains a folder 'jetstream'")


def hold(root: str) -> int:
    """Keep a Tradewind server from starting on this store; -1 if none ever ran there. CannotRun if
    one is running.

    A server waits a moment for one that is ending; a user of this command sees why it failed, and
    can repeat it. The official server takes no lock, so whether it is running cannot be determined.
    """
    path = f"{root}/{JETSTREAM_FOLDER}/{LOCK_FILE}"
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise CannotRun(f"{path}: {os.strerror(error.errno or 0)}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        pid = lock_owner(descriptor)
        os.close(descriptor)
        who = f"process {pid}" if pid else "another process"
        raise CannotRun(f"{root}: {who} is using the store; stop it first") from None
    return descriptor


def check_folder(folder: str, output: TextIO, ring: MainKeyRing | None = None) -> StoreResult:
    """Check everything in a store folder and show the result. CannotRun says why it cannot."""
    started = time.monotonic()
    root = store_root(folder)
    result = StoreResult(root)
    descriptor = hold(root)
    try:
        progress = ProgressLines(output, _bytes_to_read(root))
        disk = UnchangedDisk(root, progress.add)
        store = StoreRoot(disk, disk.root, ring, converts=False)
        for account in store.accounts():
            for found in store.folders(account):
                progress.current = f"{account}/{found.stream}"
                check = StreamCheck(lambda: UnchangedDisk(root, progress.add), found, ring)
                result.streams.append(check.run())
                show(progress, result.streams[-1])
        result.bytes_read = progress.bytes_read
    except OSError as error:
        raise CannotRun(f"{error.filename or root}: {os.strerror(error.errno or 0)}") from None
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    found_results = {stream.result for stream in result.streams}
    for worst in ("damaged", "not checked"):
        if worst in found_results:
            result.result = worst
            break
    result.seconds = round(time.monotonic() - started, 3)
    progress.line(_summary(result))
    return result


def _bytes_to_read(root: str) -> int:
    """The size of all blocks; blocks with an index.db are read once more to compare it."""
    return sum(
        path.stat().st_size * (2 if (path.parent / INDEX_FILE).exists() else 1)
        for path in Path(root).rglob("*.blk")
    )


def _summary(result: StoreResult) -> str:
    counts = {
        kind: sum(stream.result == kind for stream in result.streams)
        for kind in ("clean", "damaged", "not checked")
    }
    return (
        f"{len(result.streams)} streams: {counts['clean']} clean, {counts['damaged']} damaged,"
        f" {counts['not checked']} not checked;"
        f" {result.bytes_read} bytes read in {result.seconds:.1f} s"
    )


def check_store(
    argv: list[str], output: TextIO | None = None, ring: MainKeyRing | None = None
) -> int:
    """Run the command with DIR and optional --json FILE; returns the exit code."""
    folder, json_path = _arguments(argv)
    if not folder:
        sys.stderr.write(USAGE + "\n")
        return CANNOT_RUN
    allow_many_files()
    try:
        result = check_folder(folder, output or sys.stdout, ring)
        if json_path:
            Path(json_path).write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    except StoreError as error:
        sys.stderr.write(f"check-store: {error}\n")
        return CANNOT_RUN
    except OSError as error:
        sys.stderr.write(f"check-store: {json_path}: {os.strerror(error.errno or 0)}\n")
        return CANNOT_RUN
    return result.exit_code


def _arguments(argv: list[str]) -> tuple[str, str]:
    """The values of DIR and FILE; both empty if the command line is wrong."""
    words, json_path = list(argv), ""
    if "--json" in words:
        at = words.index("--json")
        if at + 1 >= len(words):
            return "", ""
        json_path = words[at + 1]
        del words[at : at + 2]
    return (words[0], json_path) if len(words) == 1 else ("", "")
