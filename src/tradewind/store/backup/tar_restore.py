"""Backups from before nats-server 2.15: a tar of the folder of a stream.

Owns turning the upload into a folder that can be opened. The tar is first kept as a file beside the
folder, because its parts can only be checked together. Then its members are written, and the folder
is opened like any folder of nats-server. Only the names that such a backup contains and only
regular files are accepted, so no member can be written elsewhere. It runs in worker threads, see
`restore`.
"""

from __future__ import annotations

import io
import re
import tarfile
import time
from typing import TYPE_CHECKING, Final

from tradewind.store.backup.archive import METADATA_BYTES_MAX, ArchiveError
from tradewind.store.backup.restore_types import NoRoomError, RestoredConsumer
from tradewind.store.files.open_files import OpenFiles
from tradewind.store.folder.stream_folder import limits_of
from tradewind.store.format.layout import (
    INDEX_FILE,
    META_FILE,
    META_SUM_FILE,
    TIMERS_FILE,
    name_problem,
)
from tradewind.store.format.meta import StreamMeta, decode_stream_meta
from tradewind.store.format.s2 import BLOCK_BYTES_MAX
from tradewind.store.table.message_store import MessageStore

if TYPE_CHECKING:
    from tradewind.store.backup.restore_types import RestorePlan
    from tradewind.store.files.disk import DiskFile
    from tradewind.store.folder.filestore import FileStore

BREATH_MESSAGES: Final = 256
MEMBERS_MAX: Final = 1_000_000
_BLOCK: Final = re.compile(r"msgs/[1-9]\d{0,9}\.blk", re.ASCII)
_SIDE_FILES: Final = (f"msgs/{INDEX_FILE}", f"msgs/{TIMERS_FILE}")
_CONSUMER: Final = re.compile(r"obs/([^/]+)/(meta\.inf|meta\.sum|o\.dat)")
_ERRORS: Final = "errors.txt"
_END_BYTES: Final = 512


