"""What a leaf node says to its hub, and what it makes of what the hub says."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from harness import REPLY_SECONDS, RawClient
from leaf_kit import Node, RawLeaf, leaf_config

TLS_HANDSHAKE = b"\x16"
INFO = {
    "server_id": "FAKE",
    "server_name": "fake",
    "version": "2.15.1",
    "proto": 1,
    "go": "x",
    "host": "127.0.0.1",
    "port": 1,
    "headers": True,
    "max_payload": 1048576,
    "client_id": 7,
    "nonce": "abcdefghijklmno",
    "leafnode_urls": [],
    "info_on_connect": True,
}


class FakeHub:
    """A listening socket; `accept` gives the next connection, after INFO was sent on it."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(REPLY_SECONDS)
        self.port: int = self._listening.getsockname()[1]
        self._accepted: list[RawClient] = []

    def accept(self, **changes: object) -> RawLeaf:
        connection, _ = self._listening.accept()
        connection.settimeout(REPLY_SECONDS)
        peer = RawLeaf.__new__(RawLeaf)
        peer.socket, peer.buffer, peer.info = connection, b"", {}
        self._accepted.append(peer)
        info = {key: value for key, value in {**INFO, **changes}.items() if value is not None}
        peer.send(f"INFO {json.dumps(info)} \r\n")
        return peer

    def close(self) -> None:
        self._listening.close()
        for peer in self._accepted:
            peer.close()


def connect_of(peer: RawLeaf) -> dict[str, Any]:
    line = peer.read_line()
    assert line.startswith(b"CONNECT "), line
    fields: dict[str, Any] = json.loads(line[8:])
    return fields


def let_in(peer: RawLeaf, **fields: object) -> None:
    answer = {**INFO, "connect_info": True, "remote_account": "$G", **fields}
    del answer["nonce"]
    peer.send(f"INFO {json.dumps(answer)} \r\n")


def welcome(
    hub: FakeHub, first: dict[str, object] | None = None, **fields: object
) -> tuple[RawLeaf, list[bytes]]:
    """The next leaf node, let in, and what it says then. `first` changes the first INFO.

    It waits two seconds to be let in, and comes again if this process was too slow.
    """
    for _ in range(5):
        peer = hub.accept(**(first or {}))
        connect_of(peer)
        with contextlib.suppress(ConnectionError):
            let_in(peer, **fields)
            peer.send("PING\r\n")
            lines: list[bytes] = []
            while line := peer.next_line():
                if line == b"PONG":
                    return peer, lines
                lines.append(line)
    raise AssertionError("the leaf node never waits to be let in")


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    fake = FakeHub()
    yield fake
    fake.close()


@pytest.fixture
def dial(kind: str, tmp_path: Path, hub: FakeHub) -> Iterator[Callable[..., Node]]:
    """dial("keys of the remote") starts a leaf node of the hub, stopped after the test."""
    started: list[Node] = []

    def start(remote: str = "", login: str = "", scheme: str = "nats-leaf://") -> Node:
        # It dials while the hub may still be busy with something else.
        patient = f"first_info_timeout: {REPLY_SECONDS}s\n{remote}"
        config = leaf_config(hub.port, patient, login=login, scheme=scheme)
        started.append(Node(kind, tmp_path, "leaf", config))
        return started[-1]

    yield start
    for node in started:
        node.stop()


Dial = Callable[..., Node]


@pytest.mark.parametrize(
    "scheme", ["leaf://", "nats-route://", "NATS://", "foo://", "http://", "//"]
)
def test_any_scheme_that_means_nothing_else_is_a_plain_connection(
    dial: Dial, hub: FakeHub, scheme: str
) -> None:
    dial(login="u:p@", scheme=scheme)
    assert connect_of(hub.accept())["user"] == "u"


def test_connect_says_who_dials(dial: Dial, hub: FakeHub) -> None:
    dial('deny_imports: "no.>"', login="u:p@")
    fields = connect_of(hub.accept())
    assert (fields["name"], fields["cluster"]) == ("leaf", "leaf")
    assert (fields["user"], fields["pass"]) == ("u", "p")
    assert fields["version"] == "2.15.1"
    assert fields["headers"] is True
    assert fields["remote_account"] == "$G"
    assert fields["server_id"]
    assert "no.>" in fields["deny_pub"]


def test_interest_is_told_when_the_hub_has_let_it_in(dial: Dial, hub: FakeHub) -> None:
    leaf = dial()
    client = leaf.client()
    client.send("SUB foo 1\r\nSUB work g 2\r\nSUB work g 3\r\n")
    client.ping()
    peer, lines = welcome(hub)
    assert b"LS+ foo" in lines
    assert b"LS+ work g 2" in lines
    assert sum(line.startswith(b"LS+ $LDS.") for line in lines) == 1
    peer.send("LS+ up\r\n")
    peer.quiet_ping()
    client.send("PUB up 2\r\nhi\r\n")
    assert peer.read_until(b"LMSG")[-1] == b"LMSG up 2"


