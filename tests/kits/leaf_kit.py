"""Servers that are joined by leaf connections, of either kind, and clients of them."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import REPLY_SECONDS, RawClient, ServerProcess, wait_for
from ports import free_port

KINDS = ("official", "tradewind")
PAIRINGS = [(hub, leaf) for hub in KINDS for leaf in KINDS]
LISTENING = re.compile(r"Listening for leafnode connections on \S+:(\d+)")
MONITOR = re.compile(r"Starting http monitor on \S+:(\d+)")
WEBSOCKET = re.compile(r"Listening for websocket clients on wss?://\S+:(\d+)")


class Node:
    """A server with a monitoring port, and perhaps one for leaf nodes."""

    def __init__(
        self, kind: str, folder: Path, name: str, config: str, *, named: bool = True
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.conf"
        head = f"server_name: {name}\n" if named else ""
        path.write_text(f'{head}http: "127.0.0.1:-1"\n{config}\n')
        self.config_path = path
        self.name = name
        self.clients: list[RawClient] = []
        self.process = ServerProcess(kind, ["-c", str(path), "-a", "127.0.0.1", "-p", "-1"])
        self.process.wait_ready()

    def _port(self, pattern: re.Pattern[str]) -> int:
        match = pattern.search(self.process.log)
        assert match, self.process.log
        return int(match[1])

    @property
    def leaf_port(self) -> int:
        return self._port(LISTENING)

    @property
    def websocket_port(self) -> int:
        return self._port(WEBSOCKET)

    @property
    def port(self) -> int:
        return self.process.port

    def page(self, path: str) -> Any:
        url = f"http://127.0.0.1:{self._port(MONITOR)}/{path}"
        with urllib.request.urlopen(url, timeout=REPLY_SECONDS) as answer:
            return json.load(answer)

    def leafs(self) -> list[dict[str, Any]]:
        leafs: list[dict[str, Any]] = self.page("leafz?subs=1")["leafs"] or []
        return leafs

    def client(self, **options: object) -> RawClient:
        client = RawClient(self.port)
        self.clients.append(client)
        return client.connect(**{"no_responders": True, **options})

    def wait_linked(self, count: int = 1) -> None:
        wait_for(lambda: len(self.leafs()) == count, lambda: self.process.log)

    def wait_asked(self, subject: str, *, count: int = 1) -> None:
        """Wait until so many servers at the other end ask for a subject."""
        wait_for(
            lambda: (
                sum(subject in (leaf.get("subscriptions_list") or []) for leaf in self.leafs())
                == count
            ),
            lambda: f"{subject}: {self.leafs()}",
        )

    def wait_received(self, count: int) -> None:
        """Wait until the one server at the other end has sent so many messages, not more.

        nats-server counts what it has read behind its delivery, so its receivers may be first.
        """
        wait_for(lambda: self._received() >= [count], lambda: f"{self.leafs()}")
        assert self._received() == [count]

    def _received(self) -> list[int]:
        return [leaf["in_msgs"] for leaf in self.leafs()]

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        self.process.stop()


def hub_config(inside: str = "", outside: str = "", *, port: int = 0) -> str:
    """The configuration of a hub, with a port that stays reserved while the hub is down and others
    dial it.
    """
    listen = f'listen: "127.0.0.1:{port or free_port()}"'
    return f"leafnodes {{\n  {listen}\n{inside}\n}}\n{outside}"


def leaf_config(
    port: int,
    remote: str = "",
    outside: str = "",
    *,
    login: str = "",
    scheme: str = "nats-leaf://",
) -> str:
    url = f'"{scheme}{login}127.0.0.1:{port}"'
    return (
        f"leafnodes {{\n  reconnect: 1s\n  remotes: [\n    {{\n url: {url}\n{remote}\n}}\n  ]\n}}\n"
        f"{outside}"
    )


@contextmanager
def joined(
    kinds: tuple[str, str],
    folder: Path,
    *,
    hub: str = "",
    remote: str = "",
    around_hub: str = "",
    around_leaf: str = "",
    login: str = "",
) -> Iterator[tuple[Node, Node]]:
    """A hub and a leaf node that is connected to it."""
    nodes: list[Node] = []
    try:
        nodes.append(Node(kinds[0], folder, "hub", hub_config(hub, around_hub)))
        config = leaf_config(nodes[0].leaf_port, remote, around_leaf, login=login)
        nodes.append(Node(kinds[1], folder, "leaf", config))
        for node in nodes:
            node.wait_linked()
        yield nodes[0], nodes[1]
    finally:
        for node in nodes:
            node.stop()


class RawLeaf(RawClient):
    """One end of a leaf connection over a raw socket, which dials a hub."""

    def login(self, **fields: object) -> dict[str, Any]:
        """CONNECT; gives the INFO that answers it."""
        connect = {"version": "2.15.1", "name": "raw", "headers": True, "protocol": 1, **fields}
        self.send(f"CONNECT {json.dumps(connect)}\r\n")
        return self.read_info()

    def read_until(self, wanted: bytes) -> list[bytes]:
        """All lines up to one that begins so; PINGs are answered."""
        lines = []
        while True:
            line = self.read_line()
            if line == b"PING":
                self.send("PONG\r\n")
                continue
            lines.append(line)
            if line.startswith(wanted):
                return lines
            assert line, (wanted, lines)

    def quiet_ping(self) -> list[bytes]:
        """The lines that the server sends until it answers a PING."""
        self.send("PING\r\n")
        return self.read_until(b"PONG")[:-1]