class TarRestore:
    """The spooled upload, and the folder it becomes."""

    def __init__(self, plan: RestorePlan) -> None:
        self.claimed_bytes = 0
        self.consumers: list[RestoredConsumer] = []
        self._plan = plan
        if plan.staging is None:
            raise ArchiveError("a backup of this age needs a server with a store")
        self._folder = plan.staging
        self._disk = plan.staging.disk
        self._path = f"{plan.staging.path}.tar"
        self._disk.make_directory(plan.staging.path)
        self._file: DiskFile | None = self._disk.create(self._path, replace=True)
        self._size = 0
        self._store: FileStore | None = None

    @property
    def stored_bytes(self) -> int:
        """See `Restore`."""
        return self._size

    def take(self, plain: bytes, bytes_allowed: int) -> None:
        """See `Restore`."""
        assert self._file is not None
        if self._size + len(plain) > bytes_allowed:
            raise NoRoomError("the backup is larger than the remaining space")
        self._file.write(plain, self._size)
        self._size += len(plain)

    def finish(self, bytes_allowed: int) -> MessageStore | None:
        """See `Restore`."""
        del bytes_allowed  # what is stored is smaller than the tar
        assert self._file is not None
        created_ns = self._extract(self._file)
        self._remove_tar()
        folder, config = self._folder, self._plan.meta.config
        folder.update(StreamMeta(config, created_ns))
        found, skipped = folder.consumers()
        if skipped:
            raise ArchiveError(skipped[0].reason)
        self.consumers = [
            RestoredConsumer(stored.meta.name, stored.meta.config, stored.state) for stored in found
        ]
        # They are written anew when somebody has looked at their configuration.
        for stored in found:
            folder.remove_consumer(stored.meta.name)
        _, self._store, report = folder.open(self._plan.now_ns, files=OpenFiles(self._disk))
        if report.lost or any(not entry.torn for entry in report.damage):
            raise ArchiveError("the backup is damaged: messages in it do not match their checksums")
        if self._plan.is_in_memory:
            return self._copied(self._store)
        self._store.close()
        return None

    def _extract(self, file: DiskFile) -> int | None:
        """Write all members; returns when the stream was made."""
        created_ns, has_sum = None, False
        raw = _Bounded(_Spooled(file, self._size))
        try:
            with tarfile.open(fileobj=raw, mode="r:") as tar:
                for number, member in enumerate(tar):
                    data = self._read(tar, member, number)
                    if member.name == META_FILE:
                        meta = decode_stream_meta(data)
                        if meta.config["name"] != self._folder.stream:
                            raise ArchiveError("stream name may not be changed during restore")
                        created_ns = meta.created_ns
                    self._write(member.name, data)
                    has_sum = has_sum or member.name == META_SUM_FILE
                # What is not a header ends a tar for Python; only zeros do for us.
                is_whole = file.read(tar.offset, _END_BYTES) == bytes(_END_BYTES)
        except tarfile.TarError as error:
            raise ArchiveError(f"it is neither an archive nor a tar: {error}") from None
        if not has_sum or not is_whole:
            missing = "end" if has_sum else META_SUM_FILE
            raise ArchiveError(f"the backup has no {missing}: it is cut off")
        return created_ns

    def _read(self, tar: tarfile.TarFile, member: tarfile.TarInfo, number: int) -> bytes:
        if number >= MEMBERS_MAX:
            raise ArchiveError(f"the backup has more than {MEMBERS_MAX} files")
        if not member.isreg():
            raise ArchiveError(f"{member.name[:64]!r} in the backup is not a plain file")
        limit = BLOCK_BYTES_MAX if _BLOCK.fullmatch(member.name) else METADATA_BYTES_MAX
        if member.size > limit:
            raise ArchiveError(f"{member.name[:64]!r} has {member.size} bytes, more than {limit}")
        content = tar.extractfile(member)
        data = content.read() if content is not None else b""
        if len(data) != member.size:
            raise ArchiveError(f"{member.name[:64]!r} is cut off")
        return data

    def _write(self, name: str, data: bytes) -> None:
        """A member in its place. What a stream does not need is passed over."""
        if name == _ERRORS:
            raise ArchiveError(f"the backup failed: {data[:256].decode('utf-8', 'replace')}")
        consumer = _CONSUMER.fullmatch(name)
        if consumer is not None and (problem := name_problem(consumer[1])):
            raise ArchiveError(f"consumer name {consumer[1][:64]!r} {problem}")
        is_known = consumer or name in (META_FILE, META_SUM_FILE, *_SIDE_FILES)
        if not is_known and not _BLOCK.fullmatch(name):
            return
        path = f"{self._folder.path}/{name}"
        self._disk.make_directory(path.rpartition("/")[0])
        with self._disk.create(path, replace=True) as file:
            file.write(data, 0)
            file.sync()

    def _copied(self, store: FileStore) -> MessageStore:
        """The same messages in memory."""
        copy = MessageStore(store.name, limits_of(self._plan.meta.config))
        if store.table.first_seq > 0:
            copy.compact(store.table.first_seq)
        for count, message in enumerate(store.table.messages()):
            if message.seq > copy.last_seq + 1:
                copy.skip(message.seq - 1, copy.last_timestamp)
            copy.store(message.subject, message.header, message.payload, message.timestamp_ns)
            if count % BREATH_MESSAGES == 0:
                time.sleep(0)
        if store.table.last_seq > copy.last_seq:
            copy.skip(store.table.last_seq, copy.last_timestamp)
        copy.apply_limits(self._plan.now_ns)
        store.abandon()
        self._store = None
        self._folder.discard()
        return copy

    def _remove_tar(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._disk.remove_tree(self._path)

    def abandon(self) -> None:
        """See `Restore`."""
        if self._store is not None:
            self._store.abandon()
        self._remove_tar()


class _Bounded(io.BufferedReader):
    """Reads nothing larger than a member may be: names and attributes have sizes of their own."""

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > max(BLOCK_BYTES_MAX, METADATA_BYTES_MAX):
            raise ArchiveError(f"a header in the backup has {size} bytes")
        return super().read(size)


class _Spooled(io.RawIOBase):
    """A file of a `Disk` as Python's tarfile wants it."""

    def __init__(self, file: DiskFile, size: int) -> None:
        super().__init__()
        self._file = file
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = self._file.read(self._at, min(len(view), self._size - self._at))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = min(max(start + offset, 0), self._size)
        return self._at

    def tell(self) -> int:
        return self._at
