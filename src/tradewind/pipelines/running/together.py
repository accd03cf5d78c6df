"""Runs several pipelines in one Spark session.

Owns their life cycles next to each other. Each pipeline has a checkpoint, a lock and a status of
its own. One that fails does not stop the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from tradewind.errors import TradewindError
from tradewind.pipelines.definition.spark_settings import apply_settings, check_sql_settings
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.running import runner as runners
from tradewind.pipelines.sessions.pipeline_session import open_session
from tradewind.spark.processes.local_master import LOCAL_MASTER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tradewind.pipelines.definition.model import Pipeline
    from tradewind.pipelines.running.runner import Runner
    from tradewind.pipelines.state.status import PipelineStatus


def check_together(pipelines: Sequence[Pipeline]) -> None:
    """PipelineError if two pipelines cannot run in one session."""
    names: dict[str, Path] = {}
    masters: dict[str, Path] = {}
    for pipeline in pipelines:
        path, master = pipeline.document.path, pipeline.head.spark.master
        if pipeline.name in names:
            raise pipeline.document.error(
                ("pipeline",), f"{names[pipeline.name]} has the name {pipeline.name!r} too"
            )
        names[pipeline.name] = path
        if master and masters and master not in masters:
            other, first = next(iter(masters.items()))
            text = f"{first} has another master, {other}; give one for all with --master"
            raise pipeline.document.error(("spark", "master"), text)
        if master:
            masters[master] = path


def common_session(pipelines: Sequence[Pipeline], master: str, log_file: Path) -> SparkSession:
    """A session with what the files say together; the first file that has a setting wins here."""
    settings: dict[str, str] = {}
    for pipeline in reversed(pipelines):
        settings |= pipeline.head.spark.session_settings()
    if any(pipeline.head.spark.ui is not False for pipeline in pipelines):
        settings["spark.ui.enabled"] = "true"
    named = [one.head.spark.master for one in pipelines if one.head.spark.master]
    return open_session(master or next(iter(named), LOCAL_MASTER), log_file, settings)


def own_session(pipeline: Pipeline, common: SparkSession) -> SparkSession:
    """The session of one pipeline beside others; tables and settings of SQL are its own."""
    section = pipeline.head.spark
    session = common.newSession()
    check_sql_settings(pipeline.document, section, session)
    apply_settings(session, section.session_settings())
    return session


def run_together(
    makers: Sequence[Callable[[], Runner]],
    should_stop: Event,
    on_update: Callable[[PipelineStatus], None],
    on_failure: Callable[[TradewindError], None],
    seconds: float | None = None,
) -> list[Runner]:
    """Run pipelines until all are done or one stops them; returns those that began.

    The error of a pipeline is given to `on_failure`.
    """
    began: list[Runner] = []
    live: dict[Runner, ExitStack] = {}
    with ExitStack() as everything:
        for make in makers:
            if should_stop.is_set():
                break
            stack = everything.enter_context(ExitStack())
            try:
                runner = make()
                began.append(runner)
                stack.enter_context(runners.running(runner, runner.pipeline.checkpoint))
            except TradewindError as error:
                on_failure(error)
            else:
                live[runner] = stack
        deadline = None if seconds is None else time.monotonic() + seconds
        while live:
            for runner, stack in list(live.items()):
                if not _is_active(runner, on_failure):
                    stack.close()
                    del live[runner]
                on_update(runner.status)
            if should_stop.wait(runners.POLL_SECONDS if live else 0):
                break
            if deadline is not None and time.monotonic() >= deadline:
                break
        for runner in live:
            runner.finish(is_active=True)
            on_update(runner.status)
    return began


def _is_active(runner: Runner, on_failure: Callable[[TradewindError], None]) -> bool:
    try:
        if runner.poll():
            return True
        runner.finish(is_active=False)
    except PipelineError as error:
        on_failure(error)
    return False
