"""Requests that no client sends, to every subject that the server listens to itself.

None of them may be met by an exception that nobody has foreseen: the in-process server fails a test
in which one is contained.
"""

from __future__ import annotations

import itertools
import json
import random

import pytest

from tradewind.api.endpoints import ENDPOINTS
from tradewind.broker.accounts import AccountLimits
from tradewind.monitor.system_answers import SystemServices
from tradewind.options import AccountOptions, JetStreamOptions, ServerOptions
from tradewind.testing import FakeConnection, InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk
from tradewind.testing.gates import User, UserGate

DEEP = 20_000
DIGITS = b"9" * 5000
VALUES: tuple[bytes, ...] = (
    b"",
    b"null",
    b"true",
    b"0",
    b"-1",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551616",
    DIGITS,
    b"-" + DIGITS,
    b"1e400",
    b"1." + DIGITS,
    b'""',
    b'"' + b"a" * 50_000 + b'"',
    b'"\xff\xfe"',
    b'"\\ud800"',
    b'"\\u0000"',
    b"\x00",
    b"\xff" * 100,
    b"[" * DEEP,
    b"[" * DEEP + b"]" * DEEP,
    b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    b"[" + b"1," * 5000 + b"1]",
    b'"0001-01-01T00:00:00Z"',
    b'"9999-12-31T23:59:59.999999999-23:59"',
)
OTHER_SUBJECTS = (
    "$JS.API.CONSUMER.MSG.NEXT.S.c",
    "$JS.API.CONSUMER.MSG.NEXT.S.pinned",
    "$JS.API.DIRECT.GET.S",
    "$JS.API.DIRECT.GET.S.s.a",
    "$JS.ACK.S.c.1.1.1.1.0",
    "$JS.ACK.S.c.1.1.1",
    "$JS.ACK.S.c.%s.%s.%s.%s.%s" % ((DIGITS[:40].decode(),) * 5),
    "$JS.ACK.S.c.1.18446744073709551615.18446744073709551615.1.0",
    "$JS.FC.S.push.abcd",
    "$SYS.REQ.USER.INFO",
    "$SYS.REQ.ACCOUNT.PING.CONNZ",
    "$SYS.REQ.ACCOUNT.PING.STATZ",
)
SYSTEM_SUBJECTS = (
    *(f"$SYS.REQ.SERVER.PING.{name}" for name in ("VARZ", "CONNZ", "SUBSZ", "JSZ", "HEALTHZ")),
    *(f"$SYS.REQ.ACCOUNT.A.{name}" for name in ("CONNZ", "SUBSZ", "JSZ", "INFO", "STATZ", "CONNS")),
    "$SYS.REQ.SERVER.PING",
    "$SYS.REQ.SERVER.SERVER.KICK",
    "$SYS.REQ.SERVER.SERVER.LDM",
    "$SYS.REQ.ACCOUNT.NSUBS",
    "$SYS.DEBUG.SUBSCRIBERS",
    "$JS.API.ACCOUNT.PURGE.nobody",
)
HEADERS = (
    b"Nats-Required-Api-Level",
    b"Nats-Expected-Last-Sequence",
    b"Nats-Expected-Last-Subject-Sequence",
    b"Nats-Expected-Last-Msg-Id",
    b"Nats-Expected-Stream",
    b"Nats-Msg-Id",
    b"Nats-TTL",
    b"Nats-Rollup",
    b"Nats-Batch-Id",
    b"Nats-Batch-Sequence",
    b"Nats-Schedule",
    b"Nats-Incr",
    b"Nats-Last-Consumer",
    b"Nats-Last-Stream",
    b"Accept-Encoding",
)


def login(server: InProcessServer, user: str) -> FakeConnection:
    options = {"verbose": False, "headers": True, "no_responders": True, "user": user, "pass": "x"}
    client = server.connect(b"CONNECT " + json.dumps(options).encode() + b"\r\nSUB inbox.> 1\r\n")
    client.take()
    return client


