"""The features of the installed Spark version for Python sources and sinks.

Owns the differences between versions. One version is pinned and others are tested (`make
spark-versions`). A missing feature is detected by name, never by version number, and its use is
reported as an error.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final

import pyspark
from pyspark.sql import datasource

from tradewind.spark.errors import SparkSetupError


class _Nothing:
    """Stands for a class that this Spark does not have; nothing is one of it."""


_LIMITS: Final = (
    "ReadAllAvailable",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
)


def _find_limits() -> Any:
    try:
        found: Any = import_module("pyspark.sql.streaming.datasource")
    except ModuleNotFoundError:
        found = SimpleNamespace()
    kinds = {name: getattr(found, name, type(name, (_Nothing,), {})) for name in _LIMITS}
    return SimpleNamespace(**kinds, are_known=hasattr(found, "SupportsTriggerAvailableNow"))


limits: Final = _find_limits()
# Without it Spark hands rows over one by one, as Python objects.
StreamArrowWriter: Any = getattr(
    datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter
)
HAS_STREAM_READS: Final[bool] = limits.are_known
HAS_STREAM_WRITES: Final = hasattr(datasource, "DataSourceStreamArrowWriter")
HAS_PUSHDOWN: Final = hasattr(datasource.DataSourceReader, "pushFilters")


def need(what: str, since: str, *, is_there: bool) -> None:
    """SparkSetupError if this Spark cannot do something."""
    if not is_there:
        raise SparkSetupError(f"{what} with Spark {since} or later; this is {pyspark.__version__}")
