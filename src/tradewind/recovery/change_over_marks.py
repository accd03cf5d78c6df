"""The mark of a change-over, in the metadata of a stream.

Owns its form. A mark is written in the same update that takes or gives the subjects, so that the
two never disagree, and everybody who looks at the stream sees it. It never contacts a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from tradewind.api.stream_types import StreamConfig
from tradewind.recovery.recovery_errors import RecoveryError

MARK: Final = "tradewind.recovery"
PARKED: Final = "tradewind.recovery.parked.{}.{}"


class Role(StrEnum):
    """What a change-over has made of a stream."""

    PARKED = "parked"  # takes no messages: it gave them to the other side, or is about to
    DETACHED = "detached"  # was a mirror of a lost origin, and takes no messages yet
    PROMOTED = "promoted"  # was the mirror, and takes the messages now


class RecoveryMark(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`last_seq` is what the mirror had when it was promoted: both sides share a history up to
    there. `mirror` is how it mirrored its origin.
    """

    id: str
    role: Role
    is_lost: bool = False
    last_seq: int = 0
    at_ns: int = 0
    origin: str = ""
    mirror: dict[str, Any] = {}


def read_mark(config: StreamConfig) -> RecoveryMark | None:
    """The mark of a stream; None if no change-over has touched it."""
    text = config.metadata.get(MARK)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=RecoveryMark)
    except msgspec.MsgspecError as error:
        raise RecoveryError(
            f"stream {config.name}: its metadata {MARK!r} is damaged: {error}"
        ) from None


def marked(metadata: Mapping[str, str], mark: RecoveryMark | None) -> dict[str, str]:
    """Metadata with this mark, or without any."""
    rest = {key: value for key, value in metadata.items() if key != MARK}
    return rest if mark is None else {**rest, MARK: msgspec.json.encode(mark).decode()}


def parked_subject(stream: str, change: str) -> str:
    """What a stream stores that must not take messages: nobody publishes there."""
    return PARKED.format(stream, change)
