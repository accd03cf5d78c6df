"""Mirrors and sources of another server, by real processes: kills, logins, TLS, a server that
hangs.
"""

from __future__ import annotations

import itertools
import json
import signal
import socket
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from harness import RawClient, ServerProcess, wait_for
from ports import free_port

WAIT_SECONDS = 60.0
EXTERNAL = {"api": "$JS.hub.API", "deliver": ""}
KILLS = 3
MESSAGES_PER_LIFE = 400
# Ten times that of a real server, so that a turn which does not wait passes on a slow machine too.
BUDGET = {"TRADEWIND_TURN_BUDGET_MS": "500"}


OPEN: list[RawClient] = []
NUMBERS = itertools.count(1)


@pytest.fixture(autouse=True)
def closed_clients() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


class Client:
    """Requests of one connection, which is closed with the test."""

    def __init__(self, port: int) -> None:
        self.raw = RawClient(port)
        OPEN.append(self.raw)
        self.raw.connect(no_responders=True)
        self._inbox = f"inbox{next(NUMBERS)}"
        self._numbers = itertools.count(1)
        self.raw.send(f"SUB {self._inbox}.* 1\r\n")

    def ask(self, subject: str, body: bytes = b"") -> dict[str, Any]:
        reply = f"{self._inbox}.{next(self._numbers)}"
        self.raw.send(f"PUB {subject} {reply} {len(body)}\r\n".encode() + body + b"\r\n")
        while True:
            line, _, payload = self.raw.read_message()
            if line.split(" ")[1] == reply:
                return dict(json.loads(payload))

    def api(self, name: str, body: Any = None) -> dict[str, Any]:
        return self.ask(f"$JS.API.{name}", json.dumps(body).encode() if body is not None else b"")

    def create(self, name: str, **config: Any) -> dict[str, Any]:
        answer = self.api(f"STREAM.CREATE.{name}", {"name": name, **config})
        assert "error" not in answer, answer
        return answer

    def payloads(self, name: str) -> list[bytes]:
        state = self.api(f"STREAM.INFO.{name}")["state"]
        found = []
        for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
            message = self.api(f"STREAM.MSG.GET.{name}", {"seq": seq}).get("message")
            if message is not None:
                found.append(b64decode(message.get("data", "")))
        return found

    def messages(self, name: str) -> int:
        return int(self.api(f"STREAM.INFO.{name}")["state"]["messages"])

    def problem(self, name: str) -> str:
        mirror = self.api(f"STREAM.INFO.{name}")["mirror"]
        return str(mirror.get("error", {}).get("description", ""))


class Place:
    """A server that can be killed and comes back on the same port."""

    def __init__(
        self, kind: str, folder: Path, settings: str = "", env: dict[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True)
        self.kind = kind
        self._env = env
        self.port = free_port()
        self._file = folder / "server.conf"
        self._file.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream {{ store_dir: "{folder}/store", {settings} }}\n'
        )
        self.process = self._start()

    def _start(self) -> ServerProcess:
        return ServerProcess(self.kind, ["-c", str(self._file)], self._env).wait_ready()

    def kill(self) -> None:
        self.process.signal(signal.SIGKILL)
        self.process.wait()

    def revive(self) -> None:
        self.process = self._start()

    def client(self) -> Client:
        return Client(self.port)

    def stop(self) -> None:
        self.process.stop()


@contextmanager
def two_servers(hub_kind: str, folder: Path) -> Iterator[tuple[Place, Place]]:
    hub = Place(hub_kind, folder / "hub")
    remotes = f'remotes {{ hub {{ url: "nats://127.0.0.1:{hub.port}" }} }}'
    spoke = Place("tradewind", folder / "spoke", remotes)
    try:
        yield hub, spoke
    finally:
        spoke.stop()
        hub.stop()