def test_what_the_hub_forbids_is_neither_asked_for_nor_sent(dial: Dial, hub: FakeHub) -> None:
    leaf = dial()
    client = leaf.client()
    client.send("SUB in.a 1\r\nSUB other 2\r\nSUB answers 3\r\n")
    client.ping()
    taken, given = {"allow": ["in.>"]}, {"allow": ["out.>"], "deny": ["out.no"]}
    peer, lines = welcome(hub, None, **{"import": taken, "export": given})
    assert b"LS+ in.a" in lines
    assert b"LS+ other" not in lines
    peer.send("LS+ >\r\n")
    peer.quiet_ping()
    client.send("PUB secret 1\r\na\r\nPUB out.no 1\r\nb\r\nPUB out.yes 1\r\nc\r\n")
    assert peer.read_until(b"LMSG")[-1] == b"LMSG out.yes 1"


def test_port_that_is_not_for_leaf_nodes_is_left_without_a_word(dial: Dial, hub: FakeHub) -> None:
    dial()
    hub.accept(leafnode_urls=None, client_id=None).expect_closed()
    connect_of(hub.accept())


def test_tls_of_the_configuration_is_not_up_to_the_hub(
    dial: Dial, hub: FakeHub, tmp_path: Path
) -> None:
    """Whoever answers instead of the hub gets no login without a certificate."""
    authority = Authority(tmp_path)
    dial(f'tls {{ ca_file: "{authority.ca_file}" }}')
    peer = hub.accept(tls_required=False)
    assert peer.socket.recv(1) == TLS_HANDSHAKE


def test_hub_that_does_not_let_it_in_is_given_up(dial: Dial, hub: FakeHub) -> None:
    dial()
    peer = hub.accept()
    connect_of(peer)
    peer.read_until(b"-ERR 'Stale Leaf Node Connection - Closing'")


def test_older_hub_needs_not_answer_connect(dial: Dial, hub: FakeHub) -> None:
    dial()
    peer = hub.accept(info_on_connect=None)
    connect_of(peer)
    assert any(line.startswith(b"LS+ $LDS.") for line in peer.quiet_ping())


def test_loop_ends_the_connection_and_other_errors_do_not(dial: Dial, hub: FakeHub) -> None:
    leaf = dial()
    peer, _ = welcome(hub)
    peer.send("-ERR 'something else'\r\n")
    assert peer.quiet_ping() == []
    leaf.process.wait_for_log("something else")
    loop = 'Loop detected for leafnode account="$G". Delaying attempt to reconnect for 30s'
    peer.send(f"-ERR '{loop}'\r\n")
    peer.read_to_end()


def test_other_servers_of_the_hub_are_remembered(dial: Dial, hub: FakeHub) -> None:
    other = FakeHub()
    try:
        dial()
        urls = [f"127.0.0.1:{hub.port}", f"127.0.0.1:{other.port}"]
        welcome(hub, {"leafnode_urls": urls}, leafnode_urls=urls)
        hub.close()
        assert connect_of(other.accept())["name"] == "leaf"
    finally:
        other.close()


@pytest.mark.parametrize(
    "nonsense", [b"\xff" * 100, b"INFO {\r\n", b"LMSG x 99999999999\r\n", b"HTTP/1.1 400\r\n\r\n"]
)
def test_nonsense_of_a_hub_ends_only_the_connection(
    dial: Dial, hub: FakeHub, nonsense: bytes
) -> None:
    leaf = dial()
    peer, _ = welcome(hub)
    peer.send(nonsense)
    peer.read_to_end()
    connect_of(hub.accept())
    leaf.client().ping()


def test_traces_go_only_where_the_hub_may_publish(dial: Dial, hub: FakeHub) -> None:
    """`deny_imports` is for the trace of a message as well as for the message itself."""
    node = dial('deny_imports: ["secret"]')
    listener = node.client()
    listener.send("SUB > 1\r\n")
    listener.ping()
    peer, _ = welcome(hub)
    for destination in ("secret", "open"):
        header = f"NATS/1.0\r\nNats-Trace-Dest: {destination}\r\n\r\n"
        peer.send(f"HMSG data.x {len(header)} {len(header) + 1}\r\n{header}x\r\n")
    found = []
    while not found or found[-1] != "open":
        found.append(listener.read_message()[0].split()[1])
    assert "secret" not in found
