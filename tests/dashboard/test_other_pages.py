"""Services, schedules, templates, tables and the map of copies, on both servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tradewind
import tradewind.sync
from dashboard.conftest import Web, text_of
from harness import ServerProcess, wait_for
from ports import free_port
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.dashboard.web.serving import DashboardSettings, running_dashboard

if TYPE_CHECKING:
    from tradewind.sync import Connection


@contextmanager
def service_of(url: str) -> Iterator[None]:
    """A service with an endpoint that fails at some requests, in a thread of its own."""
    ready, done = threading.Event(), threading.Event()

    async def add(request: Any) -> None:
        if request.data == b"bad":
            await request.respond_error(422, "<b>not a number")
            return
        await request.respond(request.data)

    async def run() -> None:
        async with tradewind.connect(url) as connection:
            service = await connection.services.add("adder", "1.2.3")
            await service.add_endpoint("add", add, subject="math.add")
            await connection.flush()
            ready.set()
            await asyncio.to_thread(done.wait)
            await service.stop()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    try:
        assert ready.wait(60)
        yield
    finally:
        done.set()
        thread.join()


def test_services_show_requests_errors_and_times(
    web: Web, nats: Connection, server: ServerProcess
) -> None:
    assert "No service has answered." in web.text("/services")
    with service_of(server.url):
        for data in (b"1", b"2", b"bad"):
            nats.request("math.add", data, timeout=30)
        wait_for(lambda: "adder add math.add 1 3 1" in web.text("/services"))
        page = web.page("/services")
        assert "not a number" in page
        assert "<b>not" not in page
        assert 'href="/request?subject=math.add"' in page
        assert "1.2.3" in page


def test_schedules_are_listed_by_their_next_run_and_cancelled(web: Web, nats: Connection) -> None:
    manager, js = nats.jetstream_manager(), nats.jetstream()
    assert "There are no scheduled messages." in web.text("/schedules")
    manager.streams.add(
        name="JOBS", subjects=["jobs.>"], allow_msg_schedules=True, allow_direct=True
    )
    soon = datetime.now(UTC) + timedelta(hours=2)
    js.publish("jobs.plain", b"not a schedule")
    js.publish("jobs.yearly", b"x", schedule="0 0 0 1 1 *", schedule_target="jobs.run.year")
    js.publish("jobs.once", b"x", schedule=soon, schedule_target="jobs.run.once")
    js.publish("jobs.often", b"x", schedule="@every 1h", schedule_target="jobs.run.often")
    path = "/schedules?stream=JOBS"
    text = web.text(path)
    assert text.index("jobs.often") < text.index("jobs.once") < text.index("jobs.yearly")
    assert "@every 1h repeats" in text
    assert "jobs.plain" not in text
    text = web.text("/schedules/JOBS/cancel?subject=jobs.often")
    assert "removed and never runs again" in text
    assert "jobs.run.often" in text
    assert "was cancelled" in web.send("/schedules/JOBS/cancel", subject="jobs.often")
    assert "jobs.often" not in web.text(path)
    web.send("/schedules/JOBS/cancel", 404, subject="jobs.often")
    assert manager.streams.info("JOBS").state.messages == 3


def test_templates_are_made_tried_and_deleted(
    web: Web, nats: Connection, server: ServerProcess
) -> None:
    if server.kind == "official":
        assert "This server has no templates" in web.text("/templates", 404)
        return
    assert "There are no templates." in web.text("/templates")
    fields = {"name": "k8s", "match": "k8s.*.>", "stream": "k8s_{1}", "idle": "30 days"}
    refused = web.send("/new-template", 400, **{**fields, "stream": " "})
    assert "must not be empty" in refused
    assert "was saved" in web.send("/new-template", config='{"max_age": 60000000000}', **fields)
    text = web.text("/templates?subject=k8s.web.pods")
    assert "Template k8s would create k8s_web for k8s.web.>." in text
    assert "k8s.*.> k8s_{1} 0 100 30 days" in text
    assert 'value="30d"' in web.page("/templates/k8s")
    assert "There is no template 'other'" in web.text("/templates/other", 404)
    assert "create no streams from then on" in web.text("/templates/k8s/delete")
    assert "nothing was done" in web.send("/templates/k8s/delete", 400, typed="x")
    assert "was deleted" in web.send("/templates/k8s/delete", typed="k8s")
    assert list(nats.jetstream_manager().templates.list()) == []


def test_the_map_shows_chains_of_copies(web: Web, nats: Connection) -> None:
    assert "No stream is a mirror" in web.text("/map")
    streams = nats.jetstream_manager().streams
    streams.add(name="EU", subjects=["eu"])
    streams.add(name="US", subjects=["us"])
    streams.add(name="ALL", sources=[{"name": "EU"}, {"name": "US"}])
    streams.add(name="BACKUP", mirror={"name": "ALL"})
    streams.add(
        name="FAR",
        mirror={"name": "X", "external": {"api": "$JS.hub.API", "deliver": ""}},
    )
    nats.jetstream().publish("eu", b"")
    wait_for(lambda: "ALL BACKUP mirror 0" in text_of(web.page("/map")))
    page = web.page("/map")
    assert "in hub" in page
    assert page.count("<path") == 4
    assert "system account" in text_of(page)


def test_tables_have_a_page_of_their_own(web: Web) -> None:
    assert "No stream has a table." in web.text("/tables")


CONFIG = """
listen: "127.0.0.1:-1"
server_name: hub
accounts {{
  SYS {{ users: [{{user: sys, password: pwd}}] }}
  APP {{ users: [{{user: app, password: pwd}}] }}
}}
system_account: SYS
{leaf}
"""


@pytest.mark.parametrize("kind", ["official", "tradewind"])
def test_the_map_shows_leaf_connections_to_the_system_account(kind: str, tmp_path: Path) -> None:
    hub_file, leaf_file = tmp_path / "hub.conf", tmp_path / "leaf.conf"
    port = free_port()
    hub_file.write_text(CONFIG.format(leaf=f'leafnodes {{ listen: "127.0.0.1:{port}" }}'))
    hub = ServerProcess(kind, ["-c", str(hub_file)]).wait_ready()
    leaf = None
    try:
        remote = f"nats-leaf://app:pwd@127.0.0.1:{port}"
        leaf_file.write_text(
            'listen: "127.0.0.1:-1"\nserver_name: edge\n'
            f'leafnodes {{ remotes: [{{url: "{remote}"}}] }}\n'
        )
        leaf = ServerProcess(kind, ["-c", str(leaf_file)]).wait_ready()
        options = ConnectOptions(servers=hub.url, user="sys", password="pwd")
        with running_dashboard(DashboardSettings(options, port=0)) as dashboard:
            web = Web(dashboard.url)
            with web.client:
                wait_for(lambda: "edge hub APP 127.0.0.1" in web.text("/map"))
                assert "this server" in web.page("/map")
    finally:
        hub.stop()
        if leaf is not None:
            leaf.stop()


def test_visitors_switch_between_servers_and_forms_stay_with_theirs(
    server: ServerProcess, nats: Connection, tmp_path: Path
) -> None:
    flags = ["-js", "-sd", str(tmp_path), "-a", "127.0.0.1", "-p", "-1"]
    other = ServerProcess(server.kind, flags).wait_ready()
    try:
        with tradewind.sync.connect(other.url) as connection:
            connection.jetstream_manager().streams.add(name="SAME", subjects=["same"])
        nats.jetstream_manager().streams.add(name="SAME", subjects=["same"])
        nats.jetstream_manager().streams.add(name="HERE", subjects=["here"])
        contexts = {"staging": ConnectOptions(servers=other.url)}
        options = ConnectOptions(servers=server.url)
        with running_dashboard(DashboardSettings(options, port=0, contexts=contexts)) as made:
            web, second = Web(made.url), Web(made.url)
            with web.client, second.client:
                wait_for(lambda: "HERE" in web.text("/streams"))
                old = web.token()
                fields = {"csrf": old, "context": "staging"}
                assert web.client.post("/context", data=fields).status_code == 303
                wait_for(lambda: "SAME" in web.text("/streams"))
                assert "HERE" not in web.text("/streams")
                assert other.url in web.page("/")
                assert "HERE" in second.text("/streams")
                # A page of the first server that is still open cannot delete here.
                sent = {"csrf": old, "typed": "SAME"}
                answer = web.client.post("/streams/SAME/delete", data=sent)
                assert answer.status_code == 403
                assert "SAME" in web.text("/streams")
                bad = {"csrf": web.token(), "context": "production"}
                assert web.client.post("/context", data=bad).status_code == 400
                assert web.client.post("/context", data={"context": ""}).status_code == 403
                fields = {"csrf": web.token(), "context": ""}
                assert web.client.post("/context", data=fields).status_code == 303
                assert "HERE" in web.text("/streams")
        assert "SAME" in nats.jetstream_manager().streams.names().all()
    finally:
        other.stop()
        for name in ("SAME", "HERE"):
            nats.jetstream_manager().streams.delete(name)
