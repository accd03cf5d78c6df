"""The types of key-value buckets that all NATS clients share, and the status of a bucket.

Owns the meaning of a stored message: values are messages, and deleting a key stores a marker. The
entries themselves are in `entries.pyx`. It never contacts the server.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from tradewind.api.names import KV_STREAM
from tradewind.client.core.headers import Headers
from tradewind.client.errors import BadKeyError
from tradewind.client.streams.bucket_status import BucketStatus
from tradewind.durations import DURATION_NS_MAX, SECOND_NS, parse_duration_ns
from tradewind.subjects import is_valid_subject

OPERATION: Final = "KV-Operation"
MARKER_REASON: Final = "Nats-Marker-Reason"
MESSAGE_SIZE: Final = "Nats-Msg-Size"
TTL_HEADER: Final = "Nats-TTL"
# Instead of a time to live: the new value expires when the old one would have.
KEEP_TTL: Final = "keep"
# More digits of seconds exceed 64 bits of nanoseconds in any case.
TTL_DIGITS_MAX: Final = 12
_FILTER = re.compile(r"[-/_=.*>a-zA-Z0-9]+")


class Operation(StrEnum):
    """The change that an entry records. PURGE also removed all older entries of the key, and so
    did EXPIRED, by which the server reports that the time to live of the value has passed.
    """

    PUT = "PUT"
    DELETE = "DEL"
    PURGE = "PURGE"
    EXPIRED = "EXPIRED"


# Why the server removed a value by itself, and what that is to a watcher.
_REASONS = {
    "MaxAge": Operation.EXPIRED,
    "Purge": Operation.PURGE,
    "Remove": Operation.DELETE,
}


def check_filter(text: str) -> None:
    """BadKeyError if it is neither a key nor a pattern of keys."""
    if not _FILTER.fullmatch(text) or not is_valid_subject(text):
        raise BadKeyError(
            f"keys {text!r}: a key, or a pattern with * for one part and > for all that follow"
        )


def operation_of(headers: Headers) -> Operation:
    """The operation that a stored message stands for, from its headers."""
    reason = headers.get(MARKER_REASON)
    if reason is not None:
        return _REASONS.get(reason, Operation.PURGE)
    text = headers.get(OPERATION)
    if text is None or text == Operation.PUT:
        return Operation.PUT
    return Operation.PURGE if text == Operation.PURGE else Operation.DELETE


def ttl_ns_of(text: str) -> int | None:
    """The nanoseconds of a Nats-TTL header, which has seconds or a duration; None: no expiry."""
    if text.isascii() and text.isdecimal():
        return min(int(text[:TTL_DIGITS_MAX]) * SECOND_NS, DURATION_NS_MAX)
    return parse_duration_ns(text)


class KvStatus(BucketStatus, frozen=True):
    """A bucket as it is now."""

    stream_prefix = KV_STREAM

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
        """The number of values stored per key."""
        return self.info.config.max_msgs_per_subject

    @property
    def marker_ttl(self) -> float:
        """The seconds after which markers of expired keys are removed; 0: there are no markers."""
        return self.info.config.subject_delete_marker_ttl / SECOND_NS

    @property
    def is_mirror(self) -> bool:
        """Whether it is a read-only copy of another bucket."""
        return self.info.config.mirror is not None
