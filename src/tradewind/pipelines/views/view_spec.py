"""The definition of a materialized view, and the pipeline that it stands for.

Owns the form in which a definition is stored, the names inside of its pipeline, and the form of a
key in a bucket. The module is pure.

A key has a part for each column of the key, joined by dots. All but letters, digits, `-` and `_` is
written as `=` and two hexadecimal digits for each byte, null as `=null` and an empty text as
`=empty`, so that two groups never share a key. The dots of a key of one column stay as they are.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.notation.column_templates import quoted_sql, text_sql
from tradewind.pipelines.notation.intervals import parse_interval_ms

EVERY: Final = "fast"
BATCH_MESSAGES: Final = 100_000
BATCH_MESSAGES_MAX: Final = 10_000_000
KEY_COLUMN: Final = "tradewind_key"
VALUE_COLUMN: Final = "tradewind_value"
RESULT_STEP: Final = "tradewind_result"
KEYED_STEP: Final = "tradewind_keyed"
SOURCE_PREFIX: Final = "tradewind_source_"
SINK: Final = "results"
MISFIT_FIELD: Final = "tradewind_misfit"
PARSED_COLUMN: Final = "tradewind_json"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
ViewKind = Literal["bucket", "delta", "parquet"]
SourceKind = Literal["stream", "bucket", "parquet", "json", "csv"]


class ViewSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table that the query names.

    `place` is the name of a stream or bucket, or a folder. `columns` are those of the source;
    `fields` are those of its JSON payloads, with the types in `schema`. A field becomes a column
    unless its name is taken; all are in the column `json`.
    """

    name: str
    kind: SourceKind
    place: str
    columns: list[str] = []
    fields: list[str] = []
    schema: str = ""


class ViewSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A view; `token` distinguishes it from others that had its name before.

    `checkpoint` is the place of the runner that has the state of the query, empty until one has
    begun. `key` and `columns` are those of the result; `is_grouped` if rows change later.
    """

    name: str
    token: str
    query: str
    kind: ViewKind
    sources: list[ViewSource]
    columns: list[str]
    key: list[str] = []
    is_grouped: bool = False
    location: str = ""
    every: str = EVERY
    batch: int = BATCH_MESSAGES
    created_ns: int = 0
    is_paused: bool = False
    checkpoint: str = ""

    @property
    def target(self) -> str:
        """Where the results are, for people."""
        return f"bucket {self.name}" if self.kind == "bucket" else f"{self.kind} {self.location}"


class ViewReport(msgspec.Struct, frozen=True):
    """The report of a runner on a view: how many rows it was given, and why it failed."""

    token: str
    state: str
    rows: int
    error: str
    host: str
    pid: int
    updated_ns: int


def checked_every(text: str) -> str:
    """The pause between batches; PipelineError if it is none."""
    if text == EVERY:
        return text
    try:
        parse_interval_ms(text)
    except ValueError as error:
        raise PipelineError(f"option every: {error}") from None
    return text


def checked_batch(text: str) -> int:
    """The largest number of messages of a batch; PipelineError if it is none."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= BATCH_MESSAGES_MAX:
        raise PipelineError(f"option batch: {text!r} is not a number from 1 to 10000000")
    return int(text)


def pipeline_values(view: ViewSpec, checkpoint: str) -> dict[str, Any]:
    """The view as the values of a pipeline's file."""
    sources: dict[str, Any] = {}
    steps: dict[str, Any] = {}
    for number, source in enumerate(view.sources):
        name = f"{SOURCE_PREFIX}{number}"
        sources[name] = {source.kind: source.place}
        if source.kind == "stream":
            sources[name]["batch"] = view.batch
        steps[source.name] = {"sql": table_sql(source, name)}
    steps[RESULT_STEP] = {"sql": view.query}
    sink: dict[str, Any] = {"from": RESULT_STEP}
    if view.kind == "bucket":
        steps[KEYED_STEP] = {"sql": keyed_sql(view)}
        sink = {
            "from": KEYED_STEP,
            "bucket": view.name,
            "key": f"{{{KEY_COLUMN}}}",
            "value": VALUE_COLUMN,
            "mode": "update",
        }
    elif view.kind == "delta":
        sink |= {"delta": view.location}
        if view.is_grouped:
            sink |= {"mode": "upsert", "key": view.key}
    else:
        sink |= {"parquet": view.location}
    return {
        "pipeline": view.name,
        "description": f"the materialized view {view.name}",
        "checkpoint": checkpoint,
        "trigger": view.every,
        "sources": sources,
        "steps": steps,
        "sinks": {SINK: sink},
    }


