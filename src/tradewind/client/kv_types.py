"""What a key-value bucket gives out: entries and its status.

Owns the rules for keys and how a stored message becomes an entry, as all NATS clients have it:
values are messages, and deleting a key stores a marker. Never talks to the server.
"""

from __future__ import annotations

import datetime
import re
from enum import StrEnum
from typing import Final

from msgspec import Struct

from tradewind.api.stream_types import Compression, StorageType, StreamInfo
from tradewind.api.times import parse_time
from tradewind.client.bucket_settings import KV_STREAM
from tradewind.client.errors import BadAnswerError, BadKeyError
from tradewind.client.headers import Headers
from tradewind.client.message import Msg
from tradewind.subjects import is_valid_subject

NS_PER_SECOND: Final = 1_000_000_000
OPERATION: Final = "KV-Operation"
MARKER_REASON: Final = "Nats-Marker-Reason"
MESSAGE_SIZE: Final = "Nats-Msg-Size"
_KEY = re.compile(r"[-/_=a-zA-Z0-9]+(?:\.[-/_=a-zA-Z0-9]+)*")
_FILTER = re.compile(r"[-/_=.*>a-zA-Z0-9]+")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Operation(StrEnum):
    """What an entry stands for. Of a purged key nothing older is left."""

    PUT = "PUT"
    DELETE = "DEL"
    PURGE = "PURGE"


# Why the server removed a value by itself, and what that is to a watcher.
_REASONS = {
    "MaxAge": Operation.PURGE,
    "Purge": Operation.PURGE,
    "Remove": Operation.DELETE,
}


class Entry(Struct, frozen=True):
    """A value of a key, or the marker that it was deleted.

    `revision` counts all changes of the bucket. `delta` is how many newer entries the same watch or
    history still has. With `meta_only` there is no `value`, and `size` says how large it is.
    """

    bucket: str
    key: str
    value: bytes
    revision: int
    created_ns: int
    operation: Operation = Operation.PUT
    delta: int = 0
    size: int = 0

    @property
    def created(self) -> datetime.datetime:
        """When it was stored, in UTC (to the microsecond; `created_ns` is exact)."""
        return _EPOCH + datetime.timedelta(microseconds=self.created_ns // 1000)

    @property
    def is_deleted(self) -> bool:
        """Whether it is a marker instead of a value."""
        return self.operation is not Operation.PUT


def check_key(key: str) -> None:
    """BadKeyError if it cannot be a key."""
    if not _KEY.fullmatch(key):
        raise BadKeyError(f"key {key!r}: letters, digits and -/_= in parts joined by single dots")


def check_filter(text: str) -> None:
    """BadKeyError if it is neither a key nor a pattern of keys."""
    if not _FILTER.fullmatch(text) or not is_valid_subject(text):
        raise BadKeyError(
            f"keys {text!r}: a key, or a pattern with * for one part and > for all that follow"
        )


def operation_of(headers: Headers) -> Operation:
    """What a stored message stands for."""
    reason = headers.get(MARKER_REASON)
    if reason is not None:
        return _REASONS.get(reason, Operation.PURGE)
    text = headers.get(OPERATION)
    if text is None or text == Operation.PUT:
        return Operation.PUT
    return Operation.PURGE if text == Operation.PURGE else Operation.DELETE


def entry_from_direct(bucket: str, prefix_size: int, message: Msg) -> Entry:
    """The entry in the answer to a direct get."""
    block = message.header_block
    try:
        # Behind the stored headers, so the last of a name is the server's own.
        subject = _last(block, b"\r\nNats-Subject: ").decode()
        revision = int(_last(block, b"\r\nNats-Sequence: "))
        created_ns = parse_time(_last(block, b"\r\nNats-Time-Stamp: ").decode())
    except ValueError as error:
        raise BadAnswerError(f"direct get: the answer lacks a header: {error}") from None
    operation = Operation.PUT
    if b"KV-Operation" in block or b"Nats-Marker-Reason" in block:
        operation = operation_of(message.headers)
    data = message.data
    key = subject[prefix_size:]
    return Entry(bucket, key, data, revision, created_ns, operation, 0, len(data))


def entry_from_delivery(bucket: str, prefix_size: int, message: Msg) -> Entry:
    """The entry in a message that a consumer delivered."""
    metadata = message.metadata
    data = message.data
    operation = Operation.PUT
    size = len(data)
    if message.header_block:
        headers = message.headers
        operation = operation_of(headers)
        if not size and MESSAGE_SIZE in headers:
            size = int(headers[MESSAGE_SIZE])
    return Entry(
        bucket,
        message.subject[prefix_size:],
        data,
        metadata.stream_sequence,
        metadata.timestamp_ns,
        operation,
        metadata.pending_count,
        size,
    )


def _last(block: bytes, name: bytes) -> bytes:
    start = block.rfind(name)
    if start < 0:
        raise ValueError(name.decode().strip(" :\r\n"))
    start += len(name)
    return block[start : block.index(b"\r\n", start)]


class KvStatus(Struct, frozen=True):
    """A bucket as it is now; `info` is all about its stream. Times are in seconds."""

    info: StreamInfo

    @property
    def bucket(self) -> str:
        """Its name."""
        return self.info.config.name.removeprefix(KV_STREAM)

    @property
    def description(self) -> str:
        """What it is for."""
        return self.info.config.description

    @property
    def metadata(self) -> dict[str, str]:
        """What its maker added, and what the server adds."""
        return self.info.config.metadata

    @property
    def values(self) -> int:
        """How many values and markers it holds, old ones included."""
        return self.info.state.messages

    @property
    def bytes(self) -> int:
        """How large all of them are."""
        return self.info.state.bytes

    @property
    def history(self) -> int:
        """How many values of a key are kept."""
        return self.info.config.max_msgs_per_subject

    @property
    def ttl(self) -> float:
        """How long values are kept; 0: forever."""
        return self.info.config.max_age / NS_PER_SECOND

    @property
    def marker_ttl(self) -> float:
        """How long markers of expired keys are kept; 0: there are none."""
        return self.info.config.subject_delete_marker_ttl / NS_PER_SECOND

    @property
    def storage(self) -> StorageType:
        """Where it is kept."""
        return self.info.config.storage

    @property
    def replicas(self) -> int:
        """How many servers keep a copy."""
        return self.info.config.num_replicas

    @property
    def is_compressed(self) -> bool:
        """Whether it is compressed on disk."""
        return self.info.config.compression is Compression.S2

    @property
    def is_mirror(self) -> bool:
        """Whether it is a read-only copy of another bucket."""
        return self.info.config.mirror is not None
