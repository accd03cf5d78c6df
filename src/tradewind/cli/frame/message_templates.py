"""Message templates with `{{Count}}`, `{{TimeStamp}}`, `{{Random 10 100}}`.

Owns the functions for bodies, subjects and headers, with the names of the `nats` tool. It never
sends anything. A template is parsed once and filled in for each message.
"""

from __future__ import annotations

import datetime
import random
import re
import string
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from tradewind.client.core.nuid import Nuid
from tradewind.errors import TradewindError

RANDOM_LENGTH_MAX: Final = 64 << 20
_PLACE: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_LETTERS: Final = string.ascii_letters + string.digits
_SAFE: Final = "surrogateescape"  # bytes that are not UTF-8 come out as they went in


class TemplateError(TradewindError):
    """A `{{...}}` that means nothing here."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a message has of its own: its number, its time, and the request that it answers."""

    count: int = 1
    time_ns: int = 0
    request: bytes = b""

    @property
    def local(self) -> datetime.datetime:
        """Its time where the user is."""
        return datetime.datetime.fromtimestamp(self.time_ns / 1e9, datetime.UTC).astimezone()


Part = str | Callable[[Moment], str]


class Template:
    """A text that is filled in for each message.

    `functions` off leaves the text as it is. `chance` makes the random parts.
    """

    def __init__(
        self, text: str | bytes, *, functions: bool = True, chance: random.Random | None = None
    ) -> None:
        self._text = text.decode(errors=_SAFE) if isinstance(text, bytes) else text
        self._chance = chance or random.Random()  # noqa: S311 - test data, no secret
        self._ids = Nuid()
        self._parts = self._read() if functions and "{{" in self._text else [self._text]
        self._fixed = (
            self._text.encode(errors=_SAFE)
            if all(isinstance(part, str) for part in self._parts)
            else None
        )

    def fill(self, moment: Moment) -> str:
        """The text of one message."""
        return "".join(part if isinstance(part, str) else part(moment) for part in self._parts)

    def fill_bytes(self, moment: Moment) -> bytes:
        """The same as UTF-8; bytes that were none before stay as they were."""
        return self.fill(moment).encode(errors=_SAFE) if self._fixed is None else self._fixed

    def _read(self) -> list[Part]:
        parts: list[Part] = []
        for index, piece in enumerate(_PLACE.split(self._text)):
            if index % 2:
                parts.append(self._function(piece))
            elif piece:
                parts.append(piece)
        return parts

    def _function(self, inside: str) -> Callable[[Moment], str]:
        words = inside.replace("(", " ").replace(")", " ").replace(",", " ").split()
        name = words[0].removeprefix(".") if words else ""
        if name == "Random":
            return self._random(inside, words[1:])
        made = {
            **_FUNCTIONS,
            "ID": lambda _: self._ids.next(),
            "UUID": lambda _: str(uuid.UUID(int=self._chance.getrandbits(128), version=4)),
        }
        if name not in made or len(words) > 1:
            raise _unknown(inside, name, [*made, "Random"])
        return made[name]

    def _random(self, inside: str, sizes: list[str]) -> Callable[[Moment], str]:
        if len(sizes) != 2 or not all(size.isdecimal() for size in sizes):
            raise TemplateError(f"{{{{{inside}}}}}: write {{{{Random MIN MAX}}}}, two lengths")
        shortest, longest = int(sizes[0]), int(sizes[1])
        if not shortest <= longest <= RANDOM_LENGTH_MAX:
            raise TemplateError(
                f"{{{{{inside}}}}}: MIN must be at most MAX, and MAX at most {RANDOM_LENGTH_MAX}"
            )
        chance = self._chance
        return lambda _: "".join(chance.choices(_LETTERS, k=chance.randint(shortest, longest)))


def now(count: int, request: bytes = b"") -> Moment:
    """A message of this number, made now."""
    return Moment(count, time.time_ns(), request)


def _unknown(inside: str, name: str, known: list[str]) -> TemplateError:
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {{{{{near[0]}}}}}?" if near else f"available: {', '.join(sorted(known))}"
    return TemplateError(
        f"{{{{{inside}}}}} is not a function: {hint} (--no-templates sends it unchanged)"
    )


def _clock(moment: Moment) -> str:
    """The time of day as a kitchen clock shows it: `3:04PM`."""
    local = moment.local
    return f"{local.hour % 12 or 12}:{local:%M%p}"


_FUNCTIONS: Final[dict[str, Callable[[Moment], str]]] = {
    "Count": lambda moment: str(moment.count),
    "Cnt": lambda moment: str(moment.count),
    "TimeStamp": lambda moment: moment.local.isoformat(timespec="seconds").replace("+00:00", "Z"),
    "Unix": lambda moment: str(moment.time_ns // 1_000_000_000),
    "UnixNano": lambda moment: str(moment.time_ns),
    "Time": _clock,
    "Request": lambda moment: moment.request.decode(errors=_SAFE),
}
