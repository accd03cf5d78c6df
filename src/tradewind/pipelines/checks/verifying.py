"""Verifies that a lake contains what its streams contain.

Owns the comparison. The rows of a sink are computed again, from the current streams up to the
committed position of the query, and compared with those of the lake: first by count and checksum of
ranges of sequences, then row by row where these differ. A row whose message has been removed from
the stream cannot be compared, and is counted. The module never writes anything, and a pipeline may
run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from tradewind.pipelines.definition.model import Pipeline, Sink
from tradewind.pipelines.definition.shared_marks import sink_checkpoint
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.flow.frames import build_frames, source_options
from tradewind.pipelines.flow.sinks import upsert_of
from tradewind.pipelines.lake.lakes import SinkQuery
from tradewind.pipelines.lake.upserts import DELETED, latest_rows
from tradewind.pipelines.notation.column_templates import quoted_sql, text_sql
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.state.verdicts import (
    SHOWN_MAX,
    Kind,
    StreamRange,
    Verdict,
    differences_of,
    differing,
    not_row_by_row,
    planned_offsets,
    range_size,
    spans_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tradewind.spark.contract.provider_contract import ReadState

LAKES: Final = ("parquet", "delta", "iceberg")
Progress = Callable[[int, int], None]
Sums = dict[tuple[str, int], tuple[int, ...]]
_ONE_STREAM: Final = "__stream"
_SHOWN_ROWS: Final = 10_000
_CONDITIONS_MAX: Final = 100
_BEFORE: Final = -1


class _UnverifiableError(Exception):
    """Why nothing can be said of a sink."""


@dataclass(frozen=True)
class _Span:
    """The sequences of a stream that can be compared, and whether it still has its first one."""

    first_seq: int
    last_seq: int
    has_begin: bool

    def sql(self, stream: str) -> str:
        """The rows inside of it."""
        return _between(stream, self.first_seq, self.last_seq)


def verify(
    pipeline: Pipeline,
    spark: SparkSession,
    address: PipelineAddress,
    name: str,
    columns: Sequence[str] = (),
    on_progress: Progress = lambda _done, _whole: None,
) -> Verdict:
    """Compare one sink with its streams; `columns` are those that are looked at, or all."""
    try:
        with _watched(spark, on_progress):
            return _Comparison(pipeline, spark, address, name, columns).verdict()
    except _UnverifiableError as error:
        return Verdict(name, "unverifiable", str(error))


class _Comparison:
    """One sink, whose rows are computed again."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        address: PipelineAddress,
        name: str,
        columns: Sequence[str],
    ) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._address = address
        self._name = name
        self._sink = pipeline.sinks[name]
        self._columns = columns
        if self._sink.kind not in LAKES:
            raise _UnverifiableError(f"a {self._sink.kind} is not a lake")

    def verdict(self) -> Verdict:
        committed = SinkQuery("", sink_checkpoint(self._pipeline, self._name)).committed()
        if committed is None:
            raise _UnverifiableError("it has not committed a batch yet")
        self._check_sources()
        # A stream that was empty has no sequence at which a read could end.
        ends = {stream: seq for stream, seq in planned_offsets(committed).items() if seq > 0}
        if not ends:
            raise _UnverifiableError("it has not read a message of a stream yet")
        expected = self._expected(ends)
        lake = self._lake(expected)
        if "seq" not in lake.columns or "seq" not in expected.columns:
            raise _UnverifiableError(
                "its rows have no sequences: include the column seq in the table, so that each row"
                " can be found in the stream"
            )
        if "stream" not in lake.columns and len(ends) > 1:
            raise _UnverifiableError("it has rows of several streams, and no column stream")
        spans = self._spans(ends, lake)
        return self._compare(expected, lake, spans)

    def _check_sources(self) -> None:
        pipeline = self._pipeline
        for origin in sorted(pipeline.origins[self._sink.input]):
            source = pipeline.sources[origin]
            if source.kind != "stream" or not source.is_followed:
                raise _UnverifiableError(f"source {origin} is not a stream that is followed")

    def _expected(self, ends: Mapping[str, int]) -> DataFrame:
        """The rows as the pipeline makes them from what the streams have now."""
        pipeline = self._pipeline
        origins = pipeline.origins[self._sink.input]
        # A follower begins where it once began; a stream that came later is not committed yet.
        options = {
            "endingOffsets": msgspec.json.encode(dict(ends)).decode(),
            "failOnDataLoss": "false",
            # The lake is not to be compared with itself.
            "tiers": "false",
        }
        unfollowed = {
            name: msgspec.structs.replace(source, follow=False) if name in origins else source
            for name, source in pipeline.sources.items()
        }
        again = replace(pipeline, sources=unfollowed)
        extra = {
            name: self._named(name, ends, options) for name in origins if unfollowed[name].stream
        }
        frames = build_frames(again, self._spark, self._address, may_freeze=False, extra=extra)
        for step in [*pipeline.steps, self._sink.input]:
            if step == self._sink.input or self._is_used(step):
                frame = frames.tables[step]
                plan = frame._jdf.queryExecution().analyzed()
                if reason := not_row_by_row(list(plan_nodes(plan)), plan.toString()):
                    where = f"step {step}" if step in pipeline.steps else f"table {step}"
                    raise _UnverifiableError(f"{where} cannot be recomputed: {reason}")
        frame = frames.tables[self._sink.input]
        if upsert := upsert_of(self._sink):
            frame = latest_rows(frame, upsert).where(f"not {DELETED}").drop(DELETED)
        return frame

    def _named(
        self, name: str, ends: Mapping[str, int], options: Mapping[str, str]
    ) -> dict[str, str]:
        """Only streams that the source reads can be named in its options."""
        from fnmatch import fnmatchcase

        wanted = self._pipeline.sources[name].streams
        own = {
            stream: seq
            for stream, seq in ends.items()
            if any(fnmatchcase(stream, one) for one in wanted)
        }
        if not own:
            raise _UnverifiableError(f"source {name} has not read a message yet")
        return {
            **options,
            "stream": ",".join(own),
            "endingOffsets": msgspec.json.encode(own).decode(),
        }

    def _is_used(self, step: str) -> bool:
        """Whether the sink's table is made from a step."""
        waiting, seen = [self._sink.input], set()
        while waiting:
            one = waiting.pop()
            seen.add(one)
            waiting += [used for used in self._pipeline.uses.get(one, ()) if used not in seen]
        return step in seen

    def _lake(self, expected: DataFrame) -> DataFrame:
        """The rows of the lake with the columns that both have."""
        frame = lake_frame(self._pipeline, self._spark, self._sink, expected)
        missing = [name for name in self._columns if name not in expected.columns]
        if missing:
            raise PipelineError(f"{self._sink.input} has no column {missing[0]!r}")
        lacking = [name for name in self._compared(expected) if name not in frame.columns]
        if lacking:
            raise _UnverifiableError(
                f"the lake has no column {lacking[0]}: it comes with the next batch; --columns"
                " compares others"
            )
        return frame

    def _compared(self, expected: DataFrame) -> list[str]:
        """The columns that are compared; those that say where a row belongs always are."""
        if not self._columns:
            return list(expected.columns)
        keys = [name for name in ("stream", "seq") if name in expected.columns]
        return [*keys, *(name for name in self._columns if name not in keys)]

    def _spans(self, ends: Mapping[str, int], lake: DataFrame) -> dict[str, _Span]:
        """The range of each stream that is committed and still there."""
        spans: dict[str, _Span] = {}
        for origin in self._pipeline.origins[self._sink.input]:
            source = self._pipeline.sources[origin]
            options = source_options(self._pipeline, source, self._address)
            for state in _states(options):
                if state.name not in ends:
                    continue
                has_begin = state.first_seq <= max(source.start_seq, 1)
                first, last = max(state.first_seq, source.start_seq, 1), ends[state.name]
                if source.start == "latest":
                    first = max(first, self._first_in(lake, state.name, last))
                known = spans.get(state.name, _Span(first, last, has_begin))
                spans[state.name] = _Span(min(first, known.first_seq), last, known.has_begin)
        for stream in ends:
            if stream not in spans:
                raise _UnverifiableError(f"stream {stream} no longer exists")
        return spans

    def _first_in(self, lake: DataFrame, stream: str, last: int) -> int:
        rows = lake.where(f"stream = {text_sql(stream)}") if "stream" in lake.columns else lake
        found = rows.selectExpr("min(seq) as first").first()
        assert found is not None
        return int(found["first"]) if found["first"] is not None else last + 1

    # ---------------------------------------------------------------- comparing

    def _compare(self, expected: DataFrame, lake: DataFrame, spans: Mapping[str, _Span]) -> Verdict:
        names = self._compared(expected)
        only = next(iter(spans))
        left, all_rows = (_hashed(frame, names, expected, only) for frame in (expected, lake))
        inside = " or ".join(span.sql(stream) for stream, span in spans.items())
        early = " or ".join(
            _between(stream, 0, span.first_seq - 1) for stream, span in spans.items()
        )
        left, right = left.where(inside), all_rows.where(inside)
        size = range_size({name: (one.first_seq, one.last_seq) for name, one in spans.items()})
        found = _sums(all_rows.where(f"{inside} or {early}"), size, early)
        before = {stream: one[0] for (stream, part), one in found.items() if part == _BEFORE}
        sums = (
            _sums(left, size, "false"),
            {key: one for key, one in found.items() if key[1] != _BEFORE},
        )
        ranges = [
            StreamRange(name, one.first_seq, one.last_seq, before.get(name, 0))
            for name, one in sorted(spans.items())
        ]
        verdict = Verdict(
            self._name,
            "same",
            ranges=ranges,
            rows_stream=sum(one[0] for one in sums[0].values()),
            rows_lake=sum(one[0] for one in sums[1].values()),
            notes=self._notes(),
        )
        wrong = differing(*sums)
        return self._with_verdict(verdict, left, right, wrong, size, spans) if wrong else verdict

    def _notes(self) -> list[str]:
        sources = [self._pipeline.sources[one] for one in self._pipeline.origins[self._sink.input]]
        if any(source.start == "latest" for source in sources):
            return ["it began with `start: latest`: the first row of the lake is taken for that"]
        return []

    def _with_verdict(
        self,
        verdict: Verdict,
        left: DataFrame,
        right: DataFrame,
        wrong: Sequence[tuple[str, int]],
        size: int,
        spans: Mapping[str, _Span],
    ) -> Verdict:
        """Row by row, what is different in ranges that are."""
        parts = [
            _between(stream, first * size + 1, (last + 1) * size)
            for stream, first, last in spans_of(wrong)
        ]
        # Spark does not take a condition of any length.
        part = " or ".join(parts) if len(parts) <= _CONDITIONS_MAX else "true"
        keys = [_ONE_STREAM, "seq"]
        rows = _by_seq(left.where(part), "l").join(_by_seq(right.where(part), "r"), keys, "outer")
        kind = (
            "case when rn is null then 'missing' when ln is null then 'extra'"
            " when rn > ln then 'twice' when rn < ln then 'missing' else 'changed' end"
        )
        odd = rows.where("not (ln <=> rn and ls <=> rs and lx <=> rx)").selectExpr(
            *keys, f"{kind} as kind", "abs(coalesce(rn, 0) - coalesce(ln, 0)) as n"
        )
        kept = self._kept(part)
        # A row of the lake whose message is gone is as right as it can be known to be.
        known = odd.join(kept.selectExpr(*keys, "true as is_kept"), keys, "left")
        gone = "kind = 'extra' and is_kept is null"
        known = known.selectExpr(*keys, f"if({gone}, 'gone', kind) as kind", "n").cache()
        try:
            totals = known.groupBy("kind").agg({"n": "sum", "*": "count"}).collect()
            first = known.where("kind <> 'gone'").orderBy(*keys).limit(_SHOWN_ROWS).collect()
        finally:
            known.unpersist()
        counts = {
            row["kind"]: int(row["count(1)"] if row["kind"] == "changed" else row["sum(n)"])
            for row in totals
        }
        removed = counts.pop("gone", 0)
        verdict = msgspec.structs.replace(verdict, removed=removed)
        if upsert_of(self._sink) and counts.get("missing") and not self._is_whole(spans):
            # The last message of a key may be one that the stream has removed.
            unknown = counts.pop("missing")
            note = f"{unknown:,} keys cannot be judged: their last message may be gone"
            verdict = msgspec.structs.replace(verdict, notes=[*verdict.notes, note])
            first = [row for row in first if row["kind"] != "missing"]
        if not counts:
            return verdict
        found = differences_of(
            (row[_ONE_STREAM], row["seq"], cast("Kind", row["kind"])) for row in first
        )
        return msgspec.structs.replace(
            verdict, outcome="different", counts=counts, differences=found[:SHOWN_MAX]
        )

    def _is_whole(self, spans: Mapping[str, _Span]) -> bool:
        """Whether the streams have every message that they had."""
        if not all(span.has_begin for span in spans.values()):
            return False
        inside = " or ".join(span.sql(stream) for stream, span in spans.items())
        wanted = sum(max(span.last_seq - span.first_seq + 1, 0) for span in spans.values())
        return bool(self._kept(inside).count() == wanted)

    def _kept(self, part: str) -> DataFrame:
        """The sequences that the streams have, whatever the pipeline makes of them."""
        frames = []
        for origin in sorted(self._pipeline.origins[self._sink.input]):
            source = self._pipeline.sources[origin]
            options = _without_limits(source_options(self._pipeline, source, self._address))
            options |= {"columns": "stream,seq", "failOnDataLoss": "false"}
            frame = self._spark.read.format("jetstream").options(**options, tiers="false").load()
            frames.append(frame.withColumnRenamed("stream", _ONE_STREAM).where(part))
        return reduce(lambda one, other: one.union(other), frames).distinct()


