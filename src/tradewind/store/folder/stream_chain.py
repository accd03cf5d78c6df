"""The files of a chain: links and checkpoints in `chain/` of the folder of a stream.

Owns writing them, and which part of the chain is synced. The links are made in `table.chain_links`;
the content of the files is drawn in `tradewind.chain`. `FileStore` writes the links with the
messages and syncs both with one commit, so an acknowledgement covers both. Existing files are read
by `chain_recovery`; requests for parts of a chain are answered by `chain_reading`.

- A checkpoint covers entries that are synced, and is not announced before it is synced itself.
- `state` holds the tree at the last checkpoint, so that a start need not read all links. It is
  compared with the checkpoint, and made again from the links if it is missing or wrong.
- `broken` records from which entry on the chain does not fit the messages. It is never removed.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.chain import checkpoints
from tradewind.chain.chain_entries import ALGORITHMS, first_link
from tradewind.chain.chain_folder import (
    CHECKPOINTS,
    FOLDER,
    HEADER_BYTES,
    SEGMENT_ENTRIES_MAX,
    SUFFIX,
    LinksHeader,
    encode_header,
    segment_name,
)
from tradewind.chain.checkpoints import Checkpoint, CheckpointStatement
from tradewind.errors import StoreError
from tradewind.store.format.chain_hash import chain_digest
from tradewind.store.table.chain_links import ChainLinks, root_of_peaks

if TYPE_CHECKING:
    from tradewind.nkeys import KeyPair
    from tradewind.store.files.disk import Disk
    from tradewind.store.files.open_files import BlockFile, OpenFiles
    from tradewind.store.table.message_store import MessageStore

STATE: Final = "state"
BROKEN: Final = "broken"
EXCHANGED: Final = "exchanged"


class ChainSettings(msgspec.Struct, frozen=True):
    """The stream of a chain, and its settings. `created` is the text in the information about the
    stream.
    """

    stream: str
    created: str
    algorithm: str
    clock: Callable[[], int] = time.time_ns
    segment_entries: int = SEGMENT_ENTRIES_MAX

    @property
    def number(self) -> int:
        """The number of the algorithm."""
        return ALGORITHMS[self.algorithm]

    @property
    def first_link(self) -> bytes:
        """The link before all entries."""

        def digest(data: bytes) -> bytes:
            return chain_digest(self.number, data)

        return first_link(digest, self.stream, self.created)

    def new_links(self) -> ChainLinks:
        """A chain without entries."""
        return ChainLinks(self.number, self.first_link, self.clock, self.segment_entries)


class ChainPoint(msgspec.Struct, frozen=True):
    """A chain and its stream at one moment. Entry `size` will be at `offset` of the file that
    begins with entry `segment`.
    """

    size: int
    link: bytes
    peaks: bytes
    first_seq: int
    last_seq: int
    messages: int
    chained_seq: int  # of the last message that has an entry
    segment: int
    offset: int

    def state(self) -> bytes:
        """The content of the file `state` at this point."""
        return msgspec.json.encode(
            {
                "size": self.size,
                "segment": self.segment,
                "offset": self.offset,
                "chained_seq": self.chained_seq,
                "link": self.link.hex(),
                "peaks": b64encode(self.peaks).decode(),
            }
        )


class ChainBreak(msgspec.Struct, frozen=True):
    """The content of the file `broken`: from this entry on the chain does not fit."""

    index: int
    reason: str
    time: str = ""


class StreamChain:
    """The chain of one stream, from when it is opened until the store is closed.

    `synced` is the durable part, with the messages that it covers. `file` is the one that is being
    written, None: none yet.
    """

    def __init__(self, files: OpenFiles, path: str, settings: ChainSettings) -> None:
        """Open nothing yet; `path` is the folder of the stream."""
        self.settings = settings
        self.disk: Disk = files.disk
        self.folder = f"{path}/{FOLDER}"
        self.links = settings.new_links()
        self.file: BlockFile | None = None
        self.new_folders: list[str] = []  # whose names have to be synced
        self.checkpoint: Checkpoint | None = None
        self.broken: ChainBreak | None = None
        self.notes: list[str] = []  # what a start has found, for the log
        self.is_exchanged = False  # the file `exchanged` is to go with the next commit
        self._files = files
        self._path = path
        self._segment = 0
        self._offset = 0
        self._earlier_bytes = 0  # in the files before the one that is being written
        self._begun: ChainPoint | None = None
        self._previous = ""  # the hash of the last line of the checkpoints
        self._lines_bytes = 0
        # Not while entries of a start wait for their first commit: the totals are not theirs.
        self._has_own_totals = False
        self.synced = self._point(0, 0, 0)

    # ---------------------------------------------------------------- told by recovery

    def adopt(
        self, segment: int, offset: int, lines_bytes: int, last_line: bytes, table: MessageStore
    ) -> None:
        """Continue after the content of the files, all of which is synced."""
        self._segment, self._offset = segment, offset
        if offset:
            self.file = self._files.file(f"{self.folder}/{segment_name(segment)}")
        self._earlier_bytes = self._bytes_before(segment)
        self._lines_bytes = lines_bytes
        self._previous = checkpoints.digest(last_line) if last_line else ""
        self.synced = self._point(table.first_seq, table.last_seq, table.msgs)

    def _bytes_before(self, segment: int) -> int:
        """The size of the files of links before that of an entry."""
        if not self.disk.is_directory(self.folder):
            return 0
        total, current = 0, segment_name(segment)
        for name in self.disk.list_directory(self.folder):
            if name.endswith(SUFFIX) and name < current:
                with self.disk.open(f"{self.folder}/{name}") as file:
                    total += file.size
        return total

    @property
    def stored_bytes(self) -> int:
        """The size of links and checkpoints on disk, now or with the next commit."""
        waiting: int = self.links.pending_bytes
        return self._earlier_bytes + self._offset + waiting + self._lines_bytes

    def opened(self) -> None:
        """Called when all missing entries are in the chain."""
        self._has_own_totals = not self.is_dirty

    def note_break(self, index: int, reason: str, now: str) -> None:
        """Note that the chain does not fit from an entry on. The first break counts, and stays."""
        if self.broken is None:
            self.broken = ChainBreak(index, reason, now)
            self.disk.make_directory(self.folder, sync=True)
            content = msgspec.json.encode(self.broken)
            self.disk.write_file_atomically(f"{self.folder}/{BROKEN}", content)

    # ---------------------------------------------------------------- with the commits

    @property
    def is_dirty(self) -> bool:
        """Whether a commit has something to write or to sync."""
        return self.links.is_waiting() or bool(self.new_folders)

    def write(self) -> list[BlockFile]:
        """Write all entries so far to the system; returns the files that are to be synced.

        After StoreError the rest is still to be written.
        """
        links, written = self.links, []
        links.end_removals()
        while size := links.pending_bytes:
            begins = links.begins
            if begins and begins[0][0] == 0:
                self._begin_segment(begins[0][1], begins[0][2])
                begins = begins[1:]
            if begins:
                size = begins[0][0]
            assert self.file is not None
            links.write_to(self.file, self._offset, size)
            links.taken(size)
            self._offset += size
            written.append(self.file)
        return written

    def _begin_segment(self, index: int, before: bytes) -> None:
        path = f"{self.folder}/{segment_name(index)}"
        if not self.disk.exists(self.folder):
            self.disk.make_directory(self.folder)
            self.new_folders.append(self._path)
        if self.file is not None and self.file.path == path:
            self.file.close()  # the first try has failed
        self.file = self._files.create(path)
        if index != self._segment or not self._offset:
            self._earlier_bytes += self._offset
        self._segment, self._offset = index, HEADER_BYTES
        header = encode_header(LinksHeader(self.settings.algorithm, index, before))
        self.file.write(header, 0)
        self.new_folders.append(self.folder)

    def take_folders(self) -> list[str]:
        """Take the folders whose names the commit has to sync."""
        folders, self.new_folders = self.new_folders, []
        return folders

    def begin(self, table: MessageStore) -> None:
        """Called when everything written is being synced, with all messages."""
        self._begun = None
        if not self.links.is_waiting():
            self._begun = self._point(table.first_seq, table.last_seq, table.msgs)

    def finish(self) -> None:
        """Called when the sync has ended."""
        if self._begun is not None:
            self.synced, self._begun = self._begun, None
            self._has_own_totals = True
            if self.is_exchanged:
                self.is_exchanged = False
                with suppress(StoreError):  # the next start says it once more
                    self.disk.remove(f"{self.folder}/{EXCHANGED}")

    def _point(self, first_seq: int, last_seq: int, messages: int) -> ChainPoint:
        links = self.links
        return ChainPoint(
            links.size,
            links.link,
            links.peaks,
            first_seq,
            last_seq,
            messages,
            links.last_seq,
            self._segment,
            self._offset,
        )

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()

    # ---------------------------------------------------------------- checkpoints

    @property
    def unchecked(self) -> int:
        """The number of synced entries that no checkpoint covers."""
        covered = 0 if self.checkpoint is None else self.checkpoint.size
        return max(self.synced.size - covered, 0) if self._has_own_totals else 0

    def next_checkpoint(self, pair: KeyPair, now: str) -> CheckpointWrite:
        """Prepare a checkpoint of everything synced, for a worker; there must be something."""
        assert self.synced.size
        return CheckpointWrite(self, self.synced, pair, now, self._previous, self._lines_bytes)

    def checkpointed(self, write: CheckpointWrite) -> Checkpoint:
        """Adopt a checkpoint that a worker has written."""
        assert write.checkpoint is not None
        self.checkpoint = write.checkpoint
        self._previous = checkpoints.digest(write.line)
        self._lines_bytes = write.lines_bytes + len(write.line) + 1
        return write.checkpoint


class CheckpointWrite:
    """A checkpoint to be written: `run` is for a worker, one at a time."""

    def __init__(
        self,
        chain: StreamChain,
        point: ChainPoint,
        pair: KeyPair,
        now: str,
        previous: str,
        lines_bytes: int,
    ) -> None:
        self._chain = chain
        self._point = point
        self._pair = pair
        self._now = now
        self._previous = previous
        self.lines_bytes = lines_bytes
        self.checkpoint: Checkpoint | None = None
        self.line = b""

    def run(self) -> None:
        """Sign the checkpoint and write it to disk; StoreError leaves the checkpoints as they
        were.
        """
        chain, point = self._chain, self._point
        settings, disk = chain.settings, chain.disk
        self.checkpoint = checkpoints.sign(
            CheckpointStatement(
                stream=settings.stream,
                created=settings.created,
                algorithm=settings.algorithm,
                size=point.size,
                first_seq=point.first_seq,
                last_seq=point.last_seq,
                messages=point.messages,
                time=self._now,
                link=point.link.hex(),
                root=root_of_peaks(settings.number, point.peaks).hex(),
                previous=self._previous,
                key=self._pair.public,
            ),
            self._pair,
        )
        self.line = checkpoints.encode(self.checkpoint)
        path = f"{chain.folder}/{CHECKPOINTS}"
        with disk.open(path, writes=True) if disk.exists(path) else disk.create(path) as file:
            # A failed attempt may have left more.
            if file.size > self.lines_bytes:
                file.truncate(self.lines_bytes)
            file.write(self.line + b"\n", self.lines_bytes)
            file.sync()
        if not self.lines_bytes:
            # The first line; a try that has failed may have made the file.
            disk.sync_directory(chain.folder)
        with suppress(StoreError):  # then the next start reads more links
            disk.write_file_atomically(f"{chain.folder}/{STATE}", point.state(), sync=False)
