"""Pipelines in the dashboard: what is shown of them, who may start and stop them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dashboard.conftest import Web, connected_dashboard, delete_streams, text_of
from harness import wait_for
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.dashboard.data.runs import LaunchCommand
from tradewind.dashboard.web.serving import DashboardSettings, running_dashboard
from tradewind.pipelines.state.figure_types import LakeFigures
from tradewind.pipelines.state.status import (
    BatchStatus,
    PipelineStatus,
    QueryStatus,
    State,
    write_status,
)
from tradewind.pipelines.tables.stream_tables import put_table
from tradewind.pipelines.tables.table_spec import TABLE_KEY, TableSpec
from tradewind.pipelines.tables.table_status import (
    TableStatus,
    state_place,
    write_table_status,
)
from tradewind.spark.progress.stream_lag import StreamLag

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from harness import ServerProcess
    from tradewind.sync import Connection

HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
SALES = """
pipeline: sales
description: revenue by region
checkpoint: state
password: top-secret
user: shop
sources:
  orders:
    stream: ORDERS
    payload: {schema: {id: bigint}, dead_letter: {stream: DEAD, subject: dead.orders}}
steps:
  regions:
    sql: select id, split_part(subject, '.', 2) as region from orders
  totals:
    sql: select region, count(*) as orders from regions group by region
sinks:
  out: {from: regions, stream: OUT, subject: "out.{region}"}
  live: {from: totals, bucket: TOTALS, key: "{region}", mode: update, create: true}
"""
# Stands for `tradewind`: it writes what a runner writes, by the same functions.
PROGRAM = """
import signal, sys, threading, time, os
from pathlib import Path
from tradewind.pipelines.state.leases import locked
from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.state.status import PipelineStatus, write_status

pipeline = load_pipeline(Path(sys.argv[-1]))
if "check" in sys.argv:
    print(f"{pipeline.document.path}: right (file, SQL and columns)")
    sys.exit()
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
now = time.time_ns()
status = PipelineStatus(pipeline.name, str(pipeline.document.path), "running", os.getpid(),
                        os.uname().nodename, "local[2]", now, now)
with locked(pipeline.checkpoint):
    write_status(pipeline.checkpoint, status)
    stop.wait()
    status.state = "stopped"
    write_status(pipeline.checkpoint, status)
