"""Finds docstrings and comments in which a reader of English stumbles.

Owns the list of patterns, and the scanners that find texts in Python and Cython files. The patterns
are about form: an opening that leaves the subject of a sentence to be guessed, and words that
translate another idiom. They cannot judge whether a sentence is true.

`python tests/kits/english.py` prints the counts of all packages, as `english_counts.txt` has
them; with names of packages, their texts.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parents[2] / "src/tradewind"
COUNTS = Path(__file__).parents[1] / "english_counts.txt"
COUNTS_HEAD = (
    "# Texts per package that match a pattern of english.py, as that prints them. A blank line",
    "# before each, so that changes of neighbours merge without a conflict.",
)
WRITTEN_BY_TOOLS = ("sync.pyi",)
QUOTES = '"' * 3
# The first word of a docstring that does not name what the docstring is about.
OPENINGS = re.compile(
    r"(?:Of|It|Its|Those|These|Them|They|Whoever|Whatever|Whose|Who|Which|What|Nobody|Somebody"
    r"|Something|Anything|That|Told|Ones|More|Behind|Also|Too|He|She)\b"
)
# A later sentence may refer to the one before it, but not in these ways.
LATER = re.compile(r"[.;] (?:Of (?!course\b)|Those\b|Whoever\b|Nobody\b|That of\b|What\b)")
WORDS = re.compile(
    r"\b(?:whoever|nobody|somebody)\b"
    r"|\bof ours\b"
    r"|\b(?:is|are|was|were|be|been) told\b"
    r"|\btells? (?:the|those|them|every|all|who|its|consumers|companions|clients)\b"
    r"|\b(?:at or|right|first|next|one|ones|message|messages|bytes|just|directly) behind\b"
    r"|\bbehind (?:seq|`|a sequence|this|that)"
)


class Text(NamedTuple):
    """A docstring or a block of comment lines, with its words on one line."""

    line: int
    words: str
    is_docstring: bool


def stumbles(text: Text) -> bool:
    """Whether a text matches a pattern; the opening of a comment may refer to the code above it."""
    if text.is_docstring and OPENINGS.match(text.words):
        return True
    return bool(LATER.search(text.words) or WORDS.search(text.words))


def texts(path: Path) -> Iterator[Text]:
    """All docstrings and comments of a source file."""
    source = path.read_text()
    if path.suffix in (".py", ".pyi"):
        yield from _python_docstrings(source)
        yield from _joined(_python_comments(source))
    else:
        yield from _cython_docstrings(source)
        yield from _joined(_cython_comments(source))


def _python_docstrings(source: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield Text(node.body[0].lineno, " ".join(text.split()), is_docstring=True)


def _python_comments(source: str) -> Iterator[tuple[int, str]]:
    if "#" in source:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def _cython_docstrings(source: str) -> Iterator[Text]:
    """Triple-quoted strings that begin a file, or follow the head of a function or class."""
    numbered = enumerate(source.splitlines(), 1)
    before = ":"
    for number, whole in numbered:
        line = whole.strip()
        if before.endswith(":") and line.startswith(QUOTES):
            is_docstring = not before.startswith("cdef extern")  # else it is C
            found = line[len(QUOTES) :]
            while QUOTES not in found:
                found += " " + next(numbered)[1].strip()
            words = " ".join(found.partition(QUOTES)[0].split())
            if is_docstring:
                yield Text(number, words, is_docstring=True)
            before = ""
        elif line and not (line.startswith("#") and before == ":"):
            before = line.partition("  #")[0].rstrip()


def _cython_comments(source: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(source.splitlines(), 1):
        before, mark, comment = line.partition("#")
        if mark and before.count('"') % 2 == 0:
            yield number, mark + comment


def _joined(comments: Iterator[tuple[int, str]]) -> Iterator[Text]:
    """Comments on consecutive lines, as one text."""
    first, last, words = 0, -1, ""
    for number, comment in comments:
        if number != last + 1 and words:
            yield Text(first, words, is_docstring=False)
            words = ""
        if not words:
            first = number
        words = f"{words} {comment.lstrip('#: ')}".strip()
        last = number
    if words:
        yield Text(first, words, is_docstring=False)


def stumbling_texts(package: Path) -> Iterator[tuple[Path, Text]]:
    """The texts of a package that match a pattern; for `tradewind`, of its own modules only."""
    found = package.rglob("*") if package != SOURCES else package.glob("*")
    for path in sorted(found):
        if path.suffix in (".py", ".pyx", ".pxd", ".pyi") and path.name not in WRITTEN_BY_TOOLS:
            yield from ((path, text) for text in texts(path) if stumbles(text))


def packages() -> list[Path]:
    """Every package of the sources, with `tradewind` for the modules directly in it."""
    return [SOURCES, *sorted(path.parent for path in SOURCES.glob("*/__init__.py"))]


def allowed_counts() -> dict[str, int]:
    """The count that each package may have, by its name."""
    lines = [line.split() for line in COUNTS.read_text().splitlines()]
    return {words[0]: int(words[1]) for words in lines if words and words[0] != "#"}


def main() -> None:
    """Print the texts of the named packages that match, or else the counts of all packages."""
    lines = list(COUNTS_HEAD) if not sys.argv[1:] else []
    for package in packages():
        if package.name in sys.argv[1:]:
            for path, text in stumbling_texts(package):
                lines.append(f"{path.relative_to(SOURCES)}:{text.line}: {text.words}")
        elif not sys.argv[1:]:
            lines += ["", f"{package.name} {sum(1 for _ in stumbling_texts(package))}"]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
