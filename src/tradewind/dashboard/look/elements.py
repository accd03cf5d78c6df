"""Functions that produce HTML and escape everything that is not markup.

Owns escaping. A name, a subject or a payload can never become an element or a script: text is
escaped when it enters an element, links lead only into the dashboard itself, and there are no
attributes for scripts or styles.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final
from urllib.parse import quote, urlencode

_EMPTY: Final = frozenset(
    ("br", "circle", "col", "hr", "img", "input", "line", "link", "meta", "path", "rect", "use")
)
_ADDRESSES: Final = frozenset(("href", "src", "action", "formaction"))
_REFUSED: Final = frozenset(("style", "srcdoc"))


class Markup(str):
    """Complete HTML, which needs no escaping."""

    __slots__ = ()


Child = Markup | str | int | float | None | Iterable["Child"]
Attribute = str | int | float | bool | None


def render(child: Child) -> str:
    """The HTML of a child: markup unchanged, everything else as text."""
    if child is None:
        return ""
    if isinstance(child, Markup):
        return str(child)
    if isinstance(child, str):
        return escape(shown_text(child))
    if isinstance(child, int | float):
        return str(child)
    return "".join(render(each) for each in child)


def join(*children: Child) -> Markup:
    """Several children joined into one."""
    return Markup("".join(render(child) for child in children))


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """An element. `class_` and `for_` lose their underscore; other underscores become hyphens."""
    head = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _EMPTY:
        assert not children, f"<{name}> has no content"
        return Markup(
            f"<{head}>" if name in ("br", "hr", "img", "input", "link", "meta") else f"<{head}/>"
        )
    content = "".join(render(child) for child in children)
    if name == "textarea" and content.startswith("\n"):
        content = f"\n{content}"  # a browser omits the first line break
    return Markup(f"<{head}>{content}</{name}>")


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if name in _REFUSED or name.startswith("on"):
        raise ValueError(f"attribute {name}: it could run code or change the look of the page")
    if value is True:
        return f" {name}"
    text = str(value)
    if name in _ADDRESSES and not is_own_address(text):
        raise ValueError(f"{name} must be an address of the dashboard, not {text[:80]!r}")
    return f' {name}="{escape(shown_text(text))}"'


def shown_text(text: str) -> str:
    """Text in its displayed form: without characters that HTML cannot hold (bytes that are not
    UTF-8, and control characters).
    """
    if text.isprintable():
        return text
    return "".join(
        each if each in "\n\t" or not _is_control(each) else "\N{REPLACEMENT CHARACTER}"
        for each in text
    )


def _is_control(character: str) -> bool:
    # Including characters that reverse the direction of text, with which a name can look like
    # another one.
    return (
        character < " "
        or "\x7f" <= character <= "\x9f"
        or "\ud800" <= character <= "\udfff"
        or "\u202a" <= character <= "\u202e"
        or "\u2066" <= character <= "\u2069"
    )


def is_own_address(text: str) -> bool:
    """Whether an address leads into the dashboard, from any page."""
    if text.startswith(("?", "#")):
        return True
    return text.startswith("/") and not text.startswith(("//", "/\\"))


def address(*parts: str, **query: str | int | None) -> str:
    """The path of a view, each part quoted: `address("streams", name, tab="messages")`."""
    path = "/" + "/".join(quote(part, safe="", errors="surrogateescape") for part in parts)
    kept = {key: value for key, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept, errors='surrogateescape')}" if kept else path
