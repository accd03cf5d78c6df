"""JSON with colours and parts that fold.

Owns the markup. Numbers and the order of members stay as they are written; escaped characters are
shown as they are. A text with too many lines has no tree.
"""

from __future__ import annotations

import json
import re
from typing import Final

import msgspec

from tradewind.dashboard.look.elements import Child, Markup, join, tag

LINES_MAX: Final = 5000
# Parts below this depth are closed at first.
OPEN_DEPTH: Final = 3
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')


def json_tree(text: str, id_: str = "payload") -> Markup | None:
    """The markup of indented JSON, as `message_data.as_json` makes it; None if it is too long."""
    lines = text.split("\n")
    if len(lines) > LINES_MAX:
        return None
    # The parts that are open: (line that opened it, its content).
    stack: list[tuple[Markup, list[Child]]] = []
    top: list[Child] = []
    for line in lines:
        plain = line.strip()
        content = stack[-1][1] if stack else top
        if plain[-1:] in ("{", "["):
            stack.append((_line(plain), []))
        elif plain[:1] in ("}", "]") and stack:
            opened, inner = stack.pop()
            content = stack[-1][1] if stack else top
            content.append(_fold(opened, inner, plain, len(stack)))
        elif plain:
            content.append(tag("div", _line(plain)))
    return tag("div", top, class_="json mono", id=id_)


def _fold(opened: Markup, inner: list[Child], close: str, depth: int) -> Markup:
    many = f"{len(inner)} {'member' if close[0] == '}' else 'item'}{'' if len(inner) == 1 else 's'}"
    return tag(
        "details",
        tag("summary", opened, tag("span", f" {many} ", close, class_="folded")),
        tag("div", inner, class_="inner"),
        tag("div", close, class_="closing"),
        open=depth < OPEN_DEPTH,
    )


def _line(plain: str) -> Markup:
    """A line with its key and its value in colours."""
    key = _STRING.match(plain)
    if key is not None and plain[key.end() : key.end() + 1] == ":":
        rest = plain[key.end() + 1 :].lstrip()
        return join(tag("span", _shown(key[0]), class_="key"), ": ", _value(rest))
    return _value(plain)


def _value(text: str) -> Markup:
    comma = "," if text.endswith(",") else ""
    value = text[: len(text) - len(comma)]
    if value[:1] == '"':
        return join(tag("span", _shown(value), class_="string"), comma)
    if value in ("true", "false", "null"):
        return join(tag("span", value, class_="word"), comma)
    if value[:1] in ("{", "[", "}", "]"):
        return join(value, comma)
    return join(tag("span", value, class_="figure-value"), comma)


def _shown(token: str) -> str:
    """A string in quotes with real characters; those that cannot be seen stay escaped."""
    if "\\u" not in token:
        return token
    try:
        text = msgspec.json.decode(token, type=str)
    except msgspec.DecodeError:
        return token  # half of a surrogate pair
    made = msgspec.json.encode(text).decode()
    return made if made.isprintable() else "".join(map(_escaped, made))


def _escaped(character: str) -> str:
    """A character that could not be seen as JSON writes it."""
    return character if character.isprintable() else json.dumps(character)[1:-1]
