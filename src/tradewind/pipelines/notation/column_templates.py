"""Text templates with columns: `orders.{region}`.

Owns their syntax and the SQL expression that fills them in.
"""

from __future__ import annotations

import re
from typing import Final

_PART: Final = re.compile(r"\{([A-Za-z_][\w.]*)\}")


def parse_template(text: str) -> list[tuple[str, str]]:
    """The parts: ("text", ...) and ("column", ...); ValueError says what is wrong."""
    parts: list[tuple[str, str]] = []
    begin = 0
    for found in _PART.finditer(text):
        parts.append(("text", text[begin : found.start()]))
        parts.append(("column", found[1]))
        begin = found.end()
    parts.append(("text", text[begin:]))
    for kind, part in parts:
        if kind == "text" and ("{" in part or "}" in part):
            raise ValueError(f"{text!r}: a column is written as {{name}}")
    return [part for part in parts if part[1]]


def template_sql(text: str) -> str:
    """An SQL expression of the text; it is null where a column is."""
    pieces = [
        text_sql(part) if kind == "text" else f"cast({column_sql(part)} as string)"
        for kind, part in parse_template(text)
    ]
    return f"concat({', '.join(pieces)})" if pieces else "''"


def column_sql(name: str) -> str:
    """A column, or a field inside of one, as SQL names it."""
    return ".".join(quoted_sql(part) for part in name.split("."))


def quoted_sql(name: str) -> str:
    """A name as SQL takes it, whatever is in it."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def text_sql(text: str) -> str:
    """A text as SQL takes it, whatever is in it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
