"""The monitoring listener: paths, headers, bounds, and life inside somebody else's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop
from monitor_fakes import FakeBroker
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from certificates import Authority
from ports import free_port
from tradewind import own_addresses
from tradewind.errors import ServerStartError
from tradewind.monitor import http
from tradewind.monitor.facade import MonitorView
from tradewind.monitor.http import HEADER_BYTES_MAX, MonitorServer
from tradewind.monitor.pages import Guest, normal_base_path


@pytest.fixture
def view() -> MonitorView:
    broker = FakeBroker()
    broker.add_session(7, name="probe")
    return MonitorView(broker)


@contextlib.asynccontextmanager
async def visitor(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A raw connection, closed however it ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.fixture
async def client(view: MonitorView) -> AsyncIterator[httpx.AsyncClient]:
    server = MonitorServer(view, "", -1)
    port = await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        yield client
    await server.stop()


PAGES = [
    "/varz",
    "/connz",
    "/subsz",
    "/subscriptionsz",
    "/accountz",
    "/accstatz",
    "/routez",
    "/leafz",
    "/gatewayz",
    "/jsz",
    "/healthz",
    "/ipqueuesz",
]


@pytest.mark.parametrize("path", PAGES)
async def test_pages_are_json_that_any_site_may_read(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["access-control-allow-origin"] == "*"
    assert isinstance(response.json(), dict)
    assert "server" not in response.headers
    assert "date" in response.headers


@pytest.mark.parametrize("path", ["/nope", "/varz/", "/varz/x", "/varz%20", "/expvarz"])
async def test_unknown_paths_are_plain_404(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(path)
    assert (response.status_code, response.text) == (404, "404 page not found\n")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/connz?sort=xx", 400, "invalid sorting option: xx"),
        ("/connz?state=foo", 400, "Error decoding state for foo"),
        ("/accountz?acc=ZZ", 400, "Account ZZ does not exist"),
        ("/subsz?test=foo.*", 400, "invalid test subject, must be valid publish subject: foo.*"),
        ("/raftz", 404, "No Raft nodes registered"),
    ],
)
async def test_wrong_questions_are_answered_in_plain_text(
    client: httpx.AsyncClient, path: str, status: int, text: str
) -> None:
    response = await client.get(path)
    assert (response.status_code, response.text) == (status, text)
    assert response.headers["content-type"] == "text/plain; charset=utf-8"


async def test_a_wrong_question_cannot_inject_markup(client: httpx.AsyncClient) -> None:
    response = await client.get("/connz", params={"sort": "<script>\r\nX: y"})
    assert response.status_code == 400
    assert response.headers["content-type"].startswith("text/plain")
    assert "\n" not in response.text


async def test_parameters_reach_the_page(client: httpx.AsyncClient) -> None:
    page = (await client.get("/connz?cid=7&limit=5&auth=1&subs=1")).json()
    assert (page["limit"], page["connections"][0]["account"]) == (1, "A")
    assert (await client.get("/connz?cid=8")).json()["connections"] == []
    unused = (await client.get("/accstatz?unused=1")).json()["account_statz"]
    assert len(unused) == 3


async def test_a_callback_is_ignored_as_by_the_official_server(client: httpx.AsyncClient) -> None:
    response = await client.get("/healthz?callback=run")
    assert response.text == '{"status":"ok"}'
    assert response.headers["content-type"] == "application/json"


async def test_any_method_is_answered(client: httpx.AsyncClient) -> None:
    assert (await client.post("/varz", content=b"x" * 100_000)).status_code == 200
    assert (await client.options("/varz")).headers["access-control-allow-origin"] == "*"
    head = await client.head("/varz")
    assert (head.status_code, head.content) == (200, b"")


async def test_requests_are_counted_by_page(client: httpx.AsyncClient) -> None:
    for path in ("/", "/connz", "/connz?sort=xx", "/nope", "/raftz", "/subscriptionsz"):
        await client.get(path)
    stats = (await client.get("/varz")).json()["http_req_stats"]
    assert stats == {"/": 1, "/connz": 2, "/subsz": 1, "/varz": 1}
    assert list(stats) == sorted(stats)


async def test_the_index_links_to_pages_that_exist(client: httpx.AsyncClient) -> None:
    response = await client.get("/")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    links = [part.split('"')[0] for part in response.text.split('href="')[1:]]
    assert len(links) > 8
    for link in links:
        assert (await client.get(str(response.url.join(link)))).status_code == 200


async def test_metrics_have_their_content_type(client: httpx.AsyncClient) -> None:
    response = await client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "tradewind_connections 1\n" in response.text


async def test_a_page_that_fails_says_nothing_about_why(
    client: httpx.AsyncClient, view: MonitorView
) -> None:
    faults: list[str] = []
    view.broker.faults.report = faults.append
    view.broker.accounts = None  # type: ignore[misc, assignment]
    response = await client.get("/accountz")
    assert (response.status_code, response.text) == (500, "internal error, see the server's log")
    assert faults[0].startswith("Internal error in page /accountz: AttributeError(")
    assert view.broker.faults.total == 1
    assert (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    ("text", "path"),
    [("", ""), ("/", ""), ("nats", "/nats"), ("/nats/", "/nats"), ("/a/b", "/a/b")],
)
async def test_everything_moves_below_a_base_path(view: MonitorView, text: str, path: str) -> None:
    assert normal_base_path(text) == path
    server = MonitorServer(view, "127.0.0.1", -1, base_path=text)
    port = await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        assert (await client.get(f"{path}/varz")).status_code == 200
        index = await client.get(path or "/")
        first = index.text.split('href="')[1].split('"')[0]
        assert (await client.get(str(index.url.join(first)))).status_code == 200
        if path:
            assert (await client.get("/varz")).status_code == 404
            assert (await client.get("/")).status_code == 404
    await server.stop()


async def test_another_package_can_add_an_application_of_its_own(view: MonitorView) -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("secret")

    guests = (Guest("Mine <b>", "/mine", PlainTextResponse("hello")), Guest("F", "/fails", failing))
    server = MonitorServer(view, "", -1, base_path="/ops", guests=guests)
    port = await server.start()
    base = f"http://127.0.0.1:{port}/ops"
    async with httpx.AsyncClient(base_url=base, follow_redirects=True) as client:
        assert (await client.get("/mine")).text == "hello"
        assert (await client.get("/mine/deeper")).text == "hello"
        assert (await client.get("/varz")).status_code == 200
        index = (await client.get(base)).text
        assert 'href="./ops/mine">Mine &lt;b&gt;<' in index
        failed = await client.get("/fails")
        assert (failed.status_code, "secret" in failed.text) == (500, False)
        assert (await client.get("/varz")).status_code == 200
    await server.stop()


@pytest.mark.parametrize("path", ["", "mine", "/", "/a/b", "/varz", "/subscriptionsz", "/a b"])
def test_an_added_application_cannot_take_a_path_of_ours(path: str) -> None:
    with pytest.raises(ValueError, match="path of a monitoring application"):
        Guest("mine", path, PlainTextResponse("hello"))


async def test_tls_uses_the_context_it_is_given(view: MonitorView, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert_file, certificate.key_file)
    server = MonitorServer(view, "127.0.0.1", -1, context)
    port = await server.start()
    async with httpx.AsyncClient(verify=authority.client_context()) as client:
        assert (await client.get(f"https://127.0.0.1:{port}/healthz")).text == '{"status":"ok"}'
    await server.stop()


async def test_without_a_host_only_loopback_is_bound(view: MonitorView) -> None:
    server = MonitorServer(view, "", 0)
    await server.start()
    assert server._server is not None
    (listener,) = server._server.servers
    assert [s.getsockname()[0] for s in listener.sockets] == ["127.0.0.1"]
    await server.stop()


async def test_an_address_in_use_is_a_start_error(view: MonitorView) -> None:
    port = free_port()
    first = MonitorServer(view, "127.0.0.1", port)
    assert await first.start() == port
    with pytest.raises(ServerStartError, match=f"127.0.0.1:{port}.*in use"):
        await MonitorServer(view, "127.0.0.1", port).start()
    await first.stop()
    again = MonitorServer(view, "127.0.0.1", port)
    assert await again.start() == port
    await again.stop()


async def test_a_host_that_is_not_ours_is_a_start_error(view: MonitorView) -> None:
    with pytest.raises(ServerStartError, match="can't listen to the monitor port: listen tcp"):
        await MonitorServer(view, "192.0.2.1", 1).start()


async def test_stopping_twice_or_never_started_is_harmless(view: MonitorView) -> None:
    server = MonitorServer(view, "", -1)
    await server.stop()
    await server.start()
    await server.stop()
    await server.stop()


async def test_signal_handlers_stay_the_hosts(view: MonitorView) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    server = MonitorServer(view, "", -1)
    await server.start()
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before
    await server.stop()


async def test_a_stop_does_not_wait_for_a_silent_visitor(view: MonitorView) -> None:
    server = MonitorServer(view, "", -1)
    port = await server.start()
    async with visitor(port) as (reader, writer):
        writer.write(b"GET /varz HT")
        await writer.drain()
        await asyncio.wait_for(server.stop(), 10)
        assert await reader.read() == b""


async def raw_answer(port: int, request: bytes) -> bytes:
    async with visitor(port) as (reader, writer):
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 10)


async def test_huge_headers_are_refused(view: MonitorView) -> None:
    server = MonitorServer(view, "", -1)
    port = await server.start()
    padding = b"a" * (2 * HEADER_BYTES_MAX)
    answer = await raw_answer(port, b"GET /varz HTTP/1.1\r\nHost: x\r\nX: " + padding)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert (await raw_answer(port, b"\x16\x03\x01 garbage\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
    await server.stop()


async def test_a_visitor_that_drips_is_sent_away(
    view: MonitorView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http._BoundedProtocol, "request_seconds", 0.05)
    server = MonitorServer(view, "", -1)
    port = await server.start()
    async with visitor(port) as (reader, writer):
        writer.write(b"GET /va")
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(_drip(reader, writer), 10)
    await server.stop()


async def _drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One byte after the other until the connection is gone."""
    while not reader.at_eof():
        writer.write(b"a")
        await writer.drain()
        try:
            await asyncio.wait_for(reader.read(1), 0.01)
        except TimeoutError:
            continue
    raise ConnectionError


