"""The output of commands: lines, JSON, labelled columns, tables.

Owns the layout, which is that of the `nats` command line. Colour and cursor codes are used only on
a terminal, and never if NO_COLOR is set. A table fits the terminal: `table_fit` says which columns
give way. `--wide` shows all of them, and so does a pipe, unless COLUMNS limits it.

Names, headers and errors are chosen by others. On a terminal nothing of them is obeyed: every text
is written by a function of this module, which shows control characters instead of sending them.
Tables, columns, notes and errors are written that way to files and pipes too; lines and bodies only
to a terminal, since a program may read them. JSON always has the same value.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from shutil import get_terminal_size
from typing import Any, Final, TextIO

import msgspec

from tradewind.cli.frame.table_fit import ELLIPSIS, fit_columns
from tradewind.visible_text import visible, visible_json, visible_lines

_CODES: Final = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}
# Stands for a colour until the text is written. The random part cannot be guessed, so text from
# elsewhere, such as a message, cannot bring colours of its own.
_MARK: Final = f"\ufdd0{os.urandom(8).hex()}:"
_MARKED: Final = re.compile(re.escape(_MARK) + "([0-9]{1,2});")
# Only texts with so many blanks are folded.
FOLDED_BLANKS_MIN: Final = 2
# No terminal is narrower; what claims to be is not believed.
WIDTH_MIN: Final = 20
# Whether this call is to show all columns.
_is_wide: ContextVar[bool] = ContextVar("tradewind_cli_is_wide", default=False)


def set_wide(is_wide: bool) -> None:
    """Show all columns of the tables of this call, or only those that fit."""
    _is_wide.set(is_wide)


def width_max() -> int | None:
    """How wide the output may be: as the terminal, or COLUMNS; None if nothing limits it."""
    if _is_wide.get():
        return None
    if not is_terminal(sys.stdout) and not os.environ.get("COLUMNS", "").isdecimal():
        return None
    columns = get_terminal_size((0, 0)).columns
    return max(columns, WIDTH_MIN) if columns else None


def line(text: str = "") -> None:
    """One line on the standard output."""
    write_text(text + "\n")


def write_text(text: str) -> None:
    """Some text on the standard output; a line only if it ends with one."""
    sys.stdout.write(painted(text) if is_terminal(sys.stdout) else text)


def note(text: str) -> None:
    """One line on the error output: what is going on, not a result."""
    write_note(text + "\n")


def write_note(text: str) -> None:
    """Some text on the error output."""
    sys.stderr.write(painted(text))


def redraw_notes(lines: Sequence[str], drawn: int) -> None:
    """Lines on the error output in place of the last ones; a terminal obeys cursor codes."""
    up = f"\x1b[{drawn}A" if drawn else ""
    sys.stderr.write(f"{up}\r\x1b[J" + "".join(f"{painted(each)}\n" for each in lines))
    sys.stderr.flush()


def painted(text: str) -> str:
    """A text as a terminal gets it: with our colours, and nothing else that steers it."""
    shown = visible_lines(text)
    return _MARKED.sub("\x1b[\\1m", shown) if _MARK in shown else shown


def flush() -> None:
    """Show what was written so far, also in a pipe."""
    sys.stdout.flush()


def is_terminal(stream: TextIO) -> bool:
    """Whether this stream is a terminal."""
    return stream.isatty()


def has_colour(stream: TextIO) -> bool:
    """Whether colours may be written to this stream."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """A text in a colour if its stream has colours: red, green, yellow, bold, dim."""
    if not has_colour(stream or sys.stdout):
        return text
    return f"{_MARK}{_CODES[style]};{text}{_MARK}0;"


def print_json(value: Any) -> None:
    """A value of the API, or any plain value, as indented JSON."""
    line(json_text(value))


def print_json_line(value: Any) -> None:
    """The same on one line, for values that come one by one."""
    line(visible_json(json_bytes(value).decode()))


def json_text(value: Any) -> str:
    """Indented JSON."""
    return visible_json(msgspec.json.format(json_bytes(value), indent=2).decode())


def json_bytes(value: Any) -> bytes:
    """JSON; bytes of a text that were no UTF-8, as in headers, become question marks."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_readable(msgspec.to_builtins(value)))


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_readable(key): _readable(item) for key, item in value.items()}
    return [_readable(item) for item in value] if isinstance(value, list) else value


def width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if _MARK in text:
        text = _MARKED.sub("", text)
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


class Columns:
    """Labels right-aligned before values, in sections.

    >>> columns = Columns("Information for Stream ORDERS")
    >>> columns.row("Subjects", "orders.>")
    >>> columns.section("State")
    >>> columns.row("Messages", 12)
    >>> columns.print()
    """

    def __init__(self, title: str = "") -> None:
        self.title = title
        self._items: list[tuple[str, str, str]] = []

    def row(self, label: str, value: object) -> None:
        """A label and its value; lists are joined, numbers get commas, booleans are lower case.

        A value of several lines is shown below each other, so no line can look like another row.
        """
        self._items.append(("row", visible(label), visible_lines(value_text(value))))

    def row_if(self, label: str, value: object) -> None:
        """A row if there is something to show."""
        if value:
            self.row(label, value)

    def section(self, title: str) -> None:
        """A heading before the following rows."""
        self._items.append(("section", visible(title), ""))

    def text(self, text: str = "") -> None:
        """A line as it is."""
        self._items.append(("text", visible_lines(text), ""))

    def lines(self) -> list[str]:
        """The lines that `print` writes."""
        labels = [width(label) for kind, label, _ in self._items if kind == "row"]
        column = max(labels, default=0) + 2
        found = [visible(self.title), ""] if self.title else []
        for kind, label, value in self._items:
            if kind == "row":
                first, *rest = _folded(value, column + 2)
                found.append(f"{' ' * (column - width(label))}{label}: {first}".rstrip())
                found += [f"{' ' * (column + 2)}{more}" for more in rest]
            elif kind == "section":
                found += ["", f"{label}:", ""] if found and found[-1] else [f"{label}:", ""]
            else:
                found.append(label)
        return found

    def print(self) -> None:
        """Print it, followed by an empty line."""
        for each in self.lines():
            line(each)
        line()


