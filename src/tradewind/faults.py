"""Internal faults that were contained: counted, and logged once.

Faults are contained at the boundary between two pieces of work: a session, a consumer, a stream, a
request, a timer, a service. Code that runs such pieces one after the other catches the exception of
one, reports it here and continues with the next.

Owns the counts and what has been logged. The module makes no decisions and never raises: a log that
cannot be written must not turn one fault into two.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final

# The error text for waiting clients.
INTERNAL_ERROR: Final = "internal error, see the server's log"
# Faults that can no longer be distinguished are counted, but not logged.
KINDS_MAX: Final = 256
FRAMES_MAX: Final = 8
TEXT_LENGTH_MAX: Final = 300

_SAID_AT: Final = frozenset(10**power for power in range(12))

# A place, a class of exceptions, and the line that raised.
_Kind = tuple[str, str, str]


class Faults:
    """The faults of one server. `report` writes a line to its log; `counts` has the number per
    place.
    """

    def __init__(self, report: Callable[[str], None] | None = None) -> None:
        self.report = report or logging.getLogger("tradewind").error
        self.counts: Counter[str] = Counter()
        self._kinds: Counter[_Kind] = Counter()

    @property
    def total(self) -> int:
        """The number of all faults since the start."""
        return sum(self.counts.values())

    def contain(self, place: str, error: BaseException, whose: str = "") -> None:
        """Called when a piece of work has failed. `place` is one of a few words, `whose` names the
        piece.

        The first fault of a kind is logged, the tenth, the hundredth and so on.
        """
        self.counts[place] += 1
        with suppress(Exception):  # there is nowhere left to report it
            self._say(place, error, whose)

    def _say(self, place: str, error: BaseException, whose: str) -> None:
        frames = _frames(error.__traceback__)
        kind = (place, type(error).__name__, frames[0] if frames else "")
        if kind in self._kinds or len(self._kinds) < KINDS_MAX:
            self._kinds[kind] += 1
            count = self._kinds[kind]
            if count in _SAID_AT:
                self.report(_line(place, whose, error, frames, count))


def _line(place: str, whose: str, error: BaseException, frames: list[str], count: int) -> str:
    what = f"{place} {whose}" if whose else place
    text = f"Internal error in {_printable(what)}: {_printable(_text(error))}"
    if count > 1:
        return f"{text} ({count:,} times by now)"
    return f"{text} [{' < '.join(frames)}]" if frames else text


def _text(error: BaseException) -> str:
    with suppress(Exception):  # even its text may fail
        return repr(error)
    return type(error).__name__


def _frames(traceback: TracebackType | None) -> list[str]:
    """The line that raised, then its callers, the innermost first."""
    found = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        file = code.co_filename.rpartition("/")[2]
        found.append(f"{file}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    return found[: -FRAMES_MAX - 1 : -1]


def _printable(text: str) -> str:
    """One line of bounded length, safe even if a peer has chosen the text."""
    shown = text if len(text) <= TEXT_LENGTH_MAX else f"{text[:TEXT_LENGTH_MAX]}..."
    return shown.encode("unicode_escape").decode("ascii")
