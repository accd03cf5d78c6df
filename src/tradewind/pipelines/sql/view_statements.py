"""The statements about materialized views, which Spark does not know.

Owns their grammar. The module is pure; the query of a view is passed on as text, with its place,
and Spark parses it.

    create materialized view [if not exists] NAME
        [using bucket | delta | parquet] [location 'FOLDER'] [options (NAME = 'TEXT', ...)]
        as QUERY
    drop materialized view [if exists] NAME
    alter materialized view NAME pause | resume
    show materialized views
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tradewind.pipelines.sql.wire import StatementError

KINDS: Final = ("bucket", "delta", "parquet")
OPTION_NAMES: Final = ("key", "every", "batch")
OPTION_CHARACTERS_MAX: Final = 1000
# Also the name of a pipeline, of a bucket and of a folder.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_BLANK: Final = re.compile(r"\s+|--[^\n]*(?:\n|\Z)")
_COMMENT_MARK: Final = re.compile(r"/\*|\*/")
_TOKEN: Final = re.compile(r"[A-Za-z_]\w*|`[^`\n]*`|'(?:[^'\\]|\\.)*'|[^\s]", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_FIRST_WORDS: Final = ("create", "drop", "alter", "show")


@dataclass(frozen=True, slots=True)
class CreateView:
    """A view to be made; `line` and `column` say where its query begins, both from 1."""

    name: str
    query: str
    line: int
    column: int
    kind: str = "bucket"
    location: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    may_exist: bool = False


@dataclass(frozen=True, slots=True)
class DropView:
    """A view to be removed."""

    name: str
    may_be_missing: bool = False


@dataclass(frozen=True, slots=True)
class AlterView:
    """A view to be paused, or resumed."""

    name: str
    is_paused: bool


@dataclass(frozen=True, slots=True)
class ShowViews:
    """All views are to be listed."""


ViewStatement = CreateView | DropView | AlterView | ShowViews


def parse_view_statement(text: str) -> ViewStatement | None:
    """The statement, or None if it is not about materialized views.

    StatementError has the line and the column of what is wrong.
    """
    return _ViewParser(text).statement()


class _ViewParser:
    """Reads tokens from a position on."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def statement(self) -> ViewStatement | None:
        first = self._word()
        if first not in _FIRST_WORDS:
            return None
        if first == "create" and self._takes("or"):
            at = self._position
            is_replace = self._takes("replace")
            if is_replace and self._takes("materialized"):
                raise self._error("a materialized view is not replaced: drop it first", at)
            return None
        if not self._takes("materialized"):
            return None
        if first == "show":
            self._expect("views")
            return self._whole(ShowViews())
        self._expect("view")
        if first == "create":
            return self._create()
        if first == "drop":
            may_be_missing = self._takes("if") and self._expect("exists")
            return self._whole(DropView(self._name(), bool(may_be_missing)))
        name = self._name()
        at = self._position
        word = self._word()
        if word not in ("pause", "resume"):
            raise self._error(f"pause or resume is expected here, not {word or 'the end'!r}", at)
        return self._whole(AlterView(name, word == "pause"))

    def _create(self) -> CreateView:
        may_exist = self._takes("if") and self._expect("not") and self._expect("exists")
        name = self._name()
        kind, location, options = "", "", None
        while not self._takes("as"):
            at = self._position
            word = self._word()
            if word == "using" and not kind:
                kind = self._kind()
            elif word == "location" and not location:
                location = self._quoted("a folder")
            elif word == "options" and options is None:
                options = self._options()
            else:
                found = word or "the end"
                raise self._error(
                    f"using, location, options or as is expected here, once, not {found!r}", at
                )
        self._skip()
        query = self._text[self._position :].rstrip().rstrip(";").rstrip()
        if not query:
            raise self._error("the query of the view is expected behind 'as'", self._position)
        line, column = self._place(self._position)
        return CreateView(
            name, query, line, column, kind or "bucket", location, options or {}, bool(may_exist)
        )

    def _kind(self) -> str:
        at = self._position
        word = self._word()
        if word not in KINDS:
            raise self._error(f"{word or 'the end'!r} is not one of {', '.join(KINDS)}", at)
        return word

    def _options(self) -> dict[str, str]:
        found: dict[str, str] = {}
        self._expect("(")
        while True:
            at = self._position
            name = self._word()
            if name not in OPTION_NAMES or name in found:
                raise self._error(
                    f"an option is expected here, one of {', '.join(OPTION_NAMES)}, once,"
                    f" not {name or 'the end'!r}",
                    at,
                )
            self._expect("=")
            found[name] = self._quoted("the value of an option")
            if self._takes(")"):
                return found
            self._expect(",")

    # ---------------------------------------------------------------- tokens

    def _skip(self) -> None:
        """Go past blanks and comments, which nest."""
        while True:
            if blank := _BLANK.match(self._text, self._position):
                self._position = blank.end()
            elif self._text.startswith("/*", self._position):
                depth, begin = 0, self._position
                for mark in _COMMENT_MARK.finditer(self._text, begin):
                    depth += 1 if mark[0] == "/*" else -1
                    self._position = mark.end()
                    if not depth:
                        break
                if depth:
                    raise StatementError("this comment has no end", *self._place(begin))
            else:
                return

    def _token(self) -> str:
        self._skip()
        found = _TOKEN.match(self._text, self._position)
        if found is None:
            return ""
        self._position = found.end()
        return found[0]

    def _word(self) -> str:
        return self._token().lower().removeprefix(";")

    def _takes(self, word: str) -> bool:
        """Whether this comes next; then it is skipped."""
        self._skip()
        at = self._position
        if self._word() == word:
            return True
        self._position = at
        return False

    def _expect(self, word: str) -> bool:
        self._skip()
        at = self._position
        found = self._word()
        if found != word:
            raise self._error(f"{word!r} is expected here, not {found or 'the end'!r}", at)
        return True

    def _name(self) -> str:
        self._skip()
        at = self._position
        token = self._token()
        name = token[1:-1] if token.startswith("`") else token
        if not _NAME.fullmatch(name):
            raise self._error(
                "the name of a view is expected here: letters, digits and _, not a digit first,"
                " not more than 100",
                at,
            )
        return name

    def _quoted(self, what: str) -> str:
        self._skip()
        at = self._position
        token = self._token()
        text = _ESCAPED.sub(r"\1", token[1:-1])
        if len(token) < 2 or not token.startswith("'") or not text.strip():
            raise self._error(f"{what} is expected here, in single quotes", at)
        if len(text) > OPTION_CHARACTERS_MAX:
            raise self._error(f"{what} of more than {OPTION_CHARACTERS_MAX} characters", at)
        return text

    def _whole(self, statement: ViewStatement) -> ViewStatement:
        found = ";"
        while found == ";":
            self._skip()
            at = self._position
            found = self._token()
        if found:
            raise self._error(f"nothing is expected here, but there is {found!r}", at)
        return statement

    # ---------------------------------------------------------------- places

    def _place(self, position: int) -> tuple[int, int]:
        before = self._text[:position]
        return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1

    def _error(self, text: str, position: int) -> StatementError:
        self._position = position
        self._skip()
        return StatementError(text, *self._place(self._position))
