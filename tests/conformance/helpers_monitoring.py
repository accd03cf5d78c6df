"""Two servers with one configuration, everything that they can be asked, and how answers differ.

Each test defines its questions and the intended differences.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers_ops import Page

from harness import REPLY_SECONDS, RawClient, ServerProcess, wait_for

KINDS = ("official", "tradewind")
MONITOR = re.compile(r"Starting http monitor on \S+?:(\d+)")
NOBODY = "nobody"
SILENCE = "silence"


class Asker:
    """A client that sends requests below $SYS.REQ, one at a time; its server's id replaces $ID.

    A member of another account than that of the system may ask less, and waits longer.
    """

    def __init__(self, raw: RawClient, *, is_member: bool = False) -> None:
        self.raw = raw
        self.id = str(raw.info["server_id"])
        self._is_member = is_member
        self._count = 0
        raw.send("SUB _INBOX.r.* 1\r\n")
        raw.ping()  # pages may be asked by another connection next

    def ask(self, subject: str, body: object = None) -> Any:
        """The answer; a text instead if there is no responder, or no response."""
        name = self._send(subject, body)
        # nats-server answers some in threads of their own, those to all servers in turn, and all
        # others in turn. Ours reads the configuration in a thread, and answers when it is taken
        # over.
        is_slow = subject.endswith(("PROFILEZ", "STATSZ", "RELOAD")) or subject == "SERVER.PING"
        rounds = 20_000 if is_slow or self._is_member else 20
        control = "SERVER.PING.IDZ" if ".PING" in subject else "SERVER.$ID.IDZ"
        if self._is_member:
            control = "USER.INFO"
        for _ in range(rounds):  # silence: many others are answered meanwhile
            other = self._send(control, None)
            while (found := self._read())[0] != other:
                if found[0] == name:
                    while self._read()[0] != other:
                        pass
                    return found[1]
        return SILENCE

    def _send(self, subject: str, body: object) -> str:
        self._count += 1
        data = body if isinstance(body, bytes) else b""
        if body is not None and not isinstance(body, bytes):
            data = json.dumps(body).encode()
        name = f"_INBOX.r.{self._count}"
        place = f"$SYS.REQ.{subject.replace('$ID', self.id)}"
        self.raw.send(f"PUB {place} {name} {len(data)}\r\n".encode() + data + b"\r\n")
        return name

    def _read(self) -> tuple[str, Any]:
        line, header, payload = self.raw.read_message()
        if header.startswith(b"NATS/1.0 503"):
            return line.split()[1], NOBODY
        return line.split()[1], json.loads(payload)


class Watched:
    """A running server with a monitoring port, and the clients that belong to the picture."""

    def __init__(self, kind: str, folder: Path, config: str) -> None:
        self.kind = kind
        self.folder = folder
        self.clients: dict[str, RawClient] = {}
        self.others: list[Any] = []
        path = folder / "server.conf"
        path.write_text(config.replace("STORE", str(folder)))
        flags = ["-c", str(path), "-a", "127.0.0.1", "-p", "-1"]
        self.process = ServerProcess(kind, flags)
        base = re.search(r'http_base_path: "(.*)"', config)
        self._base = base[1] if base else ""
        self._http: http.client.HTTPConnection | None = None

    def ready(self) -> None:
        """Wait until pages are served."""
        self.process.wait_ready()
        match = MONITOR.search(self.process.log)
        assert match, self.process.log
        self._http = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=REPLY_SECONDS)

    def client(self, name: str, **login: Any) -> RawClient:
        """A client that stays connected; it also sends the name to the server."""
        fields = {"name": name, "lang": "raw", "version": "1", "no_responders": True, **login}
        return self.keep(name, RawClient(self.process.port).connect(**fields))

    def keep(self, name: str, client: RawClient) -> RawClient:
        self.clients[name] = client
        return client

    def page(
        self, path: str, method: str = "GET", *, is_outside: bool = False, **headers: str
    ) -> Page:
        """One page below the base path, or outside; `{name}` is the connection id of a client."""
        assert self._http is not None
        ids = {name: client.info.get("client_id", 0) for name, client in self.clients.items()}
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        place = path if is_outside else self._base + path
        self._http.request(method, place.format(**ids), headers=named)
        answer = self._http.getresponse()
        given = {name.lower(): value for name, value in answer.getheaders()}
        return Page(answer.status, given, answer.read())

    def document(self, path: str) -> Any:
        return json.loads(self.page(path).body)

    def wait_closed(self, count: int) -> None:
        """Wait until so many connections have ended."""
        closed = "/connz?state=closed"
        wait_for(lambda: self.document(closed)["total"] >= count, lambda: self.process.log)

    def wait_asked(self, subject: str) -> None:
        """Wait until the server at the other end asks for a subject that contains this."""
        wait_for(lambda: subject in str(self.document("/leafz?subs=1")), lambda: self.process.log)

    def stop(self) -> None:
        if self._http is not None:
            self._http.close()
        for client in self.clients.values():
            client.close()
        for other in self.others:
            other.stop()
        self.process.stop()


# ---------------------------------------------------------------- differences

Rule = Callable[[Any], bool]


def matches(pattern: str) -> Rule:
    expression = re.compile(pattern)
    return lambda value: isinstance(value, str) and expression.fullmatch(value) is not None


def number(lowest: float = 0) -> Rule:
    def rule(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and value >= lowest

    return rule


TIME = matches(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{0,8}[1-9])?Z")
AGE = matches(r"(\d+y)?(\d+d)?(\d+h)?(\d+m)?\d+s")
DURATION = matches(r"(\d+h)?(\d+m)?\d+(\.\d+)?(s|ms|µs|ns)")
# What differs between two runs of one server: the field, wherever it is, and what both must have.
VOLATILE: dict[str, Rule] = {
    "now": TIME,
    "start": TIME,
    "stop": TIME,
    "time": TIME,
    "timestamp": TIME,
    "last_activity": TIME,
    "config_load_time": TIME,
    "update_time": TIME,
    "created": TIME,
    "ts": TIME,
    "first_ts": TIME,
    "last_ts": TIME,
    "last_active": TIME,
    "uptime": AGE,
    "idle": AGE,
    "rtt": DURATION,
    "active": number(-1),
    "pause_remaining": number(1),
    "server_id": matches(r"N[A-Z2-7]{55}|"),
    "config_digest": matches(r"(sha256:[0-9a-f]{64})?"),
    "urls": matches(r"127\.0\.0\.1:\d+"),
    "store_dir": matches(r".*/jetstream"),
    "go": matches(r"(go|python)\d+\.\d+.*"),
    "mem": number(1),
    "cpu": number(),
    "cid": number(1),
    "port": number(1),
    "server.seq": number(1),
    # How much is written when a connection ends depends on who is faster.
    "pending_bytes": number(),
}
# Of a server, of a connection or of an event; of an account it is its name. A server without a
# name is called by its id, or by its host and a part of the id.
HOST_NAME = re.escape(socket.gethostname().partition(".")[0])
ID = re.compile(rf"N[A-Z2-7]{{55}}|[0-9A-Za-z]{{22}}|{HOST_NAME}-[A-Z2-7]{{6}}")
# Messages in which times have more or fewer digits are longer or shorter.
SIZES = {"out_bytes", "out_client_bytes", "bytes"}
SIZE_EXACT_MAX = 100
SIZE_SLACK = 16
SIZE_TOLERANCE = 0.01
LOOP_SUBJECT = re.compile(r"\$LDS\.\w+")
ANSWER_SUBJECT = re.compile(r"_R_(\.\w+)+")


def _kind(value: Any) -> type:
    return float if number(-1e30)(value) else type(value)


def _without_chance(text: str) -> str:
    """A text without what is drawn by lot."""
    for pattern, name in ((ID, "ID"), (LOOP_SUBJECT, "$LDS"), (ANSWER_SUBJECT, "_R_")):
        text = name if pattern.fullmatch(text) else text
    return text


@dataclass
class Comparison:
    """How the answers of two servers differ, by page and path.

    `orders` are fields whose lists nats-server keeps in no order, with what they are sorted by.
    """

    orders: dict[str, Callable[[Any], Any]]
    found: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def compare(self, path: str, official: Any, ours: Any) -> None:
        """Add what differs at or below a path."""
        if isinstance(official, dict) and isinstance(ours, dict):
            self._compare_objects(path, official, ours)
        elif isinstance(official, list) and isinstance(ours, list):
            self._compare_lists(path, official, ours)
        elif _kind(official) is not _kind(ours) or not self._is_alike(path, official, ours):
            self.found.setdefault(path, (official, ours))

    @staticmethod
    def _is_alike(path: str, official: Any, ours: Any) -> bool:
        name = path.rpartition(".")[2].removesuffix("[]")
        rule = VOLATILE.get(name) or VOLATILE.get(".".join(path.split(".")[-2:]))
        if ".http_req_stats." in path:
            rule = number(1)
        if rule is not None:
            return rule(official) and rule(ours)
        if name in SIZES:
            slack = SIZE_SLACK if official > SIZE_EXACT_MAX else 0
            return bool(abs(official - ours) <= max(official * SIZE_TOLERANCE, slack))
        if isinstance(official, str):
            return _without_chance(official) == _without_chance(ours)
        if name == "id" and number(1)(official):
            return number(1)(ours)
        return bool(official == ours)

    def _compare_objects(self, path: str, official: dict[str, Any], ours: dict[str, Any]) -> None:
        official = {_without_chance(key): value for key, value in official.items()}
        ours = {_without_chance(key): value for key, value in ours.items()}
        for key in official.keys() - ours.keys():
            self.found.setdefault(f"{path}.-{key}", (official[key], None))
        for key in ours.keys() - official.keys():
            self.found.setdefault(f"{path}.+{key}", (None, ours[key]))
        common = [key for key in official if key in ours]
        if common != (given := [key for key in ours if key in official]):
            self.found.setdefault(f"{path}.(order)", (common, given))
        for key in common:
            self.compare(f"{path}.{key}", official[key], ours[key])

    def _compare_lists(self, path: str, official: list[Any], ours: list[Any]) -> None:
        order = self.orders.get(path.rpartition(".")[2])
        if order is not None:
            official, ours = sorted(official, key=order), sorted(ours, key=order)
        if len(official) != len(ours):
            self.found.setdefault(f"{path}.(length)", (official, ours))
        for one, other in zip(official, ours, strict=False):
            self.compare(f"{path}[]", one, other)
