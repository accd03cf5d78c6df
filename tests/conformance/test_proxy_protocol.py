"""The PROXY protocol on the client listener: whose connection it is, and what is refused."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_ops import fetch

from certificates import Authority
from harness import RawClient, ServerProcess, StartServer

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
PORTS = struct.pack(">HH", 4000, 4222)
IPV4 = socket.inet_aton("9.8.7.6") + socket.inet_aton("1.1.1.1") + PORTS
IPV6 = socket.inet_pton(socket.AF_INET6, "2001:db8::1") * 2 + PORTS
CONNECT = b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n'


def binary(addresses: bytes, command: int = 0x21, family: int = 0x11) -> bytes:
    return SIGNATURE + bytes((command, family)) + struct.pack(">H", len(addresses)) + addresses


@pytest.fixture(scope="module")
def proxied(shared_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    path = tmp_path_factory.mktemp("proxied") / "server.conf"
    path.write_text('proxy_protocol: true\nhttp: "127.0.0.1:-1"\n')
    process = ServerProcess(shared_kind, ["-c", str(path), "-a", "127.0.0.1", "-p", "-1"])
    try:
        yield process.wait_ready()
    finally:
        process.stop()


def address_of(server: ServerProcess, cid: int) -> tuple[str, int]:
    (shown,) = json.loads(fetch(server, f"/connz?cid={cid}").body)["connections"]
    return shown["ip"], shown["port"]


PASSED_ON: dict[str, tuple[bytes, str]] = {
    "a line": (b"PROXY TCP4 9.8.7.6 1.1.1.1 4000 4222\r\n", "9.8.7.6"),
    "a line of IPv6": (b"PROXY TCP6 2001:db8::1 ::1 4000 4222\r\n", "2001:db8::1"),
    "a line of IPv4 in IPv6": (b"PROXY TCP6 ::ffff:9.8.7.6 ::1 4000 4222\r\n", "9.8.7.6"),
    "a line of a health check": (b"PROXY UNKNOWN\r\n", ""),
    "a line of something else": (b"PROXY UNKNOWN a b c d e f\r\n", ""),
    "binary": (binary(IPV4), "9.8.7.6"),
    "binary of IPv6": (binary(IPV6, family=0x21), "2001:db8::1"),
    "binary with more behind": (binary(IPV4 + b"\3\0\4abcd"), "9.8.7.6"),
    "binary of a health check": (binary(b"", 0x20, 0), ""),
    "binary of a health check with addresses": (binary(IPV4, 0x20), ""),
    "binary without addresses": (binary(b"abc", family=0x01), ""),
    "no header": (b"", ""),
}


@pytest.mark.parametrize("case", PASSED_ON)
def test_address_is_that_of_the_header(proxied: ServerProcess, case: str) -> None:
    header, address = PASSED_ON[case]
    with RawClient(proxied.port, read_info=False) as client:
        own = client.socket.getsockname()
        client.send(header)
        info = client.read_info()
        assert "client_ip" not in info
        client.send(CONNECT)
        client.expect("PONG")
        shown = address_of(proxied, info["client_id"])
        assert shown == ((address, 4000) if address else own)


@pytest.mark.parametrize("header", [PASSED_ON["a line"][0], PASSED_ON["binary"][0]])
def test_header_may_come_in_pieces_and_with_what_follows(
    proxied: ServerProcess, header: bytes
) -> None:
    with RawClient(proxied.port) as client:
        for index in range(len(header)):
            client.send(header[index : index + 1])
        client.send(CONNECT)
        client.expect("PONG")
        assert address_of(proxied, client.info["client_id"])[0] == "9.8.7.6"
    with RawClient(proxied.port, read_info=False) as client:
        client.send(header + CONNECT + b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
        info = client.read_info()
        client.expect("PONG", "MSG a 1 2", "hi")
        assert address_of(proxied, info["client_id"])[0] == "9.8.7.6"


WRONG = {
    "IPv4 for IPv6": b"PROXY TCP6 9.8.7.6 1.1.1.1 4000 4222\r\n",
    "IPv6 for IPv4": b"PROXY TCP4 ::1 ::1 4000 4222\r\n",
    "a large port": b"PROXY TCP4 9.8.7.6 1.1.1.1 70000 4222\r\n",
    "no port": b"PROXY TCP4 9.8.7.6 1.1.1.1 x 4222\r\n",
    "no address": b"PROXY TCP4 9.8.7 1.1.1.1 4000 4222\r\n",
    "datagrams": b"PROXY UDP4 9.8.7.6 1.1.1.1 4000 4222\r\n",
    "a long line": b"PROXY TCP4 " + b"9" * 200,
    "an empty line": b"PROXY \r\n",
    "too few words": b"PROXY TCP4 9.8.7.6\r\n",
    "binary datagrams": binary(IPV4, family=0x12),
    "binary without a protocol": binary(IPV4, family=0x10),
    "binary of unix": binary(b"a" * 216, family=0x31),
    "binary of version 1": binary(IPV4, 0x11),
    "binary of another command": binary(IPV4, 0x25),
    "binary that is short": binary(IPV4[:-1]),
    "binary of IPv6 that is short": binary(IPV4, family=0x21),
    "another signature": SIGNATURE[:6] + b"X" * 20,
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_header_ends_the_connection(proxied: ServerProcess, case: str) -> None:
    seen = len(proxied.lines)
    with RawClient(proxied.port, read_info=False) as client:
        client.send(WRONG[case])
        assert b"PONG" not in client.read_to_end()
    proxied.wait_for_log("WRN. Error reading PROXY protocol header from 127.0.0.1:", since=seen)
    with RawClient(proxied.port) as next_one:
        next_one.connect()


def test_header_comes_before_tls(start: StartServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.server()
    server = start(
        f'proxy_protocol: true\nhttp: "127.0.0.1:-1"\n'
        f'tls {{ cert_file: "{own.cert_file}", key_file: "{own.key_file}" }}\n'
    )
    context = authority.client_context()
    with RawClient(server.port) as client:
        client.send(PASSED_ON["binary"][0])
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        client.send(CONNECT)
        client.expect("PONG")
        assert address_of(server, client.info["client_id"]) == ("9.8.7.6", 4000)


def test_address_of_the_header_counts_for_restrictions(start: StartServer) -> None:
    """The address of the proxy does not: a JWT may say from where its user comes."""
    from jwt_kit import account_jwt, account_key, login, memory_configuration, user_jwt, user_key

    key, account = user_key(1), account_key(1)
    token = user_jwt(key, account, src=["9.8.7.0/24"])
    config = memory_configuration({account.public: account_jwt(account)})
    server = start(config + "proxy_protocol: true\n")

    def answer(header: bytes) -> bytes:
        with RawClient(server.port) as client:
            fields: dict[str, Any] = login(token, key, client.info["nonce"])
            client.send(header + f"CONNECT {json.dumps(fields)}\r\nPING\r\n".encode())
            return client.next_line()

    assert answer(binary(IPV4)) == b"PONG"
    assert answer(b"") == b"-ERR 'Authorization Violation'"
