"""Helpers for the operations tests: servers with a config, logins, pages, requests, certificates.

Never asserts a behaviour of a server itself; it only waits, and fails when the wait is over.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from nkeys import PREFIX_BYTE_USER, encode_seed, from_seed  # type: ignore[import-untyped]

from certificates import Authority, Certificate
from harness import COMMANDS, RawClient, ServerProcess, wait_for

LOOPBACK = ("-a", "127.0.0.1", "-p", "-1")
VIOLATION = b"-ERR 'Authorization Violation'\r\n"


@contextmanager
def running(kind: str, directory: Path, config: str, *args: str) -> Iterator[ServerProcess]:
    """A ready server with this config on a random loopback port, stopped at the end.

    STORE in the config becomes the name of the directory.
    """
    path = directory / "server.conf"
    path.write_text(config.replace("STORE", str(directory)))
    process = ServerProcess(kind, [*LOOPBACK, "-c", str(path), *args])
    try:
        yield process.wait_ready()
    finally:
        process.stop()


def shared_server(config: str, *args: str) -> Any:
    """A fixture for a module: one server with this config for all tests that leave it as it is."""

    @pytest.fixture(scope="module")
    def fixture(
        shared_kind: str, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[ServerProcess]:
        directory = tmp_path_factory.mktemp("server")
        with running(shared_kind, directory, config, *args) as process:
            yield process

    return fixture


def run_once(kind: str, *args: str, seconds: float = 20) -> subprocess.CompletedProcess[str]:
    """Run the server's command to its end, for invocations that are not meant to keep running."""
    return subprocess.run(
        [COMMANDS[kind], *args], capture_output=True, text=True, timeout=seconds, check=False
    )


def config_path(server: ServerProcess) -> Path:
    """The file that the server was started with."""
    return Path(server.args[server.args.index("-c") + 1])


def reload(server: ServerProcess, config: str) -> str:
    """Replace the config file, send SIGHUP, and give the log line that tells how it went."""
    seen = len(server.lines)
    config_path(server).write_text(config)
    server.signal(signal.SIGHUP)
    return reload_outcome(server, seen)


def reload_outcome(server: ServerProcess, seen: int) -> str:
    """The first log line after `seen` lines that ends a reload."""
    outcome = re.compile(r"Reloaded server configuration|Failed to reload server configuration")

    def find() -> str:
        return next((line for line in server.lines[seen:] if outcome.search(line)), "")

    return str(wait_for(find, "the end of a reload"))


# Connections


def open_client(server: ServerProcess, *, read_info: bool = True) -> RawClient:
    """A raw connection that sends each write at once: the kernel holds no small write back."""
    client = RawClient(server.port, read_info=read_info)
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def connect_line(user: str | None = None, password: str | None = None, **options: Any) -> str:
    """A CONNECT line with verbose and pedantic off; options as in the protocol."""
    fields = {"verbose": False, "pedantic": False, "protocol": 1, "headers": True, **options}
    if user is not None:
        fields["user"] = user
    if password is not None:
        fields["pass"] = password
    return f"CONNECT {json.dumps(fields)}\r\n"


def login(
    server: ServerProcess, user: str | None = None, password: str | None = None, **options: Any
) -> RawClient:
    """A connection that is logged in; `info` is the INFO that follows the first PONG."""
    client = open_client(server)
    client.send(connect_line(user, password, **options) + "PING\r\n")
    client.expect("PONG")
    if options.get("protocol", 1) >= 1:
        client.info = client.read_info()
    return client


def refusal(server: ServerProcess, data: str) -> bytes:
    """The output to a fresh connection after INFO when it sends `data`, until it is closed."""
    with open_client(server) as client:
        client.send(data)
        # A server that is slow to answer may send a PING first.
        return client.read_to_end().replace(b"PING\r\n", b"")


def replies(client: RawClient, data: str) -> list[bytes]:
    """The lines that the server answers to `data`, up to the PONG of a PING sent behind it."""
    client.send(data + "PING\r\n")
    lines: list[bytes] = []
    while (line := client.read_line()) != b"PONG":
        assert line, f"closed after {lines}"
        if line == b"PING":
            client.send("PONG\r\n")
        elif not line.startswith(b"INFO "):
            lines.append(line)
    return lines


def next_message(client: RawClient) -> tuple[list[str], bytes, bytes]:
    """The next message as (control line words, header block, payload); answers PINGs."""
    while True:
        line = client.read_line()
        assert line, "closed while waiting for a message"
        words = line.decode().split()
        if words[0] in ("MSG", "HMSG"):
            break
        assert words[0] in ("PING", "INFO"), line
        if words[0] == "PING":
            client.send("PONG\r\n")
    header_size = int(words[-2]) if words[0] == "HMSG" else 0
    body = client.read_exact(int(words[-1]) + 2)
    return words, body[:header_size], body[header_size:-2]


def publish(subject: str, payload: str = "", reply: str = "") -> str:
    """A PUB as it goes over the wire."""
    return f"PUB {subject} {reply}{' ' if reply else ''}{len(payload.encode())}\r\n{payload}\r\n"


