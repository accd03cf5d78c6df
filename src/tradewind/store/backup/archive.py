"""The archive format of backups, independent of how the messages were stored.

Owns the format that nats-server has written since 2.15 (inside the S2 compression, which is in
`s2`), in both directions and in one pass. It never touches a store or a file.

    "NATSARC1", then for each entry
    uvarint   size of the name
    varint    time in ns
    uvarint   sequence; 0 for what is not a message
    uvarint   size of the header block
    uvarint   size of the payload
    name, header block, payload

The first entry is `state.json`, the state of the stream when the backup began; `consumer_count`
entries `consumers/<name>` follow, then the messages by rising sequence, each named by its subject,
and at last an entry that is all zeros. Without that one the archive is cut off.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tradewind.errors import StoreError
from tradewind.store.format.varint import append_uvarint, append_varint

MAGIC: Final = b"NATSARC1"
STATE_NAME: Final = b"state.json"
CONSUMER_PREFIX: Final = b"consumers/"
NAME_BYTES_MAX: Final = 1024 * 1024
# The state of a consumer with a million messages that wait for their acknowledgements.
METADATA_BYTES_MAX: Final = 64 * 1024 * 1024
# The state of a stream is a dozen numbers.
STATE_BYTES_MAX: Final = 64 * 1024
_NUMBER_BYTES_MAX: Final = 10
_NUMBER_MAX: Final = (1 << 64) - 1


class ArchiveError(StoreError):
    """An archive that cannot be restored; the text gives the reason."""


class ArchiveEntry(NamedTuple):
    """One entry; a message has a sequence, and its subject is the name."""

    name: bytes
    timestamp_ns: int
    seq: int
    header: bytes
    payload: bytes


END: Final = ArchiveEntry(b"", 0, 0, b"", b"")


def append_entry(
    target: bytearray, name: bytes, timestamp_ns: int, seq: int, header: bytes, payload: bytes
) -> None:
    """Append one entry."""
    append_uvarint(target, len(name))
    append_varint(target, timestamp_ns)
    append_uvarint(target, seq)
    append_uvarint(target, len(header))
    append_uvarint(target, len(payload))
    target += name
    target += header
    target += payload


class ArchiveReader:
    """Parses an archive piece by piece.

    `message_bytes_max` is the largest header block and payload together, `metadata_bytes_max` that
    of an entry that is not a message. `data` are the bytes fed and not parsed yet, from `offset`
    on.
    """

    def __init__(self, message_bytes_max: int) -> None:
        self.message_bytes_max = message_bytes_max
        self.metadata_bytes_max = METADATA_BYTES_MAX
        self.is_ended = False
        self.data = bytearray()
        self.offset = 0
        self._has_magic = False

    def feed(self, data: bytes) -> None:
        """Add a piece of the archive."""
        if self.offset:
            del self.data[: self.offset]
            self.offset = 0
        self.data += data

    def next_entry(self) -> ArchiveEntry | None:
        """The next entry, `END` for the last one; None until more is fed."""
        if not self._has_magic and not self._read_magic():
            return None
        data, start = self.data, self.offset
        try:
            name_size, at = read_uvarint(data, start)
            folded, at = read_uvarint(data, at)
            seq, at = read_uvarint(data, at)
            header_size, at = read_uvarint(data, at)
            payload_size, at = read_uvarint(data, at)
        except IndexError:
            return None
        self._check_sizes(name_size, seq, header_size, payload_size)
        header_at = at + name_size
        payload_at = header_at + header_size
        end = payload_at + payload_size
        if end > len(data):
            return None
        self.offset = end
        with memoryview(data) as view:  # one copy: some are large
            entry = ArchiveEntry(
                bytes(view[at:header_at]),
                folded >> 1 ^ -(folded & 1),
                seq,
                bytes(view[header_at:payload_at]),
                bytes(view[payload_at:end]),
            )
        self.is_ended = entry == END
        return entry

    def _read_magic(self) -> bool:
        if len(self.data) < len(MAGIC):
            return False
        if not self.data.startswith(MAGIC):
            raise ArchiveError(f"an archive begins with {MAGIC.decode()}")
        self.offset = len(MAGIC)
        self._has_magic = True
        return True

    def _check_sizes(self, name_size: int, seq: int, header_size: int, payload_size: int) -> None:
        """Check the sizes of an entry before waiting for its bytes."""
        if name_size > NAME_BYTES_MAX:
            raise ArchiveError(f"a name of {name_size} bytes is longer than {NAME_BYTES_MAX}")
        size = header_size + payload_size
        if seq and size > self.message_bytes_max:
            raise ArchiveError(f"message sequence {seq} exceeds maximum payload size")
        if not seq and size > self.metadata_bytes_max:
            raise ArchiveError(f"an entry of {size} bytes is larger than {self.metadata_bytes_max}")


def read_uvarint(data: bytearray, at: int) -> tuple[int, int]:
    """Parse a number; returns it and where the next one begins. IndexError if the data ends in
    it.
    """
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift, limit = byte & 0x7F, 7, at + _NUMBER_BYTES_MAX
    while at + 1 < limit:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _NUMBER_MAX:
                break
            return value, at + 1
        shift += 7
    raise ArchiveError("a number in the archive does not fit in 64 bits")
