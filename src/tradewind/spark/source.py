"""The data source `jetstream` as registered with Spark.

Owns its name, its schema, and the choice of the reader or writer for a query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from tradewind.spark.columnar.columns import column_of
from tradewind.spark.errors import OptionError
from tradewind.spark.options.sink_options import parse_sink_options
from tradewind.spark.options.source_options import parse_options
from tradewind.spark.processes.features import HAS_STREAM_READS, HAS_STREAM_WRITES, need
from tradewind.spark.processes.worker import spare_modules
from tradewind.spark.reads.reading import BatchReader
from tradewind.spark.reads.streaming import StreamReader
from tradewind.spark.writes.outgoing_columns import plan_columns
from tradewind.spark.writes.sink import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from tradewind.spark.options.source_options import SourceOptions


class JetStreamSource(DataSource):
    """Streams of a NATS server, or of its files, as rows."""

    @classmethod
    def name(cls) -> str:
        """The name that is given to `format`."""
        return "jetstream"

    def schema(self) -> str:
        """All columns, or those of the option `columns`."""
        spare_modules()
        options = parse_options(self.options)
        columns = options.columns or options.table_columns
        return ", ".join(f"{name} {options.table_columns[name].ddl}" for name in columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        options = parse_options(self.options)
        return BatchReader(options, _columns(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For `spark.readStream`."""
        need("streams are read by streaming queries", "4.2", is_there=HAS_STREAM_READS)
        options = parse_options(self.options)
        return StreamReader(options, _columns(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """For `frame.write`."""
        spare_modules()
        options = parse_sink_options(self.options)
        return BatchWriter(options, plan_columns(schema, options), overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        """For `frame.writeStream`."""
        spare_modules()
        need("streaming queries write to streams", "4.1", is_there=HAS_STREAM_WRITES)
        options = parse_sink_options(self.options)
        return StreamWriter(options, plan_columns(schema, options), overwrite=overwrite)


def _columns(schema: StructType, options: SourceOptions) -> tuple[str, ...]:
    """The columns that a query reads: all of the format, or those of a schema that was given."""
    for field in schema.fields:
        kind = column_of(options.table_columns, field.name, "schema").ddl
        given = field.dataType.simpleString()
        if given != kind:
            raise OptionError("schema", f"column {field.name} is {kind}, not {given}")
    return tuple(field.name for field in schema.fields)