def table_sql(source: ViewSource, name: str) -> str:
    """The table as `tradewind sql` shows it: payloads as text, and their fields as columns.

    A JSON object that does not fit its fields is an error: it would be null otherwise.
    """
    content = {"stream": "data", "bucket": "value"}.get(source.kind, "")
    if not content:
        return f"select * from {name}"  # noqa: S608
    text = f"cast(`{content}` as string)"
    shown = f"if(is_valid_utf8({text}), {text}, concat('0x', lower(hex(`{content}`))))"
    columns = [
        f"{shown} as `{content}`" if column == content else f"`{column}`"
        for column in source.columns
    ]
    if not source.schema:
        return f"select {', '.join(columns)} from {name}"  # noqa: S608
    schema = text_sql(f"{source.schema}, {MISFIT_FIELD} string")
    parsed = f"from_json({text}, {schema}, map('columnNameOfCorruptRecord', '{MISFIT_FIELD}'))"
    misfit = (
        f"{PARSED_COLUMN}.{MISFIT_FIELD} is not null and ltrim({text}) like '{{%'"
        f" and try_parse_json({text}) is not null"
    )
    place = "key" if source.kind == "bucket" else "seq"
    problem = (
        f"concat('{source.kind} {source.name}: {place} ', `{place}`, ': a field has another type"
        " than when the view was created: drop the view and create it again, or use"
        f" get_json_object({content}, ''$.field'')')"
    ).replace("''", "\\'")
    taken = {column.lower() for column in (*source.columns, "json")}
    fields = {
        one: f"{PARSED_COLUMN}.{quoted_sql(one)} as {quoted_sql(one)}" for one in source.fields
    }
    columns += [field for name, field in fields.items() if name.lower() not in taken]
    return (
        f"select {', '.join(columns)}, struct({', '.join(fields.values())}) as json"  # noqa: S608
        f" from (select *, {parsed} as {PARSED_COLUMN} from {name})"
        f" where if({misfit}, raise_error({problem}), true)"
    )


def keyed_sql(view: ViewSpec) -> str:
    """The results as keys and values of a bucket."""
    if len(view.key) == 1:
        text = f"cast({quoted_sql(view.key[0])} as string)"
        is_plain = f"not {text} rlike '^[.]|[.]$|[.][.]'"
        key = _part_sql(text, f"if({is_plain}, {_encoded(text)}, {_without_dots(text)})")
    else:
        texts = [f"cast({quoted_sql(column)} as string)" for column in view.key]
        parts = [_part_sql(text, _without_dots(text)) for text in texts]
        key = f"concat_ws('.', {', '.join(parts)})" if parts else "'all'"
    columns = ", ".join(quoted_sql(column) for column in view.columns)
    value = f"to_json(struct({columns}), map('ignoreNullFields', 'false'))"
    columns = f"{key} as {KEY_COLUMN}, {value} as {VALUE_COLUMN}"
    return f"select {columns} from {RESULT_STEP}"  # noqa: S608


def _part_sql(text: str, encoded: str) -> str:
    return f"coalesce(if({text} = '', '=empty', {encoded}), '=null')"


def _encoded(text: str) -> str:
    url = f"url_encode({text})"
    for found, written in (("%", "="), ("+", "=20"), ("*", "=2A")):
        url = f"replace({url}, '{found}', '{written}')"
    return url


def _without_dots(text: str) -> str:
    return f"replace({_encoded(text)}, '.', '=2E')"


def source_problem(source: ViewSource) -> str:
    """Why a table cannot be one of a view; empty if it can."""
    if not _NAME.fullmatch(source.name):
        return (
            f"table {source.name!r}: a materialized view takes names of letters, digits and _ only"
        )
    if source.name.lower().startswith("tradewind_"):
        return f"table {source.name!r}: names that begin with tradewind_ are taken"
    return ""
