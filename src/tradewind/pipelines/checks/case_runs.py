"""Runs the tests in the file of a pipeline on Spark, without any server.

Owns replacing the sources by sample messages. The frames then go through the same code as in a run:
payloads, watermarks, steps and the messages that sinks publish. Aggregates are computed once over
all samples, as a pipeline with the mode `complete` would in the end.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.pipelines.checks.case_rows import differences, fields_of
from tradewind.pipelines.definition.case_messages import rows_of, sample_rows
from tradewind.pipelines.definition.model import INFER, Pipeline
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.flow.frames import PAYLOAD_COLUMN, Frames, Samples, build_frames
from tradewind.pipelines.flow.sinks import check_columns, letter_messages, sink_messages, upsert_of
from tradewind.pipelines.lake.upserts import DELETED, latest_rows
from tradewind.pipelines.notation.column_templates import text_sql
from tradewind.pipelines.payloads.inference import infer
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sessions.spark_errors import short_reason
from tradewind.pipelines.state.status import DEAD_SUFFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Few rows need no shuffles over many tasks.
SETTINGS: Final = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}


@dataclass(frozen=True)
class CaseResult:
    """The result of one test; `problems` is empty if it passed."""

    name: str
    file: Path
    line: int
    seconds: float
    problems: list[str] = field(default_factory=list)


def case_session(spark: SparkSession) -> SparkSession:
    """A session for tests beside another one: views and settings are its own."""
    session = spark.newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    return session


def run_case(pipeline: Pipeline, session: SparkSession, name: str) -> CaseResult:
    """Run one test; what it fails with is a problem of it, too."""
    began = time.monotonic()
    case = pipeline.cases[name]
    problems: list[str] = []
    try:
        frames = _frames(pipeline, session, name)
        wanted = list(case.expect) or [sink.input for sink in pipeline.sinks.values()]
        for target in wanted:
            rows, schema = _collect(pipeline, frames, target)
            if case.expect:
                lines = _differences(pipeline, name, target, rows, fields_of(schema))
                problems += [f"{target}: {line}" for line in lines]
    except PipelineError as error:
        if not case.fails:
            problems.append(str(error))
        elif case.fails not in str(error):
            problems.append(f"it failed otherwise than expected: {error}")
    else:
        if case.fails:
            problems.append(f"it did not fail with {case.fails!r}")
    keys = ("tests", name)
    line = pipeline.document.place(keys).key_line
    seconds = time.monotonic() - began
    return CaseResult(name, pipeline.document.file_of(keys), line, seconds, problems)


def _frames(pipeline: Pipeline, session: SparkSession, case: str) -> Frames:
    given: dict[str, DataFrame] = {}
    schemas: dict[str, str] = {}
    for name, source in pipeline.sources.items():
        if source.kind not in PAYLOAD_COLUMN:
            if name in pipeline.cases[case].given:
                given[name] = _file_rows(pipeline, session, case, name)
            continue
        rows = sample_rows(pipeline, case, name)
        given[name] = _sample_frame(session, rows, is_bucket=bool(source.bucket))
        payload = source.payload
        if payload is not None and payload.format in ("json", "table") and payload.schema == INFER:
            column = PAYLOAD_COLUMN[source.kind]
            try:
                schemas[name] = infer(row[column] for row in rows if row[column]).ddl
            except ValueError as error:
                text = f"source {name}: no schema: {error}; declare one, or give it messages"
                raise pipeline.document.error(("tests", case), text) from None
    samples = Samples(given, schemas)
    return build_frames(pipeline, session, PipelineAddress(""), may_freeze=False, samples=samples)


def _sample_frame(
    session: SparkSession, rows: list[dict[str, Any]], *, is_bucket: bool
) -> DataFrame:
    from tradewind.spark.columnar.columns import BUCKET, MESSAGES

    columns = BUCKET if is_bucket else MESSAGES
    ddl = ", ".join(f"`{name}` {column.ddl}" for name, column in columns.items())
    values = [tuple(row[name] for name in columns) for row in rows]
    return session.createDataFrame(values, ddl)


def _file_rows(pipeline: Pipeline, session: SparkSession, case: str, name: str) -> DataFrame:
    """The rows of a folder: objects of JSON, read with the schema of the source."""
    from pyspark.errors import PySparkException

    from tradewind.pipelines.payloads.schemas import declared_ddl

    rows = pipeline.cases[case].given[name]
    schema = declared_ddl(pipeline.sources[name].schema) if pipeline.sources[name].schema else ""
    keys = ("tests", case, "given", name)
    try:
        ddl = schema or infer(msgspec.json.encode(row) for row in rows).ddl
        texts = session.createDataFrame(
            [(msgspec.json.encode(row).decode(),) for row in rows], "x string"
        )
        return texts.selectExpr(f"inline(array(from_json(x, {text_sql(ddl)})))")
    except (ValueError, PySparkException) as error:
        raise pipeline.document.error(keys, f"no schema: {short_reason(error)}") from None


def _collect(
    pipeline: Pipeline, frames: Frames, target: str
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    from pyspark.errors import PySparkException

    place = ("sinks", target) if target in pipeline.sinks else ("steps", target)
    try:
        frame = _target_frame(pipeline, frames, target)
        rows = [row.asDict() for row in frame.collect()]
    except PySparkException as error:
        raise pipeline.document.error(place, f"{target}: {short_reason(error)}") from None
    return rows, frame.schema.jsonValue()


def _target_frame(pipeline: Pipeline, frames: Frames, target: str) -> DataFrame:
    """The rows of a table, or what a sink would write."""
    if target in frames.tables and target not in pipeline.sinks:
        return frames.tables[target]
    if target not in pipeline.sinks:
        source = target.removesuffix(DEAD_SUFFIX)
        return letter_messages(pipeline, source, frames.bad[source])
    sink = pipeline.sinks[target]
    frame = frames.tables[sink.input]
    check_columns(pipeline, target, frame)
    if sink.kind in ("stream", "bucket"):
        return sink_messages(frame, sink)
    if upsert := upsert_of(sink):
        return latest_rows(frame, upsert).where(f"not {DELETED}").drop(DELETED)
    return frame


def _differences(
    pipeline: Pipeline,
    case: str,
    target: str,
    rows: list[dict[str, Any]],
    fields: dict[str, Any],
) -> list[str]:
    expected = rows_of(pipeline.cases[case].expect[target])
    wanted = [
        {name: _payload(value, fields.get(name)) for name, value in row.items()}
        for row in expected.rows
    ]
    found = [{name: _payload(value, fields[name]) for name, value in row.items()} for row in rows]
    try:
        return differences(wanted, found, fields, ordered=expected.ordered)
    except ValueError as error:
        keys = ("tests", case, "expect", target)
        raise pipeline.document.error(keys, str(error)) from None


def _payload(value: Any, kind: Any) -> Any:
    """Payloads that are objects are compared as such, whatever the order of their fields."""
    if kind != "binary" or value is None:
        return value
    found = value
    if isinstance(value, str | bytes | bytearray):
        try:
            found = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return value
        if not isinstance(found, dict):
            return value
    return msgspec.json.encode(_same_numbers(found), order="deterministic")


def _same_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _same_numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_same_numbers(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
