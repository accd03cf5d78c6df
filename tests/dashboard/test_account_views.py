"""Accounts, servers and their health: what a login of the system account sees, and what others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tradewind.sync
from dashboard.conftest import Web, connected_dashboard, text_of
from harness import ServerProcess, wait_for
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.client.errors import AuthorizationError
from tradewind.dashboard.web.serving import DashboardSettings

CONFIG = """
listen: "127.0.0.1:-1"
server_name: "the<b>server"
jetstream {{ store_dir: "{folder}" }}
system_account: SYS
accounts {{
  SYS {{ users: [{{user: sys, password: "secret-sys"}}] }}
  "A<script>" {{
    jetstream: {{max_streams: 7, max_file: 1GB}}
    users: [
      {{user: all, password: "secret-all"}}
      {{user: reader, password: "secret-reader", permissions: {{
        publish: ["$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.>", "$SYS.REQ.USER.INFO"]
        subscribe: ["_INBOX.>"]
      }}}}
    ]
  }}
}}
"""


@pytest.fixture(scope="module", params=["official", "tradewind"])
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    path = folder / "server.conf"
    path.write_text(CONFIG.format(folder=folder / "store"))
    process = ServerProcess(request.param, ["-c", str(path)]).wait_ready()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
def login(guarded: ServerProcess, request: pytest.FixtureRequest) -> Iterator[Web]:
    """A visitor of a dashboard with this login."""
    user = request.param
    options = ConnectOptions(servers=guarded.url, user=user, password=f"secret-{user}")
    with connected_dashboard(DashboardSettings(options, port=0)) as dashboard:
        web = Web(dashboard.url)
        with web.client:
            yield web


@pytest.mark.parametrize("login", ["sys"], indirect=True)
def test_the_system_account_sees_servers_and_all_accounts(login: Web) -> None:
    wait_for(lambda: "healthy" in login.text("/"))
    page = login.page("/")
    assert "all servers" in page
    assert "the<b>server" in text_of(page)
    assert "<b>server" not in page
    assert "not allowed for this login" not in page
    assert "JetStream is not enabled on this server or for this account." in page
    assert "notice bad" not in page
    accounts = login.page("/accounts")
    assert accounts.count("<script") == 1
    text = text_of(accounts)
    assert "A<script>" in text
    assert "SYS" in text
    assert "User sys" in text
    assert "not allowed" not in text
    one = login.page("/accounts?name=A%3Cscript%3E")
    assert one.count("<script") == 1
    assert "JetStream yes" in text_of(one)
    assert "that have a JWT" in login.text("/accounts?name=SYS")
    assert "No server knows this account." in login.text("/accounts?name=nobody", 404)


@pytest.mark.parametrize("login", ["sys"], indirect=True)
def test_the_system_account_hears_of_refused_logins(login: Web, guarded: ServerProcess) -> None:
    with pytest.raises(AuthorizationError):
        tradewind.sync.connect(guarded.url, user="<b>me", password="wrong")
    wait_for(lambda: "rejected the login of <b>me from 127.0.0.1" in login.text("/"))
    assert "<b>me" not in login.page("/")


@pytest.mark.parametrize("login", ["all"], indirect=True)
def test_an_account_sees_its_own_limits_and_that_the_rest_is_not_allowed(login: Web) -> None:
    overview = login.page("/")
    assert "The list of servers and their health: not allowed for this login." in overview
    assert 'data-problem="denied"' in overview
    text = login.text("/accounts")
    assert "A<script>" in text
    assert "SYS" not in text
    assert "Other accounts, and the limits of connections: not allowed for this login." in text
    assert "Streams 0 of 7" in text
    assert "On disk 0 B of" in text
    assert "User all" in text
    assert "everything in its account" in text


@pytest.mark.parametrize("login", ["reader"], indirect=True)
def test_what_a_login_may_not_do_is_said_and_is_no_error(
    login: Web, guarded: ServerProcess
) -> None:
    with tradewind.sync.connect(guarded.url, user="all", password="secret-all") as connection:
        connection.jetstream().kv.create("b").put("k", b"v")
        connection.jetstream().objects.create("o").put("x", b"v")
    # Its own load, the use of JetStream and the connections are forbidden to this user.
    paths = ("/", "/accounts", "/connections", "/streams", "/kv", "/objects", "/consumers")
    for path in paths:
        page = login.page(path)
        assert "Traceback" not in page
    assert "This login may not see or do this ($JS.API.INFO)" in login.text("/")
    wait_for(lambda: "This login may not see or do this" in login.text("/connections"))
    wait_for(lambda: "This login may not see or do this" in login.text("/accounts"))
    denied = "This login may not see or do this"
    assert denied in login.text("/buckets/b/watch")
    assert denied in login.text("/kv/b/k", 403)
    assert denied in login.text("/objects/o")
    assert denied in login.text("/objects/o/-/download?name=x", 403)
    assert denied in login.text("/streams/KV_b/backup/file", 403)
    assert denied in login.put("/objects/o/-/upload", b"1", 403, name="y").text
    for path, fields in (
        ("/new-stream", {"name": "X", "subjects": "x"}),
        ("/new-bucket", {"name": "X", "history": 1}),
        ("/new-store", {"name": "X"}),
    ):
        assert "This login may not see or do this" in login.send(path, 403, **fields)
