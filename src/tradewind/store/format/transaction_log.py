"""tradewind.commits.<N>: changes of several streams and consumers that happen together.

Owns the format of this journal. Never touches the disk. nats-server does not know it, and leaves
files alone that are not its own.

    8 bytes "twcommt1", 8 LE number N, then records:
        4 LE size of the body, 8 LE hash of N, the record's offset and the body, body

A body is MessagePack, sealed with the key of the journal where the store is encrypted: an array
whose first member says what it is:

    "commit"  parts, acks, deletes, and revivals, if there are any
        part: stream, time of its creation, messages
            message: sequence, time, subject, header, payload, id, time to live, rollup, whether
                     only its sequence is used up
        ack: stream, time of its creation, consumer, time of its creation, sequence
        delete: stream, time of its creation, sequence
        revival: as an ack, the other way round
    "void"    stream, consumer: what was written before no longer counts for that consumer,
              or for the whole stream if the name of the consumer is empty

Records are only appended, and a sync covers all before it; so the first one that does not verify is
where a write was cut off, and it was never promised. Sequences are exact: a part is in its stream
if the stream has given out its sequences, whatever has become of the messages since.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tradewind.store.format.hash import key_for
from tradewind.store.format.layout import JOURNAL_PREFIX

MAGIC: Final = b"twcommt1"
HEADER_BYTES: Final = 16
FRAME_BYTES: Final = 12
_KEY: Final = key_for("tradewind commits")


class JournaledMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message under its sequence, as it is stored."""

    seq: int
    timestamp: int
    subject: bytes
    header: bytes
    payload: bytes
    message_id: bytes
    ttl_ns: int
    rollup: str
    is_skip: bool


class JournaledPart(msgspec.Struct, frozen=True, array_like=True):
    """The messages for one stream; their sequences follow each other."""

    stream: str
    created_ns: int
    messages: list[JournaledMessage]


class JournaledAck(msgspec.Struct, frozen=True, array_like=True):
    """A message that one consumer no longer needs."""

    stream: str
    created_ns: int
    consumer: str
    consumer_created_ns: int
    seq: int


class JournaledDelete(msgspec.Struct, frozen=True, array_like=True):
    """A message that is no longer in its stream."""

    stream: str
    created_ns: int
    seq: int


class JournaledTransaction(msgspec.Struct, frozen=True, array_like=True, tag="commit"):
    """A transaction, which happens completely or not at all."""

    parts: list[JournaledPart]
    acks: list[JournaledAck]
    deletes: list[JournaledDelete]
    revivals: list[JournaledAck] = []


class JournaledVoid(msgspec.Struct, frozen=True, array_like=True, tag="void"):
    """Invalidates earlier records of a stream or consumer; see the module."""

    stream: str
    consumer: str


JournalEntry = JournaledTransaction | JournaledVoid
_DECODER: Final[msgspec.msgpack.Decoder[JournaledTransaction | JournaledVoid]] = (
    msgspec.msgpack.Decoder(JournalEntry)
)


def journal_name(number: int) -> str:
    """The file name of a journal."""
    return f"{JOURNAL_PREFIX}{number}"


def journal_numbers(names: list[str]) -> list[int]:
    """The journals among the files of an account, oldest first."""
    found = [name.removeprefix(JOURNAL_PREFIX) for name in names if name.startswith(JOURNAL_PREFIX)]
    return sorted(
        int(digits) for digits in found if digits.isascii() and digits.isdigit() and digits != ""
    )


def journal_header(number: int) -> bytes:
    """The beginning of a journal."""
    return MAGIC + number.to_bytes(8, "little")


def encode_entry(entry: JournalEntry) -> bytes:
    """The body of a record."""
    return msgspec.msgpack.encode(entry)


def decode_entry(body: bytes) -> JournalEntry:
    """Decode the body of a record; msgspec.DecodeError if it was not written by this format."""
    return _DECODER.decode(body)


def journal_record(number: int, offset: int, body: bytes) -> bytes:
    """A record that begins at `offset` of the journal `number`."""
    return len(body).to_bytes(4, "little") + _record_hash(number, offset, body) + body


def _record_hash(number: int, offset: int, body: bytes) -> bytes:
    return _KEY.hash_parts([number.to_bytes(8, "little"), offset.to_bytes(8, "little"), body])


def read_bodies(number: int, data: bytes) -> list[bytes]:
    """The bodies of the complete records of a journal."""
    if data[:HEADER_BYTES] != journal_header(number):
        return []
    offset, bodies = HEADER_BYTES, []
    while len(data) - offset > FRAME_BYTES:
        start = offset + FRAME_BYTES
        end = start + int.from_bytes(data[offset : offset + 4], "little")
        body = data[start:end]
        if end > len(data) or _record_hash(number, offset, body) != data[offset + 4 : start]:
            break
        bodies.append(body)
        offset = end
    return bodies
