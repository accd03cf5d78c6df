"""A log of acknowledgements (`ack_log`) as a file: appending to it, and having it synced.

Owns where its records end, and the zeros after them. A sync that changes the size of a file has to
write that as well, in many file systems by a commit of their journal, which takes several times as
long as the record itself. So the file is extended in steps, by zeros, and records overwrite those.
Zeros are no record, so a reader stops there. How often that happens grows with the file: a small
log stays as small as a file can be.

The descriptor is one of those that the block files share (`open_files`): it stays open while the
log is in use and descriptors are left.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tradewind.errors import StoreError
from tradewind.store.format.ack_frame import frame_record
from tradewind.store.format.ack_log import log_header

if TYPE_CHECKING:
    from tradewind.store.files.open_files import BlockFile, OpenFiles

# A file is extended to a multiple of this, by as much as it has, or by the larger one at most.
EXTEND_BYTES_MIN: Final = 4096
EXTEND_BYTES_MAX: Final = 262_144


class AckLogFile:
    """An acknowledgement log. `users` are the consumers with effective records in it, each with the
    number of the o.dat that its last record follows.
    """

    def __init__(self, number: int, path: str, users: dict[str, int] | None = None) -> None:
        self.number = number
        self.path = path
        self.users = {} if users is None else users
        self.size = 0
        self.is_named = False  # its name is durable
        self._extended = 0
        self._file: BlockFile | None = None
        self._is_pinned = False

    def create(self, files: OpenFiles) -> None:
        """Create the file; replaces one of this name."""
        self._file = files.create(self.path)

    def append(self, prefix: bytes, changes: bytes) -> int:
        """Write a record, after the beginning of the file if that is missing; returns its size."""
        file = self._file
        assert file is not None, "a log that is written was created"
        if not self.size:
            # Even if the disk has refused it before: nothing counts in a log without it.
            header = log_header(self.number)
            file.write(header, 0)
            self.size = len(header)
        record = frame_record(self.number, self.size, prefix, changes)
        end = self.size + len(record)
        if end > self._extended:
            self._extend(end)
        file.write(record, self.size)
        self.size = end
        return len(record)

    def _extend(self, end: int) -> None:
        """Write zeros after the end; without room for them, the record may still fit."""
        step = min(max(end, EXTEND_BYTES_MIN), EXTEND_BYTES_MAX)
        extended = (end + step) // EXTEND_BYTES_MIN * EXTEND_BYTES_MIN
        assert self._file is not None
        with suppress(StoreError):
            self._file.write(bytes(extended - end), end)
            self._extended = extended

    def pin(self) -> BlockFile | None:
        """The file, for a commit that syncs what was written; None if that is synced already."""
        assert self._file is not None
        self._is_pinned = self._file.pin()
        return self._file if self._is_pinned else None

    def unpin(self) -> None:
        """Unpin the file; called when the commit has ended."""
        if self._is_pinned:
            self._is_pinned = False
            assert self._file is not None
            self._file.unpin()

    def rest(self) -> None:
        """Allow the descriptor to be closed; called when no write is expected soon."""
        if self._file is not None:
            self._file.rest()

    def close(self) -> None:
        """Close the file for good."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
