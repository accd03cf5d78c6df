"""What a server drops is freed although nothing that is old is ever searched for garbage.

The collector of Python is off here, and all that exists counts as old before it is dropped.
Whatever a full collection still finds afterwards would stay in memory for ever. `test_cycles` runs
these tests in a process of their own.
"""

from __future__ import annotations

import gc
import json
import re
import socket
import ssl
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tradewind
from certificates import Authority
from harness import RawClient, wait_for
from tradewind.errors import TradewindError
from tradewind.server.embedded import Server, ServerThread
from tradewind.server.lifecycle.garbage import Collector
from websocket_frames import BINARY, KEY, frame

ROUNDS = 20
# Objects of the last round may be in use until just now; cycles in each round have more than this.
LEFT_MAX = 2 * ROUNDS - 1
CONFIG = """
host: 127.0.0.1
port: -1
http: "127.0.0.1:-1"
jetstream {{ store_dir: "{folder}/js" }}
websocket {{ port: -1, host: 127.0.0.1, no_tls: true }}
tls {{ cert_file: "{cert}", key_file: "{key}" }}
allow_non_tls: true
leafnodes {{ host: 127.0.0.1, port: -1 }}
accounts {{
  A {{ users: [{{user: a, password: a}}], jetstream: enabled }}
  SYS {{ users: [{{user: s, password: s}}] }}{more}
}}
system_account: SYS
ping_interval: "{seconds}s"
"""
PAGES = (
    "varz",
    "connz?subs=detail&auth=1",
    "connz?state=closed",
    "jsz?consumers=1&config=1&accounts=1",
    "accountz?acc=A",
    "accstatz?unused=1",
    "subsz?subs=1",
    "leafz?subs=1",
    "routez",
    "gatewayz",
    "metrics",
    "healthz",
    "nowhere",
    "connz?sort=nothing",
)
SYSTEM_REQUESTS = ("VARZ", "CONNZ", "JSZ", "STATSZ", "SUBSZ", "ACCOUNTZ", "LEAFZ", "HEALTHZ")


class Peer:
    """The server, its configuration, and a client that asks the API."""

    def __init__(self, server: ServerThread, folder: Path, config: Callable[..., str]) -> None:
        self.server = server
        self.app: Server = server._server
        self.path = folder / "server.conf"
        self.config = config
        self.client = self.connect()
        self.client.send("SUB r 1\r\n")

    def connect(self, user: str = "a") -> RawClient:
        return RawClient(self.server.port).connect(user=user, **{"pass": user})

    def api(self, endpoint: str, body: Any = None) -> dict[str, Any]:
        text = b"" if body is None else json.dumps(body).encode()
        request = f"PUB $JS.API.{endpoint} r {len(text)}\r\n".encode() + text + b"\r\n"
        self.client.send(request)
        answer: dict[str, Any] = json.loads(self.client.read_message()[2])
        return answer

    def done(self, endpoint: str, body: Any = None) -> dict[str, Any]:
        answer = self.api(endpoint, body)
        assert "error" not in answer, answer
        return answer

    def publish(self, subject: str) -> None:
        self.client.send(f"PUB {subject} r 1\r\nx\r\n")
        self.client.read_message()


@contextmanager
def collector_of(server: ServerThread) -> Iterator[Collector]:
    """The one that the process of a server has; what is dropped is looked at soon."""
    collector = Collector(server._loop, server._server.broker.watch, first_seconds=0.01)
    server._server.broker.let_go = collector.let_go
    yield collector
    server._loop.call_soon_threadsafe(collector.stop)


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    certificate = Authority(tmp_path).server()

    def config(seconds: int = 120, more: str = "") -> str:
        return CONFIG.format(
            folder=tmp_path,
            cert=certificate.cert_file,
            key=certificate.key_file,
            seconds=seconds,
            more=more,
        )

    (tmp_path / "server.conf").write_text(config())
    with tradewind.serve(str(tmp_path / "server.conf")) as server:
        peer = Peer(server, tmp_path, config)
        yield peer
        peer.client.close()


