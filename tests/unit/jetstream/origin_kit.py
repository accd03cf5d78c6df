"""Two servers in one process: streams of one (the spoke) have their origins in the other (the hub).

The wire between them is the test's: it can be cut, lose messages, and answer nothing.
"""

from __future__ import annotations

import itertools
import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any

from engine_kit import Peer

from tradewind.jetstream.replication.inbox import Inbox
from tradewind.jetstream.replication.origin_links import Answered
from tradewind.options import JetStreamOptions, ServerOptions
from tradewind.testing import FakeConnection, InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

EXTERNAL = {"api": "$JS.hub.API", "deliver": ""}
CONNECT = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'


class Wire:
    """A link from the spoke to the hub, as `server.jetstream.remotes` makes it of a connection."""

    name = "hub"
    on_arrival: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.hub: InProcessServer | None = None
        self.spoke: InProcessServer | None = None
        self.problem = "remote 'hub' is not connected yet"
        self.is_deaf = False  # nothing that the hub sends arrives
        self.lost: Callable[[bytes], bool] = lambda _subject: False
        self.asked: list[str] = []
        self._connection: FakeConnection | None = None
        self._numbers = itertools.count(1)
        self._answers: dict[bytes, Answered] = {}
        self._inboxes: dict[bytes, Inbox] = {}
        self._watchers: dict[int, Callable[[], None]] = {}

    @property
    def server_id(self) -> str:
        return self.hub.broker.info.server_id if self.hub is not None else ""

    def find(self, account: str, prefix: str) -> Wire | None:
        return self if (account, prefix) == ("$G", EXTERNAL["api"]) else None

    def prefixes(self, account: str) -> list[str]:
        return [EXTERNAL["api"]] if account == "$G" else []

    # ---------------------------------------------------------------- what a link has

    def ask(self, request: str, header: bytes, body: bytes, answered: Answered) -> None:
        assert self._connection is not None
        reply = b"_INBOX.%d" % next(self._numbers)
        self.asked.append(request)
        self._answers[reply] = answered
        subject = f"$JS.API.{request}".encode()
        self._send(subject, reply, header, body)

    def publish(self, subject: str, header: bytes) -> None:
        self._send(subject.encode(), b"", header, b"")

    def _send(self, subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        assert self._connection is not None
        line = b"HPUB %s %s %d %d\r\n" % (subject, reply, len(header), len(header) + len(body))
        if not header:
            line = b"PUB %s %s %d\r\n" % (subject, reply, len(body))
        self._connection.send(line + header + body + b"\r\n")

    def listen(self, subject: str, inbox: Inbox) -> Callable[[], None]:
        assert self._connection is not None
        sid, connection = b"%d" % (1000 + next(self._numbers)), self._connection
        self._inboxes[sid] = inbox
        connection.send(b"SUB %s %s\r\n" % (subject.encode(), sid))

        def stop() -> None:
            self._inboxes.pop(sid, None)
            if connection.is_open:
                connection.send(b"UNSUB %s\r\n" % sid)

        return stop

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        key = next(self._numbers)
        self._watchers[key] = changed
        return lambda: self._watchers.pop(key, None) and None

    # ---------------------------------------------------------------- what a test does

    def plug(self, hub: InProcessServer) -> None:
        """The connection stands."""
        self.hub = hub
        self._connection = hub.connect(CONNECT + b"SUB _INBOX.* 1\r\n")
        self._change("")

    def cut(self) -> None:
        """Cut the connection, with all requests in progress."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._answers.clear()
            self._inboxes.clear()
            connection.close()
            self._change("remote 'hub': the connection was lost")

    def _change(self, problem: str) -> None:
        self.problem = problem
        if self.spoke is not None and self.spoke.engine is not None:
            self.spoke.engine.set_time()
            for changed in list(self._watchers.values()):
                changed()
            self.spoke.run_until_idle()

    def forget_watchers(self) -> None:
        """The spoke was killed."""
        self._watchers.clear()
        self.cut()

    def carry(self) -> bool:
        """Bring what the hub has sent; whether there was something."""
        if self._connection is None or self.spoke is None:
            return False
        data = self._connection.take()
        if self.is_deaf or not data:
            return False
        engine = self.spoke.engine
        assert engine is not None
        engine.set_time()
        while data:
            line, _, data = data.partition(b"\r\n")
            words = line.split(b" ")
            if words[0] not in (b"MSG", b"HMSG"):
                continue
            size = int(words[-1])
            split = int(words[-2]) if words[0] == b"HMSG" else 0
            body, data = data[:size], data[size + 2 :]
            reply = words[3] if len(words) - (words[0] == b"HMSG") == 5 else b""
            self._dispatch(words[1], words[2], reply, body[:split], body[split:])
        self.spoke.run_until_idle()
        return True

    def _dispatch(
        self, subject: bytes, sid: bytes, reply: bytes, header: bytes, body: bytes
    ) -> None:
        if (answered := self._answers.pop(subject, None)) is not None:
            answered(header, body, "nobody answers" if header and not body else "")
        elif (inbox := self._inboxes.get(sid)) is not None and not self.lost(subject):
            inbox.take(subject, reply, header, body)


class Pair:
    """A hub and a spoke, on disks that outlive them."""

    def __init__(self, *, manual_sync: bool = False) -> None:
        self.wire = Wire()
        self.disks = {"hub": SimulatedDisk(), "spoke": SimulatedDisk()}
        self.elapsed_ns = 0
        self.manual_sync = manual_sync
        self.hub = self._open("hub")
        self.spoke = self._open("spoke")
        self.wire.plug(self.hub)
        self.run()

    def _open(self, which: str) -> InProcessServer:
        is_spoke = which == "spoke"
        options = ServerOptions(server_name=which, jetstream=JetStreamOptions(domain=which))
        server = InProcessServer(
            options,
            disk=self.disks[which],
            manual_sync=self.manual_sync and is_spoke,
            remotes=self.wire if is_spoke else None,
            server_id=which.upper(),
        )
        server.clock.advance_ns(self.elapsed_ns)
        if is_spoke:
            self.wire.spoke = server
            self.there = Peer(server)
        else:
            self.here = Peer(server)
        server.advance(0.01)
        return server

    def run(self) -> None:
        """Until nothing more happens by itself."""
        while self.wire.carry():
            self.hub.run_until_idle()
            self.spoke.run_until_idle()

    def advance(self, seconds: float, step: float = 0.5) -> None:
        """Let time pass on both sides."""
        left = seconds
        while left > 0:
            part = min(step, left)
            self.elapsed_ns += round(part * 1e9)
            self.hub.advance(part)
            self.run()
            self.spoke.advance(part)
            self.run()
            left -= part

    def kill_spoke(self) -> None:
        """Without a word, and with the loss of what was not synced."""
        self.wire.spoke = None
        self.wire.forget_watchers()
        self.disks["spoke"] = self.disks["spoke"].crash_losing_unsynced()
        self.spoke = self._open("spoke")
        self.wire.plug(self.hub)
        self.run()

    def kill_hub(self) -> None:
        """The same for the other side."""
        self.wire.cut()
        self.disks["hub"] = self.disks["hub"].crash_losing_unsynced()
        self.hub = self._open("hub")
        self.wire.plug(self.hub)
        self.run()

    # ---------------------------------------------------------------- streams

    def origin(self, name: str = "O", **config: Any) -> dict[str, Any]:
        answer = self.here.create(name, **config)
        assert "error" not in answer, answer
        return answer

    def copy(self, name: str, **config: Any) -> dict[str, Any]:
        answer = self.there.create(name, **{"subjects": [], **config})
        assert "error" not in answer, answer
        self.run()
        return answer

    def mirror(self, name: str = "M", **settings: Any) -> dict[str, Any]:
        return self.copy(name, mirror={"name": "O", "external": EXTERNAL, **settings})

    def source(self, name: str = "S", **settings: Any) -> dict[str, Any]:
        return self.copy(name, sources=[{"name": "O", "external": EXTERNAL, **settings}])

    def fill(self, *payloads: str, subject: str = "O.a") -> None:
        for payload in payloads:
            assert "error" not in (self.here.publish(subject, payload.encode()) or {})
        self.run()

    def info(self, name: str) -> dict[str, Any]:
        self.there.take()
        return self.there.api(f"STREAM.INFO.{name}")

    def replica(self, name: str) -> dict[str, Any]:
        """The part of a stream's information about its mirror or first source."""
        info = self.info(name)
        found: dict[str, Any] = info.get("mirror") or info["sources"][0]
        return found

    def problem(self, name: str) -> str:
        return str(self.replica(name).get("error", {}).get("description", ""))

    def held(self, name: str = "O") -> int:
        """How many messages the origin has."""
        self.here.take()
        return int(self.here.api(f"STREAM.INFO.{name}")["state"]["messages"])

    def stored(self, name: str) -> list[tuple[int, str]]:
        """Sequences and payloads."""
        return [(seq, text) for seq, text, _ in self.records(name)]

    def payloads(self, name: str) -> list[str]:
        return [text for _, text in self.stored(name)]

    def records(self, name: str) -> list[tuple[int, str, dict[str, Any]]]:
        state, found = self.info(name)["state"], []
        for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
            answer = self.there.api(f"STREAM.MSG.GET.{name}", {"seq": seq})
            if "message" in answer:
                message = answer["message"]
                found.append((seq, b64decode(message.get("data", "")).decode(), message))
        return found


def header_of(message: dict[str, Any]) -> str:
    return b64decode(message.get("hdrs", "")).decode()


def as_json(payload: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(payload)
    return document
