"""Reads and checks a pipeline's file as far as possible without Spark or a server.

Owns the valid combinations of keys, which table may use which, and error messages with lines and
similar names.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from tradewind.pipelines.definition.case_messages import check_cases
from tradewind.pipelines.definition.document import Key, PipelineDocument
from tradewind.pipelines.definition.entry_keys import (
    SINK_KEYS,
    SOURCE_KEYS,
    STEP_KEYS,
    check_interval,
    check_names,
    check_reading,
    check_restart,
    check_writing,
)
from tradewind.pipelines.definition.including import SECTIONS, read_whole
from tradewind.pipelines.definition.model import (
    SINK_KINDS,
    SOURCE_KINDS,
    STEP_KINDS,
    Head,
    Payload,
    Pipeline,
    PipelineCase,
    PlacedEntry,
    Sink,
    Source,
    Step,
    texts,
)
from tradewind.pipelines.definition.pipeline_parameters import Parameters
from tradewind.pipelines.definition.shared_marks import check_acknowledged
from tradewind.pipelines.definition.spark_settings import check_settings
from tradewind.pipelines.errors import PipelineFileError
from tradewind.pipelines.machine.places import problem_of
from tradewind.pipelines.notation.column_templates import parse_template
from tradewind.pipelines.notation.intervals import parse_interval_ms
from tradewind.spark.errors import OptionError

TABLES_MAX: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*?)`(?: - at `(.*)`)?")
_PATH_PART: Final = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]")
_KINDS: Final = {
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    type(None): "nothing",
}
Kind = TypeVar("Kind", Source, Step, Sink, Head, PipelineCase)


def load_pipeline(
    path: Path, parameters: Parameters | None = None, tests: Path | None = None
) -> Pipeline:
    """The pipeline of a file; PipelineFileError names the line of what is wrong.

    `tests` is a file with nothing but more tests.
    """
    return pipeline_of(read_whole(path, parameters or Parameters(), tests))


def cases_file_of(path: Path) -> Path | None:
    """The file of tests beside that of a pipeline: `sales_test.yaml` for `sales.yaml`, if any."""
    found = path.with_name(f"{path.stem}_test{path.suffix}")
    return found if found.is_file() else None


def pipeline_of(document: PipelineDocument) -> Pipeline:
    """The pipeline of a document."""
    root = document.value
    if not isinstance(root, dict):
        raise document.error((), "a pipeline is a mapping with sources and sinks")
    head_values = {key: value for key, value in root.items() if key not in SECTIONS}
    head = _convert(document, (), head_values, Head, extra=SECTIONS)
    if not _NAME.fullmatch(head.pipeline):
        text = f"{head.pipeline!r} is not a name: letters, digits and _, not more than 100"
        raise document.error(("pipeline",), text)
    if "://" in head.checkpoint and (problem := problem_of(head.checkpoint)):
        raise document.error(("checkpoint",), f"checkpoint: {problem}")
    check_settings(document, head.spark)
    check_restart(document, head)
    sources = _section(document, "sources", Source)
    steps = _section(document, "steps", Step)
    sinks = _section(document, "sinks", Sink)
    for section, entries in (("sources", sources), ("sinks", sinks)):
        if not entries:
            place = (section,) if section in root else ()
            raise document.error(place, f"a pipeline needs at least one entry in {section}")
    check_names(document, sources, sinks)
    _PipelineChecker(document, head, sources, steps).check(sinks)
    uses, origins = _relations(document, sources, steps)
    cases = _section(document, "tests", PipelineCase)
    trigger = _trigger(document, head)
    pipeline = Pipeline(document, head, sources, steps, sinks, trigger, uses, origins, cases=cases)
    _check_followed(pipeline)
    if not any(source.share for source in sources.values()):
        check_acknowledged(pipeline)
    check_cases(pipeline)
    return pipeline


def near(name: str, known: Iterable[str]) -> str:
    """A hint at the name that was meant, or the list of all there are."""
    names = sorted(known)
    folded = {one.lower(): one for one in names}
    close = difflib.get_close_matches(name.lower(), folded, 1, 0.6)
    if close:
        return f"; did you mean {folded[close[0]]!r}?"
    return f"; there are {', '.join(names[:20])}" if names else "; there are none"


# -------------------------------------------------------------------------- types


def _section(document: PipelineDocument, section: str, kind: type[Kind]) -> dict[str, Kind]:
    values = document.value.get(section) or {}
    if not isinstance(values, dict):
        raise document.error((section,), f"{section} is a mapping of names to what they are")
    if len(values) > TABLES_MAX:
        raise document.error((section,), f"more than {TABLES_MAX} {section}")
    result = {}
    for name, value in values.items():
        if not _NAME.fullmatch(name):
            text = f"{name!r} is not a name for SQL: letters, digits and _, not a digit first"
            raise document.error((section, name), text)
        if not isinstance(value, dict):
            # Not the value: it may be a password whose line stands too far left.
            text = f"{name} must be a mapping, not {_KINDS.get(type(value), 'a value')}"
            raise document.error((section, name), text)
        result[name] = _convert(document, (section, name), value, kind)
    return result


def _convert(
    document: PipelineDocument,
    place: tuple[Key, ...],
    value: Mapping[str, Any],
    kind: type[Kind],
    extra: Sequence[str] = (),
) -> Kind:
    try:
        # The text of a parameter becomes what its key takes: a number, or true and false.
        return msgspec.convert(value, kind, strict=not document.has_filled(place))
    except msgspec.ValidationError as error:
        raise _located(document, place, str(error), kind, extra) from None


def _located(
    document: PipelineDocument,
    place: tuple[Key, ...],
    text: str,
    kind: type[msgspec.Struct],
    extra: Sequence[str],
) -> PipelineFileError:
    """An error of msgspec with the line that it is about, and what would be right."""
    if found := _UNKNOWN.match(text):
        name, inner = found[1], _keys(found[2] or "$")
        known = [*_fields_at(kind, inner), *extra]
        hint = near(name, known) if known else ""
        return document.error((*place, *inner, name), f"key {name!r} does not exist{hint}")
    problem, _, at = text.partition(" - at `")
    keys = _keys(at.rstrip("`") or "$")
    where = ".".join(str(key) for key in keys)
    if problem.startswith("Invalid enum value"):
        choices = _members(_fields_at(kind, keys[:-1]).get(str(keys[-1])))
        problem = (
            f"{problem.removeprefix('Invalid enum value ')} is not one of {', '.join(choices)}"
        )
    problem = problem[0].lower() + problem[1:]
    return document.error((*place, *keys), f"{where}: {problem}" if where else problem)


def _keys(path: str) -> tuple[Key, ...]:
    """The keys of a path as msgspec writes it, `$.payload.schema`; stops where it does not say."""
    return tuple(
        part[1] if part[1] is not None else int(part[2]) for part in _PATH_PART.finditer(path)
    )


def _fields_at(kind: type[msgspec.Struct], keys: tuple[Key, ...]) -> dict[str, Any]:
    """The keys that the mapping at a path may have, with their types."""
    found: type[msgspec.Struct] = kind
    for key in keys:
        options = [one for one in _members(_types(found).get(str(key))) if _is_struct(one)]
        if not options:
            return {}
        found = options[0]
    return _types(found)


def _types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


def _members(kind: Any) -> tuple[Any, ...]:
    return getattr(kind, "__args__", (kind,))


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


# -------------------------------------------------------------------------- what goes together


class _PipelineChecker:
    """Checks each entry by itself."""

    def __init__(
        self,
        document: PipelineDocument,
        head: Head,
        sources: Mapping[str, Source],
        steps: Mapping[str, Step],
    ) -> None:
        self._document = document
        self._head = head
        self._sources = sources
        self._steps = steps

    def check(self, sinks: Mapping[str, Sink]) -> None:
        self._login((), self._head)
        for section, entries in (("sources", self._sources), ("sinks", sinks)):
            for name, entry in entries.items():
                self._login((section, name), entry)
        taken: dict[str, str] = {}
        for section, names in (("sources", self._sources), ("steps", self._steps)):
            for name in names:
                if name.lower() in taken:
                    text = f"{name!r} is a name twice, in {taken[name.lower()]} too"
                    raise self._document.error((section, name), text)
                taken[name.lower()] = section
        for name, source in self._sources.items():
            self._source(("sources", name), source)
        for name, step in self._steps.items():
            self._step(("steps", name), step)
        for name, sink in sinks.items():
            self._sink(("sinks", name), sink)

    def _login(self, place: tuple[str, ...], entry: PlacedEntry) -> None:
        try:
            entry.login.check()
        except OptionError as error:
            text = str(error).removeprefix("option ")
            raise self._document.error((*place, error.option), text) from None

    def _only(
        self, place: tuple[str, str], kinds: Sequence[str], keys: Mapping[str, set[str]]
    ) -> str:
        """The one kind of an entry, whose keys are all of that kind."""
        values: dict[str, Any] = self._document.value[place[0]][place[1]]
        given = set(values)
        chosen = [key for key in values if key in kinds]
        if len(chosen) != 1:
            text = f"specify exactly one of {', '.join(kinds)}"
            raise self._document.error((*place, chosen[1]) if chosen else place, text)
        special = set().union(*keys.values())
        for key in sorted(given & special - keys[chosen[0]]):
            text = f"{key!r} is not for a {chosen[0]} {place[0].removesuffix('s')}"
            raise self._document.error((*place, key), text)
        return chosen[0]

    def _template(self, keys: Sequence[Key], text: str) -> None:
        try:
            parse_template(text)
        except ValueError as error:
            raise self._document.error(keys, str(error)) from None

    def _source(self, place: tuple[str, str], source: Source) -> None:
        kind = self._only(place, SOURCE_KINDS, SOURCE_KEYS)
        fail = self._document.error
        if not getattr(source, kind):
            raise fail((*place, kind), f"{kind} is empty")
        if source.start_seq and source.start != "earliest":
            raise fail((*place, "start_seq"), "use start or start_seq, not both")
        check_reading(self._document, place, source)
        if kind in ("json", "csv") and source.is_followed and not source.schema:
            raise fail(place, f"a {kind} folder that is followed needs a schema")
        if source.watermark is not None:
            check_interval(self._document, (*place, "watermark", "delay"), source.watermark.delay)
        payload = source.payload
        if payload is not None and payload.format == "table":
            self._table_payload(place, source)
        if payload is not None and payload.dead_letter is not None:
            if payload.bad != "fail":
                raise fail((*place, "payload", "bad"), "use bad or dead_letter, not both")
            if not source.is_followed:
                raise fail((*place, "payload", "dead_letter"), "only for a source that is followed")
            self._template(
                (*place, "payload", "dead_letter", "subject"), payload.dead_letter.subject
            )

    def _table_payload(self, place: tuple[str, str], source: Source) -> None:
        """The rows of a table are all of one stream, decoded as the table was asked for."""
        fail = self._document.error
        if source.kind != "stream" or source.is_followed:
            text = "format table must be of a stream with `follow: false`"
            raise fail((*place, "payload", "format"), text)
        if len(source.streams) != 1 or any(letter in source.streams[0] for letter in "*?["):
            raise fail((*place, "stream"), "with the payload format table, name one stream")
        for key in ("subjects", "start", "start_seq"):
            if getattr(source, key) != getattr(Source(), key):
                text = f"{key} is not for the payload format table: use `where` in a step"
                raise fail((*place, key), text)
        if source.payload != Payload("table"):
            text = "the payload format table takes no other keys: the table says what they do"
            raise fail((*place, "payload"), text)

    def _step(self, place: tuple[str, str], step: Step) -> None:
        kind = self._only(place, STEP_KINDS, STEP_KEYS)
        fail = self._document.error
        if not getattr(step, kind).strip():
            raise fail((*place, kind), f"{kind} is empty")
        if kind != "sql" and not texts(step.inputs):
            raise fail(place, f"a {kind} step needs `from`: the tables that it takes")
        if kind == "python":
            self._python((*place, "python"), step.python)
        if kind == "window":
            check_interval(self._document, (*place, "window"), step.window)
            if step.slide:
                check_interval(self._document, (*place, "slide"), step.slide)
            if len(texts(step.inputs)) != 1:
                raise fail((*place, "from"), "a window is over one table")
            if not step.keep:
                text = "a window needs `keep`: names and what they are, as in revenue: sum(amount)"
                raise fail(place, text)
        if step.watermark is not None:
            check_interval(self._document, (*place, "watermark", "delay"), step.watermark.delay)

    def _python(self, keys: Sequence[Key], text: str) -> None:
        """The file must be there and define the function; it is not run."""
        file, _, function = text.rpartition(":")
        if not file or not function.isidentifier():
            raise self._document.error(keys, f"{text!r} must be FILE.py:FUNCTION")
        path = self._document.path.resolve().parent / file
        try:
            tree = ast.parse(path.read_text(), str(path))
        except OSError as error:
            raise self._document.error(keys, f"{file}: {error.strerror}") from None
        except (SyntaxError, ValueError) as error:
            raise self._document.error(keys, f"{file}: {error}") from None
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        if function not in names:
            raise self._document.error(
                keys, f"{file} has no function {function!r}{near(function, names)}"
            )

    def _sink(self, place: tuple[str, str], sink: Sink) -> None:
        kind = self._only(place, SINK_KINDS, SINK_KEYS)
        fail = self._document.error
        if not getattr(sink, kind):
            raise fail((*place, kind), f"{kind} is empty")
        tables = [*self._sources, *self._steps]
        if sink.input not in tables:
            text = f"table {sink.input!r} does not exist{near(sink.input, tables)}"
            raise fail((*place, "from"), text)
        required = {"stream": "subject", "bucket": "key"}.get(kind, "")
        if required:
            if not getattr(sink, required):
                text = f"a {kind} sink needs {required!r}, such as {required}: '{{region}}.total'"
                raise fail(place, text)
            if not isinstance(getattr(sink, required), str):
                raise fail((*place, required), f"{required} of a {kind} sink must be a string")
            self._template((*place, required), getattr(sink, required))
        if kind == "stream" and sink.create is True:
            raise fail((*place, "create"), "specify the subjects of the stream: create: [out.>]")
        if kind == "stream" and sink.mode == "complete":
            text = "complete would append all rows again with each batch: append or update"
            raise fail((*place, "mode"), text)
        if kind == "bucket" and isinstance(sink.create, list):
            raise fail((*place, "create"), "true or false; a bucket has no subjects")
        check_writing(self._document, place, sink)
        self._lake(place, kind, sink)
        console = sink.console
        if console is not None and bool(console.label) != bool(console.chart):
            raise fail((*place, "console"), "a chart needs both: label and chart, two columns")
        if console is not None and not 1 <= console.rows <= 1000:
            raise fail((*place, "console", "rows"), "rows must be from 1 to 1000")

    def _lake(self, place: tuple[str, str], kind: str, sink: Sink) -> None:
        """The modes of files and tables."""
        fail = self._document.error
        is_table = kind in ("delta", "iceberg")
        if kind == "parquet" and sink.mode != "append":
            raise fail((*place, "mode"), "a parquet folder only grows: mode append")
        if is_table and sink.mode == "update":
            text = (
                "files of a table are not changed row by row: mode append, with a watermark for"
                " windows, or mode upsert with the columns of the key"
            )
            raise fail((*place, "mode"), text)
        if sink.mode == "upsert" and not is_table:
            raise fail((*place, "mode"), "upsert is for delta and iceberg sinks")
        if is_table:
            for key in ("key", "delete_when", "order_by"):
                if getattr(sink, key) and sink.mode != "upsert":
                    raise fail((*place, key), f"{key!r} needs mode: upsert")
            if sink.mode == "upsert" and not texts(sink.key):
                raise fail(place, "mode upsert needs 'key': the columns that a row is known by")
            if len(set(texts(sink.key))) != len(texts(sink.key)):
                raise fail((*place, "key"), "a column of the key is named twice")


# -------------------------------------------------------------------------- relations


def names_in(sql: str, known: Iterable[str]) -> set[str]:
    """The known tables that an SQL text names; quoted texts and comments are passed over."""
    bare = re.sub(r"'(?:[^'\\]|\\.)*'|--[^\n]*|/\*.*?\*/", " ", sql, flags=re.DOTALL)
    words = {
        (quoted or word).lower() for quoted, word in re.findall(r"`([^`]+)`|([A-Za-z_]\w*)", bare)
    }
    return {name for name in known if name.lower() in words}


def _relations(
    document: PipelineDocument, sources: Mapping[str, Source], steps: Mapping[str, Step]
) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    origins = {name: frozenset({name}) for name in sources}
    uses: dict[str, frozenset[str]] = {}
    for name, step in steps.items():
        known = list(origins)
        if step.sql:
            uses[name] = frozenset(names_in(step.sql, known))
            later = names_in(step.sql, [other for other in steps if other not in origins])
            for other in sorted(later - {name}):
                if re.search(rf"\b(from|join)\s+`?{other}\b", step.sql, re.IGNORECASE):
                    text = f"step {name} uses {other}, which comes after it"
                    raise document.error(("steps", name, "sql"), text)
        else:
            for used in texts(step.inputs):
                if used not in known:
                    text = f"table {used!r} does not exist before this step{near(used, known)}"
                    raise document.error(("steps", name, "from"), text)
            uses[name] = frozenset(texts(step.inputs))
        origins[name] = frozenset().union(*(origins[used] for used in uses[name]))
    return uses, origins


def _check_followed(pipeline: Pipeline) -> None:
    for name, sink in pipeline.sinks.items():
        origins = pipeline.origins[sink.input]
        if not any(pipeline.sources[origin].is_followed for origin in origins):
            text = (
                f"nothing that {sink.input} is made from is followed; add `follow: true` to one"
                " of its sources"
            )
            raise pipeline.document.error(("sinks", name, "from"), text)


def _trigger(document: PipelineDocument, head: Head) -> float | None:
    if head.trigger in ("fast", "now"):
        return 0 if head.trigger == "fast" else None
    try:
        return parse_interval_ms(head.trigger) / 1000
    except ValueError:
        text = f"{head.trigger!r} is not fast, now, or a duration such as 2 seconds"
        raise document.error(("trigger",), text) from None