class Ground:
    """A server with a stream S and consumers of every kind, and two clients of it."""

    def __init__(self) -> None:
        self.server = InProcessServer(
            ServerOptions(
                server_name="in-process",
                accounts={"A": AccountOptions("A", jetstream=True)},
                jetstream=JetStreamOptions(enabled=True),
                max_payload_bytes=8 * 1024 * 1024,
                max_control_line_bytes=65536,
            ),
            gate=UserGate([User("a", "x", "A"), User("s", "x", "$SYS")]),
            accounts={name: AccountLimits() for name in ("A", "$SYS")},
            disk=SimulatedDisk(),
        )
        broker = self.server.broker
        self.system = SystemServices(broker, lambda: None, broker.kick, broker.announce_lame_duck)
        self.system.start()
        self.client = login(self.server, "a")
        self.admin = login(self.server, "s")
        self.make()

    def make(self) -> None:
        self.ask("$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s.>"],"allow_direct":true}')
        for name, more in {
            "c": {},
            "push": {"deliver_subject": "push", "flow_control": True, "idle_heartbeat": 10**9},
            "pinned": {"priority_groups": ["A"], "priority_policy": "pinned_client"},
        }.items():
            config = {"durable_name": name, "ack_policy": "explicit", **more}
            body = json.dumps({"stream_name": "S", "config": config}).encode()
            self.ask(f"$JS.API.CONSUMER.CREATE.S.{name}", body)
        self.ask("s.a", b"message")

    def ask(self, subject: str, body: bytes, header: bytes = b"") -> bytes:
        client = self.admin if subject in SYSTEM_SUBJECTS else self.client
        if header:
            sizes = b"%d %d" % (len(header), len(header) + len(body))
            client.send(b"HPUB %b inbox.1 %b\r\n" % (subject.encode(), sizes) + header + body)
        else:
            client.send(b"PUB %b inbox.1 %d\r\n" % (subject.encode(), len(body)) + body)
        client.send(b"\r\n")
        assert client.is_open, subject
        return client.take()

    def check(self) -> None:
        """Time goes on, and so does everything else."""
        self.server.advance(1.5)
        assert self.client.ask(b"PING\r\n").endswith(b"PONG\r\n")


def subjects() -> list[str]:
    api = [each.subject_for("S", "c", "s.a") for each in ENDPOINTS if each.subject]
    return [*api, *OTHER_SUBJECTS, *SYSTEM_SUBJECTS]


@pytest.mark.parametrize("subject", subjects(), ids=lambda subject: subject[:60])
def test_a_body_of_any_kind_is_foreseen(subject: str) -> None:
    ground = Ground()
    for value in VALUES:
        for body in (value, b'{"seq":' + value + b"}", b"-NAK " + value, b"+NXT " + value):
            ground.ask(subject, body)
        if subject.startswith(("$JS.API.STREAM", "$JS.API.CONSUMER")):
            ground.make()
    ground.check()


@pytest.mark.parametrize("name", HEADERS, ids=lambda name: name.decode())
def test_a_header_of_any_kind_is_foreseen(name: bytes) -> None:
    ground = Ground()
    for value in VALUES:
        if b"\n" in value or len(value) > 60_000:
            continue
        header = b"NATS/1.0\r\n%b: %b\r\n\r\n" % (name, value)
        for subject in ("s.a", "$JS.API.INFO", *OTHER_SUBJECTS, "$SYS.REQ.SERVER.PING.VARZ"):
            ground.ask(subject, b"", header)
    ground.check()


NAMES = (
    "name", "config", "stream_name", "batch", "expires", "seq", "last_by_subj", "multi_last",
    "keep", "deliver_subject", "state", "opt_start_time", "backoff", "ack_wait", "priority_groups",
    "max_age", "subjects", "metadata", "sources", "republish", "subject_transform", "pause_until",
    "group", "offset", "id", "start_time", "delay", "cid", "limit", "account", "acc", "subject",
    "filter",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_random_documents_are_foreseen(seed: int) -> None:
    chance = random.Random(seed)
    ground = Ground()
    values = [value for value in VALUES if len(value) < 6000]

    def document(depth: int = 0) -> bytes:
        parts = []
        for name in chance.sample(NAMES, chance.randrange(1, 6)):
            kind = chance.randrange(4)
            value = document(depth + 1) if kind == 0 and depth < 3 else chance.choice(values)
            value = b"[" + value + b"]" if kind == 1 else value
            parts.append(json.dumps(name).encode() + b":" + (value or b"1"))
        return b"{" + b",".join(parts) + b"}"

    for subject, _ in itertools.product(subjects(), range(6)):
        ground.ask(subject, document())
    ground.check()
