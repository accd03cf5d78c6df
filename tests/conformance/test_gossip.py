"""Servers that INFO names, so that clients find another one: `connect_urls`.

On nats-server they are the members of a cluster, on Tradewind those of `known_servers`.
"""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import nats
import pytest
from helpers_client import Events, connected
from helpers_ops import fetch, reload
from websockets.sync.client import connect as connect_websocket

from harness import RawClient, ServerProcess, StartServer, wait_for
from ports import free_ports
from tradewind.client.events import Disconnected, Reconnected
from tradewind.interfaces import public_places

LOOPBACK = "127.0.0.1"
HELLO = b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n'


class Pair:
    """Two servers, of which the first knows the second when `join` was called."""

    def __init__(self, kind: str, start: StartServer, host: str, first: str = "") -> None:
        self.kind = kind
        self.is_official = kind == "official"
        self._start, self._host, self._settings = start, host, first
        self.client_ports, self.websocket_ports = free_ports(2), free_ports(2)
        self._route_ports = free_ports(2)
        (self.monitor_port,) = free_ports(1)
        self.first = self._run(0, knows=False)

    def _config(self, number: int, *, knows: bool) -> str:
        other = 1 - number
        known = f"known_servers: ['{LOOPBACK}:%d']\n" if knows and not self.is_official else ""
        lines = f'http: "{LOOPBACK}:{self.monitor_port}"\n{self._settings}' if not number else ""
        if self.is_official:
            lines += (
                f"server_name: s{number}\ncluster: {{ name: c, host: '{LOOPBACK}'\n"
                f"port: {self._route_ports[number]}, pool_size: -1\n"
                f"routes: ['nats://{LOOPBACK}:{self._route_ports[other]}'] }}\n"
            )
        elif knows:
            lines += known % self.client_ports[other]
        inner = known % self.websocket_ports[other] if known else ""
        lines += (
            f"websocket: {{ host: '{LOOPBACK}', port: {self.websocket_ports[number]}\n"
            f"no_tls: true\n{inner} }}\n"
        )
        return lines

    def _run(self, number: int, *, knows: bool) -> ServerProcess:
        config = self._config(number, knows=knows)
        port = str(self.client_ports[number])
        host = self._host if not number else LOOPBACK
        return self._start(config, "-a", host, "-p", port)

    def join(self) -> ServerProcess:
        """Start the second one, and have the first know it."""
        second = self._run(1, knows=False)
        if self.is_official:
            wait_for(lambda: len(self.info().get("connect_urls", ())) > 1, "the route")
        else:
            reload(self.first, self._config(0, knows=True))
        return second

    def info(self) -> dict[str, Any]:
        with RawClient(self.first.port) as client:
            return client.info

    def urls(self, *numbers: int) -> list[str]:
        return [f"{LOOPBACK}:{self.client_ports[number]}" for number in numbers]

    def websocket_urls(self, *numbers: int) -> list[str]:
        return [f"{LOOPBACK}:{self.websocket_ports[number]}" for number in numbers]


@pytest.fixture
def pair(kind: str, start: StartServer) -> Pair:
    return Pair(kind, start, LOOPBACK)


def test_server_alone_names_nobody(pair: Pair) -> None:
    assert "connect_urls" not in pair.info()
    assert not {"connect_urls", "ws_connect_urls"} & fetch(pair.first, "/varz").json().keys()


def test_first_and_second_info_name_all_servers(pair: Pair) -> None:
    pair.join()
    with RawClient(pair.first.port) as client:
        assert client.info["connect_urls"] == pair.urls(0, 1)
        client.connect()
        second = client.read_info()
        assert second["connect_info"] is True
        assert second["connect_urls"] == pair.urls(0, 1)


def test_clients_of_websocket_are_told_its_addresses(pair: Pair) -> None:
    pair.join()
    with connect_websocket(f"ws://{pair.websocket_urls(0)[0]}") as browser:
        info = json.loads(bytes(browser.recv())[5:])  # type: ignore[arg-type]
    assert info["connect_urls"] == pair.websocket_urls(0, 1)
    assert "ws_connect_urls" not in info


