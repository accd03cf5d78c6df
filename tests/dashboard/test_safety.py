"""Who is let in, what forged requests get, and what happens when the server goes away."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dashboard.conftest import Web, connected_dashboard
from harness import ServerProcess, wait_for
from ports import free_port
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.dashboard.web.serving import Dashboard, DashboardSettings, running_dashboard

CONFIG = """
listen: "127.0.0.1:-1"
jetstream {{ store_dir: "{folder}" }}
accounts {{
  A {{
    jetstream: enabled
    users: [
      {{user: all, password: "secret-all"}}
      {{user: reader, password: "secret-reader", permissions: {{
        publish: ["$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.>", "$SYS.REQ.ACCOUNT.PING.STATZ"]
        subscribe: ["_INBOX.>"]
      }}}}
    ]
  }}
}}
"""


@pytest.fixture(params=["official", "tradewind"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with two users, of whom one may do little."""
    path = tmp_path / "server.conf"
    path.write_text(CONFIG.format(folder=tmp_path / "store"))
    process = ServerProcess(request.param, ["-c", str(path)]).wait_ready()
    try:
        yield process
    finally:
        process.stop()


def visitor(dashboard: Dashboard) -> Web:
    return Web(dashboard.url)


def log_in(web: Web, user: str, password: str, status: int = 200) -> str:
    token = web.token("/login")
    data = {"csrf": token, "user": user, "password": password, "next": "/streams"}
    answer = web.client.post("/login", data=data, follow_redirects=True)
    assert answer.status_code == status
    return answer.text


def test_each_visitor_has_the_rights_of_their_own_login(guarded: ServerProcess) -> None:
    # What the dashboard itself could log in with is not what visitors get.
    options = ConnectOptions(servers=guarded.url, user="all", password="secret-all")
    settings = DashboardSettings(options, port=0, needs_login=True)
    with running_dashboard(settings) as dashboard:
        web = visitor(dashboard)
        assert web.get("/streams/X?a=1").headers["location"] == "/login?next=%2Fstreams%2FX%3Fa%3D1"
        assert "rejected this login" in log_in(web, "all", "wrong", 403)
        page = log_in(web, "all", "secret-all")
        assert "Logged in as all" in page
        web.send("/new-stream", name="MINE", subjects="mine")
        reader = visitor(dashboard)
        page = log_in(reader, "reader", "secret-reader")
        assert "MINE" in reader.text("/streams")
        # What this login may not do is said, and not an error of the page around it.
        overview = reader.page("/")
        assert 'data-problem="denied"' in overview
        assert "This login may not see or do this ($JS.API.INFO)." in overview
        denied = reader.send("/streams/MINE/purge-now", 403)
        assert "$JS.API.STREAM.PURGE.MINE" in denied
        seen = [web.page(path) for path in ("/", "/streams", "/streams/MINE")]
        assert not any("secret" in page for page in seen)
        assert not any("secret" in value for value in web.client.cookies.values())
        web.client.post("/logout", data={"csrf": web.token("/")})
        assert web.get("/").status_code == 303
        web.client.close()
        reader.client.close()


def test_forged_requests_change_nothing(web: Web) -> None:
    token = web.token()
    fields = {"name": "FORGED", "subjects": "forged"}
    other = Web(web.url)
    for sent, headers in (
        (fields, {}),
        (fields | {"csrf": "0" * 64}, {}),
        (fields | {"csrf": token}, {"origin": "http://evil.example"}),
        (fields | {"csrf": token}, {"sec-fetch-site": "cross-site"}),
        (fields | {"csrf": token}, {"host": "evil.example"}),
    ):
        answer = web.client.post("/new-stream", data=sent, headers=headers)
        assert answer.status_code in (403, 421)
    # The token of one browser is worth nothing in another.
    assert other.client.post("/new-stream", data=fields | {"csrf": token}).status_code == 403
    assert web.client.post("/new-stream", json=fields | {"csrf": token}).status_code == 400
    assert web.client.delete("/streams/X").status_code == 405
    assert "FORGED" not in web.text("/streams")
    other.client.close()


def test_every_answer_forbids_foreign_scripts_frames_and_caches(web: Web) -> None:
    for path in ("/", "/streams", "/nowhere", "/static/nowhere", "/static/style.css"):
        headers = web.get(path).headers
        policy = headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
    assert web.get("/").headers["cache-control"] == "no-store"
    cookie = httpx.get(web.url, trust_env=False).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie


def test_nothing_but_the_own_files_is_served_and_bodies_are_bounded(web: Web) -> None:
    for path in ("/static/../app.py", "/static/%2e%2e/layout.py", "/static/elements.py"):
        assert web.get(path).status_code in (404, 303)
    answer = web.client.post("/publish", data={"csrf": web.token(), "payload": "x" * (5 << 20)})
    assert answer.status_code == 400
    assert "4 MiB" in answer.text


def test_a_websocket_is_refused(dashboard: Dashboard) -> None:
    request = (
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Origin: http://evil.example\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", dashboard.port), 30) as link:
        link.sendall(request.encode())
        assert b" 403 " in link.recv(100)


def test_a_dashboard_that_only_reads_changes_nothing(server: ServerProcess) -> None:
    options = ConnectOptions(servers=server.url)
    with connected_dashboard(DashboardSettings(options, port=0, is_read_only=True)) as dashboard:
        web = visitor(dashboard)
        assert "read only" in web.text("/streams")
        assert "New stream" not in web.text("/streams")
        text = web.send("/new-stream", 403, name="NO", subjects="no")
        assert "--read-only" in text
        assert "NO" not in web.text("/streams").split()
        web.client.close()


@pytest.mark.parametrize("kind", ["official", "tradewind"])
def test_a_server_that_goes_away_comes_back_by_itself(kind: str, tmp_path: Path) -> None:
    flags = ["-js", "-sd", str(tmp_path), "-a", "127.0.0.1", "-p"]
    port = free_port()
    options = ConnectOptions(servers=f"nats://127.0.0.1:{port}")
    with running_dashboard(DashboardSettings(options, port=0)) as dashboard:
        web = visitor(dashboard)
        # It is there before its server is.
        assert "Connecting to" in web.text("/")
        first = ServerProcess(kind, [*flags, str(port)]).wait_ready()
        wait_for(lambda: "Connecting to" not in web.text("/"))
        web.send("/new-stream", name="KEPT", subjects="kept")
        first.stop()
        wait_for(lambda: "Reconnecting to" in web.text("/streams/KEPT", web.get("/").status_code))
        assert "unreachable" in web.send("/streams/KEPT/purge-now", 503)
        second = ServerProcess(kind, [*flags, str(port)]).wait_ready()
        wait_for(lambda: "Reconnecting to" not in web.text("/"))
        wait_for(lambda: "It stores what is published to kept" in web.text("/streams/KEPT"))
        web.client.close()
        second.stop()
