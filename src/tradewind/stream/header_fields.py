"""Header fields of a message in a stream: find, remove, add.

Owns finding names and values in a header block, byte for byte as nats-server does: at the beginning
of a line, and only the first occurrence. It never parses fields that are not requested.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = b"NATS/1.0"
EMPTY: Final = VERSION + b"\r\n\r\n"

MESSAGE_ID: Final = b"Nats-Msg-Id"
EXPECTED_STREAM: Final = b"Nats-Expected-Stream"
EXPECTED_LAST_SEQUENCE: Final = b"Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQUENCE: Final = b"Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT: Final = b"Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_LAST_MESSAGE_ID: Final = b"Nats-Expected-Last-Msg-Id"
ROLLUP: Final = b"Nats-Rollup"
TTL: Final = b"Nats-TTL"
MARKER_REASON: Final = b"Nats-Marker-Reason"
INCREMENT: Final = b"Nats-Incr"
COUNTER_SOURCES: Final = b"Nats-Counter-Sources"
BATCH_ID: Final = b"Nats-Batch-Id"
BATCH_SEQUENCE: Final = b"Nats-Batch-Sequence"
BATCH_COMMIT: Final = b"Nats-Batch-Commit"
REQUIRED_API_LEVEL: Final = b"Nats-Required-Api-Level"
SCHEDULE: Final = b"Nats-Schedule"
SCHEDULE_TARGET: Final = b"Nats-Schedule-Target"
SCHEDULE_SOURCE: Final = b"Nats-Schedule-Source"
SCHEDULE_TTL: Final = b"Nats-Schedule-TTL"
SCHEDULE_ROLLUP: Final = b"Nats-Schedule-Rollup"
SCHEDULE_TIME_ZONE: Final = b"Nats-Schedule-Time-Zone"
SCHEDULE_NEXT: Final = b"Nats-Schedule-Next"
SCHEDULER: Final = b"Nats-Scheduler"
STREAM_SOURCE: Final = b"Nats-Stream-Source"
REQUEST_INFO: Final = b"Nats-Request-Info"

_DEMANDS: Final = (
    b"Nats-Schedule",
    b"Nats-Expected-",
    MESSAGE_ID + b":",
    TTL + b":",
    ROLLUP + b":",
)


def special_fields(header: bytes) -> dict[bytes, bytes]:
    """The fields whose names begin with "Nats-": the first of each name, without leading blanks."""
    fields: dict[bytes, bytes] = {}
    for line in header.split(b"\r\n")[1:]:
        if line.startswith(b"Nats-"):
            name, colon, value = line.partition(b":")
            if colon and name not in fields:
                fields[name] = value.lstrip(b" ")
    return fields


def remove_field(header: bytes, name: bytes) -> bytes:
    """The block without all fields of that name; empty if no field is left."""
    mark = name + b":"
    if b"\r\n" + mark not in header:
        return header
    first, *lines = header.split(b"\r\n")
    header = b"\r\n".join([first, *(line for line in lines if not line.startswith(mark))])
    return b"" if header == EMPTY else header


def without_demands(header: bytes) -> bytes:
    """The block without fields that applied only to the original message."""
    if not header:
        return header
    first, *lines = header.split(b"\r\n")
    kept = [line for line in lines if not line.startswith(_DEMANDS)]
    header = b"\r\n".join([first, *kept])
    return b"" if header == EMPTY else header


def replace_field(header: bytes, name: bytes, value: bytes) -> bytes:
    """The block with this value in the first field of that name, or in a new one at the end."""
    start = header.find(b"\r\n" + name + b":")
    if start < 0:
        return add_fields(header, b"%s: %s\r\n" % (name, value))
    end = header.find(b"\r\n", start + 2)
    return b"%s\r\n%s: %s%s" % (header[:start], name, value, header[end:])


def clean(header: bytes) -> bytes:
    """A header block as it is stored: without a status, and without fields that name the
    requester.
    """
    if not header:
        return header
    if not header.startswith(VERSION + b"\r\n"):
        _, end, rest = header.partition(b"\r\n")
        header = VERSION + end + rest
        if not end or header == EMPTY:
            return b""
    return remove_field(header, REQUEST_INFO)


def add_fields(header: bytes, fields: bytes) -> bytes:
    """The block with more fields at its end; `fields` are whole lines."""
    return (header[:-2] if header else VERSION + b"\r\n") + fields + b"\r\n"