_inboxes = iter(range(1, 1 << 30))


def request(client: RawClient, subject: str, body: str = "") -> tuple[bytes, bytes]:
    """Header block and payload of the first answer to a request."""
    number = next(_inboxes)
    inbox = f"_INBOX.ops.{number}"
    client.send(f"SUB {inbox} r{number}\r\nUNSUB r{number} 1\r\n{publish(subject, body, inbox)}")
    words, header, payload = next_message(client)
    assert words[1] == inbox, words
    return header, payload


def system_request(client: RawClient, subject: str, body: str = "") -> dict[str, Any]:
    """The JSON answer to a request of the system account's kind."""
    header, payload = request(client, subject, body)
    assert b"503" not in header, f"no responders for {subject}"
    answer = json.loads(payload)
    assert isinstance(answer, dict)
    return answer


def is_unanswered(client: RawClient, subject: str, body: str = "") -> bool:
    """Whether a request finds no responders; the client must have asked for that status."""
    header, payload = request(client, subject, body)
    return header.startswith(b"NATS/1.0 503\r\n") and payload == b""


# Monitoring


@dataclass(frozen=True)
class Page:
    """One HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> dict[str, Any]:
        assert self.status == 200, f"{self.status}: {self.text}"
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value


def monitor_port(server: ServerProcess) -> int:
    """The port of the monitoring pages, read from the log."""
    return int(server.wait_for_log(r"Starting http monitor on \S+:(\d+)")[1])


def fetch(server: ServerProcess, path: str, method: str = "GET") -> Page:
    """One page of the monitoring listener."""
    connection = http.client.HTTPConnection("127.0.0.1", monitor_port(server), timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return Page(answer.status, headers, answer.read())
    finally:
        connection.close()


def connection_of(server: ServerProcess, client: RawClient, query: str = "") -> dict[str, Any]:
    """The /connz entry of this client."""
    found = fetch(server, f"/connz?cid={client.info['client_id']}{query}").json()["connections"]
    assert len(found) == 1, found
    entry: dict[str, Any] = found[0]
    return entry


RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z\Z")
UPTIME = re.compile(r"(\d+y)?(\d+d)?(\d+h)?(\d+m)?\d+s\Z")


class Shape:
    """A rule for a JSON value that compares equal to what fits, so a failed assertion shows both.

    The rule is a type (a bool is not an int here) or a regular expression for a string.
    """

    def __init__(self, rule: Any) -> None:
        self.rule = rule

    def __eq__(self, value: object) -> bool:
        rule = self.rule
        if rule is int:
            return isinstance(value, int) and not isinstance(value, bool)
        if rule is float:
            return isinstance(value, int | float) and not isinstance(value, bool)
        if isinstance(rule, type):
            return isinstance(value, rule)
        assert isinstance(rule, re.Pattern)
        return isinstance(value, str) and rule.match(value) is not None

    def __hash__(self) -> int:
        return hash(repr(self.rule))

    def __repr__(self) -> str:
        return f"<{self.rule.pattern if isinstance(self.rule, re.Pattern) else self.rule.__name__}>"


INT = Shape(int)
NUMBER = Shape(float)
TEXT = Shape(str)
BOOL = Shape(bool)
OBJECT = Shape(dict)
LIST = Shape(list)
TIME = Shape(RFC3339)
AGE = Shape(UPTIME)
FEATURE_FLAGS = {
    "js_ack_fc_v2": BOOL,
    "js_api_reply_v2": BOOL,
    "js_raft_delete_range": BOOL,
    "js_snapshot_sources": BOOL,
}


# Keys and certificates


@dataclass(frozen=True)
class UserKey:
    """An nkey of a user: its public name, its seed, and what signs nonces."""

    public: str
    seed: bytes

    def sign(self, nonce: str) -> str:
        signature = from_seed(bytearray(self.seed)).sign(nonce.encode())
        return base64.urlsafe_b64encode(signature).rstrip(b"=").decode()


def user_key(number: int) -> UserKey:
    """A user key made from a number, the same each time."""
    seed = encode_seed(bytes([number]) * 32, PREFIX_BYTE_USER)
    return UserKey(from_seed(bytearray(seed)).public_key.decode(), bytes(seed))


class Certificates:
    """One authority, a certificate of the server, and certificates of clients by name."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.server = self.authority.server()
        self.clients: dict[str, Certificate] = {}

    def block(self, more: str = "") -> str:
        """A `tls {}` block of the server's config."""
        return (
            f'tls {{ cert_file: "{self.server.cert_file}", key_file: "{self.server.key_file}", '
            f'ca_file: "{self.authority.ca_file}"\n{more} }}\n'
        )

    def context(self, name: str | None = None) -> ssl.SSLContext:
        """A client's context that trusts the authority and shows the certificate of `name`."""
        if name is None:
            return self.authority.client_context()
        return self.clients[name].client_context(self.authority)

    def upgrade(self, client: RawClient, name: str | None = None) -> RawClient:
        """Put TLS on a raw connection."""
        context = self.context(name)
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        return client
