"""Delete markers: messages that replace the last message of a subject when it expires.

Owns the contents of a marker, its lifetime, and its interaction with the time to live of messages.
It never decides when a message is replaced, which is up to the store (`next_to_mark`);
`slow_path` has the marker stored.

    Nats-Marker-Reason: MaxAge   Nats-TTL: 1m0s   Nats-Rollup: sub        and no payload
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.durations import SECOND_NS, format_duration
from tradewind.stream import header_fields

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamConfig


def marker_ttl_ns(config: StreamConfig) -> int:
    """How long markers live, in whole seconds; 0: there are none."""
    return config.subject_delete_marker_ttl // SECOND_NS * SECOND_NS


def marker_header(config: StreamConfig) -> bytes:
    """The header of every marker of a stream."""
    return b"%s\r\n%s: MaxAge\r\n%s: %s\r\n%s: sub\r\n\r\n" % (
        header_fields.VERSION,
        header_fields.MARKER_REASON,
        header_fields.TTL,
        format_duration(marker_ttl_ns(config)).encode(),
        header_fields.ROLLUP,
    )


def with_longer_ttl(header: bytes, ttl_ns: int, config: StreamConfig) -> tuple[bytes, int]:
    """The header and time to live with which a message is stored.

    No message lives shorter than the markers of its stream: otherwise the marker of its predecessor
    could outlive it, and announce to watchers of a newer message that an older one has gone.
    """
    least_ns = marker_ttl_ns(config)
    if not 0 < ttl_ns < least_ns or config.max_msgs_per_subject == 1:
        return header, ttl_ns
    seconds = b"%s: %d\r\n" % (header_fields.TTL, least_ns // SECOND_NS)
    return header_fields.add_fields(
        header_fields.remove_field(header, header_fields.TTL), seconds
    ), least_ns
