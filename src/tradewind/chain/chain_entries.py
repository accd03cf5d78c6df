"""Entries of a chain: what is hashed, and how a link is stored.

Owns the encoding of entries, their hashes and their records. It never opens a file and never
decides whether an entry is valid.

    data of entry i    link of entry i-1 (32)  kind (1)  body
    link of entry i    H(0x00  data)                             the leaf hash of RFC 6962
    link before all    H(0x02  stream name  0x00  created)       both as UTF-8

    body of a message  sequence (8)  time in ns (8)  subject length (4)  subject
                       header length (4)  header  payload
    body of a removal  time in ns (8)  reason (1)  count (4)  count x (first (8)  last (8))
    and of a return    the same; the sequences are back

    record             message: 0x01  sequence (8)  link (32)
                       others:  kind (1)  body length (4)  body  link (32)

Numbers are little endian. H is SHA-256 or BLAKE3 with 32 bytes. The record of a message is without
its body: that is the message in the store, so a message that is gone leaves nothing but its hash.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tradewind.errors import TradewindError

Digest = Callable[[bytes], bytes]

SHA256: Final = "sha256"
BLAKE3: Final = "blake3"
# Their numbers in the header of a file.
ALGORITHMS: Final = {SHA256: 1, BLAKE3: 2}
HASH_BYTES: Final = 32

MESSAGE: Final = 1
REMOVAL: Final = 2
RETURN: Final = 3
KINDS: Final = {MESSAGE: "message", REMOVAL: "removal", RETURN: "return"}

DELETED: Final = 1
PURGED: Final = 2
EXPIRED: Final = 3
ACKNOWLEDGED: Final = 4
LOST: Final = 5
REASONS: Final = {
    DELETED: "deleted",
    PURGED: "purged",
    EXPIRED: "expired",
    ACKNOWLEDGED: "acknowledged",
    LOST: "lost",
}

RANGES_MAX: Final = 1000
SEQUENCE_MAX: Final = (1 << 64) - 1

_LEAF: Final = b"\x00"
_FIRST: Final = b"\x02"
_MESSAGE_HEAD: Final = struct.Struct("<QqI")
_LENGTH: Final = struct.Struct("<I")
_REMOVAL_HEAD: Final = struct.Struct("<qBI")
_RANGE: Final = struct.Struct("<QQ")
_MESSAGE_RECORD: Final = struct.Struct("<BQ32s")
_OTHER_RECORD: Final = struct.Struct("<BI")

MESSAGE_RECORD_BYTES: Final = _MESSAGE_RECORD.size
BODY_BYTES_MAX: Final = _REMOVAL_HEAD.size + RANGES_MAX * _RANGE.size
RECORD_BYTES_MAX: Final = _OTHER_RECORD.size + BODY_BYTES_MAX + HASH_BYTES


class ChainError(TradewindError):
    """A chain, a proof or a checkpoint is invalid, or cannot be computed here."""


class RecordError(ChainError):
    """A record is invalid; `offset` is its first byte in the data."""

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        self.reason = reason
        super().__init__(f"byte {offset}: {reason}")


class Removal(NamedTuple):
    """Sequences that left a stream (or were brought back): when, why, and which, as ranges in
    order.
    """

    time_ns: int
    reason: int
    ranges: tuple[tuple[int, int], ...]


class ChainRecord(NamedTuple):
    """A stored entry: `sequence` of a message (else 0), `body` of anything else (else empty)."""

    kind: int
    sequence: int
    body: bytes
    link: bytes


def digest_of(algorithm: str) -> Digest:
    """The hash function of an algorithm; ChainError if this installation does not have it."""
    if algorithm == SHA256:
        return _sha256
    if algorithm != BLAKE3:
        raise ChainError(
            f"unknown algorithm {algorithm!r}; it must be one of {', '.join(ALGORITHMS)}"
        )
    try:
        from blake3 import blake3
    except ImportError:
        from tradewind.extra_packages import install_command  # not at each start of a server

        raise ChainError(
            f"this chain uses BLAKE3, which is not installed: {install_command('chain')}"
        ) from None

    def digest(data: bytes) -> bytes:
        return blake3(data).digest()

    return digest


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def first_link(digest: Digest, stream: str, created: str) -> bytes:
    """The link before entry 0; `created` is the text in the information about the stream."""
    return digest(_FIRST + stream.encode() + b"\x00" + created.encode())


def link_of(digest: Digest, before: bytes, kind: int, body: bytes) -> bytes:
    """The link of an entry with this body that follows the link `before`."""
    return digest(b"".join((_LEAF, before, kind.to_bytes(1, "little"), body)))


def message_body(
    sequence: int, time_ns: int, subject: bytes, header: bytes, payload: bytes
) -> bytes:
    """The body of a message; `header` is the whole block as stored, empty without headers."""
    head = _MESSAGE_HEAD.pack(sequence, time_ns, len(subject))
    return b"".join((head, subject, _LENGTH.pack(len(header)), header, payload))


def removal_body(time_ns: int, reason: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    """The body of a removal or a return; `ranges` are inclusive, in order and apart."""
    _check_ranges(reason, ranges)
    parts = [_REMOVAL_HEAD.pack(time_ns, reason, len(ranges))]
    parts += [_RANGE.pack(first, last) for first, last in ranges]
    return b"".join(parts)


def decode_removal(body: bytes) -> Removal:
    """Decode the body of a removal or a return; ChainError if it is invalid."""
    if len(body) < _REMOVAL_HEAD.size:
        raise ChainError(
            f"a removal must have at least {_REMOVAL_HEAD.size} bytes, not {len(body)}"
        )
    time_ns, reason, count = _REMOVAL_HEAD.unpack_from(body)
    wanted = _REMOVAL_HEAD.size + count * _RANGE.size
    if len(body) != wanted:
        raise ChainError(f"a removal of {count} ranges must have {wanted} bytes, not {len(body)}")
    ranges = tuple(_RANGE.iter_unpack(body[_REMOVAL_HEAD.size :]))
    _check_ranges(reason, ranges)
    return Removal(time_ns, reason, ranges)


def _check_ranges(reason: int, ranges: Sequence[tuple[int, int]]) -> None:
    if reason not in REASONS:
        raise ChainError(f"a removal must have a reason from 1 to {LOST}, not {reason}")
    if not 1 <= len(ranges) <= RANGES_MAX:
        raise ChainError(f"a removal must have from 1 to {RANGES_MAX} ranges, not {len(ranges)}")
    before = 0
    for first, last in ranges:
        if not before < first <= last <= SEQUENCE_MAX:
            raise ChainError(
                f"the ranges of a removal are in order and apart, which {first} to {last} is not"
            )
        before = last


def message_record(sequence: int, link: bytes) -> bytes:
    """The record of a message."""
    return _MESSAGE_RECORD.pack(MESSAGE, sequence, link)


def other_record(kind: int, body: bytes, link: bytes) -> bytes:
    """The record of a removal or a return."""
    return _OTHER_RECORD.pack(kind, len(body)) + body + link


def read_records(data: bytes, offset: int = 0, count: int = -1) -> tuple[list[ChainRecord], int]:
    """Parse all whole records from `offset` on, at most `count`; returns also where the next byte
    is.

    A RecordError for an unknown kind, or an impossible length. A record that ends beyond the data
    is left for the next call, so what is between the result and the end of the data is less than
    one record.
    """
    records: list[ChainRecord] = []
    end = len(data)
    while offset < end and len(records) != count:
        kind = data[offset]
        if kind == MESSAGE:
            if offset + MESSAGE_RECORD_BYTES > end:
                break
            _, sequence, link = _MESSAGE_RECORD.unpack_from(data, offset)
            records.append(ChainRecord(MESSAGE, sequence, b"", link))
            offset += MESSAGE_RECORD_BYTES
            continue
        if kind not in KINDS:
            raise RecordError(offset, f"a record must have a kind from 1 to {RETURN}, not {kind}")
        body_offset = offset + _OTHER_RECORD.size
        if body_offset > end:
            break
        body_bytes = _LENGTH.unpack_from(data, offset + 1)[0]
        if body_bytes > BODY_BYTES_MAX:
            raise RecordError(
                offset,
                f"a {KINDS[kind]} must have at most {BODY_BYTES_MAX} bytes, not {body_bytes}",
            )
        link_offset = body_offset + body_bytes
        if link_offset + HASH_BYTES > end:
            break
        body, link = data[body_offset:link_offset], data[link_offset : link_offset + HASH_BYTES]
        records.append(ChainRecord(kind, 0, body, link))
        offset = link_offset + HASH_BYTES
    return records, offset
