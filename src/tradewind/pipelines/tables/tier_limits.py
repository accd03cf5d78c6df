"""The limits of a stream in two tiers, and what threatens messages that its table does not have.

Owns two lists. The limits of the tier (`tier_limits` of a table) are applied by the table's runner,
and only to messages that were verified in the table. The limits of the stream are applied by the
server, which does not know the table: where one of them can remove a message, the message is not
protected. The module asks no server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.durations import format_duration
from tradewind.pipelines.notation.intervals import parse_interval_ms

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamConfig

LIMITS: Final = ("max_age", "max_msgs", "max_bytes")
_SIZE: Final = re.compile(r"(\d{1,18})\s*(?:([kmgtp])i?)?b?", re.IGNORECASE)
_SIZE_UNITS: Final = "kmgtp"
_COUNT_MAX: Final = 2**63 - 1


class TierLimits(msgspec.Struct, frozen=True):
    """The limits of a stream for the messages that its table has; 0 means no limit."""

    max_age_ns: int = 0
    max_msgs: int = 0
    max_bytes: int = 0

    @property
    def is_set(self) -> bool:
        """Whether anything leaves the stream by them."""
        return bool(self.max_age_ns or self.max_msgs or self.max_bytes)


def parse_tier_limits(given: Mapping[str, str | int]) -> TierLimits:
    """The limits that a table names; ValueError says what would be right."""
    if unknown := sorted(given.keys() - set(LIMITS)):
        raise ValueError(f"{unknown[0]!r} must be one of {', '.join(LIMITS)}")
    age = given.get("max_age")
    if age is not None and not isinstance(age, str):
        raise ValueError(f"max_age must be a duration such as 12h or 7d, not {age}")
    try:
        age_ms = 0 if age is None else parse_interval_ms(age)
    except ValueError as error:
        raise ValueError(f"max_age: {error}") from None
    return TierLimits(
        age_ms * 1_000_000, _number(given, "max_msgs", units=False), _number(given, "max_bytes")
    )


def _number(given: Mapping[str, str | int], name: str, *, units: bool = True) -> int:
    if name not in given:
        return 0
    found = _SIZE.fullmatch(str(given[name]).strip())
    example = "10GB" if units else "1000000"
    number = 0
    if found is not None and (units or str(given[name]).strip().isdecimal()):
        number = int(found[1]) << 10 * (_SIZE_UNITS.find((found[2] or " ").lower()) + 1)
    if not 0 < number <= _COUNT_MAX:
        kind = "size" if units else "number"
        raise ValueError(f"{name} must be a {kind} such as {example}, not {given[name]!r}")
    return number


def removing_limits(config: StreamConfig) -> list[str]:
    """The settings by which the server may remove a message that the table does not have yet.

    A stream that refuses new messages at its limits keeps the old ones.
    """
    found = []
    refuses = config.discard == "new"
    if config.retention != "limits":
        found.append(f"retention {config.retention}")
    if config.max_age > 0:
        found.append(f"max_age {format_duration(config.max_age)}")
    if not refuses:
        counts = {name: getattr(config, name) for name in ("max_msgs", "max_bytes")}
        found += [f"{name} {count}" for name, count in counts.items() if count > 0]
    if config.max_msgs_per_subject > 0 and not (refuses and config.discard_new_per_subject):
        found.append(f"max_msgs_per_subject {config.max_msgs_per_subject}")
    if config.allow_msg_ttl:
        found.append("allow_msg_ttl")
    return found
