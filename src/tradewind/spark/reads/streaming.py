"""Streaming reads, for `spark.readStream.format("jetstream")`.

Owns the offsets. For each stream, an offset contains the last sequence that was read, and when that
stream was created:

    {"ORDERS": {"created_ns": 1794766065474149960, "seq": 4711, "parts": 2, "after": 4200}}

A batch can therefore be read again, also after a restart, and yields the same messages as long as
these are not removed. `parts` is the number of partitions: a repeated batch has the same ones on
any machine, so that a sink can recognise the rows of a partition. Nothing is stored on the server.
Acknowledgements of `ackConsumer` are durable on the server, see `acking`; the offsets only record
(`acks`) that such a consumer existed when they were planned.

A batch is planned when its end is chosen: its tasks are made then, and held until Spark asks for
them. So all messages of that moment are accounted for, and the streams are looked at once for a
batch. A batch of an earlier run is planned anew. Data loss is decided by `data_loss`.

`after` is where the batch begins that last moved the offset; a stream without it was never read. A
stream that appears while the query runs is read from its beginning, because all of its messages are
newer than the query.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tradewind.clock import SystemClock
from tradewind.spark.contract.bucket_tables import table_tasks
from tradewind.spark.contract.data_loss import rule_of
from tradewind.spark.contract.filters import filter_of
from tradewind.spark.contract.planning import ranges
from tradewind.spark.errors import OptionError
from tradewind.spark.options.positions import check_named
from tradewind.spark.options.source_options import spelling
from tradewind.spark.processes.features import limits
from tradewind.spark.processes.worker import spare_modules
from tradewind.spark.progress.stream_lag import Reporter
from tradewind.spark.providers.provider_choice import open_growing
from tradewind.spark.reads.acking import Acknowledger
from tradewind.spark.reads.holding import BatchHold
from tradewind.spark.reads.reading import TaskPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

    from tradewind.clock import Clock
    from tradewind.spark.contract.data_loss import LossRule
    from tradewind.spark.contract.provider_contract import GrowingProvider, ReadState, ReadTask
    from tradewind.spark.options.source_options import SourceOptions

UNLIMITED = 1 << 62
Offset = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class TasksInTurn:
    """Several tasks that are one partition."""

    tasks: tuple[ReadTask, ...]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `ReadTask`."""
        for task in self.tasks:
            yield from task.batches(columns)


