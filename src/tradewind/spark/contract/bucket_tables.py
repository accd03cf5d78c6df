"""Key-value buckets and object stores as tables.

Owns which messages of such a stream make rows: the latest change of a key, objects and their
chunks. The columns are in `columns`. Arrow computes whole columns; there is never a loop over keys.

- A bucket has one row per key with its latest value, or (`history`) one row per retained change.
- An object store has one row per object, with its complete and verified content.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tradewind.api.names import OBJECT_SUBJECTS
from tradewind.spark.columnar.arrow import arrow_schema, record_batch
from tradewind.spark.columnar.columns import BUCKET, OBJECTS, PUT, BucketRows, ObjectRow
from tradewind.spark.contract.data_loss import rule_of
from tradewind.spark.contract.filters import RowFilter
from tradewind.spark.contract.planning import part_count
from tradewind.spark.errors import DataLossError

if TYPE_CHECKING:
    from tradewind.spark.contract.data_loss import LossRule
    from tradewind.spark.contract.provider_contract import Provider, ReadState, ReadTask
    from tradewind.spark.options.source_options import SourceOptions

# One value of Arrow's binary type.
CONTENT_BYTES_MAX: Final = (1 << 31) - 1
_INPUT: Final = ("seq", "subject", "time", "headers", "data")
_META_INPUT: Final = ("seq", "subject", "time", "data")
_BUCKET_SCHEMA: Final = arrow_schema(BUCKET, BUCKET)
_OBJECT_SCHEMA: Final = arrow_schema(OBJECTS, OBJECTS)


def table_tasks(
    options: SourceOptions, provider: Provider, state: ReadState, rows: RowFilter
) -> Sequence[ReadTask]:
    """The parts of a read of one stream, as the kind of table that the options ask for."""
    tasks: Sequence[ReadTask]
    if options.object_store:
        return _object_tasks(options, provider, state)
    tasks = provider.tasks(state.name, rows, options.partitions_min)
    if not options.bucket:
        return tasks
    if options.history:
        return [KvTask(options.bucket, (task,), is_latest=False) for task in tasks]
    if state.subject_msgs_max == 1:
        return [KvTask(options.bucket, (task,), is_latest=True) for task in tasks]
    # Which of several values is the latest is only known when all are read.
    return [KvTask(options.bucket, tuple(tasks), is_latest=True)]


# -------------------------------------------------------------------------- key-value buckets


@dataclass(frozen=True, slots=True)
class KvTask:
    """Changes of a bucket, or the latest value of each key in these parts."""

    bucket: str
    parts: tuple[ReadTask, ...]
    is_latest: bool

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `ReadTask`."""
        changes = (self._changes(batch) for part in self.parts for batch in part.batches(_INPUT))
        if not self.is_latest:
            for change in changes:
                yield change.select(list(columns))
            return
        found = list(changes)
        if found:
            for batch in latest(pa.Table.from_batches(found)).to_batches():
                yield batch.select(list(columns))

    def _changes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return record_batch(_BUCKET_SCHEMA, BUCKET, BucketRows(self.bucket, batch))


def latest(changes: pa.Table) -> pa.Table:
    """The last change of each key, unless that removed it."""
    newest = changes.group_by("key").aggregate([("revision", "max")])
    is_newest = pc.is_in(changes["revision"], newest["revision_max"])
    is_there = pc.equal(changes["operation"], PUT)
    return changes.filter(pc.and_(is_newest, is_there))


# -------------------------------------------------------------------------- object stores


