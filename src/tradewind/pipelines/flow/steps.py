"""The steps of a pipeline: SQL, windows and Python functions.

Owns turning each step into a frame, and finding the line in the file for a Spark error.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tradewind.pipelines.definition.model import Pipeline, Step, texts
from tradewind.pipelines.notation.intervals import spark_interval
from tradewind.pipelines.sessions.spark_errors import short_reason, sql_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# By name: the file with the time of its last change, and its module.
_MODULES: Final[dict[str, tuple[tuple[str, int], Any]]] = {}


def step_frame(
    pipeline: Pipeline,
    spark: SparkSession,
    name: str,
    step: Step,
    tables: Mapping[str, DataFrame],
) -> DataFrame:
    """The table of one step."""
    from pyspark.errors import PySparkException

    if step.kind == "python":
        return _python_frame(pipeline, name, step, tables)
    text = step.sql if step.kind == "sql" else window_sql(step)
    try:
        return spark.sql(text)
    except PySparkException as error:
        place = pipeline.document.place(("steps", name, step.kind))
        at = sql_line(error)
        line = place.at(at[0]) if at and step.kind == "sql" else place.line
        problem = short_reason(error)
        keys = ("steps", name, step.kind)
        raise pipeline.document.error_at(keys, line, f"step {name}: {problem}") from None


def window_sql(step: Step) -> str:
    """The SQL of a window: its start and end, the columns it is by, and what is kept."""
    by = texts(step.by)
    parts = [f"'{spark_interval(step.window)}'"]
    if step.slide:
        parts.append(f"'{spark_interval(step.slide)}'")
    kept = [f"{expression} as `{name}`" for name, expression in step.keep.items()]
    columns = ", ".join(["window.start as start", "window.end as end", *by, *kept])
    groups = ", ".join([f"window({step.on}, {', '.join(parts)})", *by])
    return f"select {columns} from {texts(step.inputs)[0]} group by {groups}"  # noqa: S608


def _python_frame(
    pipeline: Pipeline, name: str, step: Step, tables: Mapping[str, DataFrame]
) -> DataFrame:
    from pyspark.sql import DataFrame

    file, _, function = step.python.rpartition(":")
    keys = ("steps", name, "python")
    try:
        module = _load_module(pipeline.folder / file, f"pipeline_{pipeline.name}_{name}")
        result = getattr(module, function)(*(tables[used] for used in texts(step.inputs)))
    except Exception as error:
        text = f"{step.python}: {type(error).__name__}: {short_reason(error)}"
        raise pipeline.document.error(keys, text) from error
    if not isinstance(result, DataFrame):
        text = f"{step.python} must return a DataFrame, not {type(result).__name__}"
        raise pipeline.document.error(keys, text)
    return result


def _load_module(path: Path, name: str) -> Any:
    """A user's file as a module whose functions travel to the executors by value.

    The file is run once for each content, however often its functions are called.
    """
    from pyspark import cloudpickle

    mark = (str(path), path.stat().st_mtime_ns)
    if (known := _MODULES.get(name)) is not None and known[0] == mark:
        return known[1]
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    _MODULES[name] = (mark, module)
    return module
