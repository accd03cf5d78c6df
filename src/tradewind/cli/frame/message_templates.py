"""Message templates with `{{Count}}`, `{{TimeStamp}}`, `{{Random 10 100}}`.

Owns the functions for bodies, subjects and headers, with the names of the `nats` tool. It never
sends anything. A template is parsed once and filled in for each message; what is filled in is data,
and never parsed again.
"""

from __future__ import annotations

import datetime
import random
import shlex
import string
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from tradewind.client.core.nuid import Nuid
from tradewind.errors import TradewindError

RANDOM_LENGTH_MAX: Final = 64 << 20
TOKEN_DIGITS_MAX: Final = 4
_LETTERS: Final = string.ascii_letters + string.digits
_SAFE: Final = "surrogateescape"  # bytes that are not UTF-8 come out as they went in


class TemplateError(TradewindError):
    """A `{{...}}` that means nothing here."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The values that belong to one message: its number, its time, and the request it answers.

    `tokens` are those of the subject of the request.
    """

    count: int = 1
    time_ns: int = 0
    request: bytes = b""
    tokens: tuple[str, ...] = ()

    @property
    def local(self) -> datetime.datetime:
        """The time of the message in the user's time zone."""
        return datetime.datetime.fromtimestamp(self.time_ns / 1e9, datetime.UTC).astimezone()


Part = str | Callable[[Moment], str]


class Template:
    """A text that is filled in for each message.

    `functions` off leaves the text as it is. `chance` makes the random parts. With `tokens`
    `{{0}}`, `{{1}}` ... are the tokens of the request's subject; one that is not there is empty.
    """

    def __init__(
        self,
        text: str | bytes,
        *,
        functions: bool = True,
        tokens: bool = False,
        chance: random.Random | None = None,
    ) -> None:
        self._has_tokens = tokens
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
        for piece, is_place in _pieces(self._text):
            if is_place:
                parts.append(self._function(piece))
            elif piece:
                parts.append(piece)
        return parts

    def _function(self, inside: str) -> Callable[[Moment], str]:
        words = inside.replace("(", " ").replace(")", " ").replace(",", " ").split()
        name = words[0].removeprefix(".") if words else ""
        if self._has_tokens and len(words) == 1 and name.isdecimal() and name.isascii():
            index = int(name) if len(name) <= TOKEN_DIGITS_MAX else -1
            return lambda moment: moment.tokens[index] if 0 <= index < len(moment.tokens) else ""
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


class CommandTemplate:
    """The words of a command line, each filled in for itself: no value ever becomes two words."""

    def __init__(self, text: str) -> None:
        """Split the line as a shell does; ValueError says what is wrong with it."""
        # A place may have blanks inside. No word of a command can hold a zero byte, so it marks
        # them while the line is split.
        places: list[str] = []
        marked = ""
        for piece, is_place in _pieces(text.replace("\0", "")):
            marked += f"\0{len(places)}\0" if is_place else piece
            if is_place:
                places.append(f"{{{{{piece}}}}}")
        self._words = []
        for word in shlex.split(marked):
            parts = word.split("\0")
            parts[1::2] = [places[int(number)] for number in parts[1::2]]
            self._words.append(Template("".join(parts), tokens=True))
        if not self._words:
            raise ValueError("it has no words")

    def fill(self, moment: Moment) -> list[str]:
        """The program and its arguments, without zero bytes."""
        return [word.fill(moment).replace("\0", "") for word in self._words]


def now(count: int, request: bytes = b"", subject: str = "") -> Moment:
    """A message of this number, made now, and the request that it answers."""
    return Moment(count, time.time_ns(), request, tuple(subject.split(".")))


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """The text between places, and what is inside of places, in turn."""
    start = 0
    while (opened := text.find("{{", start)) >= 0:
        closed = text.find("}}", opened + 2)
        if closed < 0:
            break
        yield text[start:opened], False
        yield text[opened + 2 : closed], True
        start = closed + 2
    yield text[start:], False


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