class ObjectRecord(msgspec.Struct, frozen=True):
    """The record of an object, as far as it is needed."""

    name: str
    nuid: str = ""
    size: int = 0
    chunks: int = 0
    digest: str = ""
    deleted: bool = False
    options: dict[str, Any] | None = None

    @property
    def is_link(self) -> bool:
        """Whether it only names another object or bucket."""
        return bool(self.options and self.options.get("link"))


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object at the time of planning."""

    info: ObjectRecord
    modified_us: int


@dataclass(frozen=True, slots=True)
class ObjectTask:
    """Some objects with the parts of the stream that hold their chunks."""

    bucket: str
    objects: tuple[StoredObject, ...]
    parts: tuple[ReadTask, ...]
    rule: LossRule

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `ReadTask`. One batch per object, as soon as it is complete."""
        if "content" not in columns:
            for stored in self.objects:
                yield self._row(stored, None).select(list(columns))
            return
        waiting = {_chunk_subject(self.bucket, stored.info): stored for stored in self.objects}
        chunks: dict[str, list[bytes]] = {subject: [] for subject in waiting}
        for subject in [name for name, stored in waiting.items() if not stored.info.chunks]:
            yield self._finished(waiting.pop(subject), []).select(list(columns))
        for part in self.parts:
            for batch in part.batches(("subject", "data")):
                pairs = zip(
                    batch.column("subject").to_pylist(),
                    batch.column("data").to_pylist(),
                    strict=True,
                )
                for subject, data in pairs:
                    if subject not in waiting:
                        continue
                    chunks[subject].append(data)
                    if len(chunks[subject]) == waiting[subject].info.chunks:
                        done = self._finished(waiting.pop(subject), chunks.pop(subject))
                        yield done.select(list(columns))
        for subject, stored in waiting.items():
            self._lost(stored, f"{len(chunks[subject])} of its {stored.info.chunks} chunks exist")

    def _finished(self, stored: StoredObject, chunks: list[bytes]) -> pa.RecordBatch:
        info = stored.info
        if info.is_link:
            return self._row(stored, None)
        content = b"".join(chunks)
        if info.size > CONTENT_BYTES_MAX:
            raise DataLossError(
                f"object {info.name!r} has {info.size} bytes, a row at most {CONTENT_BYTES_MAX};"
                " leave the column content out (option columns)"
            )
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
        if len(content) != info.size:
            self._lost(stored, f"it has {len(content)} bytes instead of {info.size}")
        elif info.digest.rstrip("=") != f"SHA-256={digest}".rstrip("="):
            self._lost(stored, "its content does not match its digest")
        else:
            return self._row(stored, content)
        return self._row(stored, None).slice(0, 0)

    def _lost(self, stored: StoredObject, what: str) -> None:
        self.rule.lost(f"object {stored.info.name!r} of {self.bucket}: {what}")

    def _row(self, stored: StoredObject, content: bytes | None) -> pa.RecordBatch:
        info = stored.info
        row = ObjectRow(self.bucket, info.name, stored.modified_us, info.size, info.digest, content)
        return record_batch(_OBJECT_SCHEMA, OBJECTS, row)


def _chunk_subject(bucket: str, info: ObjectRecord) -> str:
    return f"{OBJECT_SUBJECTS}{bucket}.C.{info.nuid}"


def _object_tasks(options: SourceOptions, provider: Provider, state: ReadState) -> list[ObjectTask]:
    """List the objects now; their contents are read by the tasks."""
    bucket = options.object_store
    found: dict[str, StoredObject] = {}
    wanted = RowFilter(patterns=((f"{OBJECT_SUBJECTS}{bucket}.M.>".encode(),),))
    for task in provider.tasks(state.name, wanted, 0):
        for batch in task.batches(_META_INPUT):
            times = batch.column("time").cast(pa.int64()).to_pylist()
            for data, modified_us in zip(batch.column("data").to_pylist(), times, strict=True):
                info = msgspec.json.decode(data, type=ObjectRecord)
                found[info.name] = StoredObject(info, modified_us)
    objects = [stored for _, stored in sorted(found.items()) if not stored.info.deleted]
    total_bytes = sum(stored.info.size for stored in objects)
    count = min(part_count(total_bytes, os.cpu_count() or 1, options.partitions_min), len(objects))
    rule = rule_of(options, state.name, replaces=True)
    result = []
    for index in range(count):
        chosen = tuple(objects[index::count])
        chunks = tuple(_chunk_subject(bucket, stored.info).encode() for stored in chosen)
        parts = tuple(provider.tasks(state.name, RowFilter(patterns=(chunks,)), 0))
        result.append(ObjectTask(bucket, chosen, parts, rule))
    return result
