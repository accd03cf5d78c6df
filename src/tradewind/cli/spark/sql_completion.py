"""Completion in the SQL shell: keywords, tables, and columns of the tables in a text.

Owns what is offered where. Tables and columns come from the server, at most once in a few seconds,
and need no Spark. It never reports an error: without a server it offers keywords.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion

from tradewind.errors import TradewindError
from tradewind.pipelines.definition.loading import names_in
from tradewind.pipelines.payloads.inference import infer
from tradewind.pipelines.payloads.schemas import sample_payloads
from tradewind.pipelines.relations.queries import TableCatalog, local_catalog, read_catalog
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress

if TYPE_CHECKING:
    from prompt_toolkit.document import Document

KNOWN_SECONDS: Final = 10.0
KEYWORDS: Final = (
    "select",
    "from",
    "where",
    "group",
    "by",
    "order",
    "having",
    "limit",
    "offset",
    "as",
    "and",
    "or",
    "not",
    "in",
    "is",
    "null",
    "like",
    "between",
    "case",
    "when",
    "then",
    "else",
    "end",
    "distinct",
    "join",
    "left",
    "right",
    "inner",
    "outer",
    "full",
    "on",
    "using",
    "with",
    "union",
    "all",
    "count",
    "sum",
    "min",
    "max",
    "avg",
    "cast",
    "explain",
    "describe",
    "show",
    "tables",
    "desc",
    "asc",
    "values",
    "table",
    "true",
    "false",
    "get_json_object",
    "date_trunc",
    "current_timestamp",
    "interval",
    "coalesce",
    "substring",
    "concat",
)
SHELL_WORDS: Final = ("\\q", "\\h", "\\d", "\\f")
_WORD: Final = re.compile(r"[\\`]?[\w$-]*$")
_NAMES_TABLE: Final = re.compile(r"(?:\b(?:from|join|table|describe|desc)|\\d)\s+$", re.IGNORECASE)


@dataclass
class CatalogCache:
    """The tables and columns of the server, requested when needed and cached for KNOWN_SECONDS."""

    address: PipelineAddress
    store: str = ""
    folders: Mapping[str, str] = field(default_factory=dict)
    _catalog: tuple[float, TableCatalog] | None = None
    _columns: dict[str, tuple[float, list[str]]] = field(default_factory=dict)

    def tables(self) -> list[str]:
        """The names of all tables."""
        return [*self.folders, *self._now().names]

    def columns(self, table: str) -> list[str]:
        """The columns of a stream or bucket with the fields of its payloads."""
        found = self._columns.get(table)
        if found is None or time.monotonic() - found[0] > KNOWN_SECONDS:
            found = (time.monotonic(), self._look(table))
            self._columns[table] = found
        return found[1]

    def _now(self) -> TableCatalog:
        if self._catalog is None or time.monotonic() - self._catalog[0] > KNOWN_SECONDS:
            try:
                catalog = local_catalog(self.store) if self.store else read_catalog(self.address)
            except (TradewindError, OSError):
                catalog = TableCatalog((), ())
            self._catalog = (time.monotonic(), catalog)
        return self._catalog[1]

    def _look(self, table: str) -> list[str]:
        catalog = self._now()
        if table not in catalog.names:
            return []
        # With Arrow, which the start of a shell does not wait for.
        from tradewind.spark.columnar.columns import BUCKET, MESSAGES

        is_bucket = table not in catalog.streams
        own = list(BUCKET if is_bucket else MESSAGES)
        options = {"storeDir": self.store} if self.store else self.address.spark_options()
        options["bucket" if is_bucket else "stream"] = table
        try:
            payloads = list(sample_payloads(options, "value" if is_bucket else "data"))
            fields = infer(payloads).names
        except (TradewindError, OSError, ValueError):
            return own
        return [*own, *(name for name in fields if name not in own), "json"]


class SqlCompleter(Completer):
    """For the prompt; asks the server in whatever thread it is called."""

    def __init__(self, known: CatalogCache) -> None:
        self._known = known

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """For the library: what may stand at the end of a text."""
        del complete_event
        before = document.text_before_cursor
        found = _WORD.search(before)
        word = found[0] if found else ""
        for text in self.offers(before[: len(before) - len(word)], word, document.text):
            yield Completion(text, start_position=-len(word))

    def offers(self, before: str, word: str, whole: str) -> list[str]:
        """Completions of `word`, which follows `before` in the text `whole`."""
        start = word.lstrip("`").lower()
        if word.startswith("\\"):
            return [one for one in SHELL_WORDS if one.startswith(word) and not before.strip()]
        tables = self._known.tables()
        if _NAMES_TABLE.search(before):
            return [quoted(name) for name in tables if name.lower().startswith(start)]
        columns = [
            quoted(column)
            for table in sorted(names_in(whole, tables))
            for column in self._columns(table)
        ]
        upper = word.isupper() and len(word) > 1
        keywords = [one.upper() if upper else one for one in KEYWORDS]
        offered = [*columns, *keywords, *map(quoted, tables)]
        return [
            one
            for one in dict.fromkeys(offered)
            if one.strip("`").lower().startswith(start) and (start or one in columns)
        ]

    def _columns(self, table: str) -> list[str]:
        return [] if table in self._known.folders else self._known.columns(table)


def quoted(name: str) -> str:
    """A name as it has to be written in SQL."""
    if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        return name
    return f"`{name.replace('`', '``')}`"
