"""SQL on streams, buckets and folders.

Owns finding the tables that a query names, and their columns. A stream has its own columns and, if
its messages are JSON objects, their fields; so does a bucket with its keys and values; a folder has
the columns of its files. `tradewind.pipelines.sql.query_session` runs queries.

The fields are inferred from a sample. A message that does not fit never becomes null: the query is
run again with types that can hold it, so that a result never depends on which messages were
sampled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tradewind.api.names import KV_STREAM
from tradewind.client.api_errors import StreamNotFoundError
from tradewind.pipelines.definition.loading import names_in, near
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.notation.column_templates import quoted_sql
from tradewind.pipelines.payloads.inference import InferredFields, infer
from tradewind.pipelines.payloads.schemas import sample_payloads
from tradewind.pipelines.relations.statements import WRITING_WORDS, is_writing
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sessions.spark_errors import short_reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tradewind.api.stream_types import StreamInfo

FORMATS: Final = ("parquet", "json", "csv", "delta", "iceberg")
READING_WORDS: Final = (
    "select",
    "with",
    "from",
    "values",
    "table",
    "show",
    "describe",
    "desc",
    "explain",
)
WIDENINGS_MAX: Final = 10
MISFITS_MAX: Final = 1000
MISFIT_FIELD: Final = "tradewind_misfit"
TEXT_COLUMN: Final = "tradewind_text"
# JSON objects only: payloads of another kind have no fields, and nulls for them.
_MISFIT: Final = (
    f"json.{MISFIT_FIELD} is not null and ltrim({TEXT_COLUMN}) like '{{%'"
    f" and try_parse_json({TEXT_COLUMN}) is not null"
)
_COMMENTS: Final = re.compile(r"^(?:\s*(?:--[^\n]*(?:\n|$)|/\*.*?\*/))+", re.DOTALL)
SHOW_TABLES: Final = re.compile(r"show\s+tables", re.IGNORECASE)
SHOW_VIEWS: Final = re.compile(r"show\s+materialized\s+views", re.IGNORECASE)


@dataclass(frozen=True)
class TableCatalog:
    """The names of the streams and buckets of a server, and those streams as they are now that
    were asked for.
    """

    streams: tuple[str, ...]
    buckets: tuple[str, ...]
    infos: Mapping[str, StreamInfo] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """All names that a query may use for tables."""
        return [*self.streams, *(name for name in self.buckets if name not in self.streams)]


@dataclass(frozen=True)
class QueryResult:
    """The rows of a query; `has_more` if there are more than were asked for."""

    columns: list[str]
    rows: list[Any]
    has_more: bool


def read_catalog(address: PipelineAddress, text: str = "") -> TableCatalog:
    """The streams and buckets of a server; with the state of the streams that a query names."""
    with address.connect() as connection:
        manager = connection.jetstream_manager()
        streams = tuple(manager.streams.names())
        buckets = tuple(
            name.removeprefix(KV_STREAM) for name in streams if name.startswith(KV_STREAM)
        )
        infos = {}
        for name in sorted(names_in(text, TableCatalog(streams, buckets).names)):
            stream = name if name in streams else KV_STREAM + name
            try:
                infos[name] = manager.streams.info(stream)
            except StreamNotFoundError:
                # Deleted just now: Spark says that there is no such table.
                continue
    return TableCatalog(streams, buckets, infos)


def checked(text: str, *, may_write: bool = False) -> str:
    """The statement without what stands around it; PipelineError if it is none that reads.

    With `may_write` it may also be one that writes.
    """
    bare = _COMMENTS.sub(" ", text).strip().rstrip(";").strip()
    if not bare:
        raise PipelineError("the query is empty; for example: select * from ORDERS limit 10")
    word = bare.split(None, 1)[0].strip("(").lower()
    if may_write and is_writing(bare):
        return bare
    if word and word not in READING_WORDS:
        raise PipelineError(
            f"{word!r}: queries only read, and begin with {', '.join(READING_WORDS)}"
            + ("; this call is read-only" if word in WRITING_WORDS else "")
        )
    if word == "show" and not (SHOW_TABLES.fullmatch(bare) or SHOW_VIEWS.fullmatch(bare)):
        raise PipelineError("show: only 'show tables' is known, and 'show materialized views'")
    return bare


def tables_result(catalog: TableCatalog, folders: Mapping[str, str]) -> QueryResult:
    """The answer to `show tables`."""
    rows = [(name, "stream") for name in catalog.streams]
    rows += [(name, "bucket") for name in catalog.buckets]
    rows += [(name, "folder") for name in folders]
    return QueryResult(["table", "kind"], rows, has_more=False)


def needs_server(text: str, folders: Mapping[str, str]) -> bool:
    """Whether a query names a table that is not a folder."""
    bare = re.sub(r"'(?:[^'\\]|\\.)*'", " ", text)
    if SHOW_TABLES.fullmatch(text):
        return True
    named = re.findall(
        r"\b(?:from|join|table|describe|desc)\s+(?!table\b|query\b)`?([\w-]+)", bare, re.IGNORECASE
    )
    known = {name.lower() for name in (*folders, *FORMATS, "values", "range")}
    return any(name.lower() not in known for name in named)


def local_catalog(store: str) -> TableCatalog:
    """The streams of a store folder, by the folders that are there."""
    base = Path(store)
    root = base / "jetstream" if (base / "jetstream").is_dir() else base
    names = sorted(path.name for path in (root / "$G" / "streams").glob("*") if path.is_dir())
    if not names:
        raise PipelineError(f"{store}: no streams of the account $G; is this a store folder?")
    buckets = [name.removeprefix(KV_STREAM) for name in names if name.startswith(KV_STREAM)]
    return TableCatalog(tuple(names), tuple(buckets))


def folder_frame(spark: SparkSession, name: str, place: str) -> DataFrame:
    """A folder as a table: FORMAT:PATH, or a path whose format is seen from its files."""
    from pyspark.errors import PySparkException

    kind, _, path = place.partition(":")
    if kind not in FORMATS or path.startswith("//"):
        kind, path = format_of_folder(place), place
    try:
        if kind == "delta":
            return _delta_frame(spark, path)
        if kind == "iceberg":
            from tradewind.pipelines.lake.iceberg_reading import iceberg_frame

            return iceberg_frame(spark, path)
        reader = spark.read
        if kind == "csv":
            reader = reader.option("header", "true").option("inferSchema", "true")
        frame: DataFrame = reader.format(kind).load(path)
    except PySparkException as error:
        raise PipelineError(f"table {name}: {path}: {short_reason(error)}") from None
    return frame


def _delta_frame(spark: SparkSession, path: str) -> DataFrame:
    """The files of the latest version of a Delta table."""
    from tradewind.pipelines.lake.lakes import delta_files

    return spark.read.option("basePath", path).parquet(*delta_files(path))


def format_of_folder(place: str) -> str:
    """The format of a folder, as its files show."""
    folder = Path(place)
    if (folder / "_delta_log").is_dir():
        return "delta"
    files = [folder] if folder.is_file() else folder.rglob("*.*")
    for file in files:
        if file.suffix.lstrip(".") in FORMATS:
            return file.suffix.lstrip(".")
    if folder.exists():
        raise PipelineError(f"{place}: no files of {', '.join(FORMATS)} in it")
    raise PipelineError(f"{place}: no such folder")


class QueryTable:
    """A stream or a bucket with the fields of its payloads."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        options: Mapping[str, str],
        *,
        is_bucket: bool,
        frame: DataFrame | None = None,
    ) -> None:
        self.name = name
        self._where = {**options, "bucket" if is_bucket else "stream": name}
        self._column = "value" if is_bucket else "data"
        if frame is None:
            frame = spark.read.format("jetstream").options(**self._where).load()
        self._frame: DataFrame = frame
        self._payloads = list(sample_payloads(self._where, self._column))
        self._misfits: DataFrame | None = None
        self._shown: DataFrame | None = None

    def view(self) -> None:
        """Make the table known under its name."""
        if self._shown is None:
            self._shown = self._made()
        self._shown.createOrReplaceTempView(quoted_sql(self.name))

    def _made(self) -> DataFrame:
        column = self._column
        try:
            ddl = infer(self._payloads).ddl
        except ValueError:
            return self._frame.withColumn(column, text_or_bytes(column))
        parsed = _parsed(self._frame, column, ddl)
        self._misfits = parsed.where(_MISFIT).select(column)
        return _with_fields(self._frame, parsed, column, ddl, self._sign)

    @property
    def _sign(self) -> str:
        return f"a message of {self.name} does not match the fields that were found"

    def settle(self) -> InferredFields | None:
        """Read all messages, so that the fields fit each of them; None if there are no fields.

        For what cannot be run again with other types.
        """
        for _ in range(WIDENINGS_MAX):
            self.view()
            if self._misfits is None:
                return None
            found = self._misfits.limit(MISFITS_MAX).collect()
            if not found:
                return infer(self._payloads)
            self._payloads += [bytes(row[0]) for row in found]
            self._shown = None
        raise PipelineError(
            f"the messages of {self.name} have too many different shapes; use"
            " get_json_object(data, '$.field')"
        )

    def widen(self, error: BaseException) -> bool:
        """Whether this is why a query failed; then the next `view` has fields for all messages."""
        if self._misfits is None or self._sign not in str(error):
            return False
        found = self._misfits.limit(MISFITS_MAX).collect()
        self._payloads += [bytes(row[0]) for row in found]
        self._shown = None
        return bool(found)


