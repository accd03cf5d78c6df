"""Reads the latest snapshot of an Iceberg table with Spark's own Parquet reader, without a jar.

Owns when that is right. Iceberg knows columns by numbers, and the reader by names: a table whose
columns were renamed, or replaced by others of the same name, is refused, and so is one with deleted
rows beside its files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tradewind.pipelines.definition.model import Iceberg
from tradewind.pipelines.errors import PipelineError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SEPARATOR: Final = "#"


def iceberg_frame(spark: SparkSession, place: str) -> DataFrame:
    """The rows of WAREHOUSE#NAMESPACE.TABLE; PipelineError if they cannot be read as they are."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema, paths = open_iceberg(place)
    shown = from_arrow_schema(schema)
    if not paths:
        return spark.createDataFrame([], shown)
    return spark.read.schema(shown).parquet(*paths)


def open_iceberg(place: str) -> tuple[pa.Schema, list[str]]:
    """The columns and the files of the latest snapshot; see `iceberg_frame`."""
    from tradewind.pipelines.lake.iceberg_tables import IcebergLake, planned

    warehouse, separator, name = place.rpartition(SEPARATOR)
    if not separator or not warehouse or "." not in name:
        raise PipelineError(f"iceberg:{place}: write iceberg:WAREHOUSE#NAMESPACE.TABLE")
    if not Path(warehouse).is_dir():
        raise PipelineError(f"iceberg:{place}: no such folder: {warehouse}")
    lake = IcebergLake(Iceberg(name, warehouse), warehouse)
    table = lake.load()
    if table is None:
        raise PipelineError(f"iceberg:{place}: the catalog has no table {name}")
    check_names(name, table)
    return lake.schema(), [task.file.file_path for task in planned(table)]


def check_names(name: str, table: Any) -> None:
    """PipelineError unless each name of a column has always been that of the same column."""
    from pyiceberg.schema import index_name_by_id

    by_number: dict[int, str] = {}
    by_name: dict[str, int] = {}
    for number in sorted(table.schemas()):
        schema = table.schemas()[number]
        for field_id, field_name in index_name_by_id(schema).items():
            if by_number.setdefault(field_id, field_name) != field_name:
                raise PipelineError(
                    f"{name}: column {by_number[field_id]!r} was renamed to {field_name!r}, and"
                    " files of both are read by name here; have its writer rewrite the table"
                )
            if by_name.setdefault(field_name, field_id) != field_id:
                raise PipelineError(
                    f"{name}: there was another column {field_name!r} before, whose values would be"
                    " taken for those of this one; have its writer rewrite the table"
                )
