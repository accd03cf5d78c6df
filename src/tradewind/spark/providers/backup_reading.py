"""Reads backup files of a stream.

Owns the two archive formats: the current one, which is a list of messages, and the tar of block
files that servers before 2.15 wrote. Both are S2 streams, which cannot be read from the middle, so
a backup is one task. The module never holds more in memory than needed; a tar is unpacked into a
temporary folder of the executor.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from tradewind.errors import CorruptRecord
from tradewind.spark.columnar.arrow import batches
from tradewind.spark.contract.provider_contract import ReadState
from tradewind.spark.errors import OptionError
from tradewind.spark.options.source_options import SourceOptions
from tradewind.spark.providers.blocks import BlocksProvider
from tradewind.store.backup.archive import ArchiveError
from tradewind.store.backup.restore_types import NoRoomError
from tradewind.store.backup.tar_folder import TarFolder
from tradewind.store.backup.tar_reader import TarReader
from tradewind.store.files.disk import OsDisk
from tradewind.store.format.layout import name_problem, stream_folder
from tradewind.store.format.s2 import Decompressor, S2Error

if TYPE_CHECKING:
    import pyarrow as pa

    from tradewind.spark.contract.filters import RowFilter

ARCHIVE_FILES: Final = ("stream.tar.s2", "stream.arc.s2")
DESCRIPTION_FILE: Final = "backup.json"
MAGIC: Final = b"NATSARC1"
READ_BYTES: Final = 1024 * 1024
ROWS_PER_BATCH: Final = 16_384
# The size that a file may have; a limit against files that are made to fill the memory or the disk.
PLAIN_BYTES_MAX: Final = 1 << 42


@dataclass(frozen=True, slots=True)
class ArchiveTask:
    """A whole backup."""

    path: str
    stream: str
    rows: RowFilter

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Task`."""
        with Path(self.path).open("rb") as file:
            plain = PlainReader(file, self.path)
            head = plain.peek(len(MAGIC))
            if head == MAGIC:
                plain.skip(len(MAGIC))
                yield from self._messages(plain, columns)
            else:
                yield from self._blocks(plain, columns)

    def _messages(self, plain: PlainReader, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        decoder = self.rows.decoder()
        held = b""
        is_ended = False
        while not is_ended:
            # An entry that is not whole is looked at again: not as often as there are pieces of it.
            part = plain.read(max(READ_BYTES, len(held)))
            if not part:
                raise CorruptRecord(self.path, 0, "the backup ends without its end mark")
            held += part
            used, is_ended = decoder.take_archive(held)
            held = held[used:]
            if decoder.row_count >= ROWS_PER_BATCH or is_ended:
                yield from batches(decoder, self.stream, columns)
                decoder.clear()

    def _blocks(self, plain: PlainReader, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """A tar of the stream's folder."""
        with tempfile.TemporaryDirectory(prefix="tradewind-backup-") as root:
            target = Path(root, stream_folder("$G", self.stream))
            target.mkdir(parents=True)
            self._unpack(plain, root, target)
            options = SourceOptions(stream=(self.stream,), store_dir=root)
            for task in BlocksProvider(options).tasks(self.stream, self.rows, 0):
                # A message that is too old by now was not when the backup was made.
                unaged = replace(task, age_floor_ns=-(1 << 63), ttl_now_ns=0)
                yield from unaged.batches(columns)

    def _unpack(self, plain: PlainReader, root: str, target: Path) -> None:
        """Write the members of the tar below `target`."""
        members = TarFolder(OsDisk(root), str(target), PLAIN_BYTES_MAX, is_durable=False)
        reader = TarReader(members)
        try:
            while part := plain.read(READ_BYTES):
                reader.feed(part)
            reader.finish()
        except (ArchiveError, NoRoomError) as error:
            raise CorruptRecord(
                self.path, reader.offset, f"not a backup of a stream: {error}"
            ) from error
        finally:
            members.close()


class PlainReader:
    """The content of an S2 file, read from its begin to its end."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._file = file
        self._path = path
        self._decoder = Decompressor(PLAIN_BYTES_MAX)
        self._held = b""
        self._is_ended = False

    def _fill(self, size: int) -> None:
        try:
            while len(self._held) < size and not self._is_ended:
                part = b"" if self._decoder.pending else self._file.read(READ_BYTES)
                if part or self._decoder.pending:
                    self._held += self._decoder.feed(part)
                else:
                    self._decoder.finish()
                    self._is_ended = True
        except S2Error as error:
            raise CorruptRecord(self._path, error.offset, error.reason) from error

    def peek(self, size: int) -> bytes:
        """The next bytes, which stay."""
        self._fill(size)
        return self._held[:size]

    def skip(self, size: int) -> None:
        """Pass over bytes that were peeked at."""
        self._held = self._held[size:]

    def read(self, size: int) -> bytes:
        """At most this many bytes; empty at the end."""
        self._fill(size)
        result, self._held = self._held[:size], self._held[size:]
        return result


class ArchiveProvider:
    """The one stream of a backup: a folder as the nats command line makes it, or the file in it."""

    def __init__(self, options: SourceOptions) -> None:
        given = Path(options.archive)
        folder = given if given.is_dir() else given.parent
        path = given
        if given.is_dir():
            found = [given / name for name in ARCHIVE_FILES if (given / name).is_file()]
            if not found:
                raise OptionError("archive", f"{given}: it contains no {ARCHIVE_FILES[0]}")
            path = found[0]
        elif not given.is_file():
            raise OptionError("archive", f"{given}: no such file")
        self._path = str(path.absolute())
        self._name = _name_in(folder / DESCRIPTION_FILE)
        if len(options.stream) == 1:
            self._name = options.stream[0]
        if not self._name:
            raise OptionError(
                "stream", f"specify the name of the stream; {folder} has no backup.json"
            )
        if problem := name_problem(self._name):
            raise OptionError("archive", f"{folder}: the stream name {self._name!r} {problem}")

    def states(self) -> list[ReadState]:
        """See `Provider`; how much is in it shows when it is read."""
        return [ReadState(self._name, Path(self._path).stat().st_mtime_ns, 1, 0)]

    def tasks(self, name: str, rows: RowFilter, partitions_min: int) -> list[ArchiveTask]:
        """See `Provider`."""
        del partitions_min
        return [ArchiveTask(self._path, name, rows)]

    def close(self) -> None:
        """Nothing is open between two calls."""


def _name_in(path: Path) -> str:
    """The name of the stream in a backup.json; empty if there is none."""
    try:
        document: dict[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        return str(document["config"]["name"])
    except FileNotFoundError:
        return ""
    except (msgspec.DecodeError, KeyError, TypeError):
        raise CorruptRecord(str(path), 0, "it has no config with the name of a stream") from None