def clients(peer: Peer) -> None:
    client = peer.connect()
    client.send("SUB a.* 1\r\nSUB a.b q 2\r\nUNSUB 1\r\nPUB c 1\r\nx\r\n")
    client.ping()
    client.close()
    for line in ('CONNECT {"user":"a","pass":"wrong"}', 'CONNECT {"user', "GET / HTTP/1.1"):
        with RawClient(peer.server.port) as stranger:
            stranger.send(f"{line}\r\nPING\r\n")
            stranger.read_to_end()


def encrypted_clients(peer: Peer) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with RawClient(peer.server.port) as client:
        client.socket = context.wrap_socket(client.socket)
        client.connect(user="a", **{"pass": "a"})
    with RawClient(peer.server.port) as client:
        client.send(b"\x16\x03\x01\x00\x05hello")
        client.read_to_end()


def websockets(peer: Peer) -> None:
    port = int(peer.server.websocket_url.rsplit(":", 1)[1])
    upgrade = (
        f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {KEY}\r\n"
        "Sec-WebSocket-Version: 13\r\n"
    )
    for headers in (upgrade, ""):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(f"GET / HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())
            client.recv(4096)
            if headers:
                login = b'CONNECT {"user":"a","pass":"a"}\r\nPING\r\n'
                client.sendall(frame(BINARY, login))
                client.recv(4096)


def leaves(peer: Peer) -> None:
    assert peer.app.leafnodes is not None
    for password in ("a", "wrong"):
        login = {"user": "a", "pass": password, "name": "leaf", "server_id": "LEAF"}
        with RawClient(peer.app.leafnodes.port) as leaf:
            leaf.send(f"CONNECT {json.dumps(login)}\r\nLS+ foo\r\nPING\r\n")
            while leaf.read_line() not in (b"PONG", b""):
                pass


def pages(peer: Peer) -> None:
    for page in PAGES:
        try:
            with urllib.request.urlopen(f"{peer.server.monitor_url}/{page}") as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            error.close()


def system_requests(peer: Peer) -> None:
    with peer.connect("s") as client:
        client.send("SUB r 1\r\n")
        for request in SYSTEM_REQUESTS:
            client.send(f"PUB $SYS.REQ.SERVER.PING.{request} r 0\r\n\r\n")
            client.read_message()


def failed_requests(peer: Peer) -> None:
    for body in (b"{", b"[]", b'{"name":1}', b'{"name":"T","subjects":["t.>"],"storage":"no"}'):
        peer.client.send(b"PUB $JS.API.STREAM.CREATE.T r %d\r\n" % len(body) + body + b"\r\n")
        peer.client.read_message()
    for endpoint in ("STREAM.INFO.T", "STREAM.DELETE.T", "CONSUMER.INFO.T.C", "NOTHING"):
        peer.client.send(f"PUB $JS.API.{endpoint} r 0\r\n\r\nPING\r\n")
        while peer.client.read_line() != b"PONG":
            pass


def reloads(peer: Peer) -> None:
    more = "\n  B { users: [{user: b, password: b}] }"
    for text in (peer.config(60, more), peer.config(90), "no { configuration", peer.config()):
        peer.path.write_text(text)
        try:
            peer.server.reload()
        except TradewindError:
            assert text.startswith("no")


def streams(peer: Peer) -> Iterator[None]:
    for storage in ("file", "memory"):
        config = {"name": "S", "subjects": ["s.>"], "storage": storage, "allow_direct": True}
        peer.done("STREAM.CREATE.S", {**config, "retention": "interest"})
        for name, more in (
            ("PULL", {"durable_name": "PULL", "ack_policy": "explicit"}),
            ("PUSH", {"durable_name": "PUSH", "deliver_subject": "there", "flow_control": True}),
            ("SHORT", {"inactive_threshold": 60_000_000_000}),
        ):
            consumer = {"stream_name": "S", "config": {"name": name, **more}}
            consumer["config"].setdefault("idle_heartbeat", 0)
            if name == "PUSH":
                consumer["config"]["idle_heartbeat"] = 5_000_000_000
            peer.done(f"CONSUMER.CREATE.S.{name}", consumer)
        peer.publish("s.1")
        peer.client.send("PUB $JS.API.CONSUMER.MSG.NEXT.S.PULL r 1\r\n1\r\n")
        peer.client.read_message()
        peer.done("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S"}, "storage": storage})
        source = {"name": "Q", "sources": [{"name": "M"}], "storage": storage}
        peer.done("STREAM.CREATE.Q", source)
        yield
        peer.done("STREAM.UPDATE.S", {**config, "retention": "interest", "max_msgs": 10})
        peer.done("CONSUMER.DELETE.S.PULL")
        for name in "MSQ":
            peer.done(f"STREAM.DELETE.{name}")


