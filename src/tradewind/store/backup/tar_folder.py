"""The members of a tar backup, written into the folder of a stream.

Owns which names such a backup has, how large each may be, and how many bytes they will count as.
Only these names are ever written, so no member can be written elsewhere; what a stream does not
need is passed over. Bytes are counted before they are written, and a compressed block counts with
what it announces that it holds, as the messages in it will.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tradewind.store.backup.archive import ArchiveError, read_uvarint
from tradewind.store.backup.restore_types import NoRoomError
from tradewind.store.format.layout import (
    INDEX_FILE,
    META_FILE,
    META_SUM_FILE,
    TIMERS_FILE,
    name_problem,
)
from tradewind.store.format.s2 import BLOCK_BYTES_MAX, is_compressed

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk, DiskFile

MEMBERS_MAX: Final = 1_000_000
INDEX_BYTES_MAX: Final = 64 * 1024 * 1024
# A configuration is no longer than a request; a state with a million pending messages has 8 MB.
META_BYTES_MAX: Final = 1024 * 1024
STATE_BYTES_MAX: Final = 8 * 1024 * 1024
# All consumers together: what they name is kept in memory until they are made.
CONSUMERS_BYTES_MAX: Final = 8 * 1024 * 1024
_ERRORS: Final = "errors.txt"
_BLOCK: Final = re.compile(r"msgs/[1-9]\d{0,9}\.blk", re.ASCII)
_CONSUMER: Final = re.compile(r"obs/([^/]{1,1024})/(meta\.inf|meta\.sum|o\.dat)")
_SIZES: Final = {
    META_FILE: META_BYTES_MAX,
    META_SUM_FILE: META_BYTES_MAX,
    _ERRORS: META_BYTES_MAX,
    f"msgs/{INDEX_FILE}": INDEX_BYTES_MAX,
    f"msgs/{TIMERS_FILE}": INDEX_BYTES_MAX,
}
_KEPT: Final = (META_FILE, _ERRORS)
# This much of a block shows whether it is compressed, and how large it is then.
_BLOCK_HEAD_BYTES: Final = 24
_SIZE_AT: Final = 4


class TarFolder:
    """A `MemberSink`: writes the folder at `path` as its members arrive.

    `bytes_allowed` is how much the backup may count; `bytes_counted` is what it counts so far.
    """

    def __init__(self, disk: Disk, path: str, bytes_allowed: int, *, is_durable: bool) -> None:
        self.bytes_allowed = bytes_allowed
        self.bytes_counted = 0
        self.meta: bytes | None = None
        self.has_sum = False
        self._disk = disk
        self._path = path
        self._is_durable = is_durable
        self._members = 0
        self._consumer_bytes = 0
        self._name = ""
        self._file: DiskFile | None = None
        self._size = self._written_bytes = 0
        self._head = bytearray()  # of a block
        self._kept = bytearray()

    def count(self, size: int) -> None:
        """Count more bytes; NoRoomError before any of them is written."""
        if self.bytes_counted + size > self.bytes_allowed:
            raise NoRoomError("the backup is larger than the remaining space")
        self.bytes_counted += size

    def begin(self, name: str, size: int) -> None:
        """See `MemberSink`."""
        self._members += 1
        if self._members > MEMBERS_MAX:
            raise ArchiveError(f"the backup has more than {MEMBERS_MAX} files")
        limit = self._size_max(name, size)
        self._name, self._size, self._written_bytes = name, size, 0
        self._head.clear()
        self._kept.clear()
        if limit is None:
            return
        if size > limit:
            raise ArchiveError(f"{name[:64]!r} has {size} bytes, more than {limit}")
        if name != _ERRORS:
            path = f"{self._path}/{name}"
            self._disk.make_directory(path.rpartition("/")[0])
            self._file = self._disk.create(path, replace=True)

    def _size_max(self, name: str, size: int) -> int | None:
        """The largest size of this file; None if it is not needed."""
        if _BLOCK.fullmatch(name):
            return BLOCK_BYTES_MAX
        consumer = _CONSUMER.fullmatch(name)
        if consumer is None:
            return _SIZES.get(name)
        if problem := name_problem(consumer[1]):
            raise ArchiveError(f"consumer name {consumer[1][:64]!r} {problem}")
        self._consumer_bytes += size
        if self._consumer_bytes > CONSUMERS_BYTES_MAX:
            raise ArchiveError(f"its consumers take more than {CONSUMERS_BYTES_MAX} bytes")
        return STATE_BYTES_MAX if consumer[2] == "o.dat" else META_BYTES_MAX

    def data(self, piece: memoryview) -> None:
        """See `MemberSink`."""
        if self._name in _KEPT:
            self._kept += piece
        if self._file is None:
            return
        missing = _BLOCK_HEAD_BYTES - len(self._head)
        if missing > 0:
            self._head += piece[:missing]
            if len(self._head) == min(_BLOCK_HEAD_BYTES, self._size):
                self._count_content()
        self._file.write(piece, self._written_bytes)
        self._written_bytes += len(piece)

    def _count_content(self) -> None:
        """Count the content of a compressed block, which is larger than the block."""
        if not _BLOCK.fullmatch(self._name) or not is_compressed(bytes(self._head)):
            return
        try:
            size, _ = read_uvarint(self._head, _SIZE_AT)
        except IndexError:
            size = BLOCK_BYTES_MAX + 1
        if size > BLOCK_BYTES_MAX:
            raise ArchiveError(f"{self._name!r} would hold more than {BLOCK_BYTES_MAX} bytes")
        self.count(max(size - self._size, 0))

    def end(self) -> None:
        """See `MemberSink`."""
        if self._name == _ERRORS:
            text = bytes(self._kept[:256]).decode("utf-8", "replace")
            raise ArchiveError(f"the backup failed: {text}")
        if self._name == META_FILE:
            self.meta = bytes(self._kept)
        self.has_sum = self.has_sum or self._name == META_SUM_FILE
        if self._file is not None and self._is_durable:
            self._file.sync()
        self.close()

    def close(self) -> None:
        """Close a file that is open."""
        if self._file is not None:
            self._file.close()
            self._file = None
