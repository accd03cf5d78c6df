"""The server of the demo: clients need no login, its dashboard has one of the system account."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import tradewind.sync
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.client.errors import AuthorizationError, NoRespondersError
from tradewind.dashboard.data.workspace import Workspace
from tradewind.pipelines.demo.demo_server import (
    SERVER_NAME,
    DemoServer,
    DemoSettings,
    Screen,
    ensure_stream,
    start_server,
)
from tradewind.pipelines.demo.screen import starting_line

HEALTH = "$SYS.REQ.SERVER.PING.HEALTHZ"


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[DemoServer]:
    with ExitStack() as opened:
        yield start_server(
            DemoSettings(tmp_path, 0, 0), opened, Screen(lambda _: None, lambda _: None)
        )


def test_clients_need_no_login_and_see_nothing_of_the_server(
    demo: DemoServer, tmp_path: Path
) -> None:
    with tradewind.sync.connect(demo.url) as connection:
        assert connection.info.server_name == SERVER_NAME
        with pytest.raises(NoRespondersError):
            connection.request(HEALTH)
    # The password was in a file for a moment only, and is another one at each start.
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    with pytest.raises(AuthorizationError):
        tradewind.sync.connect(demo.url.replace("://", "://system:system@")).close()


def test_the_demo_itself_has_no_request_refused(demo: DemoServer) -> None:
    with tradewind.sync.connect(demo.url) as connection:
        for _ in range(2):
            ensure_stream(connection)
        assert connection.jetstream_manager().account_info().api.errors == 0


async def test_its_dashboard_sees_streams_and_the_whole_server(demo: DemoServer) -> None:
    options = ConnectOptions(servers=demo.system_url)
    workspace = Workspace(ConnectOptions(servers=demo.url), system_options=options)
    workspace.start()
    try:
        await workspace.wait_started()
        seen = await workspace.account()
        assert seen.value is not None
        assert seen.value.load.is_whole
        assert seen.value.usage is not None
        assert (await workspace.health()).value == {SERVER_NAME: "ok"}
        await workspace.survey.watched(5.0)
        assert workspace.survey.problem is None
        assert seen.value.usage.api.errors == 0
    finally:
        await workspace.close()


async def test_a_refused_system_login_leaves_the_figures_of_the_account(demo: DemoServer) -> None:
    options = ConnectOptions(servers=demo.url, user="system", password="wrong")
    workspace = Workspace(ConnectOptions(servers=demo.url), system_options=options)
    workspace.start()
    try:
        await workspace.wait_started()
        seen = await workspace.account()
        assert seen.value is not None
        assert not seen.value.load.is_whole
        assert seen.value.usage is not None
    finally:
        await workspace.close()


def test_waiting_for_spark_shows_seconds_and_orders() -> None:
    assert starting_line(3.4, 1234).endswith(
        "Spark is starting: 3 s; 1,234 orders published meanwhile"
    )
    assert len({starting_line(tenth / 10, 0)[0] for tenth in range(10)}) == 4
