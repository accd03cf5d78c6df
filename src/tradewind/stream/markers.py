"""Delete markers: what takes the place of the last message of a subject when that expires.

Owns what a marker says, how long it stays, and how the time to live of messages goes with it. When
a message is to be replaced is decided by the store (`next_to_mark`); `Stream` stores the marker.

    Nats-Marker-Reason: MaxAge   Nats-TTL: 1m0s   Nats-Rollup: sub        and no payload
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.durations import SECOND_NS, format_duration
from tradewind.stream import headers

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamConfig


def marker_ttl_ns(config: StreamConfig) -> int:
    """How long markers stay, in whole seconds; 0: there are none."""
    return config.subject_delete_marker_ttl // SECOND_NS * SECOND_NS


def marker_header(config: StreamConfig) -> bytes:
    """The header of every marker of a stream."""
    return b"%s\r\n%s: MaxAge\r\n%s: %s\r\n%s: sub\r\n\r\n" % (
        headers.VERSION,
        headers.MARKER_REASON,
        headers.TTL,
        format_duration(marker_ttl_ns(config)).encode(),
        headers.ROLLUP,
    )


def with_longer_ttl(header: bytes, ttl_ns: int, config: StreamConfig) -> tuple[bytes, int]:
    """The header and time to live with which a message is stored.

    None lives shorter than the markers of its stream: else the marker of its predecessor could
    outlive it, and tell watchers of a newer message that an older one has gone.
    """
    least_ns = marker_ttl_ns(config)
    if not 0 < ttl_ns < least_ns or config.max_msgs_per_subject == 1:
        return header, ttl_ns
    seconds = b"%s: %d\r\n" % (headers.TTL, least_ns // SECOND_NS)
    return headers.add_fields(headers.remove_field(header, headers.TTL), seconds), least_ns