# -------------------------------------------------------------------------- rows of a lake


@dataclass(frozen=True)
class _ReadJob:
    """Reads files of a table; runs in an executor."""

    storage: Any
    schema: Any

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from tradewind.pipelines.lake.lake_files import LakeFile, read_batches

        for batch in batches:
            for text in batch.column(0).to_pylist():
                yield from read_batches(
                    self.storage, msgspec.json.decode(text, type=LakeFile), self.schema
                )


def lake_frame(
    pipeline: Pipeline, spark: SparkSession, sink: Sink, expected: DataFrame
) -> DataFrame:
    """The rows of a sink's lake; those of a folder have the types of what is expected."""
    from pyspark.errors import AnalysisException

    if sink.kind == "parquet":
        reader = spark.read.schema(expected.schema)
        try:
            return reader.parquet(pipeline.place(sink.parquet))
        except AnalysisException:
            raise _UnverifiableError(f"there is no folder {sink.parquet}") from None
    from pyspark.sql.pandas.types import from_arrow_schema

    from tradewind.pipelines.lake.opening import lake_table
    from tradewind.pipelines.sessions.arrow_jobs import map_in_arrow, spread

    table = lake_table(pipeline, sink)
    if not table.is_there:
        raise _UnverifiableError(f"table {table.name} does not exist")
    schema = table.schema()
    texts = [msgspec.json.encode(file).decode() for file in table.files()]
    kinds = from_arrow_schema(schema)
    if not texts:
        return spark.createDataFrame([], kinds)
    return map_in_arrow(spread(spark, texts), _ReadJob(table.storage, schema), kinds)


