"""What Spark's interface for Python sources cannot do yet: these fail when a later Spark can.

docs/how-to/SPARK.md has the other one, a source whose conditions Spark mixes up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCAN_BUILDER = "org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder"


def test_spark_tells_no_python_source_which_columns_a_query_reads(spark: SparkSession) -> None:
    jvm: Any = spark._jvm  # type: ignore[attr-defined]
    interfaces = jvm.java.lang.Class.forName(SCAN_BUILDER).getInterfaces()
    # With SupportsPushDownRequiredColumns the option `columns` would no longer be needed.
    assert [one.getSimpleName() for one in interfaces] == ["SupportsPushDownFilters"]
    hooks = {name for name in dir(DataSourceReader) if not name.startswith("_")}
    assert hooks == {"partitions", "pushFilters", "read"}
    assert "columns" not in DataSource.reader.__code__.co_varnames
