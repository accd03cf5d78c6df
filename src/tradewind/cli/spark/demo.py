"""`tradewind demo`: runs the whole product in one command.

Owns the flags and the terminal; `tradewind.pipelines.demo` does the work.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tradewind.cli.frame.frame import CommandApp, Option
from tradewind.cli.frame.output import flush, is_terminal, line, redraw_notes
from tradewind.cli.spark.spark_flags import MasterFlag
from tradewind.errors import ServerStartError
from tradewind.spark.processes.local_master import LOCAL_MASTER
from tradewind.visible_text import visible_lines

if TYPE_CHECKING:
    from tradewind.pipelines.demo.demo_server import Companion, DemoSettings
    from tradewind.pipelines.demo.screen import DemoMoment

app = CommandApp("Run a demo: a server, live orders and a Spark pipeline")
LINE_SECONDS = 5.0


@app.command()
def run(
    folder: Annotated[Path, Option("--folder", help="Folder for all data")] = Path("data"),
    port: Annotated[
        int, Option("--port", help="Server port; 0 for any free port", min=0, max=65535)
    ] = 4222,
    http_port: Annotated[
        int, Option("--http-port", help="Monitoring port; 0 for any free port", min=0, max=65535)
    ] = 8222,
    dashboard_port: Annotated[
        int, Option("--dashboard-port", help="Dashboard port; 0 for any", min=0, max=65535)
    ] = 8280,
    seconds: Annotated[
        float | None, Option("--seconds", min=0, help="Stop after this time")
    ] = None,
    rate: Annotated[float, Option("--rate", help="Orders per second", min=0.1, max=10_000)] = 40.0,
    master: MasterFlag = LOCAL_MASTER,
) -> None:
    """Start a server, publish orders, compute their revenue with Spark and show it live.

    Without Spark, a consumer packs the orders.
    """
    from tradewind.pipelines.demo.demo_server import DemoSettings

    program = sys.argv[0] if Path(sys.argv[0]).name == "tradewind" else "tradewind"
    settings = DemoSettings(folder, port, http_port, seconds, rate, master, program)
    if not _has_spark():
        _run_without_spark(settings, dashboard_port)
        return
    from tradewind.pipelines.demo.demo_job import PIPELINE_FILE

    dashboard = partial(_open_dashboard, port=dashboard_port, pipeline=folder / PIPELINE_FILE)
    show = _run_in_terminal if is_terminal(sys.stdout) else _run_with_log
    show(settings, dashboard)


def _run_in_terminal(settings: DemoSettings, dashboard: Companion) -> None:
    """The demo as a picture that is drawn again and again."""
    from rich.console import Console
    from rich.live import Live

    from tradewind.pipelines.demo.demo_job import run_demo
    from tradewind.pipelines.demo.demo_server import Screen
    from tradewind.pipelines.demo.screen import picture

    console = Console(highlight=False)
    live = Live(console=console, auto_refresh=False, transient=True)

    def draw(moment: DemoMoment) -> None:
        live.start()
        live.update(picture(moment), refresh=True)

    def wait(text: str) -> None:
        live.start()
        live.update(text, refresh=True)

    def say(text: str) -> None:
        live.stop()
        console.print(visible_lines(text), markup=False, soft_wrap=True)

    try:
        run_demo(settings, Screen(say, draw, wait), dashboard)
    finally:
        live.stop()


def _run_with_log(settings: DemoSettings, dashboard: Companion) -> None:
    """The demo as lines, some of them every few seconds."""
    from tradewind.pipelines.demo.demo_job import run_demo
    from tradewind.pipelines.demo.demo_server import Screen
    from tradewind.pipelines.demo.screen import chart_lines, flow_line, table_line

    due = [0.0]

    def log(moment: DemoMoment) -> None:
        if time.monotonic() >= due[0]:
            due[0] = time.monotonic() + LINE_SECONDS
            for each in (flow_line(moment), table_line(moment), *chart_lines(moment.figures)):
                if each:
                    line(each)
            flush()

    def log_waiting(text: str) -> None:
        if time.monotonic() >= due[0]:
            due[0] = time.monotonic() + LINE_SECONDS
            _print_line(text)

    run_demo(settings, Screen(_print_line, log, log_waiting), dashboard)


def _print_line(text: str) -> None:
    line(text)
    flush()


def _has_spark() -> bool:
    """Whether the packages of the extra are installed."""
    try:
        return all(find_spec(name) is not None for name in ("pyspark", "pyarrow"))
    except ModuleNotFoundError:
        return False


def _run_without_spark(settings: DemoSettings, dashboard_port: int) -> None:
    """The demo of what every installation has."""
    from tradewind.pipelines.demo.order_demo import run_order_demo

    dashboard = partial(_open_dashboard, port=dashboard_port, pipeline=None)
    if is_terminal(sys.stdout):
        drawn = 0

        def draw(lines: list[str]) -> None:
            nonlocal drawn
            redraw_notes(lines, drawn)
            drawn = len(lines)

        run_order_demo(settings, _print_line, draw, dashboard)
        return
    due = [0.0]

    def log(lines: list[str]) -> None:
        if time.monotonic() >= due[0]:
            due[0] = time.monotonic() + LINE_SECONDS
            for each in lines:
                line(each)
            flush()

    run_order_demo(settings, _print_line, log, dashboard)


@contextmanager
def _open_dashboard(
    url: str, system_url: str, *, port: int, pipeline: Path | None
) -> Iterator[str]:
    """The dashboard of the demo's server, on this port or on a free one if that is taken."""
    from tradewind.client.core.connect_options import ConnectOptions
    from tradewind.dashboard.web.serving import DashboardSettings, running_dashboard

    def settings(port: int) -> DashboardSettings:
        return DashboardSettings(
            ConnectOptions(servers=url),
            port=port,
            pipelines=(str(pipeline),) if pipeline else (),
            system_options=ConnectOptions(servers=system_url),
        )

    with ExitStack() as opened:
        try:
            made = opened.enter_context(running_dashboard(settings(port)))
        except ServerStartError:
            made = opened.enter_context(running_dashboard(settings(0)))
        yield made.url
