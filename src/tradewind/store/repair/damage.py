"""The record of damage in a stream, and its evidence.

Owns the damage report and the folder `damage` of a stream: numbered reports, each with the bytes
that were taken out of the blocks. Numbers are never reused, so nothing in the folder is ever
replaced; only users remove files from it. It never decides about messages.

    damage/3.json       a RecoveryReport: where, how much, which sequences
    damage/3-7.bin      the bytes taken out of block 7, one piece after another
    damage/3-7.blk      the whole file of block 7, where it was compressed or cannot be read
    damage/3-7.key      the key of block 7, if it was encrypted
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from tradewind.errors import StoreError
from tradewind.store.files.disk import DiskFault, is_unreadable
from tradewind.store.format.layout import BLOCK_SUFFIX, KEY_SUFFIX, SEQUENCE_MAX
from tradewind.store.format.s2 import is_compressed as is_compressed_block

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk
    from tradewind.store.table.block import Block

HEAD_BYTES = 64
DAMAGE_FOLDER = "damage"  # in the stream's folder, ours; the official server does not look there
# The list of lost sequences is for stream info; the ranges of the single damages are complete.
LOST_LISTED_MAX = 100_000


class DamageEntry(msgspec.Struct):
    """One piece of damage. Sequences `first_lost` to `last_lost` may have been there.

    `missing` bytes after it were cut off. The `size` bytes are at `saved_at` of `saved_as`; for a
    compressed block that is the whole file, and the offset is that of the plain bytes. For a block
    with `unreadable` bytes it is the file itself, under a second name.
    """

    block: int
    offset: int
    size: int
    torn: bool
    first_lost: int
    last_lost: int
    saved_as: str = ""
    saved_at: int = 0
    missing: int = 0
    unreadable: int = 0  # in the block


class RecoveryReport(msgspec.Struct):
    """The findings of opening or reading a stream; machine-readable through msgspec.

    `lost` has the first LOST_LISTED_MAX of `lost_total` sequences; `notes` are other facts worth
    knowing.
    """

    stream: str
    blocks: int = 0
    bytes: int = 0
    records: int = 0
    messages: int = 0
    damage: list[DamageEntry] = msgspec.field(default_factory=list)
    lost: list[int] = msgspec.field(default_factory=list)
    lost_total: int = 0
    first_seq: int = 0  # of the first message that was left
    last_seq: int = 0  # of the last one that any record spoke of, if blocks were repaired
    notes: list[str] = msgspec.field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was wrong."""
        return not self.damage and not self.lost

    @property
    def damaged_bytes(self) -> int:
        """The size of damage that cost messages; a write that was cut off promised nothing."""
        return sum(entry.size for entry in self.damage if not entry.torn)

    def add_lost(self, sequences: Iterable[int]) -> None:
        """Add lost sequences; none is counted twice as long as the list is complete."""
        known = set(self.lost)
        new = [seq for seq in dict.fromkeys(sequences) if seq not in known]
        self.lost_total += len(new)
        self.lost = sorted(self.lost + new[: LOST_LISTED_MAX - len(self.lost)])

    def add(self, found: RecoveryReport) -> None:
        """Add the findings of another report."""
        self.damage += found.damage
        self.notes += found.notes
        self.add_lost(found.lost)

    def lines(self) -> list[str]:
        """The lines for the log: one with the losses, and one for each note."""
        lines = []
        rotten = [entry for entry in self.damage if not entry.torn]
        if rotten or self.lost:
            where = ", ".join(f"{entry.block}.blk byte {entry.offset}" for entry in rotten[:5])
            more = f" and {len(rotten) - 5} more places" if len(rotten) > 5 else ""
            lines.append(
                f"stream {self.stream!r}: damage found ({where or 'a block is missing'}{more});"
                f" {self.lost_total} messages are lost{_listed(self.lost, self.lost_total)}"
            )
        return lines + [f"stream {self.stream!r}: {note}" for note in self.notes]


