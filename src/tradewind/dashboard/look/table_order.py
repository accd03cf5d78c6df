"""The order of a table that the server sorts, because it has more rows than a page.

Owns the address of each order. A table without it is sorted by the script of the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tradewind.dashboard.look.elements import Markup, address, tag


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table; one with a `key` can be sorted by, and `#` marks numbers."""

    name: str
    key: str = ""


@dataclass(frozen=True)
class TableOrder:
    """The order of a table: by which column, and whether the largest come first."""

    path: Sequence[str]
    key: str
    is_down: bool = False
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The order as it is written in an address."""
        return f"-{self.key}" if self.is_down else self.key

    def header(self, column: TableColumn) -> Markup:
        """The name of a column as a link to the order by it; a second one reverses the order."""
        name = column.name.removesuffix("#")
        is_here = column.key == self.key
        # What one looks for first in numbers and times is at their end.
        starts_down = column.name.endswith("#") or column.key == "last"
        is_down = not self.is_down if is_here else starts_down
        order = f"-{column.key}" if is_down else column.key
        target = address(*self.path, **{**self.query, "sort": order})
        arrow = ("\N{DOWNWARDS ARROW}" if self.is_down else "\N{UPWARDS ARROW}") if is_here else ""
        return tag("a", name, tag("span", arrow, aria_hidden="true"), href=target, class_="sort")

    def mark(self, column: TableColumn) -> str | None:
        """The attribute from which a screen reader knows the order."""
        if not column.key or column.key != self.key:
            return None
        return "descending" if self.is_down else "ascending"


def sorting_of(
    query: Mapping[str, str], path: Sequence[str], columns: Sequence[TableColumn], **more: str
) -> TableOrder:
    """The order that an address names; by the first column if it names none of these."""
    text = query.get("sort", "")
    keys = [column.key for column in columns if column.key]
    key = text.removeprefix("-")
    if key not in keys:
        return TableOrder(path, keys[0], query=more)
    return TableOrder(path, key, text.startswith("-"), more)