class StreamReader(DataSourceStreamReader, limits.SupportsTriggerAvailableNow):
    """One streaming query over one or more streams."""

    def __init__(
        self, options: SourceOptions, columns: Sequence[str], clock: Clock | None = None
    ) -> None:
        for name in ("ending", "ending_seq", "ending_time_ns"):
            if options.is_said(name):
                why = "a streaming query has no end; read a batch instead"
                raise OptionError(spelling(name), why)
        if options.object_store:
            raise OptionError("objectStore", "objects are read by spark.read, not readStream")
        # A stream of changes is the history of a bucket that continues.
        self._options = replace(options, history=bool(options.bucket), is_followed=True)
        self._columns = tuple(columns)
        self._provider: GrowingProvider | None = None
        self._until: Offset | None = None
        self._seen: list[ReadState] | None = None
        # The batch that was planned last: what Spark will ask for, and the answer.
        self._batch: tuple[str, list[TaskPartition]] | None = None
        self._reached: Offset = {}
        self._reporter = Reporter()
        self._holding = BatchHold(
            options.msgs_per_trigger_min, options.trigger_delay_ns, clock or SystemClock()
        )
        self._has_lost = False  # in this look at the streams
        self._acks = Acknowledger(self._options) if options.ack_consumer else None
        self._mark = self._acks.mark if self._acks is not None else {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_columns": self._columns}

    def _open(self) -> GrowingProvider:
        if self._provider is None:
            self._provider = open_growing(self._options)
        return self._provider

    # ---------------------------------------------------------------- offsets

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Where the options say that the query begins."""
        states = self._open().states()
        check_named("startingOffsets", self._options.starting, {state.name for state in states})
        return {state.name: self._begin(state) for state in states}

    def _begin(self, state: ReadState, *, is_new: bool = False) -> dict[str, int]:
        """A stream that appears later is read from its begin, or from the time of all streams."""
        start = self._options.start_of(state.name)
        seq = state.first_seq - 1
        if start.time_ns is not None:
            seq = max(seq, self._open().seq_at_time(state.name, start.time_ns) - 1)
        elif start.seq and not is_new:
            if start.seq > state.last_seq + 1:
                raise OptionError(
                    "startingSeq" if self._options.starting is None else "startingOffsets",
                    f"{state.name!r} ends at sequence {state.last_seq}: {start.seq} is not the"
                    f" next one, {state.last_seq + 1} would be",
                )
            seq = max(seq, start.seq - 1)
        elif start.word == "latest" and not is_new:
            seq = state.last_seq
        return {"created_ns": state.created_ns, "seq": seq}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit in the options; all count that are given, see `latestOffset`."""
        if self._options.msgs_per_trigger_max:
            return limits.ReadMaxRows(self._options.msgs_per_trigger_max)
        if self._options.bytes_per_trigger_max:
            return limits.ReadMaxBytes(self._options.bytes_per_trigger_max)
        if self._options.msgs_per_trigger_min:
            return limits.ReadMinRows(self._options.msgs_per_trigger_min)
        return limits.ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Leave messages that come from now on to another run."""
        self._until = self._ends(self._open().states())

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        """The ends of the streams, with the lag of the query, see `lag`."""
        states = self._open().states() if self._seen is None else self._seen
        provider = self._open()
        return self._reporter.report(
            states, self._reached, provider.time_behind, provider.bytes_behind
        )

    def _ends(self, states: Sequence[ReadState]) -> Offset:
        return {
            state.name: {"created_ns": state.created_ns, "seq": state.last_seq} for state in states
        }

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Where the next batch ends: the ends of the streams, or what the limits allow.

        Spark asks for it when the batch before `start` is committed.
        """
        if self._acks is not None:
            for name, point in start.items():
                if not self._acks.has_mark(point):
                    self._acks.begin(name, point)
        self.commit(start)
        self._has_lost, self._batch = False, None
        self._open().expect(start)
        states = {state.name: state for state in self._open().states()}
        self._seen = list(states.values())
        result: Offset = {}
        behind: list[tuple[str, int, int]] = []
        for name, state in sorted(states.items()):
            begin = self._continued(state, start.get(name))
            end = state.last_seq
            if self._until is not None:
                end = min(end, self._until.get(name, {}).get("seq", begin["seq"]))
            result[name] = {"created_ns": state.created_ns, "seq": max(begin["seq"], 0)}
            if name not in start:
                result[name] |= {"after": result[name]["seq"], **self._mark}
            if end > begin["seq"]:
                behind.append((name, begin["seq"], end))
            elif begin is start.get(name):
                result[name] = begin  # as it was, or Spark would take it for something new
        for name in start.keys() - states.keys():
            rule = rule_of(self._options, name, replaces=False)
            seq = start[name]["seq"]
            self._lost(rule, f"stream {name} was deleted; it had been read up to {seq}")
        if self._is_held(behind, limit):
            self._reached = start
            return start
        self._advance_offsets(result, behind, limit)
        tasks: list[TaskPartition] = []
        for name, seq, _ in behind:
            rows = filter_of(self._options).between(seq + 1, result[name]["seq"])
            parts = self._open().tasks(name, rows, self._options.partitions_min)
            result[name] |= {"parts": max(len(parts), 1), "after": seq, **self._mark}
            tasks += self._divided(states[name], seq + 1, result[name])
        self._batch = (_text_of(start, result), tasks)
        self._reached = result
        return result

    def _is_held(self, behind: Sequence[tuple[str, int, int]], limit: ReadLimit) -> bool:
        """Whether the batch waits for more; not if it is the last, or has a loss to report."""
        if isinstance(limit, limits.ReadAllAvailable) or self._until is not None or self._has_lost:
            return False
        return self._holding.holds(sum(end - seq for _, seq, end in behind))

    def _advance_offsets(
        self, result: Offset, behind: list[tuple[str, int, int]], limit: ReadLimit
    ) -> None:
        """Move the offsets of streams that have more, each by its share of the limits."""
        msgs_left = self._options.msgs_per_trigger_max or UNLIMITED
        bytes_left = self._options.bytes_per_trigger_max or UNLIMITED
        if isinstance(limit, limits.ReadAllAvailable):
            msgs_left = bytes_left = UNLIMITED
        if isinstance(limit, limits.ReadMaxRows):
            msgs_left = min(msgs_left, limit.max_rows)
        if isinstance(limit, limits.ReadMaxBytes):
            bytes_left = min(bytes_left, limit.max_bytes)
        for index, (name, seq, end) in enumerate(behind):
            if msgs_left == bytes_left == UNLIMITED:
                result[name]["seq"] = end
                continue
            share = len(behind) - index
            msgs, size = max(msgs_left // share, 1), max(bytes_left // share, 1)
            reached, found, found_bytes = self._open().advance(name, seq, end, msgs, size)
            result[name]["seq"] = reached
            msgs_left = max(msgs_left - found, 0)
            bytes_left = max(bytes_left - found_bytes, 0)

    def _continued(self, state: ReadState, start: dict[str, int] | None) -> dict[str, int]:
        """From where a stream is read on. One that is new to the query is read from its begin."""
        if start is None:
            begin = self._begin(state, is_new=True)
            if self._acks is not None:
                self._acks.begin(state.name, begin)
            return begin
        rule = self._rule(state)
        if start["created_ns"] != state.created_ns:
            self._lost(
                rule,
                f"stream {state.name} is not the one that was read before: it was deleted and"
                f" recreated; the other one had been read up to sequence {start['seq']}",
            )
            return {"created_ns": state.created_ns, "seq": state.first_seq - 1}
        if start["seq"] > state.last_seq:
            self._lost(
                rule,
                f"stream {state.name} ends at sequence {state.last_seq}, but had been read up to"
                f" {start['seq']}: sequences {state.last_seq + 1} to {start['seq']} are gone",
            )
            return {"created_ns": state.created_ns, "seq": state.last_seq}
        self._check_begin(state, start["seq"])
        return start

    def _check_begin(self, state: ReadState, after_seq: int) -> None:
        """Whether limits were faster."""
        if after_seq >= state.last_seq:
            return
        begin = max(state.first_seq, self._open().begin(state.name, after_seq))
        if not self._rule(state).check_begin(after_seq, begin):
            self._has_lost = True

    def _rule(self, state: ReadState) -> LossRule:
        return rule_of(self._options, state.name, replaces=state.replaces)

    def _lost(self, rule: LossRule, what: str) -> None:
        rule.lost(what)
        self._has_lost = True

    # ---------------------------------------------------------------- reading

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Divide one batch, as it was planned; one of an earlier run is planned now."""
        batch, self._batch = self._batch, None
        if batch is not None and batch[0] == _text_of(start, end):
            return batch[1]
        states = {state.name: state for state in self._open().states()}
        found: list[InputPartition] = []
        for name, until in sorted(end.items()):
            begin = start.get(name)
            rule = rule_of(self._options, name, replaces=False)
            if name not in states:
                self._lost(rule, f"stream {name} was deleted while it was read")
                continue
            state = states[name]
            if until["created_ns"] != state.created_ns:
                self._lost(rule, f"stream {name} was deleted and recreated while it was read")
                continue
            if until["seq"] > state.last_seq:
                self._lost(
                    rule,
                    f"stream {name} ends at sequence {state.last_seq}, but a batch was planned up"
                    f" to {until['seq']}: sequences {state.last_seq + 1} to {until['seq']} are"
                    " gone",
                )
            found += self._divided(state, self._first_of(state, begin, until), until)
        return found

    def _divided(
        self, state: ReadState, first_seq: int, until: dict[str, int]
    ) -> list[TaskPartition]:
        """The partitions of one stream: the same ones whenever a batch is planned."""
        if first_seq > until["seq"]:
            return []
        found = []
        rows = filter_of(self._options)
        for low, high in ranges(first_seq, until["seq"], until.get("parts", 1)):
            part = rows.between(low, high)
            tasks = table_tasks(self._options, self._open(), state, part)
            found.append(TaskPartition(TasksInTurn(tuple(tasks))))
        return found

    def _first_of(
        self, state: ReadState, begin: dict[str, int] | None, until: dict[str, int]
    ) -> int:
        """The first sequence of a batch.

        The offset decides. When Spark repeats the first batch of a query, it asks for the begin
        once more, which may be another one by now; and offsets of earlier versions say it only of
        new streams.
        """
        if until == begin:
            return until["seq"] + 1
        if "after" in until:
            after_seq = until["after"]
        elif begin is None or begin["created_ns"] != state.created_ns:
            after_seq = state.first_seq - 1
        else:
            after_seq = begin["seq"]
        self._check_begin(state, after_seq)
        return after_seq + 1

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Do one part, on an executor."""
        assert isinstance(partition, TaskPartition)
        spare_modules()
        return partition.task.batches(self._columns)

    def commit(self, end: Offset) -> None:
        """Acknowledge, if a consumer is named; else nothing is kept on the server.

        Spark itself calls this only when the next batch begins, and so never for the last one.
        """
        if self._acks is not None:
            self._acks.move(end)

    def stop(self) -> None:
        """The query has ended."""
        if self._provider is not None:
            self._provider.close()
            self._provider = None
        if self._acks is not None:
            self._acks.close()


def _text_of(start: Offset, end: Offset) -> str:
    """A batch as Spark writes it down: the offsets themselves are changed by others."""
    return json.dumps([start, end], sort_keys=True)
