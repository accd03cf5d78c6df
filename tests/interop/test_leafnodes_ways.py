"""Ways to a hub: TLS, WebSocket, several urls, a cluster, nkeys, and chains of servers."""

from __future__ import annotations

import base64
import select
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from certificates import Authority
from harness import wait_for
from jwt_kit import account_jwt, account_key, memory_configuration, user_jwt, user_key
from leaf_kit import KINDS, PAIRINGS, Node, hub_config, joined, leaf_config
from ports import free_ports
from tradewind.nkeys import USER, KeyPair

pytestmark = pytest.mark.timeout(120)
pairings = pytest.mark.parametrize("kinds", PAIRINGS, ids=["-".join(pair) for pair in PAIRINGS])
Kinds = tuple[str, str]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as cleanup:
        yield cleanup


def start(stack: ExitStack, kind: str, folder: Path, name: str, config: str) -> Node:
    node = Node(kind, folder, name, config)
    stack.callback(node.stop)
    return node


def exchange(hub: Node, leaf: Node) -> None:
    """A message each way."""
    above, below = hub.client(), leaf.client()
    above.send("SUB up 1\r\n")
    below.send("SUB down 1\r\n")
    # What is asked for may be known from others before.
    above.ping()
    below.ping()
    hub.wait_asked("down")
    leaf.wait_asked("up")
    payload = b"x" * 200_000
    below.send(b"PUB up 200000\r\n" + payload + b"\r\n")
    assert above.read_message() == ("MSG up 1 200000", b"", payload)
    above.send(b"PUB down 200000\r\n" + payload + b"\r\n")
    assert below.read_message() == ("MSG down 1 200000", b"", payload)


@pairings
@pytest.mark.parametrize("first", ["false", "true"])
def test_tls_with_certificates_on_both_sides(kinds: Kinds, tmp_path: Path, first: str) -> None:
    authority = Authority(tmp_path)
    server, client = authority.server(), authority.client(subject="CN=leaf")
    hub = (
        f'tls {{ cert_file: "{server.cert_file}", key_file: "{server.key_file}", '
        f'ca_file: "{authority.ca_file}", verify: true, handshake_first: {first} }}'
    )
    remote = (
        f'tls {{ cert_file: "{client.cert_file}", key_file: "{client.key_file}", '
        f'ca_file: "{authority.ca_file}", handshake_first: {first} }}'
    )
    with joined(kinds, tmp_path, hub=hub, remote=remote) as (above, below):
        exchange(above, below)