async def test_too_many_visitors_get_503(
    view: MonitorView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 2)
    server = MonitorServer(view, "", -1)
    port = await server.start()
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with visitor(port), visitor(port):
        assert (await raw_answer(port, request)).startswith(b"HTTP/1.1 503 ")
    assert (await raw_answer(port, request)).startswith(b"HTTP/1.1 200 ")
    await server.stop()


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_it_runs_on_either_event_loop(factory: Callable[[], Any]) -> None:
    async def run() -> str:
        server = MonitorServer(MonitorView(FakeBroker()), "", -1)
        port = await server.start()
        async with httpx.AsyncClient() as client:
            text = (await client.get(f"http://127.0.0.1:{port}/healthz")).text
        await server.stop()
        return text

    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(run()) == '{"status":"ok"}'


async def test_all_addresses_of_a_name_are_served(
    view: MonitorView, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both_loopbacks(_host: str, port: int, **_more: object) -> list[Any]:
        kind = socket.SOCK_STREAM
        ipv6 = (socket.AF_INET6, kind, 6, "", ("::1", port, 0, 0))
        return [ipv6, (socket.AF_INET, kind, 6, "", ("127.0.0.1", port))]

    with monkeypatch.context() as patch:
        patch.setattr(own_addresses.socket, "getaddrinfo", both_loopbacks)
        server = MonitorServer(view, "monitor.example", -1)
        port = await server.start()
    assert server.urls == [f"http://[::1]:{port}", f"http://127.0.0.1:{port}"]
    async with httpx.AsyncClient() as client:
        for url in server.urls:
            assert (await client.get(f"{url}/healthz")).status_code == 200
    await server.stop()
