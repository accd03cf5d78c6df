"""Keeps the materialized views of an account up to date, all of them in one Spark.

Owns which views run: those whose definitions say so, and whose state is here. A view is a pipeline
(`runner`) with a folder of its own, `NAME-ID`, in the folder of the views: its file, which the
commands of `tradewind pipeline` take, and its checkpoint. The definition names that folder and the
machine, so no second runner ever continues with another state. A view that fails does not disturb
the others; it is tried again after a pause.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.client.errors import ClientError
from tradewind.errors import TradewindError
from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.flow.targets import ensure_bucket
from tradewind.pipelines.machine.places import replace_file
from tradewind.pipelines.running.runner import Runner, running
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.views.view_spec import ViewReport, ViewSpec, pipeline_values
from tradewind.pipelines.views.view_store import ViewStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tradewind.pipelines.definition.model import Sink

PIPELINE_FILE: Final = "pipeline.yaml"
CHECKPOINT: Final = "checkpoint"
POLL_SECONDS: Final = 0.5
LOOK_SECONDS: Final = 1.0
REPORT_EVERY_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 5.0
RETRY_SECONDS_MAX: Final = 60.0


def default_folder() -> Path:
    """Where the state of views is, unless another folder is named."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local/state") / "tradewind" / "views"


@dataclass
class _RunningView:
    """A view whose pipeline runs."""

    view: ViewSpec
    runner: Runner
    closing: ExitStack
    is_done: bool = False


@dataclass
class _FailedView:
    """A view that is tried again later."""

    token: str
    error: str
    pause_seconds: float
    due: float