def _hashed(frame: DataFrame, names: Sequence[str], expected: DataFrame, only: str) -> DataFrame:
    """Stream, sequence and a hash of the columns of each row, in the types of what is expected."""
    kinds = {field.name: field.dataType for field in expected.schema.fields}
    parts = []
    for name in names:
        column = quoted_sql(name)
        # A hash passes over null, so that it would not matter in which of two columns it is.
        parts += [f"isnull({column})", _comparable(column, kinds[name].simpleString())]
    stream = "stream" if "stream" in frame.columns else text_sql(only)
    return frame.selectExpr(
        f"{stream} as {_ONE_STREAM}", "seq", f"xxhash64({', '.join(parts)}) as hash"
    )


def _comparable(column: str, kind: str) -> str:
    """A column as something that has a hash, in the type of what is expected."""
    if kind.startswith("map<"):
        return f"to_json(array_sort(map_entries({column})))"
    if kind.startswith(("struct<", "array<")):
        return f"to_json({column})"
    return f"cast({column} as {kind})"


def _between(stream: str, first: int, last: int) -> str:
    return f"({_ONE_STREAM} = {text_sql(stream)} and seq between {first} and {last})"


def _without_limits(options: Mapping[str, str]) -> dict[str, str]:
    """The options that say where streams are, and which."""
    limits = ("startingOffsets", "startingSeq", "startingTime", "filterSubjects", "failOnDataLoss")
    return {name: value for name, value in options.items() if name not in limits}


