"""The Spark session of pipelines, jobs and SQL.

Owns the destination of Spark's own log: a file, so that the terminal shows only requested output.
The settings are those of `tradewind.spark.processes.spark_session`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tradewind.pipelines.definition.spark_settings import apply_settings, check_sql_settings
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.sessions.spark_errors import quiet_spark_loggers, short_reason
from tradewind.spark.errors import SparkSetupError
from tradewind.spark.processes.local_master import LOCAL_MASTER
from tradewind.spark.processes.spark_session import get_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tradewind.pipelines.definition.model import Pipeline

STDERR: Final = 2


def open_session(
    master: str, log_file: Path, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one whose log goes to a file."""
    quiet_spark_loggers()
    log_file.parent.mkdir(parents=True, exist_ok=True)
    chosen = {"spark.ui.enabled": "false", **(settings or {})}
    try:
        with _errors_to(log_file):
            return get_session(master, chosen)
    except SparkSetupError:
        raise
    except Exception as error:  # whatever the launcher of Java may raise
        raise PipelineError(
            f"Spark could not be started with master {master!r}: {short_reason(error)}; see "
            f"{log_file}"
        ) from error


def pipeline_session(pipeline: Pipeline, master: str, log_file: Path) -> SparkSession:
    """The session of a pipeline, as its file and the command line say; `master` may be empty."""
    section = pipeline.head.spark
    settings = section.session_settings()
    session = open_session(master or section.master or LOCAL_MASTER, log_file, settings)
    check_sql_settings(pipeline.document, section, session)
    apply_settings(session, settings)
    return session


@contextmanager
def using_session(
    master: str, log_file: Path, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session for one piece of work; one that ran before is used, and continues."""
    was_running = is_spark_running()
    session = open_session(master, log_file, settings)
    try:
        yield session
    finally:
        if not was_running:
            with suppress(Exception):  # Java may be gone already
                session.stop()


def is_spark_running() -> bool:
    """Whether this process has a Spark, in whichever thread; it is not imported for that."""
    module = sys.modules.get("pyspark")
    return module is not None and module.SparkContext._active_spark_context is not None


def forget_session() -> None:
    """Have the next session start a Java of its own, as the one of this process has ended."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()


@contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Programs that are started meanwhile write their errors to a file, as long as they run."""
    sys.stderr.flush()
    kept = os.dup(STDERR)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, STDERR)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, STDERR)
        os.close(kept)
        os.close(file)
