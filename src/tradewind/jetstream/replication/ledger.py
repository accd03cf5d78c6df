"""The positions of the sources of a stream, across restarts.

Owns `sources.db`, which is never the only record of a position: each copied message says where it
came from, so the last copy of each source is its position. The file is written periodically and
when a stream is closed, and adds what the messages cannot tell: the positions of sources whose
copies were all removed. It is valid up to its stamp; newer messages are read. A file that is ahead
of its stream belongs to an earlier stream and is removed before its sequences are reused.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tradewind.errors import StoreError
from tradewind.jetstream.replication.look_back import look_back
from tradewind.jetstream.replication.source_names import IndexName, parse_source_header
from tradewind.store.files.disk import MissingFile
from tradewind.store.format.layout import SOURCES_FILE
from tradewind.store.format.side_files import SourcePosition, decode_sources, encode_sources

if TYPE_CHECKING:
    from collections.abc import Callable

    from tradewind.jetstream.lanes import Workers
    from tradewind.stream.stream import Stream

# Positions of sources that the configuration no longer names are kept up to this number.
POSITIONS_MAX: Final = 1000
# Messages that are looked at in one go for what they say of their origins.
LOOKED_AT_PER_STEP: Final = 20_000


class CopiedPosition(NamedTuple):
    """The last message of the origin that was copied, and which stream that origin was."""

    seq: int
    identity: str


class Ledger:
    """The positions of all sources that a stream ever had, as far as they are recorded."""

    def __init__(self, stream: Stream, tell: Callable[[str], None]) -> None:
        self._stream = stream
        self._tell = tell
        # The sources that copy now: everything up to the position is durable, or not wanted.
        self._live: dict[IndexName, Callable[[], CopiedPosition]] = {}
        self._is_saving = False
        self._positions: dict[IndexName, CopiedPosition] = {}
        self._exact: set[IndexName] = set()  # those that need not be looked for
        self._is_read = False
        self._stamp = 0
        # Sources whose copies are looked for, down to a sequence, from `_at` backwards.
        self._wanted: dict[IndexName, int] = {}
        self._at = 0

    def seek(self, name: IndexName) -> None:
        """Find the position of a source, unless it is known."""
        if name in self._exact:
            return
        if not self._is_read:
            self._is_read = True
            self._stamp = self._read_file()
        # Positions that the file does not have may be older than the file.
        stamp = self._stamp if name in self._positions else 0
        self._wanted[name] = stamp
        self._at = self._stream.store.last_seq

    def step(self) -> bool:
        """Read some more messages; whether all requested positions are known."""
        if self._wanted and self._at:
            stamp = min(self._wanted.values())
            store = self._stream.store
            self._at = look_back(store, self._at, stamp, LOOKED_AT_PER_STEP, self._take)
        if not self._at:
            self._exact |= self._wanted.keys()
            self._wanted.clear()
        return not self._wanted

    def _take(self, value: bytes) -> bool:
        """Record the position in a copy's header; returns whether older ones are still wanted."""
        origin = parse_source_header(value)
        if origin is not None:
            for name in list(self._wanted):
                if origin.name in (name, IndexName(name.stream, "", "")):
                    self._positions[name] = CopiedPosition(origin.seq, origin.identity)
                    self._exact.add(name)
                    del self._wanted[name]
        return bool(self._wanted)

    def _read_file(self) -> int:
        """Read the file; returns the sequence below which everything is known."""
        folder = self._stream.folder
        if folder is None:
            return 0
        path = f"{folder.path}/{SOURCES_FILE}"
        try:
            positions, stamp = decode_sources(folder.disk.read_file(path), path)
        except MissingFile:
            return 0
        except StoreError as error:
            self._tell(f"{error}; the positions of its sources are taken from its messages")
            return 0
        if stamp > self._stream.store.last_seq + 1:
            folder.disk.remove(path)
            folder.disk.sync_directory(folder.path)
            return 0
        for each in positions:
            parts = each.name.decode("utf-8", "surrogateescape").split(" ")
            if len(parts) == 3 and each.seq:
                identity = each.identity.decode("utf-8", "replace")
                self._positions[IndexName(*parts)] = CopiedPosition(each.seq, identity)
        return stamp

    def position(self, name: IndexName) -> CopiedPosition | None:
        """The position of a source; None if nothing was copied."""
        return self._positions.get(name)

    def note(self, name: IndexName, position: CopiedPosition | None) -> None:
        """Set the position of a source; None: it starts over."""
        self._positions.pop(name, None)
        self._exact.add(name)
        if position is not None:
            self._positions[name] = position
            while len(self._positions) > POSITIONS_MAX:
                del self._positions[next(iter(self._positions))]

    def follow(self, name: IndexName, position: Callable[[], CopiedPosition]) -> None:
        """Track a source that copies from now on; `position` returns its durable position."""
        self._live[name] = position

    def unfollow(self, name: IndexName) -> None:
        """Stop tracking a source."""
        self._live.pop(name, None)

    def save(self) -> None:
        """Write the positions; everything that the stream has stored must be durable."""
        if not self._is_saving:
            self._write(self._content(self._stream.store.last_seq + 1))

    def save_beside(self, workers: Workers) -> None:
        """Have a worker write the durable positions while the stream continues.

        A position that is older than what a message says does no harm, a newer one would.
        """
        if self._is_saving or self._stream.folder is None or self._wanted:
            return
        self._is_saving = True
        content = self._content(self._stream.visible_seq + 1)
        workers.submit(partial(self._write, content), self._saved)

    def _saved(self, error: Exception | None) -> None:
        self._is_saving = False
        if error is not None:
            self._tell(str(error))

    def _content(self, stamp: int) -> bytes:
        positions = self._positions | {name: give() for name, give in self._live.items()}
        entries = [
            SourcePosition(
                name.text.encode("utf-8", "surrogateescape"), each.seq, each.identity.encode()
            )
            for name, each in positions.items()
            if each.seq
        ]
        return encode_sources(entries, stamp) if entries else b""

    def _write(self, content: bytes) -> None:
        folder = self._stream.folder
        if folder is not None and content:
            folder.disk.write_file_atomically(f"{folder.path}/{SOURCES_FILE}", content)