def _sums(rows: DataFrame, size: int, early: str) -> Sums:
    """Count and checksum of each range of sequences, and of rows before all of them."""
    part = f"if({early}, {_BEFORE}, floor((seq - 1) / {size})) as part"
    grouped = rows.selectExpr(_ONE_STREAM, part, "hash")
    found = grouped.groupBy(_ONE_STREAM, "part").agg(*_aggregates("")).collect()
    return {
        (row[_ONE_STREAM], int(row["part"])): (row["n"], int(row["s"]), row["x"]) for row in found
    }


def _by_seq(rows: DataFrame, prefix: str) -> DataFrame:
    return rows.groupBy(_ONE_STREAM, "seq").agg(*_aggregates(prefix))


def _aggregates(prefix: str) -> list[Any]:
    from pyspark.sql.functions import expr

    return [
        expr(f"count(*) as {prefix}n"),
        expr(f"sum(cast(hash as decimal(20,0))) as {prefix}s"),
        expr(f"bit_xor(hash) as {prefix}x"),
    ]


def plan_nodes(plan: Any) -> Iterator[str]:
    """The names of all nodes of one of Spark's plans."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield str(node.nodeName()).split(" ")[0]
        children = node.children()
        waiting += [children.apply(index) for index in range(children.size())]


def _states(options: Mapping[str, str]) -> list[ReadState]:
    """The streams as they are now, asked without Spark."""
    from tradewind.spark.options.source_options import parse_options
    from tradewind.spark.providers.provider_choice import open_provider

    provider = open_provider(parse_options(_without_limits(options)))
    try:
        return provider.states()
    finally:
        provider.close()


@contextmanager
def _watched(spark: SparkSession, on_progress: Progress) -> Iterator[None]:
    """Report how many of Spark's current tasks are done, twice a second."""
    stop = Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        while not stop.wait(0.5):
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [info for info in infos if info is not None]
            if known:
                on_progress(
                    sum(one.numCompletedTasks for one in known), sum(one.numTasks for one in known)
                )

    thread = Thread(target=watch, name="tradewind-verify", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
