"""The data source `jetstream`, as Spark sees it.

Owns its name, its schema and which reader serves a query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from tradewind.spark.errors import OptionError
from tradewind.spark.options import COLUMNS, parse_options
from tradewind.spark.reading import BatchReader
from tradewind.spark.streaming import StreamReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

_TYPES: Final = {
    "stream": "string",
    "seq": "bigint",
    "subject": "string",
    "time": "timestamp",
    "headers": "map<string,array<string>>",
    "data": "binary",
}


class JetStreamSource(DataSource):
    """Streams of a NATS server, or of its files, as rows."""

    @classmethod
    def name(cls) -> str:
        """What is given to `format`."""
        return "jetstream"

    def schema(self) -> str:
        """All columns, or those of the option `columns`."""
        options = parse_options(self.options)
        return ", ".join(f"{name} {_TYPES[name]}" for name in options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        return BatchReader(parse_options(self.options), _columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For `spark.readStream`."""
        return StreamReader(parse_options(self.options), _columns(schema))


def _columns(schema: StructType) -> tuple[str, ...]:
    """The columns that a query reads: all of ours, or those of a schema that was given."""
    for field in schema.fields:
        kind = _TYPES.get(field.name)
        if kind is None:
            raise OptionError("schema", f"no column {field.name!r}; there are {', '.join(COLUMNS)}")
        if field.dataType.simpleString() != kind:
            raise OptionError(
                "schema",
                f"column {field.name} is {kind}, not {field.dataType.simpleString()}",
            )
    return tuple(field.name for field in schema.fields)
