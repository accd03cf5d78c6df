"""Records outside of the blocks how far the sequences of a stream may have advanced.

Owns the file `tradewind.seq` in the folder of a stream. The blocks contain everything else about a
stream, but cannot show that the last of them is missing. Without this file, the sequences of a
missing block would be assigned again, and the loss of messages would go unnoticed.

The file states that a block with this number existed, the last sequence in it, and the reserve: up
to which sequence messages may have been stored since. It is rewritten when a new block has begun or
the reserve is used up, by the commit that does so: after data and names are on disk, and before
anything of that is acknowledged. It therefore never claims more than was true, and nothing is
written per message or per commit. The reserve grows with the rate of a stream, from 64 to 4096
sequences.

nats-server does not know the file, so messages that it stores are not reflected. Only missing data
is significant: fewer blocks than recorded, or a lower last sequence.

    twice, at byte 0 and 512, written in turn; the one with the higher serial number counts
    "TWSEQ01\\n", u64 LE serial, block, last sequence, last sequence of the reserve,
    hash of all this with the key of the stream's name
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.store.files.disk import DiskFault, DiskFull, MissingFile
from tradewind.store.format.hash import key_for
from tradewind.store.format.layout import BLOCK_NUMBER_MAX, SEQUENCE_MAX, stream_key_text

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk

WITNESS_FILE: Final = "tradewind.seq"
RESERVE_MIN: Final = 64
RESERVE_MAX: Final = 4096
_MAGIC: Final = b"TWSEQ01\n"
_NUMBERS: Final = struct.Struct("<8sQQQQ")
_SLOT_BYTES: Final = 512  # a sector: a write that is cut off spoils one of the two
_ENTRY_BYTES: Final = _NUMBERS.size + 8


class Testimony(msgspec.Struct, frozen=True):
    """The content of the file."""

    serial: int
    block: int
    last_seq: int
    reserved_seq: int

    def held(self) -> Testimony:
        """A testimony that no commit exceeds: nothing is written until another one is adopted."""
        return Testimony(self.serial, BLOCK_NUMBER_MAX, self.last_seq, SEQUENCE_MAX)


# The testimony of a new stream.
FIRST_TESTIMONY: Final = Testimony(1, 1, 0, RESERVE_MIN)


def _encode(testimony: Testimony, stream: str) -> bytes:
    numbers = _NUMBERS.pack(
        _MAGIC, testimony.serial, testimony.block, testimony.last_seq, testimony.reserved_seq
    )
    return numbers + key_for(stream_key_text(stream)).hash(numbers)


def _decode(data: bytes, stream: str) -> Testimony | None:
    if len(data) < _ENTRY_BYTES or not data.startswith(_MAGIC):
        return None
    numbers = data[: _NUMBERS.size]
    if key_for(stream_key_text(stream)).hash(numbers) != data[_NUMBERS.size : _ENTRY_BYTES]:
        return None
    found = Testimony(*_NUMBERS.unpack(numbers)[1:])
    return found if found.last_seq <= found.reserved_seq <= SEQUENCE_MAX else None


def _slot(testimony: Testimony) -> int:
    return _SLOT_BYTES * (testimony.serial % 2)


def testimony_file(testimony: Testimony, stream: str) -> bytes:
    """The content of a new file: later writes need no more room."""
    return (bytes(_slot(testimony)) + _encode(testimony, stream)).ljust(2 * _SLOT_BYTES, b"\0")


def first_testimony(stream: str) -> bytes:
    """The file of a new stream."""
    return testimony_file(FIRST_TESTIMONY, stream)


def read_testimony(disk: Disk, folder: str, stream: str) -> Testimony | None:
    """Read the file in the folder of a stream; None if there is none, or it is unreadable."""
    try:
        data = disk.read_file(f"{folder}/{WITNESS_FILE}")
    except DiskFault:
        return None
    slots = (data[start : start + _ENTRY_BYTES] for start in (0, _SLOT_BYTES))
    found = [entry for slot in slots if (entry := _decode(slot, stream)) is not None]
    return max(found, key=lambda entry: entry.serial, default=None)


class TestimonyWrite:
    """A testimony to be written; `save` is for the worker of a commit."""

    def __init__(self, disk: Disk, folder: str, stream: str, testimony: Testimony) -> None:
        self._disk = disk
        self._folder = folder
        self._stream = stream
        self._testimony = testimony
        self.is_saved = False

    def save(self) -> None:
        """Write it durably. The other slot stays, so that a power failure leaves one that is whole.

        If there is no room, a later commit writes it: the messages themselves are durable. A sync
        that fails is an error as it is for every file.
        """
        try:
            self._write()
        except DiskFull as error:
            if error.operation in ("sync", "sync_directory"):
                raise
            return
        self.is_saved = True

    def _write(self) -> None:
        path = f"{self._folder}/{WITNESS_FILE}"
        if self._testimony.serial > FIRST_TESTIMONY.serial:
            with suppress(MissingFile), self._disk.open(path, writes=True) as file:
                file.write(_encode(self._testimony, self._stream), _slot(self._testimony))
                file.sync()
                return
        # There is none, or nothing in it could be read.
        self._disk.write_file_atomically(path, testimony_file(self._testimony, self._stream))


class Witness:
    """The testimony of one store, from its first commit on."""

    def __init__(self, disk: Disk, folder: str, stream: str) -> None:
        self._disk = disk
        self._folder = folder
        self._stream = stream
        self._latest = self._before = Testimony(0, 0, 0, 0)
        self._reserve = RESERVE_MIN

    def adopt(self, testimony: Testimony | None) -> None:
        """Adopt the testimony found in the folder, or created with it; None: the next commit has to
        write it.
        """
        if testimony is not None:
            self._latest = testimony

    @property
    def reserved_seq(self) -> int:
        """The sequence up to which nothing has to be written."""
        return self._latest.reserved_seq

    def next(self, block: int, last_seq: int) -> TestimonyWrite | None:
        """The testimony that a commit ending with this block and sequence has to write, if any."""
        latest = self._latest
        if block <= latest.block and last_seq <= latest.reserved_seq:
            return None
        if last_seq > latest.reserved_seq:
            self._reserve = min(self._reserve * 2, RESERVE_MAX)
        reserved_seq = min(last_seq + self._reserve, SEQUENCE_MAX)
        self._before = latest
        self._latest = Testimony(latest.serial + 1, block, last_seq, reserved_seq)
        return TestimonyWrite(self._disk, self._folder, self._stream, self._latest)

    def not_saved(self) -> None:
        """Replace the last result of `next`, which was not saved, with the next one."""
        self._latest = self._before
