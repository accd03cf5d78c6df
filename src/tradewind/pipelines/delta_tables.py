"""Delta tables, without a jar.

Owns reading and writing a Delta log with the library deltalake. A table is created or extended by
columns in a separate commit. Then the files of a batch are added in one commit with the batch's
marks and a transaction id, which stays in the log when old commits are removed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake_files import ArrowStorage, LakeFile, partition_text
from tradewind.pipelines.lake_schemas import merged_schema, plain_schema, stored_schema
from tradewind.pipelines.lake_tables import ConflictError, TableChange
from tradewind.pipelines.lakes import (
    MARK_BATCH,
    MARK_OFFSETS,
    MARK_SINK,
    MARK_WRITER,
    is_written,
    library,
)

# What a reader or writer must know of to see the rows of a table as they are.
_FEATURES: Final = {"columnMapping", "deletionVectors"}


class DeltaLake:
    """A table by its folder, of this machine or in an object store."""

    keeps_partition = False

    def __init__(self, path: str) -> None:
        self._library = library("deltalake", "delta")
        self.path = path

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.path

    @property
    def storage(self) -> ArrowStorage:
        """See `LakeTable`."""
        return ArrowStorage(self.path)

    @property
    def is_there(self) -> bool:
        """Whether the folder has a log."""
        return bool(self._library.DeltaTable.is_deltatable(self.path))

    def _load(self) -> Any:
        return self._library.DeltaTable(self.path)

    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return plain_schema(pa.schema(self._load().schema().to_arrow()))

    def prepare(self, rows: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
        """See `LakeTable`."""
        delta = self._library
        if not self.is_there:
            delta.DeltaTable.create(
                self.path, stored_schema(rows), mode="ignore", partition_by=list(partition_by)
            )
        table = self._load()
        parts = list(table.metadata().partition_columns)
        if list(partition_by) != parts:
            raise PipelineError(
                f"{self.path} is partitioned by {parts or 'nothing'}, and partition_by says"
                f" {list(partition_by) or 'nothing'}: a table keeps its partitions"
            )
        present = plain_schema(pa.schema(table.schema().to_arrow()))
        merged = merged_schema(present, rows)
        if merged != present:
            changed = [
                field
                for field in merged
                if present.get_field_index(field.name) < 0 or present.field(field.name) != field
            ]
            try:
                fields = delta.Schema.from_arrow(pa.schema(changed)).fields
                table.alter.add_columns(fields)
            except delta.exceptions.CommitFailedError:
                # Another writer was first; what it has left is compared again.
                return self.prepare(rows, partition_by)
        return merged

    def has_batch(self, marks: Mapping[str, str]) -> bool:
        """See `LakeTable`."""
        if not self.is_there:
            return False
        # The history goes on for ever; the transaction says whether there is anything in it.
        table = self._load()
        done = table.transaction_version(marks[MARK_WRITER])
        number = int(marks[MARK_BATCH])
        if done is not None and done < number:
            return False
        commits = [entry for entry in table.history() if MARK_WRITER in entry]
        if done is not None and not any(
            entry[MARK_WRITER] == marks[MARK_WRITER] for entry in commits
        ):
            # The log of that time is gone: the number alone has to do.
            offsets = marks[MARK_OFFSETS] if done == number else ""
            commits = [{**marks, MARK_BATCH: str(done), MARK_OFFSETS: offsets}]
        return is_written(marks, commits)

    def files(self, columns: Sequence[str] = ()) -> list[LakeFile]:
        """See `LakeTable`."""
        table = self._load()
        features = set(table.protocol().reader_features or ()) & _FEATURES
        if features:
            raise PipelineError(
                f"{self.path} uses {', '.join(sorted(features))}, which is not understood here"
            )
        parts = list(table.metadata().partition_columns)
        actions = pa.table(table.get_add_actions(flatten=True))
        found = []
        for row in actions.to_pylist():
            bounds = {
                name: (row.get(f"min.{name}"), row.get(f"max.{name}"))
                for name in columns
                if name not in parts
            }
            partition = {name: partition_text(row[f"partition.{name}"]) for name in parts}
            path = unquote(row["path"])
            rows = row["num_records"] or 0
            found.append(LakeFile(path, row["size_bytes"], rows, partition, bounds))
        return found

    def optimize(self, target_bytes: int) -> None:
        """Write small files again as larger ones; ConflictError if it has to be done again."""
        try:
            self._load().optimize.compact(target_size=target_bytes)
        except self._library.exceptions.CommitFailedError as error:
            raise ConflictError(str(error).splitlines()[0]) from None

    def vacuum(self, hours: int) -> int:
        """Remove files that the table does not need and that are older; returns their number."""
        removed = self._load().vacuum(
            retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True
        )
        return len(removed)

    def commit(self, change: TableChange, marks: Mapping[str, str]) -> None:
        """See `LakeTable`."""
        from deltalake.transaction import AddAction, RemoveAction

        delta = self._library
        table = self._load()
        now_ms = time.time_ns() // 1_000_000
        actions: list[Any] = [
            AddAction(file.path, file.size_bytes, file.partition, now_ms, True, file.statistics)
            for file in change.added
        ]
        actions += [
            RemoveAction(
                path=file.path,
                data_change=True,
                deletion_timestamp=now_ms,
                size=file.size_bytes,
                partition_values=file.partition,
            )
            for file in change.removed
        ]
        known = {file.path for file in self.files()} if change.removed else set()
        if any(file.path not in known for file in change.removed):
            raise ConflictError("a file that is replaced is no longer in the table")
        transaction = delta.Transaction(app_id=marks[MARK_WRITER], version=int(marks[MARK_BATCH]))
        try:
            table.create_write_transaction(
                actions,
                "overwrite" if change.replaces_all else "append",
                table.schema(),
                list(table.metadata().partition_columns),
                commit_properties=delta.CommitProperties(
                    custom_metadata={MARK_SINK: marks[MARK_SINK], **marks},
                    app_transactions=[transaction],
                ),
            )
        except delta.exceptions.CommitFailedError as error:
            raise ConflictError(str(error).splitlines()[0]) from None
