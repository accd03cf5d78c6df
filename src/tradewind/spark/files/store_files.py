"""Reads the files of streams while a server may be writing to them.

Owns finding the streams of a store folder and the plain bytes of a block. The module never takes a
lock and never changes a file. A file that disappears is normal here, because a running server
compacts and removes blocks; `VanishedFileError` reports it and the caller looks again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.errors import CorruptRecord, StoreError
from tradewind.options import NO_SECRET, EncryptionOptions, Secret
from tradewind.platform_calls import sync_data
from tradewind.spark.connections.logins import resolve
from tradewind.spark.errors import OptionError
from tradewind.store.files.disk import UNREADABLE, MissingFile, OsDisk, OsFile, read_readable
from tradewind.store.folder.stream_folder import StreamFolder
from tradewind.store.format.layout import (
    COMPRESSED_MAGIC,
    INDEX_FILE,
    JETSTREAM_FOLDER,
    MESSAGES_FOLDER,
    META_FILE,
    META_KEY_FILE,
    STREAMS_FOLDER,
    block_file_name,
    block_number,
    is_encrypted,
    name_problem,
)
from tradewind.store.format.s2 import S2Error, decode_block

if TYPE_CHECKING:
    from tradewind.spark.columnar.memory import Memory, Piece
    from tradewind.store.files.vault import MainKeyRing, StreamVault

HEAD_BYTES = 16 * 1024


class VanishedFileError(StoreError):
    """A file was removed by its server between two looks."""


@dataclass(frozen=True, slots=True)
class ReadBlockFile:
    """A block file at one moment; `identity` is another one once the file was written anew."""

    number: int
    size: int
    identity: tuple[int, int]


@dataclass(frozen=True, slots=True)
class StreamFiles:
    """One stream in a store folder. `was_changed`: its configuration may have been another one."""

    name: str
    folder: str
    config: dict[str, Any]
    created_ns: int
    was_changed: bool
    account: str = "$G"
    # References to the key of the store and the one before, or empty: see `SourceOptions`.
    keys: tuple[str, str] = ("", "")
    is_encrypted: bool = False

    def list_blocks(self) -> list[ReadBlockFile]:
        """All block files, by number."""
        found: list[ReadBlockFile] = []
        names: list[str] = []
        try:
            with os.scandir(f"{self.folder}/{MESSAGES_FOLDER}") as entries:
                for entry in entries:
                    names.append(entry.name)
                    if number := block_number(entry.name):
                        status = entry.stat()
                        identity = (status.st_ino, status.st_mtime_ns)
                        found.append(ReadBlockFile(number, status.st_size, identity))
        except FileNotFoundError:
            raise VanishedFileError(
                f"{self.folder}: a file disappeared while its folder was listed"
            ) from None
        if is_encrypted(names) and not self.is_encrypted:
            raise StoreError(
                f"{self.folder}: its blocks are encrypted, and its {META_KEY_FILE} is missing"
            )
        return sorted(found, key=lambda block: block.number)

    def block_identity(self, number: int) -> tuple[int, int] | None:
        """The identity of a block file now, see `ReadBlockFile`; None if it is gone."""
        try:
            status = Path(self.block_path(number)).stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns

    def read_block(self, number: int, size: int = -1) -> bytes:
        """The plain bytes of a block, at most `size` of them if it is not compressed."""
        path = self.block_path(number)
        data = self._plain(number, _read(path, size))
        if not data.startswith(COMPRESSED_MAGIC):
            return data
        if size >= 0:
            data = self._plain(number, _read(path))
        try:
            return decode_block(data)
        except S2Error as error:
            raise CorruptRecord(path, error.offset, error.reason) from error

    def read_block_into(self, number: int, memory: Memory) -> bytes | Piece:
        """The same, all of it, in memory that is used again unless it has to be decrypted."""
        if self.is_encrypted:
            return self.read_block(number)
        path = self.block_path(number)
        with _opened(path) as file:
            try:
                # A message that is added meanwhile was not asked for: it is after what was planned.
                piece = memory.take(os.fstat(file.fileno()).st_size)
                done = 0
                with memoryview(piece) as view:
                    while part := file.readinto(view[done:]):
                        done += part
                    is_compressed = bytes(view[: len(COMPRESSED_MAGIC)]) == COMPRESSED_MAGIC
            except OSError:
                return self.read_block(number)
        if is_compressed or done < len(piece):
            return self.read_block(number)
        return piece

    def read_block_head(self, number: int) -> bytes:
        """The first plain bytes of a block, at least those of its first record's numbers."""
        head = self._plain(number, _read(self.block_path(number), HEAD_BYTES))
        return self.read_block(number) if head.startswith(COMPRESSED_MAGIC) else head

    def read_block_end(self, number: int) -> bytes:
        """The last 8 bytes of a block file, zeros if it is shorter."""
        with _opened(self.block_path(number)) as file:
            size = file.seek(0, os.SEEK_END)
            if size < 8:
                return bytes(8)
            file.seek(size - 8)
            try:
                return self._plain(number, file.read(8), size - 8)
            except OSError:
                return b""  # it fits no summary

    def read_index(self) -> bytes | None:
        """index.db, if there is one."""
        path = f"{self.folder}/{MESSAGES_FOLDER}/{INDEX_FILE}"
        try:
            data = _read(path)  # zeros of a bad sector fail its hash
        except VanishedFileError:
            return None
        if (vault := self._vault) is None:
            return data
        try:
            return vault.unseal_index(data, path)
        except StoreError:
            return None  # sealed with another key, so not trusted

    @property
    def _vault(self) -> StreamVault | None:
        """The keys of the stream, in this process; None: it is not encrypted."""
        if not self.is_encrypted:
            return None
        return _folder_of(self._root, self.account, self.name, self.keys).vault

    def _plain(self, number: int, data: bytes, offset: int = 0) -> bytes:
        """The bytes read of a block, decrypted if it has a key."""
        vault = self._vault
        if vault is None:
            return data
        try:
            vault.blocks.read(number)
        except MissingFile:
            if not Path(self.block_path(number)).exists():
                raise VanishedFileError(f"{self.block_path(number)}: the file is gone") from None
            return data  # it was there before the stream was encrypted
        cipher = vault.blocks.cipher(number)
        return data if cipher is None else cipher.decrypt(data, offset)

    def sync_block(self, number: int) -> None:
        """Sync a block file, so that its content stays there over a power failure.

        The server may not have come to it yet; only what is synced is read. A file system that
        cannot be written to has nothing to sync.
        """
        with _opened(self.block_path(number)) as file, suppress(OSError):
            sync_data(file.fileno())

    def is_still_there(self) -> bool:
        """Whether the folder still has this stream, not none or a later one of the same name.

        Numbers of blocks and sequences begin anew in a later one: its files look like those of this
        one. Data that was read before this says yes is of this stream.
        """
        try:
            now = open_stream(self._root, self.account, self.name, self.keys)
        except VanishedFileError:
            return False
        return now.created_ns == self.created_ns

    @property
    def _root(self) -> Path:
        """The folder that the server was given."""
        inside = f"/{JETSTREAM_FOLDER}/{self.account}/{STREAMS_FOLDER}/{self.name}"
        return Path(self.folder.removesuffix(inside))

    def block_path(self, number: int) -> str:
        """The path of a block file."""
        return f"{self.folder}/{MESSAGES_FOLDER}/{block_file_name(number)}"


