"""The sources of `tradewind stream verify` without a running stream: a store folder, a backup.

Owns opening both read-only and giving their messages in order. No file is changed: a store is
opened as `tradewind-server --check-store` does it. `tradewind.chain` reports what is found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tradewind.chain.chain_folder import FOLDER, ChainFolder
from tradewind.chain.verifier import ChainedMessage
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError, near
from tradewind.cli.streams.backup_folders import DATA_NAME, read_backup
from tradewind.errors import CorruptRecord

if TYPE_CHECKING:
    from tradewind.store.files.vault import MainKeyRing

# A backup is read in pieces of this size.
READ_BYTES: Final = 1 << 20
PLAIN_BYTES_MAX: Final = 1 << 42
MESSAGE_BYTES_MAX: Final = 1 << 31


@dataclass(slots=True)
class StoredStream:
    """A stream that is not asked through a server. `path` is its own folder."""

    name: str
    path: Path
    created: str
    entry_estimate: int
    messages: Iterator[ChainedMessage]

    def chain(self) -> ChainFolder:
        """The chain of the stream; StoreError if it has none."""
        return ChainFolder(self.path / FOLDER)


@contextmanager
def open_stored(
    store: Path, account: str, stream: str, config: Path | None
) -> Iterator[StoredStream]:
    """A stream in a store folder that no server uses."""
    from tradewind.api.times import format_time
    from tradewind.server.jetstream.check_store import (
        allow_many_files,
        close_blocks,
        hold,
        store_root,
    )
    from tradewind.server.jetstream.unchanged_disk import UnchangedDisk
    from tradewind.store.folder.stream_folder import StoreRoot

    root = store_root(str(store))
    ring = _key_ring(config)
    allow_many_files()
    descriptor = hold(root)
    try:
        disk = UnchangedDisk(root)
        places = StoreRoot(disk, disk.root, ring, converts=False)
        folder = next(
            (one for one in places.folders(account) if one.stream == stream),
            None,
        )
        if folder is None:
            names = [one.stream for one in places.folders(account)]
            listed = ", ".join(sorted(names)[:20]) or "none"
            raise CommandError(
                f"{store}: account {account} has no stream {stream!r}{near(stream, names)}",
                f"streams there: {listed}; other accounts: "
                f"{', '.join(name for name in places.accounts() if name != account) or 'none'}",
            )
        # At time 0 nothing is too old.
        meta, opened, _report = folder.open(0)
        try:
            yield StoredStream(
                stream,
                Path(folder.path),
                format_time(meta.created_ns) if meta.created_ns else "",
                opened.table.last_seq,
                (
                    ChainedMessage(
                        found.seq, found.timestamp_ns, found.subject, found.header, found.payload
                    )
                    for found in opened.table.messages()
                ),
            )
        finally:
            close_blocks(opened)
    except OSError as error:
        raise CommandError(f"{error.filename or root}: {error.strerror}") from None
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _key_ring(config: Path | None) -> MainKeyRing | None:
    """The keys of the store in the configuration file of its server."""
    if config is None:
        return None
    from tradewind.server.config.load import load_config_file
    from tradewind.server.jetstream.jetstream_service import key_ring

    return key_ring(load_config_file(str(config)).options.jetstream)


@contextmanager
def open_backup(source: Path, stream: str) -> Iterator[StoredStream]:
    """The stream in a backup, as `tradewind stream backup` makes it."""
    config, state = read_backup(source)
    name = config["name"]
    if stream and stream != name:
        raise CommandError(f"{source}: this is a backup of stream {name!r}", exit_code=EXIT_USAGE)
    if not (source / FOLDER).is_dir():
        raise CommandError(
            f"{source}: the backup has no folder {FOLDER}",
            "a stream has one if it was created with the metadata tradewind.chain, and the "
            "backup was "
            "made with this command line",
        )
    last = state.get("last_seq")
    yield StoredStream(
        name, source, "", last if isinstance(last, int) else 0, _archived(source / DATA_NAME)
    )


def _archived(path: Path) -> Iterator[ChainedMessage]:
    """The messages of an archive; a CorruptRecord where it cannot be read."""
    from tradewind.store.backup.archive import ArchiveError, ArchiveReader
    from tradewind.store.format.s2 import Decompressor, S2Error

    decompressor = Decompressor(PLAIN_BYTES_MAX)
    reader = ArchiveReader(MESSAGE_BYTES_MAX)
    try:
        with path.open("rb") as file:
            while not reader.is_ended:
                piece = b"" if decompressor.pending else file.read(READ_BYTES)
                if not piece and not decompressor.pending:
                    decompressor.finish()
                    raise CorruptRecord(
                        str(path), file.tell(), "the backup ends without its end mark"
                    )
                reader.feed(decompressor.feed(piece))
                while (entry := reader.next_entry()) is not None and not reader.is_ended:
                    if entry.seq:
                        yield ChainedMessage(
                            entry.seq, entry.timestamp_ns, entry.name, entry.header, entry.payload
                        )
    except S2Error as error:
        raise CorruptRecord(str(path), error.offset, error.reason) from None
    except ArchiveError as error:
        raise CommandError(f"{path}: {error}") from None
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
