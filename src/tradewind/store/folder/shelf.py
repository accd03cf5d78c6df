"""Messages that were removed and can still be brought back.

Owns the folders `tradewind.purged.<until>.<number>` in the folder of a stream: each holds what one
truncation has removed, as a stream of its own with the same sequences and times, encrypted if the
stream is. A message is on the shelf, durably, before it leaves the stream. nats-server passes these
folders over.

Bringing back makes the messages of the stream anew: all that are there and all of the shelf, in a
folder apart. That takes the place of the old one as nats-server ends a purge that was cut off: from
the rename to `__new_msgs__` on, the next opening of the stream finds the new messages, before it
the old ones. All of it is for worker threads, on a stream that is not open elsewhere.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.errors import StoreError
from tradewind.store.files.disk import MissingFile
from tradewind.store.files.open_files import OpenFiles
from tradewind.store.files.witness import WITNESS_FILE
from tradewind.store.folder.stream_folder import SHELF_PREFIX
from tradewind.store.format.layout import MESSAGES_FOLDER, NEW_MESSAGES_FOLDER
from tradewind.store.format.message_ttl import parse_ttl_ns
from tradewind.store.format.meta import StreamMeta

if TYPE_CHECKING:
    from tradewind.store.contract import MessageCopy
    from tradewind.store.files.disk import Disk
    from tradewind.store.folder.filestore import FileStore
    from tradewind.store.folder.stream_folder import StreamFolder
    from tradewind.store.table.message_store import MessageStore

# This much is stored between two syncs.
COMMIT_BYTES: Final = 8 * 1024 * 1024
# A worker lets the event loop go first after this many messages.
BREATH_MESSAGES: Final = 256
# Files that every shelf has, and what a message takes beside its record.
SHELF_OVERHEAD_BYTES: Final = 8 * 1024
MESSAGE_OVERHEAD_BYTES: Final = 64
_TTL_FIELD: Final = b"\r\nNats-TTL:"
_WITHOUT_LIMITS: Final[dict[str, Any]] = {
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "discard": "old",
    "allow_msg_ttl": False,
    "allow_msg_schedules": False,
    "subject_delete_marker_ttl": 0,
    "first_seq": 0,
}


class ShelfName(msgspec.Struct, frozen=True):
    """The name of a shelf: when its messages are removed for good, and a number unique in the
    stream.
    """

    until_ns: int
    number: int

    @property
    def folder(self) -> str:
        """The name of the shelf's folder in that of the stream."""
        return f"{SHELF_PREFIX}{self.until_ns}.{self.number}"


def shelf_names(disk: Disk, path: str) -> list[ShelfName]:
    """The shelves of the stream at `path`, the oldest first."""
    found = []
    for name in disk.list_directory(path):
        parts = name.removeprefix(SHELF_PREFIX).split(".")
        if not name.startswith(SHELF_PREFIX) or len(parts) != 2:
            continue
        if all(part.isascii() and part.isdigit() and len(part) < 20 for part in parts):
            found.append(ShelfName(int(parts[0]), int(parts[1])))
    return sorted(found, key=lambda each: each.number)


def shelf_bytes(disk: Disk, path: str, name: ShelfName) -> int:
    """The size of a shelf of the stream at `path`: all its files.

    A shelf that the disk cannot open counts as empty: it keeps no stream closed.
    """
    total = 0
    folders = [f"{path}/{name.folder}"]
    while folders:
        folder = folders.pop()
        with suppress(StoreError):
            for each in disk.list_directory(folder):
                if disk.is_directory(f"{folder}/{each}"):
                    folders.append(f"{folder}/{each}")
                    continue
                with suppress(StoreError), disk.open(f"{folder}/{each}") as file:
                    total += file.size
    return total


def sizes_of_shelves(disk: Disk, path: str) -> dict[ShelfName, int]:
    """The size of each shelf of the stream at `path`."""
    return {name: shelf_bytes(disk, path, name) for name in shelf_names(disk, path)}


def needed_bytes(messages: Iterable[MessageCopy], counted_size: Callable[[Any], int]) -> int:
    """The most bytes that messages take on a shelf: their records, gaps before them, and an
    index.
    """
    return sum(
        counted_size(message) + len(message.subject) + MESSAGE_OVERHEAD_BYTES
        for message in messages
    )


class Shelf:
    """A shelf that is being filled."""

    def __init__(self, stream: StreamFolder, name: ShelfName, meta: StreamMeta) -> None:
        self.name = name
        self._folder = stream.beside(name.folder)
        self._meta = StreamMeta({**meta.config, **_WITHOUT_LIMITS}, name.number)
        self._files: FileStore | None = None

    def add(self, messages: list[MessageCopy]) -> None:
        """Add messages, which are durable when this returns."""
        if self._files is None:
            self._folder.create(self._meta)
            self._files = _opened(self._folder)
        for message in messages:
            _store(self._files.table, message, keeps_ttl=False)
        self._files.commit()

    def close(self) -> None:
        """Close the shelf, which is complete."""
        if self._files is not None:
            self._files.close()
            self._files = None

    def abandon(self) -> None:
        """Close the shelf after a failure; nothing more is written."""
        if self._files is not None:
            self._files.abandon()
            self._files = None