"""


@pytest.fixture(autouse=True)
def own_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines that others run on this machine are not seen."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(SALES)
    (tmp_path / "pipelines" / "values.yaml").write_text("replicas: 3\n")
    (tmp_path / "pipelines" / "wrong.yml").write_text("pipeline: wrong\nsorces: {}\n")
    return tmp_path / "pipelines"


def settings(server: ServerProcess, folder: Path, **more: object) -> DashboardSettings:
    program = folder.parent / "program.py"
    program.write_text(PROGRAM)
    return DashboardSettings(
        ConnectOptions(servers=server.url),
        port=0,
        pipelines=(str(folder),),
        launching=LaunchCommand((sys.executable, str(program))),
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture
def visitor(server: ServerProcess, folder: Path, nats: Connection) -> Iterator[Web]:
    with connected_dashboard(settings(server, folder)) as dashboard:
        web = Web(dashboard.url)
        with web.client:
            yield web
    delete_streams(nats, server)


def sales_status(state: State, error: str = "", **more: object) -> PipelineStatus:
    """What a runner of the file above tells, seen from its batch 7."""
    now = time.time_ns()
    done = now // 1_000_000
    recent = [
        BatchStatus(batch, done - 5000 * (7 - batch), 40, 350, int(batch == 6), 40 * batch)
        for batch in range(8)
    ]
    lag = StreamLag("ORDERS", 320, 332, 12, 3.5, 1200, 0)
    out = QueryStatus(
        *("out", "stream OUT", 8, 7, 320, 1320, 40.0, 350),
        bad_rows=1,
        lags=[lag],
        recent=recent,
    )
    live = QueryStatus("live", "bucket TOTALS", 8, 7, 320, 1320, 40.0, 420, lags=[lag])
    dead = QueryStatus("orders_dead", "dead letters to DEAD", rows=1)
    return PipelineStatus(
        "sales",
        "sales.yaml",
        state,
        os.getpid(),
        os.uname().nodename,
        "local[2]",
        now - 60_000_000_000,
        now,
        [dead, out, live],
        error,
        **more,  # type: ignore[arg-type]
    )


def plan_batches(checkpoint: Path, query: str, ends: list[int], committed: int) -> None:
    """The logs of Spark for a query of ORDERS."""
    offsets, commits = (checkpoint / "queries" / query / name for name in ("offsets", "commits"))
    offsets.mkdir(parents=True)
    commits.mkdir()
    before = 0
    for batch, end in enumerate(ends):
        millis = 1_700_000_000_000 + batch * 1000
        point = f'{{"ORDERS":{{"created_ns":1,"seq":{end},"after":{before}}}}}'
        (offsets / str(batch)).write_text(f'v1\n{{"batchTimestampMs":{millis}}}\n{point}')
        if batch < committed:
            (commits / str(batch)).write_text("v1\n{}")
        before = end


def link_to(web: Web, name: str) -> str:
    import re

    found = re.search(rf'href="(/pipelines/{name}\.[0-9a-f]{{10}})"', web.page("/pipelines"))
    assert found
    return found[1]


def test_the_table_has_all_files_that_are_pipelines(visitor: Web, folder: Path) -> None:
    text = visitor.text("/pipelines")
    assert "sales revenue by region never ran" in text
    assert "wrong" in text
    assert "key 'sorces' does not exist; did you mean 'sources'" in text
    assert "values" not in text
    write_status(folder / "state", sales_status("running"))
    wait_for(lambda: "sales revenue by region running 80" in visitor.text("/pipelines"))
    # A file that comes later is seen, and one that goes is not shown any more.
    (folder / "wrong.yml").unlink()
    (folder / "later.yaml").write_text(SALES.replace("pipeline: sales", "pipeline: later"))
    wait_for(lambda: "later" in visitor.text("/pipelines"))
    assert "sorces" not in visitor.text("/pipelines")
    assert "There is no such pipeline here." in visitor.text("/pipelines/no.0123456789", 404)


def test_one_pipeline_with_its_graph_lags_batches_and_dead_letters(
    visitor: Web, folder: Path, nats: Connection
) -> None:
    streams = nats.jetstream_manager().streams
    streams.add(name="DEAD", subjects=["dead.>"])
    nats.jetstream().publish("dead.orders", b"bad")
    write_status(folder / "state", sales_status("running"))
    plan_batches(folder / "state", "out", [40, 80, 120, 160, 200, 240, 280, 332], 7)
    page = visitor.page(link_to(visitor, "sales"))
    text = text_of(page)
    for name in ("orders", "regions", "totals", "out", "live", "bad rows of orders"):
        assert f">{name}</text>" in page, name
    assert "stream ORDERS, 12 behind" in text
    assert page.count("<path d=") == 5  # one curve for each use of a table
    assert "Rows per second" in text
    assert "Time of a batch" in text
    assert page.count('class="stroke line') >= 2
    assert "out ORDERS 320 of 332 12 3 seconds" in text
    assert "stream DEAD 1 1" in text
    assert "1 bad row in this run" in text
    # Batch 6 was read and written, batch 7 is on its way.
    assert "out 6 ORDERS 241 to 280 40 0.35 s 201 to 240 2023-11-14 22:13:26 UTC committed" in text
    assert "out 7 ORDERS 281 to 332" in text
    assert "UTC planned" in text
    assert "runs without a pause, records its progress in state" in text
    assert "top-secret" not in page


def test_the_last_error_is_told_in_words_and_a_killed_runner_is_seen(
    visitor: Web, folder: Path
) -> None:
    reason = "out: sequence 17: field id is missing"
    write_status(folder / "state", sales_status("failed", reason))
    path = link_to(visitor, "sales")
    assert reason in visitor.text(path)
    killed = sales_status("running")
    killed.pid = 999_999_999
    write_status(folder / "state", killed)
    wait_for(lambda: "The process 999999999 that ran it is gone." in visitor.text(path))
    assert "Start" in visitor.text(path)
    (folder / "state" / "status.json").write_text("{")
    wait_for(lambda: "not a valid status file" in visitor.text(path))


def test_start_check_and_stop(visitor: Web, folder: Path) -> None:
    path = link_to(visitor, "sales")
    assert "It is starting as process" in visitor.send(f"{path}/start")
    wait_for(lambda: ">running</span>" in visitor.page(path))
    assert "already running" in visitor.send(f"{path}/start", 502)
    assert "It is being checked" in visitor.send(f"{path}/check")
    wait_for(lambda: "right (file, SQL and columns)" in visitor.text(path))
    assert "asked to stop" in visitor.send(f"{path}/stop")
    wait_for(lambda: ">stopped</span>" in visitor.page(path))
    assert "is not running" in visitor.send(f"{path}/stop", 502)
    assert "Only a run that was started here" in visitor.send(f"{path}/kill", 502)
    # One that is a part of this process is not ended by it.
    write_status(folder / "state", sales_status("running"))
    assert "part of this process" in visitor.send(f"{path}/stop", 502)
    wait_for(lambda: "It runs inside this program." in visitor.text(path))
    assert "<button>Stop" not in visitor.page(path)


def test_nothing_runs_for_those_who_may_not(server: ServerProcess, folder: Path) -> None:
    for more, text in (
        ({"is_read_only": True}, "with --read-only"),
        ({"needs_login": True}, "a NATS login does not give"),
    ):
        with running_dashboard(settings(server, folder, **more)) as dashboard:
            web = Web(dashboard.url)
            if "needs_login" in more:
                fields = {"csrf": web.token("/login"), "token": "any", "next": "/"}
                web.client.post("/login", data=fields)
            path = link_to(web, "sales")
            page = web.page(path)
            assert text in text_of(page)
            assert "<button>Start" not in page
            for part in ("start", "stop", "kill", "check"):
                web.send(f"{path}/{part}", 403)
            assert not (folder / "state").exists()
            web.client.close()


def test_the_flag_lets_logins_run_pipelines(server: ServerProcess, folder: Path) -> None:
    more = settings(server, folder, needs_login=True, allow_run=True)
    with running_dashboard(more) as dashboard:
        web = Web(dashboard.url)
        fields = {"csrf": web.token("/login"), "token": "any", "next": "/"}
        web.client.post("/login", data=fields)
        path = link_to(web, "sales")
        web.send(f"{path}/start")
        wait_for(lambda: ">running</span>" in web.page(path))
        web.client.close()
    # It has ended with the dashboard, between two batches.
    assert '"stopped"' in (folder / "state" / "status.json").read_text()


def test_hostile_names_and_errors_are_shown_and_never_run(
    browser: Browser, visitor: Web, folder: Path
) -> None:
    text = SALES.replace("revenue by region", f"'{HOSTILE.replace(chr(39), chr(39) * 2)}'")
    (folder / "sales.yaml").write_text(text)
    (folder / "wrong.yml").write_text(f"pipeline: wrong\n'{HOSTILE[:30]}': 1\n")
    status = sales_status("failed", HOSTILE)
    for query in status.queries:
        query.target = HOSTILE
        query.lags = [StreamLag(HOSTILE, 1, 2, 1)]
        query.watermark = HOSTILE
    write_status(folder / "state", status)
    context = browser.new_context(viewport={"width": 390, "height": 844}, base_url=visitor.url)
    page = context.new_page()
    for path in ("/pipelines", link_to(visitor, "sales"), link_to(visitor, "wrong")):
        page.goto(path)
        assert "Tradewind" in page.title(), path
        assert page.locator("img:not(.sign)").count() == 0, path
        assert page.locator("script:not([src])").count() == 0, path
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    context.close()


def test_tables_of_streams_are_shown_with_their_figures(
    visitor: Web, server: ServerProcess, folder: Path, nats: Connection, tmp_path: Path
) -> None:
    assert "Tables of streams" not in visitor.text("/pipelines")
    manager = nats.jetstream_manager()
    spec = TableSpec(str(tmp_path / "lake"), format="delta")
    manager.streams.add(name="ORDERS", subjects=["orders.>"])
    put_table(manager, "ORDERS", spec)
    wrong = {TABLE_KEY: '{"to": 7}'}
    manager.streams.add(name="WRONG", subjects=["wrong"], metadata=wrong)
    wait_for(lambda: "ORDERS delta in" in visitor.text("/pipelines"))
    assert "no status here" in visitor.text("/pipelines")
    assert "metadata tradewind.table" in visitor.text("/pipelines")
    now = time.time_ns()
    figures = LakeFigures(1234, 5, 6000, "7", now - 90_000_000_000)
    status = TableStatus(
        *("ORDERS", spec.to, "delta", "failed", os.getpid(), os.uname().nodename, now, now),
        figures=figures,
        behind_messages=42,
        rescued=3,
        error=HOSTILE,
    )
    write_table_status(state_place("ORDERS", spec), status)
    wait_for(lambda: "failed 1,234 5" in visitor.text("/pipelines"))
    text = visitor.text("/pipelines")
    assert "ago 42 3" in text
    assert HOSTILE not in visitor.page("/pipelines")
    with running_dashboard(settings(server, folder, needs_login=True)) as dashboard:
        guarded = Web(dashboard.url)
        with guarded.client:
            fields = {"csrf": guarded.token("/login"), "token": "any", "next": "/"}
            guarded.client.post("/login", data=fields)
            wait_for(lambda: "no status here" in guarded.text("/pipelines"))
