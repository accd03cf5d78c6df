"""The calls in destinations and templates: `{{wildcard(1)}}`, `{{ tag(region) }}`.

Owns how a call is found in a text, as the patterns of nats-server find it, in one pass: a text can
open thousands of calls and close none. It never knows what a function means.

    {{ blanks name blanks ( arguments ) blanks }}
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from itertools import product
from typing import Final

OPENING: Final = "{{"
CLOSING: Final = "}}"
# The blanks of Go's patterns.
BLANKS: Final = "\t\n\f\r "
_BLANKS: Final = re.compile(r"[\t\n\f\r ]*")
_NAME: Final = re.compile(r"[A-Za-z]{1,32}")


class Functions:
    """The functions of one grammar, each by a name such as `SplitFromLeft`, in order of precedence.

    Each word of a name may begin with a capital letter or a small one.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._ranks = {name: rank for rank, name in enumerate(names)}
        self._by_spelling = {
            spelling: name for name in self._ranks for spelling in _spellings(name)
        }

    def find(self, text: str) -> tuple[str, str] | None:
        """The name and the arguments of the call in a text, wherever it stands; None without one.

        Precedence decides between several functions; between several calls, the first one that is
        closed counts. A call ends where the last call of its line is closed.
        """
        closed_at = _closed_at(text)
        found: tuple[int, str, str] | None = None
        line_end = -1
        start = text.find(OPENING) if closed_at else -1
        while 0 <= start < closed_at[-1]:
            call = self._opened(text, start)
            start = text.find(OPENING, start + 1)
            if call is None or (found is not None and found[0] <= self._ranks[call[0]]):
                continue
            name, arguments_at = call
            if line_end < arguments_at:
                line_end = text.find("\n", arguments_at)
                line_end = line_end if line_end >= 0 else len(text)
            last = bisect_left(closed_at, line_end) - 1
            if last >= 0 and closed_at[last] >= arguments_at:
                found = self._ranks[name], name, text[arguments_at : closed_at[last]]
        return found[1:] if found is not None else None

    def _opened(self, text: str, start: int) -> tuple[str, int] | None:
        """The function whose call begins here, and the index of its arguments."""
        name = _NAME.match(text, _after_blanks(text, start + len(OPENING)))
        function = self._by_spelling.get(name[0]) if name is not None else None
        if name is None or function is None:
            return None
        end = _after_blanks(text, name.end())
        return (function, end + 1) if text.startswith("(", end) else None


def split_arguments(arguments: str) -> list[str]:
    """The arguments of a call; blanks after a comma belong to none."""
    first, *others = arguments.split(",")
    return [first, *(argument.lstrip(BLANKS) for argument in others)]


def looks_like_call(token: str) -> bool:
    """Whether a token stands in double braces, with something between them."""
    return len(token) > 4 and token.startswith(OPENING) and token.endswith(CLOSING)


def braced_parts(text: str) -> list[str]:
    """A text split at its double braces, alternating between plain text and the content of braces.

    A part that holds a `}` is plain text.
    """
    parts: list[str] = []
    plain_from = 0
    opening = text.find(OPENING)
    while opening >= 0:
        closing = text.find("}", opening + len(OPENING))
        if closing < 0:
            break
        if text.startswith(CLOSING, closing):
            parts += [text[plain_from:opening], text[opening + len(OPENING) : closing]]
            plain_from = closing + len(CLOSING)
        opening = text.find(OPENING, closing)
    return [*parts, text[plain_from:]]


def _spellings(name: str) -> Iterable[str]:
    choices = [(letter, letter.lower()) if letter.isupper() else (letter,) for letter in name]
    return map("".join, product(*choices))


def _closed_at(text: str) -> list[int]:
    """The positions of each `)` that is followed by blanks, if any, and double braces."""
    places: list[int] = []
    place = text.find(")")
    while place >= 0:
        if text.startswith(CLOSING, _after_blanks(text, place + 1)):
            places.append(place)
        place = text.find(")", place + 1)
    return places


def _after_blanks(text: str, start: int) -> int:
    blanks = _BLANKS.match(text, start)
    return blanks.end() if blanks is not None else start