@pairings
def test_certificate_of_a_stranger_is_refused(
    kinds: Kinds, tmp_path: Path, stack: ExitStack
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    server = authority.server()
    tls = f'tls {{ cert_file: "{server.cert_file}", key_file: "{server.key_file}" }}'
    hub = start(stack, kinds[0], tmp_path, "hub", hub_config(tls))
    remote = f'tls {{ ca_file: "{other.ca_file}" }}'
    leaf = start(stack, kinds[1], tmp_path, "leaf", leaf_config(hub.leaf_port, remote))
    leaf.process.wait_for_log("(?i)certificate")
    assert leaf.leafs() == []


@pairings
@pytest.mark.parametrize("compression", ["false", "true"])
def test_websocket(kinds: Kinds, tmp_path: Path, stack: ExitStack, compression: str) -> None:
    around = f'websocket {{ listen: "127.0.0.1:-1", no_tls: true, compression: {compression} }}'
    hub = start(stack, kinds[0], tmp_path, "hub", hub_config("", around))
    remote = f'url: "ws://127.0.0.1:{hub.websocket_port}", ws_compression: {compression}'
    config = f"leafnodes {{ remotes: [ {{ {remote} }} ] }}"
    leaf = start(stack, kinds[1], tmp_path, "leaf", config)
    for node in (hub, leaf):
        node.wait_linked()
    exchange(hub, leaf)


class HttpProxy(threading.Thread):
    """Passes bytes on to wherever it is asked to connect, if the login is right."""

    def __init__(self, login: str = "") -> None:
        super().__init__(daemon=True)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._login = base64.b64encode(login.encode()).decode()
        self.asked: list[str] = []
        self.start()

    def run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Until one of both sides ends, which a server that is stopped does at any point."""
        with suppress(OSError), connection:
            self._pass_on(connection)

    def _pass_on(self, connection: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = connection.recv(1)
            if not byte:
                return
            head += byte
        lines = head.decode().split("\r\n")
        self.asked.append(lines[0])
        if self._login and f"Proxy-Authorization: Basic {self._login}" not in lines:
            connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return
        host, _, port = lines[0].split()[1].rpartition(":")
        with socket.create_connection((host, int(port))) as beyond:
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            ways = {connection: beyond, beyond: connection}
            while True:
                for ready in select.select(list(ways), [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    ways[ready].sendall(data)

    def close(self) -> None:
        self._listening.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["nats-leaf", "ws"])
def test_a_proxy_in_front_of_the_hub(
    kind: str, tmp_path: Path, stack: ExitStack, scheme: str
) -> None:
    proxy = HttpProxy("anna:secret")
    stack.callback(proxy.close)
    around = 'websocket { listen: "127.0.0.1:-1", no_tls: true }'
    hub = start(stack, "tradewind", tmp_path, "hub", hub_config("", around))
    port = hub.websocket_port if scheme == "ws" else hub.leaf_port
    place = f'url: "http://127.0.0.1:{proxy.port}", username: anna, password: secret'
    remote = f'url: "{scheme}://127.0.0.1:{port}", proxy {{ {place}, timeout: "20s" }}'
    leaf = start(stack, kind, tmp_path, "leaf", f"leafnodes {{ remotes: [ {{ {remote} }} ] }}")
    for node in (hub, leaf):
        node.wait_linked()
    exchange(hub, leaf)
    assert proxy.asked[0] == f"CONNECT 127.0.0.1:{port} HTTP/1.1"


def test_tls_begins_behind_the_proxy(tmp_path: Path, stack: ExitStack) -> None:
    authority = Authority(tmp_path)
    proxy = HttpProxy()
    stack.callback(proxy.close)
    own = authority.server()
    tls = f'tls {{ cert_file: "{own.cert_file}", key_file: "{own.key_file}" }}'
    around = f'websocket {{ listen: "127.0.0.1:-1", {tls} }}'
    hub = start(stack, "official", tmp_path, "hub", hub_config(tls, around))
    trust = f'tls {{ ca_file: "{authority.ca_file}" }}'
    place = f'proxy {{ url: "http://127.0.0.1:{proxy.port}", timeout: "20s" }}'
    for name, url in (
        ("frames", f"wss://127.0.0.1:{hub.websocket_port}"),
        ("lines", f"tls://127.0.0.1:{hub.leaf_port}"),
    ):
        remote = f'url: "{url}", {place}, {trust}'
        leaf = start(
            stack, "tradewind", tmp_path, name, f"leafnodes {{ remotes: [{{ {remote} }}] }}"
        )
        leaf.wait_linked()
        exchange(hub, leaf)
        leaf.stop()
        hub.wait_linked(0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_proxy_that_refuses_is_named_and_tried_again(
    kind: str, tmp_path: Path, stack: ExitStack
) -> None:
    proxy = HttpProxy("anna:secret")
    stack.callback(proxy.close)
    place = f'url: "http://127.0.0.1:{proxy.port}", username: anna, password: hush'
    remote = f'url: "ws://127.0.0.1:1", proxy {{ {place} }}'
    config = f'leafnodes {{ reconnect: "100ms", remotes: [ {{ {remote} }} ] }}'
    leaf = start(stack, kind, tmp_path, "leaf", config)
    wait_for(lambda: len(proxy.asked) > 1 and "407 Proxy Auth" in leaf.process.log)
    assert "hush" not in leaf.process.log


@pairings
def test_nkey(kinds: Kinds, tmp_path: Path) -> None:
    key = KeyPair.create(USER)
    with joined(
        kinds,
        tmp_path,
        hub=f"authorization {{ nkey: {key.public} }}",
        remote=f"nkey: {key.seed}",
    ) as (hub, leaf):
        exchange(hub, leaf)


@pairings
def test_credentials_of_an_operator(kinds: Kinds, tmp_path: Path, stack: ExitStack) -> None:
    account, user = account_key(1), user_key(1)
    around = memory_configuration({account.public: account_jwt(account)})
    hub = start(stack, kinds[0], tmp_path, "hub", hub_config("", around))
    credentials = tmp_path / "user.creds"
    credentials.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_jwt(user, account)}\n------END NATS USER JWT------\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )
    remote = f'credentials: "{credentials}"'
    leaf = start(stack, kinds[1], tmp_path, "leaf", leaf_config(hub.leaf_port, remote))
    for node in (hub, leaf):
        node.wait_linked()
    assert hub.leafs()[0]["account"] == account.public


@pairings
def test_next_url_is_tried_when_a_hub_is_gone(
    kinds: Kinds, tmp_path: Path, stack: ExitStack
) -> None:
    ports = free_ports(2)
    urls = ", ".join(f'"nats-leaf://127.0.0.1:{port}"' for port in ports)
    hub = start(stack, kinds[0], tmp_path, "hub0", hub_config(port=ports[0]))
    config = f"leafnodes {{ remotes: [ {{ urls: [{urls}], no_randomize: true }} ] }}"
    leaf = start(stack, kinds[1], tmp_path, "leaf", config)
    client = leaf.client()
    client.send("SUB here 1\r\n")
    hub.wait_asked("here")
    # Not before: a leaf node that waits for a slow hub would go to the other.
    other = start(stack, kinds[0], tmp_path, "hub1", hub_config(port=ports[1]))
    hub.stop()
    other.wait_asked("here")


@pytest.mark.parametrize("kind", KINDS)
def test_leaf_node_of_a_cluster_moves_to_another_of_its_servers(
    kind: str, tmp_path: Path, stack: ExitStack
) -> None:
    routes: list[str] = []
    nodes = []
    for number in range(2):
        cluster = f'cluster {{ name: C, listen: "127.0.0.1:-1", routes: [{", ".join(routes)}] }}'
        node = start(stack, "official", tmp_path, f"n{number}", hub_config("", cluster))
        port = node.process.wait_for_log(r"Listening for route connections on \S+:(\d+)")[1]
        routes.append(f'"nats-route://127.0.0.1:{port}"')
        nodes.append(node)
    nodes[0].process.wait_for_log("Route connection created")
    leaf = start(stack, kind, tmp_path, "leaf", leaf_config(nodes[0].leaf_port))
    # What is asked for at the other node of the cluster is known here.
    above = nodes[1].client()
    above.send("SUB up 1\r\n")
    leaf.wait_asked("up")
    below = leaf.client()
    below.send("SUB here 1\r\nPUB up 1\r\nx\r\n")
    assert above.read_message() == ("MSG up 1 1", b"", b"x")
    nodes[0].wait_asked("here")
    nodes[0].stop()
    nodes[1].wait_asked("here")


@pairings
def test_messages_pass_a_server_in_between(kinds: Kinds, tmp_path: Path, stack: ExitStack) -> None:
    hub = start(stack, kinds[0], tmp_path, "hub", hub_config())
    between = (
        'leafnodes { listen: "127.0.0.1:-1", '
        f'remotes: [ {{ url: "nats-leaf://127.0.0.1:{hub.leaf_port}" }} ] }}'
    )
    middle = start(stack, kinds[1], tmp_path, "middle", between)
    ends = [
        start(stack, kinds[0], tmp_path, f"end{n}", leaf_config(middle.leaf_port)) for n in range(2)
    ]
    middle.wait_linked(3)
    clients = [node.client() for node in (hub, *ends)]
    for client in clients:
        client.send("SUB all 1\r\n")
    hub.wait_asked("all")
    middle.wait_asked("all", count=3)
    for node in ends:
        node.wait_asked("all")
    for number, client in enumerate(clients):
        client.send(f"PUB all 1\r\n{number}\r\n")
    for client in clients:
        got = sorted(client.read_message()[2] for _ in clients)
        assert got == [b"0", b"1", b"2"]
        client.ping()  # and nothing twice


@pairings
def test_leaf_nodes_share_a_queue_group_by_weight(
    kinds: Kinds, tmp_path: Path, stack: ExitStack
) -> None:
    hub = start(stack, kinds[0], tmp_path, "hub", hub_config())
    counts = {"one": 1, "nine": 9}
    workers = {}
    for name, count in counts.items():
        node = start(stack, kinds[1], tmp_path, name, leaf_config(hub.leaf_port))
        workers[name] = node.client()
        workers[name].send("".join(f"SUB work g {sid}\r\n" for sid in range(count)))
        workers[name].send("SUB end 100\r\n")
    hub.wait_asked("work", count=2)
    hub.wait_asked("end", count=2)
    client = hub.client()
    client.send("PUB work 0\r\n\r\n" * 400 + "PUB end 0\r\n\r\n")
    got = {}
    for name, worker in workers.items():
        got[name] = 0
        while worker.read_message()[0] != "MSG end 100 0":
            got[name] += 1
    assert got["one"] + got["nine"] == 400
    # 40 are expected; 12 is five standard deviations below.
    assert 12 <= got["one"] <= 80, got


@pairings
def test_servers_in_a_circle_part(kinds: Kinds, tmp_path: Path, stack: ExitStack) -> None:
    first = start(stack, kinds[0], tmp_path, "a", hub_config())
    second = start(
        stack, kinds[1], tmp_path, "b",
        'leafnodes { listen: "127.0.0.1:-1", '
        f'remotes: [ {{ url: "nats-leaf://127.0.0.1:{first.leaf_port}" }} ] }}',
    )  # fmt: skip
    second.wait_linked()
    third = start(
        stack, kinds[0], tmp_path, "c",
        f'leafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:{first.leaf_port}" }}, '
        f'{{ url: "nats-leaf://127.0.0.1:{second.leaf_port}" }} ] }}',
    )  # fmt: skip

    nodes = (first, second, third)

    def logs() -> str:
        return "\n".join(node.process.log for node in nodes)

    wait_for(lambda: "Loop detected" in logs(), logs)
    # Each link has two ends; the one that closes the circle ends behind that line.
    wait_for(lambda: sum(len(node.leafs()) for node in nodes) <= 4, logs)
    clients = [node.client() for node in nodes]
    for client in clients:
        client.send("SUB t 1\r\nPUB t 1\r\nx\r\n")
    for client in clients:
        client.send("PING\r\n")
        got = 0
        while (line := client.read_line()) != b"PONG":
            got += line.startswith(b"MSG")
        assert got <= len(clients), "a message goes around"


@pairings
def test_isolated_leaf_node_does_not_hear_what_others_ask_for(
    kinds: Kinds, tmp_path: Path, stack: ExitStack
) -> None:
    hub = start(stack, kinds[0], tmp_path, "hub", hub_config())
    isolated = start(
        stack, kinds[1], tmp_path, "iso", leaf_config(hub.leaf_port, "request_isolation: true")
    )
    other = start(stack, kinds[1], tmp_path, "other", leaf_config(hub.leaf_port))
    theirs, ours, above = other.client(), isolated.client(), hub.client()
    theirs.send("SUB theirs 1\r\n")
    ours.send("SUB ours 1\r\n")
    hub.wait_asked("theirs")
    hub.wait_asked("ours")
    above.send("SUB above 1\r\n")
    isolated.wait_asked("above")
    other.wait_asked("ours")
    assert "theirs" not in isolated.leafs()[0]["subscriptions_list"]


def change(node: Node, old: str, new: str) -> None:
    """Reload a file in which something is other than before."""
    text = node.config_path.read_text()
    assert old in text
    node.config_path.write_text(text.replace(old, new))
    node.process.signal(signal.SIGHUP)


@pytest.mark.parametrize("kind", KINDS)
def test_logins_of_leaf_nodes_change_while_the_hub_runs(
    kind: str, tmp_path: Path, stack: ExitStack
) -> None:
    """nats-server has to be started again for that."""
    users = "authorization { user: old, password: p }"
    hub = start(stack, "tradewind", tmp_path, "hub", hub_config(users))
    leaf = start(stack, kind, tmp_path, "leaf", leaf_config(hub.leaf_port, login="old:p@"))
    hub.wait_linked()
    change(hub, "user: old", "user: new")
    hub.wait_linked(0)
    leaf.stop()
    start(stack, kind, tmp_path, "other", leaf_config(hub.leaf_port, login="new:p@"))
    hub.wait_linked()


def test_certificates_of_both_sides_are_read_again_when_they_are_told(
    tmp_path: Path, stack: ExitStack
) -> None:
    """Those of the hub under other names, those of the leaf node under the same."""
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    first, second = authority.server("first"), authority.server("second")
    wrong, right = stranger.client("leaf", subject="CN=leaf"), authority.client(subject="CN=leaf")
    tls = (
        f'tls {{ cert_file: "{first.cert_file}", key_file: "{first.key_file}", '
        f'ca_file: "{authority.ca_file}", verify: true, handshake_first: true }}'
    )
    hub = start(stack, "tradewind", tmp_path, "hub", hub_config(tls))
    remote = (
        f'tls {{ cert_file: "{wrong.cert_file}", key_file: "{wrong.key_file}", '
        f'ca_file: "{authority.ca_file}", handshake_first: true }}'
    )
    leaf = start(stack, "tradewind", tmp_path, "leaf", leaf_config(hub.leaf_port, remote))
    wait_for(lambda: "Error trying to connect as leafnode" in leaf.process.log)
    assert hub.leafs() == []
    for ours, theirs in ((wrong.cert_file, right.cert_file), (wrong.key_file, right.key_file)):
        Path(ours).write_bytes(Path(theirs).read_bytes())
    leaf.process.signal(signal.SIGHUP)
    hub.wait_linked()
    address = ("127.0.0.1", hub.leaf_port)
    before = ssl.get_server_certificate(address)
    hub.config_path.write_text(
        hub.config_path.read_text()
        .replace(first.cert_file, second.cert_file)
        .replace(first.key_file, second.key_file)
    )
    hub.process.signal(signal.SIGHUP)
    wait_for(lambda: ssl.get_server_certificate(address) != before)
