"""What INFO says: the first line of every connection, and the second INFO after the first PONG."""

from __future__ import annotations

import re
from typing import Any

import pytest

from harness import Connect, RawClient, ServerProcess, StartServer

FIELD_TYPES: dict[str, type] = {
    "server_id": str,
    "server_name": str,
    "version": str,
    "proto": int,
    "go": str,
    "host": str,
    "port": int,
    "headers": bool,
    "max_payload": int,
    "client_id": int,
    "client_ip": str,
    "api_lvl": int,
}
ABSENT_BY_DEFAULT = [
    "acc_is_sys",
    "auth_required",
    "cluster",
    "cluster_dynamic",
    "compression",
    "connect_info",
    "connect_urls",
    "domain",
    "jetstream",
    "ldm",
    "nonce",
    "remote_account",
    "tls_available",
    "tls_required",
    "tls_verify",
    "ws_connect_urls",
]


@pytest.mark.parametrize("field", FIELD_TYPES)
def test_info_has_field_of_type(raw: Connect, field: str) -> None:
    assert type(raw().info[field]) is FIELD_TYPES[field]


@pytest.mark.parametrize("field", ABSENT_BY_DEFAULT)
def test_info_omits_field_that_does_not_apply(raw: Connect, field: str) -> None:
    assert field not in raw().info


def test_info_values_of_a_default_server(server: ServerProcess, raw: Connect) -> None:
    info = raw().info
    wanted: dict[str, Any] = {
        "version": "2.15.1",
        "proto": 1,
        "host": "127.0.0.1",
        "port": server.port,
        "headers": True,
        "max_payload": 1048576,
        "client_ip": "127.0.0.1",
        "api_lvl": 5,
    }
    assert {name: info[name] for name in wanted} == wanted


def test_server_id_is_a_public_server_key_and_the_default_name(raw: Connect) -> None:
    info = raw().info
    assert re.fullmatch(r"N[A-Z2-7]{55}", info["server_id"])
    assert info["server_name"] == info["server_id"]


def test_server_id_is_the_same_for_every_connection(raw: Connect) -> None:
    assert raw().info["server_id"] == raw().info["server_id"]


def test_client_id_increases_with_each_connection(raw: Connect) -> None:
    identifiers = [raw().info["client_id"] for _ in range(5)]
    assert identifiers == sorted(set(identifiers))
    assert identifiers[0] > 0


def test_info_line_ends_with_a_space_before_the_line_end(raw: Connect) -> None:
    client = raw(read_info=False)
    line = client.read_line()
    assert line.startswith(b'INFO {"server_id":')
    assert line.endswith(b"} ")
    client.send("PING\r\n")
    client.expect_bytes("PONG\r\n")  # and nothing else before it


def test_server_name_and_max_payload_come_from_the_configuration(start: StartServer) -> None:
    server = start("server_name: harbour\nmax_payload: 2000\n")
    with RawClient(server.port) as client:
        assert client.info["server_name"] == "harbour"
        assert client.info["max_payload"] == 2000


def test_second_info_follows_the_first_pong_of_protocol_1(raw: Connect) -> None:
    client = raw()
    client.send('CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
    client.expect_bytes("PONG\r\n")
    second = client.read_info()
    assert second == {**client.info, "connect_info": True, "remote_account": "$G"}


def test_second_info_comes_only_once(raw: Connect) -> None:
    client = raw()
    client.send('CONNECT {"verbose":false,"protocol":1}\r\nPING\r\nPING\r\nPING\r\n')
    client.expect_bytes("PONG\r\n")
    client.read_info()
    client.expect_bytes("PONG\r\nPONG\r\n")


def test_protocol_0_gets_no_second_info(raw: Connect) -> None:
    client = raw()
    client.send('CONNECT {"verbose":false,"protocol":0}\r\nPING\r\nPING\r\n')
    client.expect_bytes("PONG\r\nPONG\r\n")


def test_protocol_defaults_to_0(raw: Connect) -> None:
    client = raw()
    client.send('CONNECT {"verbose":false}\r\nPING\r\nPING\r\n')
    client.expect_bytes("PONG\r\nPONG\r\n")


def test_ping_before_connect_does_not_use_up_the_second_info(raw: Connect) -> None:
    client = raw()
    client.send('PING\r\nCONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
    client.expect_bytes("PONG\r\nPONG\r\n")
    assert client.read_info()["connect_info"] is True


def test_first_pong_with_protocol_0_uses_up_the_second_info(raw: Connect) -> None:
    client = raw()
    client.send(
        'CONNECT {"verbose":false,"protocol":0}\r\nPING\r\n'
        'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\nPING\r\n'
    )
    client.expect_bytes("PONG\r\nPONG\r\nPONG\r\n")
