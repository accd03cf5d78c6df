"""Splits text into SQL statements.

Owns the meaning of a semicolon (none inside a quoted text, a quoted name or a comment), and which
statements write. The module is pure; Spark parses the statements themselves.
"""

from __future__ import annotations

import re
from typing import Final

STATEMENT_CHARACTERS_MAX: Final = 1 << 20
# Quoted texts know backslashes, raw ones and names do not; a quote that is doubled is two texts.
_PIECE: Final = re.compile(
    r"""
      (?<![A-Za-z0-9_]) [rR] (?: '[^']*' | "[^"]*" )
    | '(?: [^'\\] | \\. )*'
    | "(?: [^"\\] | \\. )*"
    | `[^`]*`
    | --[^\n]*(?:\n|$)
    | (?P<comment> /\* )
    | (?P<end> ; )
    | (?P<open> (?<![A-Za-z0-9_]) [rR](?=['"]) | ['"`] )
    """,
    re.DOTALL | re.VERBOSE,
)
# A statement that begins otherwise is not run if it writes; see `writing`.
WRITING_WORDS: Final = ("insert", "create", "alter", "drop")
_FIRST_WORD: Final = re.compile(r"[A-Za-z]*")
_COMMENT_MARK: Final = re.compile(r"/\*|\*/")


def split_statements(text: str) -> tuple[list[str], str]:
    """The statements that are ended by a semicolon, and the text after the last one.

    Statements that hold nothing but blanks and comments are left out.
    """
    found: list[str] = []
    begin = position = 0
    while (piece := _PIECE.search(text, position)) is not None:
        position = piece.end()
        if piece["comment"]:
            position = _behind_comment(text, position) or len(text)
        elif piece["open"]:
            position = len(text)
        elif piece["end"]:
            statement = text[begin : piece.start()].strip()
            if not is_blank(statement):
                found.append(statement)
            begin = position
    return found, text[begin:]


def is_blank(text: str) -> bool:
    """Whether there is nothing to run: blanks, semicolons and comments that are closed."""
    return _beginning(text) == len(text)


def is_writing(text: str) -> bool:
    """Whether a statement is one that writes, by its first word."""
    word = _FIRST_WORD.match(text, _beginning(text))
    return word is not None and word[0].lower() in WRITING_WORDS


def _beginning(text: str) -> int:
    """Where the first statement begins, after blanks, semicolons and comments."""
    position = 0
    while position < len(text):
        if text[position].isspace() or text[position] == ";":
            position += 1
        elif text.startswith("--", position):
            end = text.find("\n", position)
            position = len(text) if end < 0 else end + 1
        elif text.startswith("/*", position):
            behind = _behind_comment(text, position + 2)
            if behind is None:
                break
            position = behind
        else:
            break
    return position


def _behind_comment(text: str, position: int) -> int | None:
    """Where a comment ends whose beginning is before `position`; None if it does not.

    Comments nest in Spark.
    """
    depth = 1
    while depth and (mark := _COMMENT_MARK.search(text, position)) is not None:
        depth += 1 if mark[0] == "/*" else -1
        position = mark.end()
    return None if depth else position