def key_ring(keys: tuple[str, str]) -> MainKeyRing | None:
    """The keys that these references stand for in this process; None: there are none."""
    if not keys[0]:
        return None
    from tradewind.store.files.vault import MainKeyRing

    main = Secret(resolve("encryptionKey", keys[0]))
    previous = Secret(resolve("previousEncryptionKey", keys[1])) if keys[1] else NO_SECRET
    return MainKeyRing(EncryptionOptions(main, previous))


def find_streams(
    store_dir: str, account: str, wanted: tuple[str, ...], keys: tuple[str, str] = ("", "")
) -> list[StreamFiles]:
    """The streams with these names or patterns (`*` and `?`), by name.

    `store_dir` is the folder that the server was given, or the `jetstream` folder in it. A name
    that is not a pattern has to be there. `keys`: see `StreamFiles`.
    """
    root = Path(store_dir).absolute()
    if root.name == JETSTREAM_FOLDER and not (root / JETSTREAM_FOLDER).is_dir():
        root = root.parent
    streams = root / JETSTREAM_FOLDER / account / STREAMS_FOLDER
    if not (root / JETSTREAM_FOLDER).is_dir():
        raise OptionError("storeDir", f"{store_dir}: it contains no folder {JETSTREAM_FOLDER}")
    try:
        names = sorted(entry.name for entry in streams.iterdir() if not name_problem(entry.name))
    except FileNotFoundError:
        raise OptionError("account", f"{account!r} has no streams in {root}") from None
    chosen: set[str] = set()
    for pattern in wanted:
        matching = [name for name in names if fnmatchcase(name, pattern)]
        if not matching and not is_pattern(pattern):
            listed = ", ".join(names[:20]) or "none"
            raise OptionError("stream", f"there is no {pattern!r} in {streams}; found: {listed}")
        chosen.update(matching)
    return [open_stream(root, account, name, keys) for name in sorted(chosen)]


def is_pattern(name: str) -> bool:
    """Whether it may stand for several streams."""
    return any(character in name for character in "*?[")


def open_stream(
    root: Path, account: str, name: str, keys: tuple[str, str] = ("", "")
) -> StreamFiles:
    """The configuration of one stream; StoreError says why it cannot be read."""
    folder = _folder_of(root, account, name, keys)
    try:
        meta = folder.read_meta()
        changed_ns = Path(folder.path, META_FILE).stat().st_mtime_ns
    except (MissingFile, FileNotFoundError):
        raise VanishedFileError(f"{folder.path}: the stream was deleted") from None
    created_ns = meta.created_ns or 0
    # The file is written once when the stream is made; a copied folder may have lost the time.
    was_changed = abs(changed_ns - created_ns) > 5_000_000_000
    return StreamFiles(
        name,
        folder.path,
        meta.config,
        created_ns,
        was_changed,
        account,
        keys,
        folder.vault is not None,
    )


def _folder_of(root: Path, account: str, name: str, keys: tuple[str, str]) -> StreamFolder:
    return StreamFolder(
        OsDisk(str(root)), str(root), account, name, ring=key_ring(keys), converts=False
    )


def _opened(path: str) -> FileIO:
    try:
        return FileIO(path)
    except FileNotFoundError:
        raise VanishedFileError(f"{path}: the file is gone") from None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error


def _read(path: str, size: int = -1) -> bytes:
    with _opened(path) as file:
        # One call may give less than there is, so until the end.
        parts = []
        wanted = size
        try:
            while wanted != 0 and (part := file.read(wanted)):
                parts.append(part)
                wanted -= len(part) if wanted > 0 else 0
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
            return _readable(path, size)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _readable(path: str, size: int) -> bytes:
    """A file's bytes, with zeros where the disk fails, which readers of records take as damage."""
    with OsFile(path, os.open(path, os.O_RDONLY)) as file:
        content, _ = read_readable(file)
    return content if size < 0 else content[:size]