class Publishing:
    """Publishes numbers until it is stopped; knows which of them were acknowledged."""

    def __init__(self, place: Place, subject: str, first: int) -> None:
        self._place, self._subject = place, subject
        self.sent, self.acked = first, []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            client = self._place.client()
            for _ in range(MESSAGES_PER_LIFE):
                self.sent += 1
                if "error" not in client.ask(self._subject, b"%d" % self.sent):
                    self.acked.append(b"%d" % self.sent)
        except (OSError, AssertionError, EOFError):
            pass  # the server was killed

    acked: list[bytes]

    def join(self) -> None:
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("victim", ["hub", "spoke"])
@pytest.mark.parametrize("hub_kind", ["tradewind", "official"])
def test_kills_lose_and_double_nothing(tmp_path: Path, hub_kind: str, victim: str) -> None:
    with two_servers(hub_kind, tmp_path) as (hub, spoke):
        here, there = hub.client(), spoke.client()
        here.create("L", subjects=["l"])
        here.create("W", subjects=["w"], retention="workqueue")
        there.create("M", mirror={"name": "L", "external": EXTERNAL})
        origins = [{"name": name, "external": EXTERNAL} for name in ("L", "W")]
        there.create("S", sources=origins)
        there.create("Q", sources=origins[1:])
        acked: dict[str, list[bytes]] = {"l": [], "w": []}
        sent = 0
        for _ in range(KILLS):
            lanes = [Publishing(hub, subject, sent) for subject in acked]
            threshold = len(acked["w"]) + MESSAGES_PER_LIFE // 4
            wait_for(lambda t=threshold, lane=lanes[1]: len(acked["w"]) + len(lane.acked) >= t)
            place = hub if victim == "hub" else spoke
            place.kill()
            place.revive()
            for lane, subject in zip(lanes, acked, strict=True):
                lane.join()
                acked[subject] += lane.acked
                sent = max(sent, lane.sent)
        here, there = hub.client(), spoke.client()
        wait_for(lambda: here.messages("W") == 0)
        wait_for(lambda: there.messages("M") == here.messages("L"))
        origin = here.payloads("L")
        assert there.payloads("M") == origin
        found = wait_for(
            lambda: (all_ := there.payloads("Q")) and set(acked["w"]) <= set(all_) and all_
        )
        assert len(found) == len(set(found))
        assert found == sorted(found, key=int)
        assert set(acked["l"]) <= set(origin)
        # It reads both by itself, so it may be behind the others.
        wait_for(lambda: there.messages("S") >= len(origin) + len(found))
        assert len(there.payloads("S")) == there.messages("S")
        wait_for(lambda: there.problem("M") == "")


# -------------------------------------------------------------------- logins


def write_config(folder: Path, name: str, text: str) -> list[str]:
    file = folder / name
    file.write_text(text)
    return ["-c", str(file)]


def test_login_and_tls_of_a_remote_and_none_of_it_in_the_log(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.server()
    hub = ServerProcess(
        "tradewind",
        write_config(
            tmp_path,
            "hub.conf",
            f'listen: "127.0.0.1:-1"\njetstream {{ store_dir: "{tmp_path}/hub" }}\n'
            f'tls {{ cert_file: "{certificate.cert_file}", key_file: "{certificate.key_file}" }}\n'
            'authorization { user: reader, password: "open-sesame" }\n',
        ),
    ).wait_ready()

    def spoke_with(password: str) -> ServerProcess:
        remote = (
            f'url: "tls://127.0.0.1:{hub.port}", user: reader, password: "{password}",'
            f' tls {{ ca_file: "{authority.ca_file}" }}'
        )
        text = (
            f'listen: "127.0.0.1:-1"\njetstream {{ store_dir: "{tmp_path}/spoke",'
            f" remotes {{ hub {{ {remote} }} }} }}\n"
        )
        flags = write_config(tmp_path, "spoke.conf", text)
        return ServerProcess("tradewind", [*flags, "-DV"]).wait_ready()

    spoke = spoke_with("wrong-words")
    try:
        client = Client(spoke.port)
        client.create("M", mirror={"name": "O", "external": EXTERNAL})
        refused = wait_for(lambda: (text := client.problem("M")) and "Auth" in text and text)
        assert refused.startswith("remote 'hub': ")
        assert "wrong-words" not in refused
        assert "wrong-words" not in spoke.log
        spoke.stop()
        spoke = spoke_with("open-sesame")
        client = Client(spoke.port)
        wait_for(lambda: client.problem("M") == "stream not found")
        assert "open-sesame" not in spoke.log
    finally:
        spoke.stop()
        hub.stop()


# -------------------------------------------------------------------- a remote that hangs


@pytest.mark.parametrize("greets", [False, True])
def test_a_remote_that_hangs_is_felt_by_nobody_else(tmp_path: Path, *, greets: bool) -> None:
    """It accepts the connection and then says nothing, before or after its login."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    accepted: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            accepted.append(connection)
            if greets:
                # It may go at any time: it gives up, or is stopped.
                with suppress(OSError):
                    connection.sendall(
                        b'INFO {"server_id":"X","max_payload":1048576,"headers":true}\r\n'
                    )
                    connection.recv(65536)
                    connection.sendall(b"PONG\r\n")

    thread = threading.Thread(target=accept)
    thread.start()
    remotes = f'remotes {{ hub {{ url: "nats://127.0.0.1:{port}" }} }}'
    spoke = Place("tradewind", tmp_path / "spoke", remotes, BUDGET)
    try:
        client, bystander = spoke.client(), spoke.client()
        for number in range(20):
            client.create(f"M{number}", mirror={"name": "O", "external": EXTERNAL})
        bystander.create("B", subjects=["b"])
        wait_for(lambda: accepted)
        answered = 0
        while "does not answer" not in client.problem("M0") if greets else answered < 500:
            assert "error" not in bystander.ask("b", b"x")
            answered += 1
        assert "busy" not in spoke.process.log
    finally:
        spoke.stop()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in accepted:
            connection.close()
        thread.join(WAIT_SECONDS)
