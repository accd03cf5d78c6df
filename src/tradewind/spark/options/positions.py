"""The start and end of reads of single streams: `startingOffsets` and `endingOffsets`.

Owns their grammar. Both are a word for all streams, or a JSON object that names streams:

    {"ORDERS": 120, "LOGS": "latest", "AUDIT": {"time": "2026-11-16T08:00:00Z"}}

A number is the first or last sequence to read. A time is that of the oldest or newest message to
read. The module never accesses a stream; checks that need one are made by `check_named` and by the
readers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from tradewind.spark.errors import OptionError

WORDS: Final = ("earliest", "latest")
SEQUENCE_MAX: Final = (1 << 62) - 1
TIME_MEMBER: Final = "time"
# No real list of streams to read is longer than this.
TEXT_LENGTH_MAX: Final = 16 * 1024 * 1024
_NAMES_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Position:
    """A point in a stream: a sequence, else a time, else its begin or its end."""

    word: str = "earliest"
    seq: int = 0
    time_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Positions:
    """The points of some streams, and of all others."""

    others: Position
    named: Mapping[str, Position] = field(default_factory=dict)

    def of(self, stream: str) -> Position:
        """Where this stream begins, or ends."""
        return self.named.get(stream, self.others)

    def has_word(self, word: str) -> bool:
        """Whether any stream, or all, have this word."""
        points = (self.others, *self.named.values())
        return any(
            not point.seq and point.time_ns is None and point.word == word for point in points
        )


def parse_positions(
    option: str, text: str, others: str, parse_time_ns: Callable[[str, str], int]
) -> Positions:
    """The value of an option; streams that are not named have the word `others`."""
    if text.lower() in WORDS:
        return Positions(Position(text.lower()))
    if not text.startswith("{"):
        raise OptionError(
            option,
            f"{text[:64]!r} is neither {' nor '.join(WORDS)} nor a JSON object such as"
            ' {"ORDERS": 120, "LOGS": "latest"}',
        )
    named = {
        stream: _position(option, stream, value, parse_time_ns)
        for stream, value in _members(option, text).items()
    }
    return Positions(Position(others), named)


def _members(option: str, text: str) -> dict[str, Any]:
    """The members of the object; a name that comes twice is an error."""

    def unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise OptionError(option, f"{name!r} is named twice")
            found[name] = value
        return found

    if len(text) > TEXT_LENGTH_MAX:
        raise OptionError(option, f"{len(text)} characters; at most {TEXT_LENGTH_MAX} are read")
    try:
        members: dict[str, Any] = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise OptionError(option, f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise OptionError(option, "not JSON that names streams: it is nested too deeply") from None
    except ValueError:  # a number of thousands of digits
        raise OptionError(option, f"a number is above {SEQUENCE_MAX}") from None
    return members


def _position(
    option: str, stream: str, value: Any, parse_time_ns: Callable[[str, str], int]
) -> Position:
    if type(value) is int:
        if 0 < value <= SEQUENCE_MAX:
            return Position(seq=value)
        hint = '; "earliest" and "latest" are words here' if value in (-2, -1) else ""
        raise OptionError(
            option, f"{stream!r}: {value} is not a sequence from 1 to {SEQUENCE_MAX}{hint}"
        )
    if isinstance(value, str) and value.lower() in WORDS:
        return Position(value.lower())
    if isinstance(value, dict) and list(value) == [TIME_MEMBER]:
        moment = value[TIME_MEMBER]
        if not isinstance(moment, str):
            raise OptionError(option, f"{stream!r}: a time must be a string, not {_shown(moment)}")
        try:
            return Position(time_ns=parse_time_ns(option, moment))
        except OptionError as error:
            reason = str(error).removeprefix(f"option {option}: ")
            raise OptionError(option, f"{stream!r}: {reason}") from None
    raise OptionError(
        option,
        f"{stream!r}: {_shown(value)} is not a sequence, {', '.join(WORDS)} or"
        ' {"time": "2026-11-16T08:00:00Z"}',
    )


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 64 else f"{text[:64]}..."


def check_wanted(option: str, positions: Positions | None, wanted: Collection[str]) -> None:
    """Each stream that is named is one that the query reads."""
    for stream in positions.named if positions is not None and wanted else ():
        if not any(fnmatchcase(stream, pattern) for pattern in wanted):
            raise OptionError(
                option, f"{stream!r} is not read: the option stream is {','.join(wanted)}"
            )


def check_named(option: str, positions: Positions | None, names: Collection[str]) -> None:
    """Each stream that is named is there."""
    for stream in positions.named if positions is not None else ():
        if stream not in names:
            found = sorted(names)
            listed = ", ".join(found[:_NAMES_SHOWN]) or "none"
            more = f" and {len(found) - _NAMES_SHOWN} more" if len(found) > _NAMES_SHOWN else ""
            raise OptionError(option, f"stream {stream!r} does not exist; found: {listed}{more}")
