"""The mark of a change-over, in the metadata of a stream.

Owns its form. A mark is written in the same update that takes or gives the subjects, so that the
two never disagree, and every reader of the stream's configuration sees it. It never contacts a
server.
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
    """The state of a stream after a change-over."""

    PARKED = "parked"  # takes no messages: it gave them to the other side, or is about to
    DETACHED = "detached"  # was a mirror of a lost origin, and takes no messages yet
    PROMOTED = "promoted"  # was the mirror, and takes the messages now


class RecoveryMark(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The mark; `last_seq` is the last sequence of the mirror when it was promoted: both sides
    share a history up to there. `mirror` is how it mirrored its origin.
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
    """The metadata with this mark, or without any."""
    rest = {key: value for key, value in metadata.items() if key != MARK}
    return rest if mark is None else {**rest, MARK: msgspec.json.encode(mark).decode()}


def parked_subject(stream: str, change: str) -> str:
    """The subject of a stream that must not take messages, which has no publishers."""
    return PARKED.format(stream, change)
