"""Hostile lines and the exact reaction to each, with and without a login."""

from __future__ import annotations

import pytest

from tradewind.testing import FakeConnection, InProcessServer, User, UserGate
from tradewind.wire import ops

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
UNKNOWN = b"-ERR 'Unknown Protocol Operation'\r\n"
TOO_LONG = b"-ERR 'maximum control line exceeded'\r\n"
TOO_LARGE = b"-ERR 'Maximum Payload Violation'\r\n"
REFUSED = b"-ERR 'Authorization Violation'\r\n"
SILENT = b""


def watched() -> tuple[InProcessServer, FakeConnection, FakeConnection]:
    server = InProcessServer()
    bystander = server.connect(QUIET + b"SUB > 1\r\n")
    return server, bystander, server.connect(QUIET)


@pytest.mark.parametrize(
    ("data", "reaction"),
    [
        # lines that are too long, found before they end
        (b"SUB " + b"a" * 4097, TOO_LONG),
        (b"PUB " + b"a" * 5000 + b" 0\r\n\r\n", TOO_LONG),
        (b"UNSUB " + b"1" * 4097, TOO_LONG),
        (b"CONNECT " + b"x" * 4097, TOO_LONG),
        (b"CONNECT " + b'{"name":"' + b"x" * 1_000_000 + b'"}\r\n', TOO_LONG),
        (b"INFO " + b"x" * 4097, TOO_LONG),
        (b"-ERR " + b"x" * 4097, TOO_LONG),
        (b"SUB " + b" " * 30_000 + b"a 1\r\n", TOO_LONG),
        (b"SUB a " + b"q" * 4100 + b" 1\r\n", TOO_LONG),
        (b"SUB a " + b"1" * 4100 + b"\r\n", TOO_LONG),
        # verbs that do not exist, or are the server's
        (b"X", UNKNOWN),
        (b"\x00", UNKNOWN),
        (b"\xff\xfe\xfd", UNKNOWN),
        (b"GET / HTTP/1.1\r\n\r\n", UNKNOWN),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", UNKNOWN),
        (b"PUBLISH a 0\r\n\r\n", UNKNOWN),
        (b"MSG a 1 0\r\n\r\n", UNKNOWN),
        (b"P\x00NG\r\n", UNKNOWN),
        (b"-ERR 'x'\r\n", SILENT),
        # sizes
        (b"PUB a -1\r\n", SILENT),
        (b"PUB a 4294967296\r\n", SILENT),
        (b"PUB a 18446744073709551615\r\n", SILENT),
        (b"PUB a 999999999\r\n", TOO_LARGE),
        (b"PUB a 1048577\r\n", TOO_LARGE),
        (b"PUB a 2147483648\r\n", SILENT),
        (b"HPUB a 10 5\r\n", SILENT),
        (b"HPUB a -5 5\r\n", SILENT),
        (b"HPUB a 999999999 999999999\r\n", TOO_LARGE),
        (b"PUB a 3\r\nabcdef\r\n", UNKNOWN),
        (b"PUB a 3\r\nab\r\nPING\r\n", UNKNOWN),
        # CONNECT that is none
        (b"CONNECT \r\n", SILENT),
        (b"CONNECT []\r\n", SILENT),
        (b'CONNECT {"verbose":"yes"}\r\n', SILENT),
        (b'CONNECT {"user":\x00}\r\n', SILENT),
        (b'CONNECT {"a":' + b"[" * 2000 + b"]" * 2000 + b"}\r\n", SILENT),
        (b"CONNECT " + b"[" * 4000 + b"\r\n", SILENT),
        (b"INFO " + b"[" * 4000 + b"\r\n", SILENT),
        (b'INFO {"a":' + b"[" * 2000 + b"]" * 2000 + b"}\r\n", SILENT),
        (b"INFO \xff\r\n", SILENT),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_the_connection_is_closed_with_exactly_this_reaction(data: bytes, reaction: bytes) -> None:
    server, bystander, client = watched()
    assert client.ask(data) == reaction
    assert not client.is_open
    assert client.session.input_pending_bytes == 0
    assert bystander.ask(b"PING\r\n") == b"PONG\r\n"
    assert list(server.broker.sessions) == [bystander.session.cid]


@pytest.mark.parametrize(
    ("data", "delivered"),
    [
        # nothing in a token but blanks and line ends is special
        (b"PUB a\x00b 1\r\nx\r\n", b"MSG a\x00b 1 1\r\nx\r\n"),
        (b"PUB a\rb 1\r\nx\r\n", b"MSG a\rb 1 1\r\nx\r\n"),
        (b"PUB \xff\xfe 0\r\n\r\n", b"MSG \xff\xfe 1 0\r\n\r\n"),
        (b"PUB a r\x00\xff 0\r\n\r\n", b"MSG a 1 r\x00\xff 0\r\n\r\n"),
        # payloads and headers are never looked into
        (b"PUB a 8\r\nPUB b 0\n\r\n", b"MSG a 1 8\r\nPUB b 0\n\r\n"),
        (
            b"HPUB a 22 22\r\nNATS/1.0\r\nA: b\r\n\x00\r\nx\r\n\r\n",
            b"HMSG a 1 22 22\r\nNATS/1.0\r\nA: b\r\n\x00\r\nx\r\n\r\n",
        ),
        (b"HPUB a 3 3\r\n\r\n\r\r\n", b"HMSG a 1 3 3\r\n\r\n\r\r\n"),
        # subjects of very many tokens
        (b"PUB " + b"a." * 2000 + b"a 0\r\n\r\n", b"MSG " + b"a." * 2000 + b"a 1 0\r\n\r\n"),
        # empty tokens reach nobody
        (b"PUB a..b 0\r\n\r\nPUB . 0\r\n\r\nPUB .a 0\r\n\r\n", b""),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_odd_messages_arrive_as_they_were_sent(data: bytes, delivered: bytes) -> None:
    _, bystander, client = watched()
    assert client.ask(data + b"PING\r\n") == b"PONG\r\n"
    assert bystander.take() == delivered


def test_no_line_end_gets_into_a_line_of_somebody_else() -> None:
    """A subject, reply, sid or queue that could hold CRLF would forge operations for others."""
    _, bystander, client = watched()
    client.send(b"SUB a\nPUB forged 0 1\r\n")
    assert not client.is_open
    assert bystander.take() == b""
    sids = InProcessServer().connect(QUIET)
    sids.send(b"SUB a 1\rMSG\r\nSUB b \r2\r\n")
    found = {(entry.subject, entry.queue, entry.sid) for entry in sids.session.subscriptions()}
    assert found == {("a", "1", "MSG"), ("b", "", "2")}


def test_sids_and_queues_may_be_as_long_as_a_line() -> None:
    client = InProcessServer().connect(QUIET)
    queue, sid = b"q" * 2000, b"1" * 2000
    assert client.ask(b"SUB a %b %b\r\nPUB a 0\r\n\r\n" % (queue, sid)) == (
        b"MSG a %b 0\r\n\r\n" % sid
    )
    client.send(b"UNSUB %b\r\n" % sid)
    assert client.session.subscription_count == 0


def test_a_subscription_of_ten_thousand_tokens_is_too_long_a_line() -> None:
    client = InProcessServer().connect(QUIET)
    assert client.ask(b"SUB " + b"a." * 10_000 + b"a 1\r\n") == TOO_LONG


@pytest.mark.parametrize(
    "data",
    [
        b"PING\r\n",
        b"PUB a 0\r\n\r\n",
        b"SUB a 1\r\n",
        b"+OK\r\n",
        b"X",
        b"\r\n",
        b"\x00",
        b"INFO {}\r\n",
        b"CONNECT {}\r\n",
        b'CONNECT {"user":"alice"}\r\n',
        b'CONNECT {"user":"alice","pass":"\x00"}\r\nPING\r\n',
        b'CONNECT {"user":"alice","pass":"pw","account":"A"}\r\n',
    ],
)
def test_without_a_login_every_operation_is_refused_the_same_way(data: bytes) -> None:
    server = InProcessServer(gate=UserGate([User("alice", "pw")]))
    stranger = server.connect(data)
    expected = SILENT if b"\x00" in data and b"CONNECT" in data else REFUSED
    assert stranger.take() == expected
    assert not stranger.is_open
    assert stranger.session.close_reason in (
        ops.CLOSED_AUTHENTICATION_FAILURE,
        ops.CLOSED_PROTOCOL,
    )


def test_a_refused_login_cannot_forge_log_lines() -> None:
    server = InProcessServer(gate=UserGate([User("alice", "pw")]))
    login = b'CONNECT {"user":"alice","pass":"pw"}\r\n'
    server.connect(login + b'CONNECT {"user":"a\\n[INF] forged","name":"b\\r\\nc"}\r\n')
    server.connect(b'CONNECT {"user":"\\u001b[2J\\nforged"}\r\n')
    assert server.log.lines
    assert not any(set(text) & set("\r\n\x1b") for _, text in server.log.lines)


def test_passwords_stay_out_of_the_log() -> None:
    server = InProcessServer(gate=UserGate([User("alice", "pw")]))
    server.log.debug_enabled = server.log.trace_enabled = True
    server.broker.reload(
        server.broker.options, server.broker.admission.gates, {}, identities_changed=False
    )
    for document in (
        b'{"user":"alice","pass":"hunter2"}',
        b'{"user":"alice","PASS" : "hunter2"}',
        b'{"auth_token":"hunter2","jwt":"hunter2","sig":"hunter2"}',
        b'{"pass":"\\"hunter2"}',
        b'{"pass":"hunter2',
        b'{"p\\u0061ss":"hunter2"}',
        b'{"pass":["hunter2"]}',
        b'{"pass":5,"user":"hunter2',
    ):
        server.connect(b"CONNECT %b\r\n" % document)
    assert server.log.texts("trace")
    leaked = [text for _, text in server.log.lines if "hunter2" in text]
    assert not leaked
