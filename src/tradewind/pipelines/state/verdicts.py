"""The result of comparing a lake with its streams, and the parts that need no Spark.

Owns the numbers of a result and their texts, how far a query has committed, and the ranges of
sequences that are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from tradewind.spark.progress.stream_lag import offset_of

RANGES_MAX: Final = 10_000
RANGE_MIN: Final = 1000
SHOWN_MAX: Final = 10
Outcome = Literal["same", "different", "unverifiable"]
# The kinds of rows of a comparison: in the stream only, in the lake only, in the lake more often,
# or with other columns.
Kind = Literal["missing", "extra", "twice", "changed"]
KINDS: Final[tuple[Kind, ...]] = ("missing", "extra", "twice", "changed")
_WORDS: Final = {
    "missing": "missing in the lake",
    "extra": "in the lake, but not in the stream",
    "twice": "in the lake more than once",
    "changed": "other columns than the stream's",
}
# Steps that give one row for each row, or leave some out, or make several of one.
ROW_BY_ROW: Final = frozenset(
    {
        *("Project", "Filter", "SubqueryAlias", "View", "Generate", "Union", "Sort"),
        *("EventTimeWatermark", "CollectMetrics", "ResolvedHint", "OneRowRelation"),
        *("Repartition", "RepartitionByExpression", "RebalancePartitions"),
        *("MapInArrow", "MapInPandas", "ArrowEvalPython", "BatchEvalPython"),
        *("DataSourceV2Relation", "RelationV2", "StreamingDataSourceV2Relation"),
        *("LogicalRelation", "LocalRelation", "StreamingRelationV2", "StreamingRelation"),
    }
)
_NOTHING: Final = "nothing was compared"
_CHANGING: Final = re.compile(
    r"\b(rand|randn|uuid|shuffle|current_timestamp|localtimestamp|now|current_date|curdate"
    r"|unix_timestamp\(current_timestamp|monotonically_increasing_id|spark_partition_id)\("
)


class StreamRange(msgspec.Struct, frozen=True):
    """The range of one stream that was compared; rows of the lake before it no longer have a
    message.
    """

    stream: str
    first_seq: int
    last_seq: int
    rows_before: int = 0


class Difference(msgspec.Struct, frozen=True):
    """Sequences that differ in the same way, one after the other in what was compared."""

    stream: str
    first_seq: int
    last_seq: int
    kind: Kind


class Verdict(msgspec.Struct, frozen=True):
    """The result for one sink."""

    sink: str
    outcome: Outcome
    reason: str = ""
    ranges: list[StreamRange] = []
    rows_stream: int = 0
    rows_lake: int = 0
    counts: dict[str, int] = {}
    removed: int = 0
    differences: list[Difference] = []
    notes: list[str] = []


def lines_of(verdict: Verdict) -> Iterator[str]:
    """A verdict in words."""
    if verdict.outcome == "unverifiable":
        yield f"{verdict.sink}: cannot be verified: {verdict.reason}"
        return
    word = (
        "the lake matches the stream"
        if verdict.outcome == "same"
        else ("the lake does NOT match the stream")
    )
    yield (
        f"{verdict.sink}: {word}: {verdict.rows_stream:,} rows of the stream,"
        f" {verdict.rows_lake:,} of the lake"
    )
    for one in verdict.ranges:
        before = f"; {one.rows_before:,} rows before are of messages that are gone"
        shown = before if one.rows_before else ""
        span = f"sequences {one.first_seq:,} to {one.last_seq:,} were compared"
        yield f"  {one.stream}: {span if one.last_seq >= one.first_seq else _NOTHING}{shown}"
    if verdict.removed:
        yield f"  {verdict.removed:,} rows are of messages that were removed from the stream since"
    for kind in KINDS:
        if count := verdict.counts.get(kind, 0):
            yield f"  {count:,} rows are {_WORDS[kind]}"
    for difference in verdict.differences:
        first, last = difference.first_seq, difference.last_seq
        span = f"sequence {first:,}" if first == last else f"sequences {first:,} to {last:,}"
        yield f"  {difference.stream} {span}: {_WORDS[difference.kind]}"
    yield from (f"  {note}" for note in verdict.notes)


def planned_offsets(log: str) -> dict[str, int]:
    """The last sequence of each stream in an entry of Spark's log of offsets.

    After a version and a line of settings there is one line for each source. If two sources have
    the same stream, the one counts that is less far.
    """
    found: dict[str, int] = {}
    for line in log.splitlines()[2:]:
        for stream, point in offset_of(line).items():
            found[stream] = min(point["seq"], found.get(stream, point["seq"]))
    return found


def range_size(spans: Mapping[str, tuple[int, int]]) -> int:
    """How many sequences are compared as one, so that there are not too many ranges."""
    whole = sum(max(last - first + 1, 0) for first, last in spans.values())
    return max(RANGE_MIN, -(-whole // RANGES_MAX))


def differing(
    left: Mapping[tuple[str, int], tuple[int, ...]],
    right: Mapping[tuple[str, int], tuple[int, ...]],
) -> list[tuple[str, int]]:
    """The ranges whose count or checksum is not the same on both sides, in order."""
    return sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))


def spans_of(ranges: Sequence[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """Ranges that follow each other as one: the stream, the first and the last of them."""
    spans: list[tuple[str, int, int]] = []
    for stream, number in ranges:
        if spans and spans[-1][0] == stream and spans[-1][2] == number - 1:
            spans[-1] = (stream, spans[-1][1], number)
        else:
            spans.append((stream, number, number))
    return spans


def differences_of(rows: Iterable[tuple[str, int, Kind]]) -> list[Difference]:
    """Sequences that differ, as ranges; the rows come in the order of their sequences."""
    found: list[Difference] = []
    for stream, seq, kind in rows:
        last = found[-1] if found else None
        if last and (last.stream, last.last_seq + 1, last.kind) == (stream, seq, kind):
            found[-1] = Difference(stream, last.first_seq, seq, kind)
        else:
            found.append(Difference(stream, seq, seq, kind))
    return found[:SHOWN_MAX]


def not_row_by_row(nodes: Sequence[str], plan: str) -> str:
    """Why rows that were written cannot be made again from the stream; empty if they can."""
    others = sorted({node for node in nodes if node not in ROW_BY_ROW})
    if others:
        return f"it makes rows from several others ({', '.join(others)})"
    if found := _CHANGING.search(plan):
        return f"{found[1]}() returns something else each time"
    return ""
