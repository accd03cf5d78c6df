"""The shipped test kit does what its documentation says."""

from __future__ import annotations

import pytest

from tradewind.options import ServerOptions
from tradewind.testing import (
    FakeClock,
    InProcessServer,
    MemoryLog,
    User,
    UserGate,
)


def test_the_example_of_the_documentation() -> None:
    server = InProcessServer()
    alice, bob = server.connect(), server.connect()
    alice.send(b"CONNECT {}\r\nSUB greet 1\r\n")
    bob.send(b"PUB greet 2\r\nhi\r\n")
    assert alice.take() == b"+OK\r\n+OK\r\nMSG greet 1 2\r\nhi\r\n"


def test_the_info_line_can_be_kept() -> None:
    client = InProcessServer().connect(keep_info=True)
    assert client.take_line().startswith(b"INFO {")
    assert client.take() == b""


def test_options_reach_the_server() -> None:
    client = InProcessServer(ServerOptions(max_payload_bytes=7)).connect(keep_info=True)
    assert b'"max_payload":7' in client.take()


def test_time_only_passes_when_told_to() -> None:
    clock = FakeClock()
    wall_ns, monotonic_ns = clock.wall_ns(), clock.monotonic_ns()
    clock.advance_ns(5)
    assert (clock.wall_ns(), clock.monotonic_ns()) == (wall_ns + 5, monotonic_ns + 5)
    with pytest.raises(ValueError, match="duration_ns must not be negative"):
        clock.advance_ns(-1)


def test_timers_fire_at_their_own_moments() -> None:
    server = InProcessServer(ServerOptions(ping_interval_ns=10**9))
    start_ns = server.clock.monotonic_ns()
    client = server.connect(b"CONNECT {}\r\n")
    server.advance(1.5)
    assert client.session.ping_sent_ns == start_ns + 10**9
    assert server.clock.monotonic_ns() == start_ns + 1_500_000_000


def test_a_connection_that_does_not_read_gets_everything_later() -> None:
    server = InProcessServer()
    client = server.connect()
    client.stop_reading()
    client.send(b"PING\r\nPING\r\n")
    assert client.take() == b""
    client.resume_reading()
    assert client.take() == b"PONG\r\nPONG\r\n"


def test_a_server_that_hangs_up_is_seen() -> None:
    client = InProcessServer().connect()
    assert client.ask(b"nonsense\r\n") == b"-ERR 'Unknown Protocol Operation'\r\n"
    assert not client.is_open


def test_users_enter_by_name_and_password() -> None:
    gate = UserGate([User("alice", "pw", account="A")])
    server = InProcessServer(gate=gate, accounts=["A"])
    assert server.connect(b'CONNECT {"user":"alice","pass":"pw"}\r\n').take() == b"+OK\r\n"
    refused = server.connect(b'CONNECT {"user":"alice","pass":"no"}\r\n')
    assert refused.take() == b"-ERR 'Authorization Violation'\r\n"
    assert "pw" not in repr(User("alice", "pw"))


def test_the_log_keeps_what_was_asked_for() -> None:
    log = MemoryLog(debug=True)
    server = InProcessServer(log=log)
    server.connect().close()
    assert len(log.texts("debug")) == 2
    assert log.texts("trace") == []