def _parsed(frame: DataFrame, column: str, ddl: str) -> DataFrame:
    """The payloads as `json`, with the text of those that do not fit in a field of its own."""
    from pyspark.sql.functions import col, from_json
    from pyspark.sql.types import StringType, StructType

    schema = StructType.fromDDL(ddl).add(MISFIT_FIELD, StringType())
    options = {"columnNameOfCorruptRecord": MISFIT_FIELD}
    text = col(column).cast("string")
    return frame.withColumn("json", from_json(text, schema, options)).withColumn(TEXT_COLUMN, text)


def text_or_bytes(column: str) -> Any:
    """Payloads as text, so that SQL can compare them; what is not text is shown as hex."""
    from pyspark.sql.functions import expr

    text = f"cast(`{column}` as string)"
    return expr(f"if(is_valid_utf8({text}), {text}, concat('0x', lower(hex(`{column}`))))")


def _with_fields(
    frame: DataFrame, parsed: DataFrame, column: str, ddl: str, sign: str
) -> DataFrame:
    """The fields of JSON payloads as columns; one with a name that is taken is left inside."""
    from pyspark.sql.functions import col, expr, lit, raise_error, when
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(ddl)
    taken = {name.lower() for name in frame.columns} | {"json"}
    fields = [item.name for item in schema.fields if item.name.lower() not in taken]
    fitting = when(expr(_MISFIT), raise_error(lit(sign))).otherwise(
        col("json").dropFields(MISFIT_FIELD)
    )
    parsed = parsed.withColumn("json", fitting).withColumn(column, text_or_bytes(column))
    named = [f"json.{quoted_sql(name)} as {quoted_sql(name)}" for name in fields]
    return parsed.selectExpr(*(f"`{name}`" for name in frame.columns), *named, "json")


def explained(error: BaseException, known: list[str]) -> str:
    """An error of Spark in one line; of a table that is not there, with one that is like it."""
    text = short_reason(error)
    if "TABLE_OR_VIEW_NOT_FOUND" in str(error):
        name = text.partition("`")[2].partition("`")[0]
        return f"table {name!r} does not exist{near(name, known)}"
    return text
