"""Untrusted text, made safe for a terminal: characters that would control it are shown, not
executed.

Owns the list of these characters: control characters (C0, DEL and C1, with the escape sequences
that begin with them), marks that change the direction of text, line separators, and bytes that are
not UTF-8. The module never writes anything.
"""

from __future__ import annotations

from typing import Final

_STEERING: Final = (
    *range(0x20),
    *range(0x7F, 0xA0),
    0x061C,
    0x200E,
    0x200F,
    0x2028,
    0x2029,
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)
_SURROGATES: Final = range(0xDC80, 0xDD00)  # each is a byte that was not UTF-8
_SHOWN: Final = {
    **{code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _STEERING},
    **{code: f"\\x{code - 0xDC00:02x}" for code in _SURROGATES},
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}
_SHOWN_IN_LINES: Final = {
    code: shown for code, shown in _SHOWN.items() if code not in (ord("\n"), ord("\t"))
}
_SHOWN_IN_JSON: Final = {code: f"\\u{code:04x}" for code in _STEERING if code >= 0x20}


def visible(text: str) -> str:
    """A text on one line, with everything that controls a terminal written out: `\\x1b[31m`."""
    return text if text.isprintable() else text.translate(_SHOWN)


def visible_lines(text: str) -> str:
    """A text in which line breaks and tabs stay, with everything else that controls a terminal
    written out.
    """
    return text if text.isprintable() else text.translate(_SHOWN_IN_LINES)


def visible_json(text: str) -> str:
    """A JSON text of the same value without characters that control a terminal."""
    return text if text.isascii() and "\x7f" not in text else text.translate(_SHOWN_IN_JSON)