def read_shelf(stream: StreamFolder, name: ShelfName) -> FileStore | None:
    """Open a shelf, to be closed by the caller; None if its creation was cut off."""
    folder = stream.beside(name.folder)
    return None if folder.is_unfinished() else _opened(folder)


def bytes_on_shelf(stream: StreamFolder, name: ShelfName) -> int:
    """The size of a shelf's messages as the stream counts them."""
    files = read_shelf(stream, name)
    if files is None:
        return 0
    size: int = files.table.bytes
    files.close()
    return size


def remove_shelf(disk: Disk, path: str, name: ShelfName) -> None:
    """Remove a shelf for good."""
    with suppress(MissingFile):
        disk.remove_tree(f"{path}/{name.folder}")


def put_back(stream: StreamFolder, name: ShelfName, staging: StreamFolder, now_ns: int) -> None:
    """Recreate the messages of a stream with those of a shelf. StoreError leaves it as it was."""
    disk = stream.disk
    try:
        _merge(stream, name, staging, now_ns)
        # The recorded number of blocks is not true for the new ones.
        with suppress(MissingFile):
            disk.remove(f"{stream.path}/{WITNESS_FILE}")
        disk.sync_directory(stream.path)
        made, placed = f"{staging.path}/{MESSAGES_FOLDER}", f"{stream.path}/{NEW_MESSAGES_FOLDER}"
        disk.rename(made, placed)
        try:
            disk.sync_directory(stream.path)
        except StoreError:
            # The next opening must not find what was not promised.
            disk.rename(placed, made)
            raise
    finally:
        with suppress(StoreError):  # the next start removes it, and what is done is done
            staging.discard()


def _merge(stream: StreamFolder, name: ShelfName, staging: StreamFolder, now_ns: int) -> None:
    meta, old, _ = stream.open(now_ns, files=OpenFiles(stream.disk))
    shelf: FileStore | None = None
    fresh: FileStore | None = None
    try:
        shelf = read_shelf(stream, name)
        staging.create(StreamMeta({**meta.config, "first_seq": 0}, meta.created_ns))
        fresh = _opened(staging, now_ns)
        sources: list[Iterable[MessageCopy]] = [old.table.messages()]
        if shelf is not None:
            sources.append(shelf.table.messages())
        keeps_ttl = bool(meta.config.get("allow_msg_ttl"))
        _copy_all(fresh, heapq.merge(*sources, key=lambda each: each.seq), keeps_ttl=keeps_ttl)
        if old.table.last_seq > fresh.table.last_seq:
            fresh.table.skip(old.table.last_seq, old.table.last_timestamp)
        back = list(_missing(shelf, old)) if old.chain is not None else []
        back = [seq for seq in back if fresh.table.is_live(seq)]
        gone = list(_missing(old, fresh)) if old.chain is not None else []
        fresh.close()
        fresh = None
        old.close()
        if old.chain is not None:
            from tradewind.store.folder.chain_recovery import note_exchanged

            note_exchanged(old.chain, back, gone)
    except BaseException:
        old.abandon()
        raise
    finally:
        for files in (shelf, fresh):
            if files is not None:
                files.abandon()


def _missing(store: FileStore | None, other: FileStore) -> Iterator[int]:
    """The sequences of the messages of a store that another one does not have."""
    seq = 0 if store is None else store.table.next_sequence(0, ())
    while store is not None and seq:
        if not other.table.is_live(seq):
            yield seq
        seq = store.table.next_sequence(seq + 1, ())


def _copy_all(target: FileStore, messages: Iterable[MessageCopy], *, keeps_ttl: bool) -> None:
    committed_bytes = 0
    for number, message in enumerate(messages):
        _store(target.table, message, keeps_ttl=keeps_ttl)
        committed_bytes += len(message.header) + len(message.payload)
        if committed_bytes >= COMMIT_BYTES:
            target.commit()
            committed_bytes = 0
        if number % BREATH_MESSAGES == 0:
            time.sleep(0)


def _store(table: MessageStore, message: MessageCopy, *, keeps_ttl: bool) -> None:
    """Store a message at its own sequence; skips one that exists already."""
    if message.seq <= table.last_seq:
        return
    if message.seq > table.last_seq + 1:
        table.skip(message.seq - 1, table.last_timestamp)
    ttl_ns = _ttl_ns(message.header) if keeps_ttl else 0
    table.store(message.subject, message.header, message.payload, message.timestamp_ns, ttl_ns)


def _ttl_ns(header: bytes) -> int:
    start = header.find(_TTL_FIELD)
    if start < 0:
        return 0
    value = header[start + len(_TTL_FIELD) :].partition(b"\r\n")[0].lstrip(b" ")
    try:
        return parse_ttl_ns(value)
    except ValueError:
        return 0  # stored like this, it never expired


def _opened(folder: StreamFolder, now_ns: int = 0) -> FileStore:
    """Open a store with descriptors of its own, because it is not for the event loop."""
    return folder.open(now_ns, files=OpenFiles(folder.disk))[1]
