"""Tables of SQL for DuckDB: streams, buckets and folders, as datasets of Arrow.

Owns the columns that a stream has there, which are those that it has in Spark: its own, with the
payload as text, the fields of JSON objects, and `json` with all of them. The fields are those of a
sample; a message that does not fit never becomes null: `widen` makes fields that hold it, and the
query is run again on the same messages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tradewind.decoding.decoder_contract import DecodingError
from tradewind.decoding.json_columns import JsonDecoder
from tradewind.decoding.json_payloads import JsonReader
from tradewind.decoding.payload_kinds import INT_MAX, INT_MIN
from tradewind.decoding.type_texts import columns_of
from tradewind.frames.frame_columns import PlainColumns, sample
from tradewind.frames.frame_scan import FrameScan
from tradewind.frames.stream_dataset import FrameRows, StreamDataset
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.payloads.inference import infer
from tradewind.pipelines.relations.queries import FORMATS, format_of_folder
from tradewind.spark.options.source_options import parse_options

if TYPE_CHECKING:
    import duckdb

JSON_COLUMN: Final = "json"
MISFITS_MAX: Final = 1000
_EXACT_FLOAT: Final = 1 << 53
_ESCAPED: Final = "0x"


class MisfitError(PipelineError):
    """Messages do not fit the fields that were found; `payloads` are some of them."""

    def __init__(self, table: str, payloads: list[bytes]) -> None:
        self.payloads = payloads
        super().__init__(f"a message of {table} does not match the fields that were found")


class OwnColumns(Protocol):
    """The columns of rows before their payloads are decoded."""

    @property
    def schema(self) -> pa.Schema:
        """Their names and types, in order."""


class SqlColumns:
    """The columns of a stream or bucket in SQL, with the fields of its payloads."""

    def __init__(self, name: str, own: OwnColumns, payload: str, fields: pa.Schema) -> None:
        self._name = name
        self._payload = payload
        self._fields = fields
        self._decoder = JsonDecoder(JsonReader(fields))
        self._own = own.schema.names
        taken = {column.lower() for column in own.schema.names} | {JSON_COLUMN}
        shown = [
            pa.field(column.name, pa.string() if column.name == payload else column.type)
            for column in own.schema
        ]
        shown += [field for field in fields if field.name.lower() not in taken]
        if fields.names:
            shown.append(pa.field(JSON_COLUMN, pa.struct(list(fields))))
        self.schema = pa.schema(shown)

    def inputs(self, columns: Collection[str]) -> list[str]:
        """See `FrameColumns`."""
        needs_payload = any(name not in self._own for name in columns)
        return [
            name
            for name in self._own
            if name in columns or (needs_payload and name == self._payload)
        ] or ["seq" if "seq" in self._own else "revision"]

    def made(self, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        """See `FrameColumns`."""
        values: Mapping[str, pa.Array] = {}
        if any(name not in self._own for name in columns):
            decoded = self._decoded(batch.column(self._payload))
            values = dict(zip(self._fields.names, decoded.flatten(), strict=True))
            values = {**values, JSON_COLUMN: decoded}
        arrays = [
            text_of(batch.column(name))
            if name == self._payload
            else batch.column(name)
            if name in self._own
            else values[name]
            for name in columns
        ]
        schema = pa.schema([self.schema.field(name) for name in columns])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _decoded(self, payloads: pa.Array) -> pa.StructArray:
        """The fields of payloads; MisfitError if one has a value that they do not hold."""
        decoded = self._decoder.decode(payloads, self._fields)
        columns = decoded.columns
        rows = pc.indices_nonzero(pc.is_valid(decoded.rescued)).to_pylist()
        misfits: list[bytes] = []
        patches: dict[str, dict[int, float]] = {}
        for row in rows:
            left = msgspec.json.decode(decoded.rescued[row].as_py())
            for field in self._fields:
                value = left.get(field.name)
                if value is None or fits(field.type, value):
                    continue
                if pa.types.is_float64(field.type) and type(value) is int:
                    # As Spark does: the nearest number.
                    patches.setdefault(field.name, {})[row] = float(value)
                    continue
                misfits.append(payloads[row].as_py())
                break
        if misfits:
            raise MisfitError(self._name, misfits[:MISFITS_MAX])
        return _patched(columns, patches) if patches else columns


def _patched(columns: pa.StructArray, patches: Mapping[str, Mapping[int, float]]) -> pa.StructArray:
    arrays = columns.flatten()
    fields = list(columns.type)
    for number, field in enumerate(fields):
        if field.name in patches:
            values = arrays[number].to_pylist()
            for row, value in patches[field.name].items():
                values[row] = value
            arrays[number] = pa.array(values, field.type)
    return pa.StructArray.from_arrays(arrays, fields=fields)


def fits(kind: pa.DataType, value: Any) -> bool:
    """Whether a column of this type holds a value of JSON; a text holds any, as JSON."""
    if value is None or pa.types.is_string(kind):
        return True
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if pa.types.is_int64(kind):
        return type(value) is int and INT_MIN <= value <= INT_MAX
    if pa.types.is_float64(kind):
        return isinstance(value, float) or (type(value) is int and abs(value) <= _EXACT_FLOAT)
    if pa.types.is_list(kind):
        return isinstance(value, list) and all(fits(kind.value_type, one) for one in value)
    if pa.types.is_struct(kind):
        known = {field.name: field.type for field in kind}
        return isinstance(value, dict) and all(
            fits(known[name], one) for name, one in value.items() if name in known
        )
    return False


def text_of(payloads: pa.Array) -> pa.Array:
    """Payloads as text, so that SQL can compare them; what is no text is shown as hex."""
    try:
        return payloads.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(map(_text, payloads.to_pylist()), pa.string())


def _text(payload: bytes | None) -> str | None:
    if payload is None:
        return None
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return _ESCAPED + payload.hex()


class DuckFields:
    """The fields of payloads, which hold all payloads that were seen."""

    def __init__(self, payloads: list[bytes]) -> None:
        self._payloads = payloads
        self.schema = self._inferred()

    def _inferred(self) -> pa.Schema:
        try:
            return columns_of(infer(self._payloads).ddl)
        except (ValueError, DecodingError):
            return pa.schema([])

    def widen(self, failure: BaseException | None) -> bool:
        """Whether this is why a read failed; then there are fields for those messages too."""
        if not isinstance(failure, MisfitError):
            return False
        before = self.schema
        self._payloads += failure.payloads
        self.schema = self._inferred()
        return not before.equals(self.schema)


class DuckTable:
    """A stream or bucket up to the end that it had when the question came."""

    def __init__(self, name: str, options: Mapping[str, str], *, is_bucket: bool) -> None:
        self.name = name
        parsed = parse_options({**options, "bucket" if is_bucket else "stream": name})
        self._scan = FrameScan(parsed)
        self._payload = "value" if is_bucket else "data"
        self._own = PlainColumns(parsed.table_columns)
        self._fields = DuckFields(sample(self._scan, self._payload))
        self._rows: FrameRows | None = None

    def register(self, engine: duckdb.DuckDBPyConnection) -> None:
        """Make the table known under its name, with the columns as they are known now."""
        columns = SqlColumns(self.name, self._own, self._payload, self._fields.schema)
        self._rows = FrameRows(self._scan, columns)
        engine.register(self.name, StreamDataset(self._rows))

    @property
    def failure(self) -> BaseException | None:
        """Why the last read of it failed, if it did."""
        return None if self._rows is None else self._rows.failure

    def widen(self, error: Exception) -> bool:
        """Whether this is why a query failed; then the next `register` has other fields."""
        del error
        return self._fields.widen(self.failure)

    def close(self) -> None:
        """Close its connections."""
        self._scan.close()


# -------------------------------------------------------------------------- folders


def folder_dataset(name: str, place: str) -> ds.Dataset:
    """A folder as a table: FORMAT:PATH, or a path whose format is seen from its files."""
    kind, _, path = place.partition(":")
    if kind not in FORMATS or path.startswith("//"):
        kind, path = format_of_folder(place), place
    try:
        if kind == "delta":
            return _delta_dataset(path)
        if kind == "iceberg":
            return _iceberg_dataset(path)
        partitioning = "hive" if Path(path).is_dir() else None
        return ds.dataset(path, format=kind, partitioning=partitioning)
    except (OSError, pa.ArrowException, ValueError) as error:
        reason = " ".join(str(error).split())
        raise PipelineError(f"table {name}: {path}: {reason}") from None


def _delta_dataset(path: str) -> ds.Dataset:
    """The rows of the latest version of a Delta table."""
    from tradewind.pipelines.lake.lakes import library

    return library("deltalake", "delta").DeltaTable(path).to_pyarrow_dataset()


def _iceberg_dataset(place: str) -> ds.Dataset:
    """The rows of the latest snapshot of WAREHOUSE#NAMESPACE.TABLE."""
    from tradewind.pipelines.lake.iceberg_reading import open_iceberg

    schema, paths = open_iceberg(place)
    if not paths:
        return ds.dataset(schema.empty_table())
    return ds.dataset([path.removeprefix("file://") for path in paths], schema, format="parquet")