class Table:
    """A table with a title. Numbers are right-aligned.

    On a terminal that is too narrow, the texts of the columns `shorten` are cut, and the columns
    `drop` are left out, the first of them first.

    >>> table = Table("Streams", "Name", "Text", "Messages", shorten=("Text",), drop=("Text",))
    >>> table.row("ORDERS", "What was ordered", 12)
    >>> table.print()
    """

    def __init__(
        self, title: str, *headers: str, drop: Sequence[str] = (), shorten: Sequence[str] = ()
    ) -> None:
        assert {*drop, *shorten} <= {*headers}, f"table {title!r} has no such columns"
        self.title = title
        self.headers = headers
        self.rows: list[tuple[object, ...]] = []
        self.footer: tuple[object, ...] = ()
        # The columns that had no room, once the lines are made.
        self.hidden: list[str] = []
        self._drop = [headers.index(name) for name in drop]
        self._shorten = [headers.index(name) for name in shorten]

    def row(self, *values: object) -> None:
        """A row, as many values as headers."""
        assert len(values) == len(self.headers)
        self.rows.append(values)

    def lines(self) -> list[str]:
        """The lines that `print` writes."""
        all_rows = [*self.rows, self.footer] if self.footer else self.rows
        texts = [[visible(value_text(value)) for value in row] for row in [self.headers, *all_rows]]
        limit = width_max()
        shown = self._fit(texts, limit)
        self.hidden = [name for place, name in enumerate(self.headers) if place not in shown]
        title = visible(self.title)
        if limit is not None:
            title = clipped(title, limit - 4)
            texts = [[clipped(row[place], shown[place]) for place in shown] for row in texts]
        widths = list(shown.values())
        missing = width(title) - (sum(widths) + 3 * len(widths) - 3)
        if missing > 0:
            widths[-1] += missing
        right = [self._is_number(place) for place in shown]
        inner = sum(widths) + 3 * len(widths) - 1
        found = []
        if title:
            found.append("╭" + "─" * inner + "╮")
            space = inner - width(title)
            found.append(f"│{' ' * (space // 2)}{title}{' ' * (space - space // 2)}│")
            found.append(_rule("├┬┤", widths))
        else:
            found.append(_rule("╭┬╮", widths))
        found.append(_cells(texts[0], widths, [False] * len(widths)))
        found.append(_rule("├┼┤", widths))
        found += [_cells(row, widths, right) for row in texts[1 : len(self.rows) + 1]]
        if self.footer:
            found.append(_rule("├┼┤", widths))
            found.append(_cells(texts[-1], widths, right))
        found.append(_rule("╰┴╯", widths))
        return found

    def hidden_text(self) -> str:
        """A hint that names the columns without room, and `--wide`; empty if all are shown."""
        if not self.hidden:
            return ""
        text = f"--wide also shows: {', '.join(self.hidden)}"
        limit = width_max()
        return text if limit is None else clipped(text, limit)

    def print(self) -> None:
        """Print it; a note says which columns had no room."""
        for each in self.lines():
            line(each)
        if hidden := self.hidden_text():
            sys.stdout.flush()
            note(styled(hidden, "dim", sys.stderr))

    def _fit(self, texts: list[list[str]], limit: int | None) -> dict[int, int]:
        """The columns that are shown, and their widths."""
        places = range(len(self.headers))
        return fit_columns(
            [max(width(row[place]) for row in texts) for place in places],
            limit,
            descriptions=self._shorten,
            empty=[
                place for place in places if self.rows and not any(row[place] for row in texts[1:])
            ],
            dispensable=self._drop,
            texts=[place for place in places if not self._is_number(place)],
        )

    def _is_number(self, place: int) -> bool:
        return bool(self.rows) and all(isinstance(row[place], int | float) for row in self.rows)


def clipped(text: str, columns: int) -> str:
    """A text that takes no more than this many columns, with an ellipsis where it was cut."""
    if width(text) <= columns:
        return text
    kept = _MARKED.sub("", text)
    while width(kept) > columns - 1:
        kept = kept[: -max(1, (width(kept) - columns) // 2)]
    return kept + ELLIPSIS


def _folded(value: str, indent: int) -> list[str]:
    """The lines of a value behind a label, folded to the width of the terminal."""
    lines = value.split("\n")
    limit = width_max()
    if limit is None or limit - indent < WIDTH_MIN:
        return lines
    from textwrap import wrap

    found: list[str] = []
    for each in lines:
        room = limit - indent
        # A path and a word or two about it are better left in one piece.
        if width(each) <= room or _MARK in each or each.count(" ") < FOLDED_BLANKS_MIN:
            found.append(each)
        else:
            found += wrap(each, limit - indent, break_long_words=False, break_on_hyphens=False)
    return found


def value_text(value: object) -> str:
    """A value for people."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable):
        return ", ".join(value_text(item) for item in value)
    return str(value)


def _rule(corners: str, widths: Sequence[int]) -> str:
    return corners[0] + corners[1].join("─" * (each + 2) for each in widths) + corners[2]


def _cells(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    cells = []
    for text, each, is_right in zip(texts, widths, right, strict=True):
        space = " " * (each - width(text))
        cells.append(f" {space}{text} " if is_right else f" {text}{space} ")
    return "│" + "│".join(cells) + "│"
