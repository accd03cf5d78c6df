"""Selects the columns of a table that a terminal has room for, and their widths.

Owns the order in which columns give way. Texts that only describe are shortened first, then columns
without any value are left out, then those that the table can do without, and names are shortened
last. Nothing is printed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# A border, and a space on each side of the text.
FRAME_COLUMNS: Final = 3
ELLIPSIS: Final = "…"
# No text is shortened to less.
TEXT_COLUMNS_MIN: Final = 16
NAME_COLUMNS_MIN: Final = 8


class Fit:
    """The columns of a table that are shown: their places, and how wide each is."""

    def __init__(self, widths: Sequence[int], limit: int | None) -> None:
        self.widths = dict(enumerate(widths))
        self._limit = limit

    @property
    def excess(self) -> int:
        """How many columns of the terminal are missing; 0 or less if the table fits."""
        if self._limit is None:
            return 0
        return sum(self.widths.values()) + FRAME_COLUMNS * len(self.widths) + 1 - self._limit

    def shorten(self, places: Sequence[int], at_least: int) -> None:
        """Make these columns narrower, the widest first, until the table fits."""
        while (excess := self.excess) > 0:
            wide = [place for place in places if self.widths.get(place, 0) > at_least]
            if not wide:
                return
            ordered = sorted((self.widths[place] for place in wide), reverse=True)
            widest = ordered[0]
            # Down to the next wide one, so that all give way alike.
            next_one = max((each for each in ordered if each < widest), default=at_least)
            place = next(place for place in wide if self.widths[place] == widest)
            self.widths[place] = max(widest - excess, min(next_one, widest - 1), at_least)

    def grow(self, places: Sequence[int], widths: Sequence[int]) -> None:
        """Give these columns the room that is left, up to their own widths."""
        for place in places:
            if place in self.widths and self.excess < 0:
                self.widths[place] = min(widths[place], self.widths[place] - self.excess)

    def drop(self, places: Sequence[int]) -> None:
        """Leave out these columns, one after the other, until the table fits."""
        for place in places:
            if self.excess <= 0 or len(self.widths) == 1:
                return
            self.widths.pop(place, None)


def fit_columns(
    widths: Sequence[int],
    limit: int | None,
    *,
    descriptions: Sequence[int],
    empty: Sequence[int],
    dispensable: Sequence[int],
    texts: Sequence[int],
) -> dict[int, int]:
    """The columns to show, by place, with their widths; all of them if nothing limits them.

    The places are those of columns that describe, have no value at all, can be left out (in this
    order), and are texts, which are shortened if nothing else helps.
    """
    fit = Fit(widths, limit)
    fit.drop(empty)
    fit.shorten(descriptions, TEXT_COLUMNS_MIN)
    fit.drop(dispensable)
    fit.shorten(texts, NAME_COLUMNS_MIN)
    fit.grow(descriptions, widths)
    return fit.widths