class ViewRunner:
    """One run over all views, or over some; `note` is called with what begins, ends and fails."""

    def __init__(
        self,
        spark: SparkSession,
        address: PipelineAddress,
        folder: Path,
        note: Callable[[str], None],
        names: Collection[str] = (),
        *,
        is_once: bool = False,
    ) -> None:
        self._spark = spark
        self._address = address
        self._folder = folder.absolute()
        self._note = note
        self._names = names
        self._is_once = is_once
        self._running: dict[str, _RunningView] = {}
        self._failed: dict[str, _FailedView] = {}
        self._reported: dict[str, tuple[str, float]] = {}
        self._problem = ""

    def run(self, should_stop: Event, seconds: float | None = None) -> int:
        """Run until asked to stop, or for some seconds; or once, until everything stored is done.

        Returns how many views have failed and were not run again.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        connection = self._address.connect()
        try:
            store = ViewStore(connection)
            for name in self._names:
                store.find(name)
            due = 0.0
            while True:
                if time.monotonic() >= due:
                    self._reconcile(store)
                    due = time.monotonic() + LOOK_SECONDS
                self._poll(store)
                if self._is_once and self._is_through():
                    break
                if should_stop.wait(POLL_SECONDS):
                    break
                if deadline is not None and time.monotonic() >= deadline:
                    break
            for name in list(self._running):
                self._stop(name, store, "stopped")
        finally:
            for one in self._running.values():
                one.closing.close()
            connection.close()
        return len(self._failed)

    def _is_through(self) -> bool:
        return all(one.is_done for one in self._running.values())

    # ---------------------------------------------------------------- what is to run

    def _reconcile(self, store: ViewStore) -> None:
        """Begin and end what the definitions say."""
        try:
            views = {stored.view.name: stored.view for stored in store.all()}
        except ClientError as error:
            if str(error) != self._problem:
                self._note(f"the server cannot be asked for views: {error}")
            self._problem = str(error)
            return
        self._problem = ""
        if self._names:
            views = {name: view for name, view in views.items() if name in self._names}
        for name, one in list(self._running.items()):
            found = views.get(name)
            if found is None or found.token != one.view.token:
                self._stop(name, store, "")
                # No runner can continue with it: a view of this name would be another one.
                shutil.rmtree(self._folder_of(one.view), ignore_errors=True)
                self._note(f"view {name}: dropped")
            elif found.is_paused:
                self._stop(name, store, "stopped")
                self._note(f"view {name}: paused")
        for name, view in views.items():
            failed = self._failed.get(name)
            if failed is not None and failed.token != view.token:
                del self._failed[name]
                failed = None
            if name in self._running or view.is_paused:
                continue
            if failed is not None and (self._is_once or time.monotonic() < failed.due):
                continue
            self._start(view, store)
        for name in [name for name in self._failed if name not in views]:
            del self._failed[name]

    def _start(self, view: ViewSpec, store: ViewStore) -> None:
        closing = ExitStack()
        try:
            runner = self._runner(view, store)
            closing.enter_context(running(runner, runner.pipeline.checkpoint))
        except (TradewindError, OSError) as error:
            closing.close()
            self._fail(view, store, str(error))
            return
        self._failed.pop(view.name, None)
        self._running[view.name] = _RunningView(view, runner, closing)
        self._note(f"view {view.name}: running ({view.target})")
        self._report(view, store, runner)

    def _runner(self, view: ViewSpec, store: ViewStore) -> Runner:
        folder = self._folder_of(view)
        here = f"{os.uname().nodename}:{folder}"
        if view.checkpoint == here and not (folder / CHECKPOINT).exists():
            raise PipelineError(
                f"view {view.name}: its state in {folder} is gone, and without it rows would be"
                " counted again; drop the view and create it again"
            )
        if view.checkpoint not in ("", here):
            raise PipelineError(
                f"view {view.name}: its state is {view.checkpoint}; run it there, or drop it and"
                " create it again"
            )
        (folder / CHECKPOINT).mkdir(parents=True, exist_ok=True)
        file = folder / PIPELINE_FILE
        values = pipeline_values(view, CHECKPOINT)
        replace_file(file, msgspec.json.format(msgspec.json.encode(values)) + b"\n")
        if not view.checkpoint:
            if view.kind == "bucket":
                ensure_bucket(self._address, view.name, may_create=True)
            self._claim(view, store, here)
        # All use one session, which takes its time to find the source: a query that was started
        # does not depend on the names of its tables any more, which the next view may have, too.
        pipeline = load_pipeline(file)
        return Runner(pipeline, self._spark, self._address, _no_console, is_once=self._is_once)

    def _claim(self, view: ViewSpec, store: ViewStore, here: str) -> None:
        """Have the definition name this place, unless another runner was faster."""

        def claim(found: ViewSpec) -> ViewSpec:
            if found.token != view.token or found.checkpoint not in ("", here):
                raise PipelineError(f"view {view.name}: another runner has just begun with it")
            return msgspec.structs.replace(found, checkpoint=here)

        store.change(view.name, claim)

    def _folder_of(self, view: ViewSpec) -> Path:
        return self._folder / f"{view.name}-{view.token[:16]}"

    # ---------------------------------------------------------------- while they run

    def _poll(self, store: ViewStore) -> None:
        for name, one in list(self._running.items()):
            if one.is_done:
                continue
            try:
                is_active = one.runner.poll()
            except PipelineError as error:
                self._end(name)
                self._fail(one.view, store, str(error))
                continue
            if self._is_once and not is_active:
                one.runner.stop("done")
                one.is_done = True
                self._note(f"view {name}: done")
            self._report(one.view, store, one.runner)

    def _stop(self, name: str, store: ViewStore, state: str) -> None:
        one = self._running[name]
        if not one.is_done:
            one.runner.stop("stopped")
        if state:
            self._report(one.view, store, one.runner)
        self._end(name)

    def _end(self, name: str) -> None:
        self._running.pop(name).closing.close()
        self._reported.pop(name, None)

    def _fail(self, view: ViewSpec, store: ViewStore, error: str) -> None:
        before = self._failed.get(view.name)
        pause = min(before.pause_seconds * 2, RETRY_SECONDS_MAX) if before else RETRY_SECONDS
        if before is None or before.error != error:
            again = "" if self._is_once else f"; it is tried again in {pause:.0f} s"
            self._note(f"view {view.name}: failed: {error}{again}")
        self._failed[view.name] = _FailedView(view.token, error, pause, time.monotonic() + pause)
        self._put(view, store, "failed", 0, error)

    def _report(self, view: ViewSpec, store: ViewStore, runner: Runner) -> None:
        state, now = runner.status.state, time.monotonic()
        before = self._reported.get(view.name)
        if before is not None and before[0] == state and now < before[1] + REPORT_EVERY_SECONDS:
            return
        self._reported[view.name] = (state, now)
        rows = sum(query.rows_total for query in runner.status.queries)
        self._put(view, store, state, rows, runner.status.error)

    def _put(self, view: ViewSpec, store: ViewStore, state: str, rows: int, error: str) -> None:
        host, now = os.uname().nodename, time.time_ns()
        report = ViewReport(view.token, state, rows, error, host, os.getpid(), now)
        # Otherwise only what is listed is old; the view itself waits for the server.
        with suppress(ClientError):
            store.report(view.name, report)


def _no_console(name: str, sink: Sink, batch: Any, number: int) -> None:
    raise AssertionError(f"no view has a console sink: {name}, {sink}, {batch}, {number}")
