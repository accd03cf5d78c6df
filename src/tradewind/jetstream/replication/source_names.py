"""Identifies sources: in headers, in files, and when a configuration changes.

Owns the index name of a source, the identity of a stream, and the header with the origin of a copy,
all as in nats-server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tradewind.api.stream_types import StreamSource
from tradewind.api.times import format_time
from tradewind.store.format.layout import short_hash

if TYPE_CHECKING:
    from tradewind.stream.stream import Stream

SEPARATOR: Final = "\x0c"
EVERYTHING: Final = ">"
_ACK_PREFIX: Final = ["$JS", "ACK"]
# Fields of an ack subject in its two forms, and where they have the sequence of the stream.
_ACK_STREAM_SEQ: Final = 5
_ACK_STREAM_SEQ_LONG: Final = 7
_ACK_FIELDS_SHORT: Final = 9


def identity_of(stream: Stream) -> str:
    """The identity of a stream, which changes when it is deleted and created again."""
    return short_hash(format_time(stream.created_ns))


class IndexName(NamedTuple):
    """The three parts that identify a source."""

    stream: str
    filters: str
    destinations: str

    @property
    def text(self) -> str:
        """The form in files."""
        return " ".join(self)


def index_name(source: StreamSource) -> IndexName:
    """The index name of a configured source."""
    stream = source.name
    if source.external is not None:
        stream += f":{short_hash(source.external.api)}"
    if source.consumer is not None:
        stream += f":C={short_hash(source.consumer.name)}"
    if not source.subject_transforms:
        return IndexName(stream, source.filter_subject or EVERYTHING, EVERYTHING)
    return IndexName(
        stream,
        SEPARATOR.join(each.src or EVERYTHING for each in source.subject_transforms),
        SEPARATOR.join(each.dest or EVERYTHING for each in source.subject_transforms),
    )


def patterns_of(source: StreamSource) -> tuple[bytes, ...]:
    """The subjects of the origin that are copied; none means all."""
    patterns = [source.filter_subject] if source.filter_subject else []
    patterns += [each.src or EVERYTHING for each in source.subject_transforms]
    if EVERYTHING in patterns:
        return ()
    return tuple(pattern.encode("utf-8", "surrogateescape") for pattern in patterns)


class Origin(NamedTuple):
    """The origin in the header of a copy. `name` has no filters if the header has an old form."""

    name: IndexName
    seq: int
    identity: str


def parse_source_header(value: bytes) -> Origin | None:
    """Parse a Nats-Stream-Source value, in any form that servers have written; None if it is
    invalid.
    """
    fields = value.decode("utf-8", "surrogateescape").strip().split(" ")
    if len(fields) == 1:
        return _from_ack_subject(fields[0])
    if len(fields) == 3 or not fields[1].isascii() or not fields[1].isdigit():
        return None
    filters, destinations = (fields[2], fields[3]) if len(fields) > 3 else ("", "")
    identity = fields[5] if len(fields) > 5 else ""
    return Origin(IndexName(fields[0], filters, destinations), int(fields[1]), identity)


def _from_ack_subject(subject: str) -> Origin | None:
    tokens = subject.split(".")
    if tokens[:2] != _ACK_PREFIX or len(tokens) < _ACK_FIELDS_SHORT:
        return None
    is_short = len(tokens) == _ACK_FIELDS_SHORT
    seq = tokens[_ACK_STREAM_SEQ if is_short else _ACK_STREAM_SEQ_LONG]
    stream = tokens[2 if is_short else 4]
    if not seq.isascii() or not seq.isdigit():
        return None
    return Origin(IndexName(stream, "", ""), int(seq), "")