def transfers(peer: Peer) -> None:
    config = {"name": "B", "subjects": ["b.>"], "storage": "file"}
    peer.done("STREAM.CREATE.B", config)
    peer.publish("b.1")
    with peer.connect() as client:
        client.send("SUB own 1\r\nSUB d 2\r\n")
        body = b'{"deliver_subject":"d"}'
        client.send(b"PUB $JS.API.STREAM.SNAPSHOT.B own %d\r\n" % len(body) + body + b"\r\n")
        while client.read_message()[2]:
            pass
    peer.done("STREAM.DELETE.B")
    answer = peer.done("STREAM.RESTORE.B", {"config": config, "state": {}})
    for part in ("damaged", ""):
        peer.client.send(f"PUB {answer['deliver_subject']} r {len(part)}\r\n{part}\r\n")
        peer.client.read_message()


def leftovers(earlier: set[int]) -> Counter[str]:
    """Types of the objects in what only a full collection finds, and their number, without those
    that were there before: other tests may have left them.
    """
    gc.unfreeze()
    gc.garbage.clear()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
    finally:
        gc.set_debug(0)
    found = Counter(
        f"{type(each).__module__}.{type(each).__qualname__}"
        for each in gc.garbage
        if id(each) not in earlier
    )
    gc.garbage.clear()
    gc.collect()
    return found


@contextmanager
def without_collections() -> Iterator[set[int]]:
    """The collector is off; gives the numbers of all objects that are there.

    Those that a server of an earlier test has frozen are among them: else they would be taken for
    new ones if they are dropped meanwhile, by threads that close idle connections for example.
    """
    gc.unfreeze()
    gc.collect()
    gc.disable()
    try:
        yield {id(each) for each in gc.get_objects()}
    finally:
        gc.unfreeze()
        gc.enable()


@pytest.mark.parametrize(
    "deed",
    [clients, encrypted_clients, websockets, leaves, pages, system_requests],
    ids=lambda deed: deed.__name__,
)
def test_what_ends_leaves_no_cycles(peer: Peer, deed: Callable[[Peer], None]) -> None:
    deed(peer)  # what is made once
    with without_collections() as earlier:
        for _ in range(ROUNDS):
            deed(peer)
        found = leftovers(earlier)
    assert sum(found.values()) <= LEFT_MAX, found.most_common(20)


@pytest.mark.parametrize(
    "deed", [failed_requests, reloads, transfers], ids=lambda deed: deed.__name__
)
def test_errors_leave_nothing_but_young_cycles(peer: Peer, deed: Callable[[Peer], None]) -> None:
    with collector_of(peer.server) as collector, without_collections() as earlier:
        deed(peer)
        gc.collect()
        gc.freeze()
        for _ in range(ROUNDS):
            deed(peer)
        wait_for(lambda: not collector.waiting_count)
        gc.collect(1)
        found = leftovers(earlier)
    assert sum(found.values()) <= LEFT_MAX, found.most_common(20)


def test_deleted_streams_and_consumers_are_freed_however_old_they_are(peer: Peer) -> None:
    with collector_of(peer.server) as collector, without_collections() as earlier:
        for _ in range(ROUNDS // 4):
            for _ in streams(peer):
                gc.freeze()
        wait_for(lambda: not collector.waiting_count)
        gc.collect(1)
        found = leftovers(earlier)
    ours = {name: count for name, count in found.items() if re.match(r"tradewind\.", name)}
    assert not ours, ours
    assert sum(found.values()) <= LEFT_MAX, found.most_common(20)
