"""SQL on streams, buckets and folders.

Owns which tables a query names and what columns they have. A stream has its own columns and, if its
messages are JSON objects, their fields; a bucket its keys and values, likewise; a folder is what is
in it. Only tables that the query names are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tradewind.pipelines.connections import Address
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.inference import infer
from tradewind.pipelines.loading import names_in, near
from tradewind.pipelines.schemas import sample_payloads
from tradewind.pipelines.spark_errors import short_reason
from tradewind.pipelines.templates import quoted_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = ("parquet", "json", "csv", "delta")
KV_PREFIX: Final = "KV_"


@dataclass(frozen=True)
class Catalog:
    """The names of the streams and buckets of a server."""

    streams: tuple[str, ...]
    buckets: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """All names that a query may use for tables."""
        return [*self.streams, *(name for name in self.buckets if name not in self.streams)]


@dataclass(frozen=True)
class Result:
    """The rows of a query; `has_more` if there are more than were asked for."""

    columns: list[str]
    rows: list[Any]
    has_more: bool


def read_catalog(address: Address) -> Catalog:
    """What a server has."""
    with address.connect() as connection:
        streams = tuple(connection.jetstream_manager().streams.names())
        buckets = tuple(
            name.removeprefix(KV_PREFIX) for name in streams if name.startswith(KV_PREFIX)
        )
    return Catalog(streams, buckets)


def run_query(
    spark: SparkSession,
    text: str,
    address: Address,
    folders: Mapping[str, str],
    rows_max: int,
    store: str = "",
) -> Result:
    """The first rows of a query; PipelineError says what is wrong with it.

    `folders` are tables by name, `store` a store folder to read streams from instead of the server.
    """
    from pyspark.errors import PySparkException

    used = names_in(text, folders)
    for name in used:
        _folder_frame(spark, name, folders[name]).createOrReplaceTempView(name)
    catalog = Catalog((), ())
    if needs_server(text, folders):
        catalog = _local_catalog(store) if store else read_catalog(address)
        options = {"storeDir": store} if store else address.spark_options()
        for name in names_in(text, catalog.names):
            if name not in used:
                frame = _table_frame(spark, name, catalog, options)
                frame.createOrReplaceTempView(name)
    try:
        frame = spark.sql(text)
        rows = frame.limit(rows_max + 1).collect()
    except PySparkException as error:
        raise PipelineError(_explained(error, [*folders, *catalog.names])) from None
    return Result(frame.columns, rows[:rows_max], len(rows) > rows_max)


def needs_server(text: str, folders: Mapping[str, str]) -> bool:
    """Whether a query names a table that is no folder."""
    import re

    bare = re.sub(r"'(?:[^'\\]|\\.)*'", " ", text)
    named = re.findall(r"\b(?:from|join)\s+`?([\w-]+)", bare, re.IGNORECASE)
    known = {name.lower() for name in (*folders, *FORMATS, "values", "range")}
    return any(name.lower() not in known for name in named)


def _local_catalog(store: str) -> Catalog:
    """The streams of a store folder, by the folders that are there."""
    base = Path(store)
    root = base / "jetstream" if (base / "jetstream").is_dir() else base
    names = sorted(path.name for path in (root / "$G" / "streams").glob("*") if path.is_dir())
    if not names:
        raise PipelineError(f"{store}: no streams of the account $G; is this a store folder?")
    buckets = [name.removeprefix(KV_PREFIX) for name in names if name.startswith(KV_PREFIX)]
    return Catalog(tuple(names), tuple(buckets))


def _folder_frame(spark: SparkSession, name: str, place: str) -> DataFrame:
    """A folder as a table: FORMAT:PATH, or a path whose format is seen from its files."""
    from pyspark.errors import PySparkException

    kind, _, path = place.partition(":")
    if kind not in FORMATS or path.startswith("//"):
        kind, path = _format_of(place), place
    try:
        if kind == "delta":
            return _delta_frame(spark, path)
        reader = spark.read
        if kind == "csv":
            reader = reader.option("header", "true").option("inferSchema", "true")
        frame: DataFrame = reader.format(kind).load(path)
    except PySparkException as error:
        raise PipelineError(f"table {name}: {path}: {short_reason(error)}") from None
    return frame


def _delta_frame(spark: SparkSession, path: str) -> DataFrame:
    """The files of the latest version of a Delta table."""
    from tradewind.pipelines.lakes import delta_files

    return spark.read.option("basePath", path).parquet(*delta_files(path))


def _format_of(place: str) -> str:
    folder = Path(place)
    if (folder / "_delta_log").is_dir():
        return "delta"
    files = [folder] if folder.is_file() else folder.rglob("*.*")
    for file in files:
        if file.suffix.lstrip(".") in FORMATS:
            return file.suffix.lstrip(".")
    if folder.exists():
        raise PipelineError(f"{place}: no files of {', '.join(FORMATS)} in it")
    raise PipelineError(f"{place}: there is no such folder")


def _table_frame(
    spark: SparkSession, name: str, catalog: Catalog, options: Mapping[str, str]
) -> DataFrame:
    """A stream or a bucket with the fields of its payloads."""
    is_bucket = name not in catalog.streams
    where = {**options, "bucket" if is_bucket else "stream": name}
    column = "value" if is_bucket else "data"
    frame: DataFrame = spark.read.format("jetstream").options(**where).load()
    try:
        ddl = infer(sample_payloads(where, column)).ddl
    except ValueError:
        return frame.withColumn(column, _text_or_bytes(column))
    return _with_fields(frame, column, ddl)


def _text_or_bytes(column: str) -> Any:
    """Payloads as text, so that SQL can compare them; what is no text is shown as hex."""
    from pyspark.sql.functions import expr

    text = f"cast(`{column}` as string)"
    return expr(f"if(is_valid_utf8({text}), {text}, concat('0x', lower(hex(`{column}`))))")


def _with_fields(frame: DataFrame, column: str, ddl: str) -> DataFrame:
    """The fields of JSON payloads as columns; one with a name that is taken is left inside."""
    from pyspark.sql.functions import col, from_json
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(ddl)
    taken = {name.lower() for name in frame.columns} | {"json"}
    fields = [item.name for item in schema.fields if item.name.lower() not in taken]
    parsed = frame.withColumn("json", from_json(col(column).cast("string"), schema))
    parsed = parsed.withColumn(column, _text_or_bytes(column))
    named = [f"json.{quoted_sql(name)} as {quoted_sql(name)}" for name in fields]
    return parsed.selectExpr(*(f"`{name}`" for name in frame.columns), *named, "json")


def _explained(error: BaseException, known: list[str]) -> str:
    """An error of Spark in one line; of a table that is not there, with one that is like it."""
    text = short_reason(error)
    if "TABLE_OR_VIEW_NOT_FOUND" in str(error):
        name = text.partition("`")[2].partition("`")[0]
        return f"there is no table {name!r}{near(name, known)}"
    return text
