"""The rows that a query wants, as far as the source can evaluate it.

Owns the translation of Spark's filters into bounds on sequence, time and subject. Filters that
cannot be translated exactly are left to Spark, which then evaluates each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tradewind.api.names import KV_SUBJECTS
from tradewind.spark.columnar.rows import SEQUENCE_MAX, TIME_NS_MAX, TIME_NS_MIN, RowDecoder
from tradewind.spark.options.source_options import SourceOptions, moment_ns
from tradewind.subjects import is_valid_literal

# Spark's times are in microseconds, those of streams in nanoseconds.
_NS_PER_US = 1000


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Bounds are inclusive. One of each group of `patterns` has to match; None: every stream."""

    first_seq: int = 1
    last_seq: int = SEQUENCE_MAX
    first_time_ns: int = TIME_NS_MIN
    last_time_ns: int = TIME_NS_MAX
    patterns: tuple[tuple[bytes, ...], ...] = ()
    prefixes: tuple[bytes, ...] = ()
    streams: frozenset[str] | None = None

    def decoder(self, **bounds: Any) -> RowDecoder:
        """A decoder that takes exactly these rows; `bounds` are further ones of `RowDecoder`."""
        return RowDecoder(
            first_seq=self.first_seq,
            last_seq=self.last_seq,
            first_time_ns=self.first_time_ns,
            last_time_ns=self.last_time_ns,
            patterns=self.patterns,
            prefixes=self.prefixes,
            **bounds,
        )

    def between(self, first_seq: int, last_seq: int) -> RowFilter:
        """The same, and the sequence is in these bounds too."""
        return replace(
            self,
            first_seq=max(self.first_seq, first_seq),
            last_seq=min(self.last_seq, last_seq),
        )

    def _at_time(self, first_ns: int, last_ns: int) -> RowFilter:
        return replace(
            self,
            first_time_ns=max(self.first_time_ns, first_ns),
            last_time_ns=min(self.last_time_ns, last_ns),
        )

    def has_stream(self, name: str) -> bool:
        """Whether rows of this stream can pass."""
        return self.streams is None or name in self.streams

    @property
    def is_by_seq(self) -> bool:
        """Whether rows are chosen by nothing but their sequence."""
        times = (self.first_time_ns, self.last_time_ns)
        return not self.patterns and not self.prefixes and times == (TIME_NS_MIN, TIME_NS_MAX)

    @property
    def is_empty(self) -> bool:
        """Whether no row can pass."""
        return (
            self.first_seq > self.last_seq
            or self.first_time_ns > self.last_time_ns
            or (self.streams is not None and not self.streams)
        )


def filter_of(options: SourceOptions) -> RowFilter:
    """The filter of the options; a start of a streaming query is not among it."""
    subjects = tuple(subject.encode() for subject in options.filter_subjects)
    return RowFilter(patterns=(subjects,) if subjects else ())


def bounds_of(options: SourceOptions, stream: str, rows: RowFilter) -> RowFilter:
    """The same with the start and the end of one stream in a batch read."""
    start, end = options.start_of(stream), options.end_of(stream)
    return rows.between(start.seq or 1, end.seq or SEQUENCE_MAX)._at_time(
        TIME_NS_MIN if start.time_ns is None else start.time_ns,
        TIME_NS_MAX if end.time_ns is None else end.time_ns,
    )


def push_filters(
    rows: RowFilter, filters: Iterable[Any], options: SourceOptions
) -> tuple[RowFilter, list[Any]]:
    """The filter with what could be taken over, and the filters that Spark has to apply."""
    left: list[Any] = []
    for condition in filters:
        taken = (
            _push(rows, condition) if not options.is_table else _push_kv(rows, condition, options)
        )
        if taken is None:
            left.append(condition)
        else:
            rows = taken
    return rows, left


def _push(rows: RowFilter, condition: Any) -> RowFilter | None:
    """The filter with this condition in it; None if it cannot be said exactly."""
    column = tuple(getattr(condition, "attribute", ()))
    kind = type(condition).__name__
    if kind == "IsNotNull" and column in (("stream",), ("seq",), ("subject",), ("time",)):
        return rows
    value = getattr(condition, "value", None)
    if column == ("seq",) and type(value) is int:
        bounds = _bounds(kind, value, 1)
        return None if bounds is None else rows.between(max(bounds[0], 1), bounds[1])
    if column == ("time",) and isinstance(value, datetime):
        bounds = _bounds(kind, moment_ns(_aware(value)), _NS_PER_US)
        return None if bounds is None else rows._at_time(*bounds)
    if column == ("subject",):
        return _push_subject(rows, kind, value)
    if column == ("stream",):
        names = list(_texts(kind, value))
        if names:
            known = frozenset(names)
            return replace(rows, streams=known if rows.streams is None else rows.streams & known)
    return None


def _push_kv(rows: RowFilter, condition: Any, options: SourceOptions) -> RowFilter | None:
    """The same for a bucket. Only keys: of the latest values, time and revision come later."""
    if not options.bucket or tuple(getattr(condition, "attribute", ())) != ("key",):
        return None
    kind, value = type(condition).__name__, getattr(condition, "value", None)
    prefix = f"{KV_SUBJECTS}{options.bucket}."
    if isinstance(value, str):
        return _push_subject(rows, kind, prefix + value)
    keys = list(_texts(kind, value))
    return _push_subject(rows, kind, [prefix + key for key in keys]) if keys else None


def _push_subject(rows: RowFilter, kind: str, value: Any) -> RowFilter | None:
    if kind == "StringStartsWith" and isinstance(value, str):
        return replace(rows, prefixes=(*rows.prefixes, value.encode()))
    subjects = list(_texts(kind, value))
    if not subjects or not all(is_valid_literal(subject) for subject in subjects):
        return None
    group = tuple(subject.encode() for subject in subjects)
    return replace(rows, patterns=(*rows.patterns, group))


def _texts(kind: str, value: Any) -> Iterator[str]:
    """The texts that a column may have; none if the condition is of another kind."""
    if kind == "EqualTo" and isinstance(value, str):
        yield value
    elif kind == "In" and value and all(isinstance(one, str) for one in value):
        yield from value


def _bounds(kind: str, value: int, width: int) -> tuple[int, int] | None:
    """The lowest and the highest number that fulfil a comparison.

    Numbers are compared in steps of `width`, of which `value` is one.
    """
    below, above = TIME_NS_MIN, TIME_NS_MAX
    end = value + width - 1
    return {
        "EqualTo": (value, end),
        "GreaterThan": (end + 1, above),
        "GreaterThanOrEqual": (value, above),
        "LessThan": (below, value - 1),
        "LessThanOrEqual": (below, end),
    }.get(kind)


def _aware(moment: datetime) -> datetime:
    """Spark gives times without a zone in that of the machine."""
    return moment.astimezone(UTC)
