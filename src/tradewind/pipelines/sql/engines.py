"""Which engine answers a statement: DuckDB in this process, or Spark.

Owns the rule, and the difference between both in how names are quoted. Everything that writes, or
that follows streams, needs Spark, and so do files that a statement names itself. The module imports
neither engine.
"""

from __future__ import annotations

import importlib.util
import os
import re
from typing import Final

from tradewind.extra_packages import install_command
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.relations.queries import FORMATS, SHOW_VIEWS
from tradewind.pipelines.relations.statements import is_writing

AUTO, DUCKDB, SPARK = "auto", "duckdb", "spark"
ENGINES: Final = (AUTO, DUCKDB, SPARK)
ENGINE_VARIABLE: Final = "TRADEWIND_SQL_ENGINE"
_FILE: Final = re.compile(rf"\b(?:{'|'.join(FORMATS)}|orc|text|avro)\s*\.\s*`", re.IGNORECASE)
# Texts and comments as they are; names in backticks, or in double quotes.
_PIECE: Final = re.compile(
    r"""'(?:[^']|'')*' | --[^\n]* | /\*.*?\*/ | `((?:[^`]|``)*)` | "((?:[^"]|"")*)" """,
    re.DOTALL | re.VERBOSE,
)


class NeedsSparkError(PipelineError):
    """A statement that DuckDB does not answer here, and why."""

    def __init__(self, why: str) -> None:
        super().__init__(f"only --engine spark can do this: {why}")
        self.why = why


def has_duckdb() -> bool:
    """Whether the packages of the extra `frames` are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("duckdb", "pyarrow"))


def has_spark() -> bool:
    """Whether the package of Spark is installed."""
    return importlib.util.find_spec("pyspark") is not None


def engine_of_environment() -> str:
    """The engine that the environment names; PipelineError if there is none of that name."""
    text = os.environ.get(ENGINE_VARIABLE, "").strip().lower() or AUTO
    if text not in ENGINES:
        raise PipelineError(f"{ENGINE_VARIABLE}={text!r}: one of {', '.join(ENGINES)}")
    return text


def check_engine(text: str) -> None:
    """NeedsSparkError if a statement is one that DuckDB does not answer."""
    if is_writing(text):
        raise NeedsSparkError("the statement writes")
    if SHOW_VIEWS.fullmatch(text.strip().rstrip(";").strip()):
        raise NeedsSparkError("it is about materialized views")
    if _FILE.search(text):
        raise NeedsSparkError("it names a file; use --table NAME=PLACE to read it without Spark")


def check_installed(engine: str) -> None:
    """PipelineError says how to install an engine that is not there."""
    if engine == DUCKDB and not has_duckdb():
        raise PipelineError(f"--engine duckdb needs DuckDB and Arrow: {install_command('frames')}")
    if engine == SPARK and not has_spark():
        raise PipelineError(f"--engine spark needs Spark: {install_command('spark')}")


def duck_text(text: str, quote: str) -> str:
    """A statement with all quoted names in one kind of quotes; DuckDB knows double ones only."""

    def piece(found: re.Match[str]) -> str:
        if found[1] is not None:
            name = found[1].replace("``", "`")
        elif found[2] is not None:
            name = found[2].replace('""', '"')
        else:
            return found[0]
        return f"{quote}{name.replace(quote, quote * 2)}{quote}"

    return _PIECE.sub(piece, text)