def _listed(sequences: list[int], total: int) -> str:
    """The first ten sequences as text."""
    if not sequences:
        return ""
    text = ", ".join(map(str, sequences[:10]))
    return f": {text}" + (", ..." if total > 10 else "")


class DamageFolder:
    """The evidence of one stream; making this object touches nothing."""

    def __init__(self, disk: Disk, stream_folder: str) -> None:
        self._disk = disk
        self.path = f"{stream_folder}/{DAMAGE_FOLDER}"

    def _names(self) -> list[str]:
        return self._disk.list_directory(self.path) if self._disk.exists(self.path) else []

    def save(self, report: RecoveryReport, blocks: Iterable[Block] = ()) -> None:
        """Write the bytes of all entries, then the report, under a new number, durably.

        Called before anything on disk is changed; `blocks` are those that the entries name. Only
        their files are read: this may be another thread than that of the store.
        """
        self._disk.make_directory(self.path, sync=True)
        number = 1 + max((_number(name) for name in self._names()), default=0)
        found = {block.number: block for block in blocks}
        entries: dict[int, list[DamageEntry]] = {}
        for entry in report.damage:
            if entry.size:
                entries.setdefault(entry.block, []).append(entry)
        for block_number, pieces in entries.items():
            self._save_pieces(f"{number}-{block_number}", found[block_number], pieces)
        self._disk.write_file_atomically(
            f"{self.path}/{number}.json", msgspec.json.format(msgspec.json.encode(report)) + b"\n"
        )

    def _save_pieces(self, name: str, block: Block, pieces: list[DamageEntry]) -> None:
        parts: list[bytes] = []
        # The evidence of an encrypted block is as it was on disk, with the key beside it: its
        # replacement has another one.
        cipher = block.file.cipher
        if cipher is not None:
            key = self._disk.read_file(block.path.removesuffix(BLOCK_SUFFIX) + KEY_SUFFIX)
            self._disk.write_file_atomically(f"{self.path}/{name}{KEY_SUFFIX}", key)
        content = self._content(block)
        if content is None:
            for entry in pieces:
                entry.saved_as = f"{name}.blk"
                entry.unreadable = max(block.unreadable, 1)
            self._disk.link(block.path, f"{self.path}/{name}.blk")
            self._disk.sync_directory(self.path)
            return
        head = content[:HEAD_BYTES]
        is_compressed = is_compressed_block(head if cipher is None else cipher.encrypt(head))
        if is_compressed:
            name += ".blk"
            parts.append(content)
        else:
            name += ".bin"
        offset = 0
        for entry in pieces:
            entry.saved_as = name
            if not is_compressed:
                entry.saved_at = offset
                parts.append(content[entry.offset : entry.offset + entry.size])
                offset += entry.size
        self._disk.write_file_atomically(f"{self.path}/{name}", b"".join(parts))

    def _content(self, block: Block) -> bytes | None:
        """The content of a block's file; None if the disk did not return all of it, which it may do
        another time.
        """
        if block.unreadable:
            return None
        try:
            return self._disk.read_file(block.path)
        except StoreError as error:
            if is_unreadable(error):
                return None
            raise

    def earlier(self) -> list[RecoveryReport]:
        """All reports; an unreadable one has only `notes`."""
        found = []
        for name in self._names():
            if not name.endswith(".json") or not _number(name):
                continue
            path = f"{self.path}/{name}"
            try:
                report = msgspec.json.decode(self._disk.read_file(path), type=RecoveryReport)
                told = (report.first_seq or 1, *report.lost)
                if not all(0 < seq <= SEQUENCE_MAX for seq in told):
                    raise msgspec.ValidationError("a sequence in it cannot be")
                found.append(report)
            except (msgspec.MsgspecError, DiskFault) as error:
                note = f"{path}: what was lost earlier cannot be read: {error}"
                found.append(RecoveryReport("", notes=[note]))
        return found


def _number(name: str) -> int:
    """The number that a file name of the folder begins with; 0 if it is another file."""
    digits = name.partition(".")[0].partition("-")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0
