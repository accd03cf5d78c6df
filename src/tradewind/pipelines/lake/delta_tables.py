"""Delta tables, without a jar.

Owns reading and writing a Delta log with the library deltalake. A table is created or extended by
columns in a separate commit. Then the files of a batch are added in one commit with the batch's
marks and a transaction id, which stays in the log when old commits are removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.lake_files import ArrowStorage, LakeFile, partition_text
from tradewind.pipelines.lake.lake_partitions import partition_fields, with_derived
from tradewind.pipelines.lake.lake_schemas import merged_schema, plain_schema, stored_schema
from tradewind.pipelines.lake.lake_tables import ConflictError, TableChange
from tradewind.pipelines.lake.lakes import (
    COMPACTED,
    LATEST,
    MARK_BATCH,
    MARK_OFFSETS,
    MARK_WRITER,
    is_written,
    library,
    marks_in,
)

# Features that a reader or writer must know to see the rows of a table as they are.
_FEATURES: Final = {"columnMapping", "deletionVectors"}
READS_MAX: Final = 5
Found = TypeVar("Found")


class DeltaLake:
    """A table by its folder, of this machine or in an object store."""

    keeps_partition = False

    def __init__(self, path: str) -> None:
        self._library = library("deltalake", "delta")
        self.path = path

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.path

    @property
    def storage(self) -> ArrowStorage:
        """See `LakeTable`."""
        return ArrowStorage(self.path)

    @property
    def is_there(self) -> bool:
        """Whether the folder has a log."""
        return bool(self._library.DeltaTable.is_deltatable(self.path))

    def load(self, version: int | None = None) -> Any:
        """The table as it is now, or as it was."""
        return self._again(lambda: self._library.DeltaTable(self.path, version=version))

    def read(self, look: Callable[[Any], Found]) -> Found:
        """Look at the table as it is now."""
        return self._again(lambda: look(self.load()))

    def _again(self, look: Callable[[], Found]) -> Found:
        """Look again if the log was shortened meanwhile: the library reads it bit by bit."""
        for _ in range(READS_MAX):
            try:
                return look()
            except self._library.exceptions.DeltaError as error:
                if not is_gone(error):
                    raise
        return look()

    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return plain_schema(self.read(lambda table: pa.schema(table.schema().to_arrow())))

    def prepare(self, rows: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
        """See `LakeTable`."""
        delta = self._library
        fields = partition_fields(partition_by)
        for one in fields:
            one.check(rows)
        given, rows = rows, with_derived(rows, fields)
        names = [one.name for one in fields]
        if not self.is_there:
            delta.DeltaTable.create(
                self.path, stored_schema(rows), mode="ignore", partition_by=names
            )
        table = self.load()
        parts = list(table.metadata().partition_columns)
        if names != parts:
            raise PipelineError(
                f"{self.path} is partitioned by {parts or 'nothing'}, and partition_by says"
                f" {names or 'nothing'}: a table keeps its partitions"
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
                return self.prepare(given, partition_by)
        return merged

    def partition_by(self) -> list[str]:
        """See `LakeTable`."""
        return self.read(lambda table: list(table.metadata().partition_columns))

    def has_batch(self, marks: Mapping[str, str]) -> bool:
        """See `LakeTable`."""
        if not self.is_there:
            return False
        return self.read(lambda table: self._has_batch(table, marks))

    def _has_batch(self, table: Any, marks: Mapping[str, str]) -> bool:
        # The history goes on for ever; the transaction says whether there is anything in it.
        done = table.transaction_version(marks[MARK_WRITER])
        number = int(marks[MARK_BATCH])
        if done is not None and done < number:
            return False
        commits = [marks for entry in table.history() for marks in marks_in(entry)]
        if done is not None and not any(
            entry[MARK_WRITER] == marks[MARK_WRITER] for entry in commits
        ):
            # The log of that time is gone: the number alone has to do.
            offsets = marks[MARK_OFFSETS] if done == number else ""
            commits = [{**marks, MARK_BATCH: str(done), MARK_OFFSETS: offsets}]
        return is_written(marks, commits)

    def files(self, columns: Sequence[str] = ()) -> list[LakeFile]:
        """See `LakeTable`."""
        return self.read(lambda table: self._files_of(table, columns))

    def _files_of(self, table: Any, columns: Sequence[str] = ()) -> list[LakeFile]:
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

    def pinned(self, columns: Sequence[str] = ()) -> tuple[Any, list[LakeFile]] | None:
        """The library's table as it is now, which later commits do not change, and its files.

        None if it is not there.
        """
        if not self.is_there:
            return None
        table = self.load()
        return table, self._files_of(table, columns)

    def repeat_marks(self, table: Any, latest: Mapping[str, Mapping[str, str]]) -> None:
        """Commit nothing but marks, on top of this very version; ConflictError if it is old."""
        delta = self._library
        texts = {
            LATEST + writer: msgspec.json.encode(marks).decode() for writer, marks in latest.items()
        }
        try:
            table.create_write_transaction(
                [],
                "append",
                table.schema(),
                list(table.metadata().partition_columns),
                commit_properties=delta.CommitProperties(
                    custom_metadata=texts, max_commit_retries=0
                ),
            )
        except delta.exceptions.CommitFailedError as error:
            raise ConflictError(str(error).splitlines()[0]) from None

    def vacuum(self, hours: int) -> int:
        """Remove files that the table does not need and that are older; returns their number."""
        delta = self._library
        try:
            removed = self.read(
                lambda table: table.vacuum(
                    retention_hours=hours,
                    dry_run=False,
                    enforce_retention_duration=False,
                    full=True,
                )
            )
        except delta.exceptions.CommitFailedError as error:
            raise PipelineError(
                f"{self.path}: other writers keep changing the table: {str(error).splitlines()[0]}"
            ) from None
        return len(removed)

    def commit(self, change: TableChange, marks: Mapping[str, str]) -> None:
        """See `LakeTable`."""
        delta = self._library
        try:
            self._commit(change, marks)
        except delta.exceptions.CommitFailedError as error:
            raise ConflictError(str(error).splitlines()[0]) from None
        except delta.exceptions.DeltaError as error:
            # Whether it is committed or not is found out by its marks.
            if not is_gone(error):
                raise
            raise ConflictError("the log was shortened meanwhile") from None

    def _commit(self, change: TableChange, marks: Mapping[str, str]) -> None:
        from deltalake.transaction import AddAction, RemoveAction

        delta = self._library
        table = self.load()
        now_ms = time.time_ns() // 1_000_000
        is_new = not change.keeps_rows
        actions: list[Any] = [
            AddAction(file.path, file.size_bytes, file.partition, now_ms, is_new, file.statistics)
            for file in change.added
        ]
        actions += [
            RemoveAction(
                path=file.path,
                data_change=is_new,
                deletion_timestamp=now_ms,
                size=file.size_bytes,
                partition_values=file.partition,
            )
            for file in change.removed
        ]
        if not change.is_append:
            change.check({file.path for file in self._files_of(table)})
        if change.keeps_rows:
            transaction = delta.Transaction(app_id=COMPACTED, version=now_ms)
        else:
            number = int(marks[MARK_BATCH])
            transaction = delta.Transaction(app_id=marks[MARK_WRITER], version=number)
        table.create_write_transaction(
            actions,
            "overwrite" if change.replaces_all else "append",
            table.schema(),
            list(table.metadata().partition_columns),
            commit_properties=delta.CommitProperties(
                custom_metadata=dict(marks),
                app_transactions=[transaction],
                # The library puts a commit that failed on top of the one that was in the way.
                # That is right for an append; all else was checked for this version alone.
                max_commit_retries=None if change.is_append else 0,
            ),
        )


def is_gone(error: Exception) -> bool:
    """Whether a file of the log was removed while the library was about to read it."""
    text = str(error).lower()
    return "not found" in text or "no files in log segment" in text
