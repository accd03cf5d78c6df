"""Garbage on one connection never disturbs another one."""

from __future__ import annotations

import contextlib
import json

import pytest

from harness import Connect, RawClient, ServerProcess

CONNECT = b'CONNECT {"verbose":false,"headers":true}\r\n'

HOSTILE = {
    "nothing": b"",
    "zero-bytes": b"\x00" * 64,
    "high-bytes": b"\xff" * 64,
    "all-bytes": bytes(range(256)),
    "line-ends": b"\r\n" * 100,
    "spaces": b" " * 5000,
    "http-get": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "http-post": b"POST /PUB HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    "http2-preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "tls-client-hello": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + b"\x11" * 154,
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "redis": b"*1\r\n$4\r\nPING\r\n",
    "smtp": b"EHLO localhost\r\n",
    "telnet-options": b"\xff\xfd\x18\xff\xfd\x20\xff\xfd\x23",
    "proxy-protocol": b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
    "half-a-verb": b"PU",
    "half-a-line": b"SUB foo",
    "half-a-payload": b"PUB hostile 100\r\nhalf",
    "half-a-header": b"HPUB hostile 100 200\r\nNATS/1.0\r\n",
    "endless-verb": b"P" * 10_000,
    "endless-line": b"PUB " + b"a" * 100_000,
    "endless-connect": b"CONNECT " + b"{" * 100_000,
    "deep-json": b'CONNECT {"a":' + b"[" * 2000 + b"]" * 2000 + b"}\r\n",
    "json-surrogate": b'CONNECT {"name":"\\ud800"}\r\n',
    "json-number": b'CONNECT {"protocol":1e999999}\r\n',
    "json-not-utf-8": b'CONNECT {"\xff\xfe":"\xc3\x28"}\r\n',
    "connect-twice-badly": b"CONNECT {}\r\nCONNECT {\r\n",
    "negative-size": b"PUB hostile -1\r\n\r\n",
    "huge-size": b"PUB hostile 999999999\r\n",
    "size-of-30-digits": b"PUB hostile " + b"9" * 30 + b"\r\n",
    "unicode-digits": "PUB hostile ٣\r\nabc\r\n".encode(),
    "header-beyond-total": b"HPUB hostile 999 1\r\na\r\n",
    "header-of-nonsense": b"HPUB hostile 4 4\r\n\x00\r\n\xff\r\n",
    "payload-not-ended": b"PUB hostile 2\r\nhiPUB hostile 2\r\nhi",
    "sub-many-words": b"SUB " + b"a " * 1000 + b"\r\n",
    "sub-deep-subject": b"SUB " + b"a." * 2000 + b"b 1\r\n",
    "sub-only-dots": b"SUB " + b"." * 4000 + b" 1\r\n",
    "sub-many-wildcards": b"SUB " + b"*." * 1000 + b"> 1\r\nPUB " + b"a." * 2000 + b"b 0\r\n\r\n",
    "sub-terminal-escapes": b"SUB \x1b[2J\x1b]0;x\x07 1\r\n",
    "sub-format-string": b"SUB %s%n{0}{} 1\r\nPUB %s%n{0}{} 0\r\n\r\n",
    "unsub-nonsense": b"UNSUB \x00\xff 18446744073709551616\r\n",
    "server-error": b"-ERR 'go away'\r\n",
    "server-ok": b"+OK\r\n" * 1000,
    "server-info": b'INFO {"server_id":"x","connect_urls":["a:1"],"ldm":true}\r\n',
    "server-message": b"MSG healthy 1 4\r\nfake\r\n",
    "server-header-message": b"HMSG healthy 1 12 16\r\nNATS/1.0\r\n\r\nfake\r\n",
    "route-subscription": b"RS+ $G healthy\r\n",
    "leaf-message": b"LMSG healthy 4\r\nfake\r\n",
    "account-message": b"A+ $G\r\n",
    "pong-flood": b"PONG\r\n" * 5000,
    "sid-flood": b"".join(b"SUB hostile.%d %d\r\n" % (n, n) for n in range(2000)),
}


def open_hostile(port: int, data: bytes) -> RawClient:
    """A connection on which as much was sent as the server would take."""
    client = RawClient(port)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        client.send(data)
    return client


@pytest.fixture
def healthy(wire: Connect, subject: str) -> RawClient:
    client = wire()
    client.send(f"SUB {subject} 1\r\n")
    client.ping()
    return client


@pytest.mark.parametrize("before", [b"", CONNECT], ids=["at-once", "after-connect"])
@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_do_not_disturb_another_client(
    healthy: RawClient, subject: str, before: bytes, data: bytes
) -> None:
    port = healthy.info["port"]
    hostile = open_hostile(port, before + data)
    healthy.send(f"PUB {subject} 5\r\nalive\r\nPING\r\n")
    healthy.expect_bytes(f"MSG {subject} 1 5\r\nalive\r\nPONG\r\n")
    hostile.close()
    healthy.ping()
    with RawClient(port) as newcomer:
        newcomer.connect()


def test_all_hostile_connections_at_once(healthy: RawClient, subject: str) -> None:
    port = healthy.info["port"]
    for data in HOSTILE.values():
        open_hostile(port, data).close()
        open_hostile(port, CONNECT + data).close()
        healthy.send(f"PUB {subject} 5\r\nalive\r\n")
    healthy.send("PING\r\n")
    healthy.expect_bytes(f"MSG {subject} 1 5\r\nalive\r\n" * len(HOSTILE) + "PONG\r\n")


def test_hostile_connection_gets_no_message_after_its_end(wire: Connect, subject: str) -> None:
    hostile, healthy = wire(), wire()
    hostile.send(f"SUB {subject} 1\r\nX")
    hostile.expect_closed("-ERR 'Unknown Protocol Operation'\r\n")
    healthy.send(f"PUB {subject} 0\r\n\r\n")
    healthy.ping()


def test_many_connections_come_and_go(healthy: RawClient, subject: str) -> None:
    port = healthy.info["port"]
    for _ in range(10):
        clients = [RawClient(port, read_info=False) for _ in range(20)]
        for client in clients:
            client.close()
    healthy.send(f"PUB {subject} 2\r\nhi\r\nPING\r\n")
    healthy.expect_bytes(f"MSG {subject} 1 2\r\nhi\r\nPONG\r\n")


def test_name_with_control_characters_is_accepted(wire: Connect) -> None:
    client = wire(name="a\nb\r\n\x1b[31m", lang="\x00", version=json.dumps({"a": "b"}))
    client.ping()


def test_server_did_not_crash_inside(server: ServerProcess, healthy: RawClient) -> None:
    # The last test of the module: all of the above is in the log by now.
    healthy.ping()
    assert "Traceback" not in server.log
    assert "panic" not in server.log