def test_monitoring_shows_all_servers(pair: Pair) -> None:
    pair.join()

    def shown() -> tuple[object, object]:
        page = fetch(pair.first, "/varz").json()
        return page.get("connect_urls"), page.get("ws_connect_urls")

    wanted = (pair.urls(0, 1), pair.websocket_urls(0, 1))
    wait_for(lambda: shown() == wanted, shown)


def test_new_server_is_told_to_clients_that_understand_it(pair: Pair) -> None:
    with RawClient(pair.first.port) as client, RawClient(pair.first.port) as old:
        client.connect()
        client.read_info()
        old.connect(protocol=0)
        pair.join()
        news = client.read_info()
        assert news["connect_urls"] == pair.urls(0, 1)
        assert "connect_info" not in news
        old.send("PING\r\n")
        assert old.read_line() in (b"PING", b"PONG")


def test_server_in_lame_duck_mode_does_not_name_itself(pair: Pair) -> None:
    pair.join()
    with (
        connect_websocket(f"ws://{pair.websocket_urls(0)[0]}") as browser,
        RawClient(pair.first.port) as client,
    ):
        client.connect()
        client.read_info()
        browser.recv()
        browser.send(HELLO)
        while b'"connect_info":true' not in bytes(browser.recv()):  # type: ignore[arg-type]
            pass
        pair.first.signal(signal.SIGUSR2)
        news = client.read_info()
        assert (news["ldm"], news["connect_urls"]) == (True, pair.urls(1))
        data = b""
        while b'"ldm":true' not in data:
            data = bytes(browser.recv())  # type: ignore[arg-type]
        told = json.loads(data[data.index(b"INFO ") + 5 :].partition(b"\r\n")[0])
        assert told["connect_urls"] == pair.websocket_urls(1)
    pair.first.signal(signal.SIGKILL)  # nats-server would wait for its grace period


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_wildcard_stands_for_the_addresses_that_others_reach(
    kind: str, start: StartServer, host: str
) -> None:
    pair = Pair(kind, start, host)
    pair.join()
    *own, other = pair.info()["connect_urls"]
    assert set(own) == set(public_places(host, pair.first.port, both_families=True))
    assert [other] == pair.urls(1)


def test_advertised_address_is_named_instead_of_the_bound_one(
    kind: str, start: StartServer
) -> None:
    pair = Pair(kind, start, LOOPBACK, "client_advertise: '[fd00::7]:4242'\n")
    pair.join()
    assert pair.info()["connect_urls"] == ["[fd00::7]:4242", *pair.urls(1)]


async def test_nats_py_finds_the_other_server_by_gossip_alone(pair: Pair) -> None:
    second = await asyncio.to_thread(pair.join)
    reconnected = asyncio.Event()

    async def on_reconnect() -> None:
        reconnected.set()

    async def ignore(error: Exception) -> None:
        """The first server is gone."""

    client = await nats.connect(
        pair.first.url, reconnect_time_wait=0.02, reconnected_cb=on_reconnect, error_cb=ignore
    )
    try:
        listening = await client.subscribe("news")
        await client.flush()
        pair.first.signal(signal.SIGKILL)
        await asyncio.wait_for(reconnected.wait(), 20)
        assert client.connected_url is not None
        assert client.connected_url.port == second.port
        await client.publish("news", b"here")
        assert (await listening.next_msg(20)).data == b"here"
    finally:
        await client.close()


async def test_client_finds_the_other_server_by_gossip_alone(pair: Pair) -> None:
    second = await asyncio.to_thread(pair.join)
    events = Events()
    async with connected(pair.first.url, on_event=events, reconnect_wait=0.02) as connection:
        pair.first.signal(signal.SIGKILL)
        await events.wait(Disconnected)
        await events.wait(Reconnected)
        assert connection.info.port == second.port
