"""What INFO says: the first line of every connection, and the second INFO after the first PONG."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers_callout import callout_configuration
from helpers_ops import INT, TEXT, Certificates, Shape, config_path, reload, user_key

from harness import Connect, RawClient, ServerProcess, StartServer
from jwt_kit import account_jwt, account_key, login, memory_configuration, user_jwt
from jwt_kit import user_key as jwt_user_key
from websocket_frames import FrameClient

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


def test_server_id_is_a_public_server_key_and_part_of_the_default_name(raw: Connect) -> None:
    """Differs: on nats-server it is the whole name, here the end of it."""
    info = raw().info
    assert re.fullmatch(r"N[A-Z2-7]{55}", info["server_id"])
    assert info["server_name"].rpartition("-")[2] in info["server_id"]


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


# Every field in its place, for each way to configure what INFO tells

# In the order in which they are written. Not compared: what names the implementation, and `xkey`,
# which Tradewind has only where a service needs it.
ORDER = [
    *("server_id", "server_name", "version", "proto", "go", "host", "port", "headers"),
    *("auth_required", "tls_required", "tls_verify", "tls_available", "max_payload", "jetstream"),
    *("client_id", "client_ip", "nonce", "domain", "ldm", "connect_info", "remote_account"),
    *("acc_is_sys", "api_lvl"),
]
OWN_FIELDS = {"git_commit", "tradewind", "xkey"}
NONCE = Shape(re.compile(r"[A-Za-z0-9_-]{15}\Z"))
SERVER_ID = Shape(re.compile(r"N[A-Z2-7]{55}\Z"))
HOST_NAME = re.escape(socket.gethostname().partition(".")[0])
# Without a configured one: the id on nats-server.
NAME = Shape(re.compile(rf"(N[A-Z2-7]{{55}}|{HOST_NAME}-[A-Z2-7]{{6}})\Z"))
ACCOUNT, JWT_USER, NKEY = account_key(7), jwt_user_key(3), user_key(1)
ONE_USER = "accounts { A { users: [ {user: anna, password: p} ] } }\n"
OPERATOR = memory_configuration({ACCOUNT.public: account_jwt(ACCOUNT)})
WEBSOCKET = 'websocket { listen: "127.0.0.1:-1", no_tls: true, %s }\n'
LOGIN = {"user": "anna", "pass": "p"}


class Walk(NamedTuple):
    """A configuration, a login, and the fields that only the first, only the second, and both INFO
    lines have then.
    """

    config: str = ""
    login: dict[str, Any] = {}
    both: dict[str, Any] = {}
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    is_websocket: bool = False


REQUIRED: dict[str, Any] = {"auth_required": True}
WALKS = {
    "default": Walk(),
    "token": Walk("authorization { token: t }", {"auth_token": "t"}, REQUIRED),
    "user": Walk("authorization { user: anna, password: p }", LOGIN, REQUIRED),
    "account": Walk(ONE_USER, LOGIN, REQUIRED, second={"remote_account": "A"}),
    "nkey": Walk(
        f"authorization {{ users: [ {{nkey: {NKEY.public}}} ] }}",
        {"nkey": NKEY.public},
        REQUIRED,
        first={"nonce": NONCE},
    ),
    "operator": Walk(
        OPERATOR,
        {"jwt": user_jwt(JWT_USER, ACCOUNT)},
        REQUIRED,
        first={"nonce": NONCE},
        second={"remote_account": ACCOUNT.public},
    ),
    "callout": Walk(
        callout_configuration(),
        {"user": "auth", "pass": "pwd"},
        REQUIRED,
        second={"remote_account": "AUTH"},
    ),
    # The second INFO does not look at who the stranger became.
    "no-auth-user": Walk(
        ONE_USER + "no_auth_user: anna\n", {}, second={"remote_account": "A", **REQUIRED}
    ),
    "no-auth-nkey": Walk(
        f"accounts {{ A {{ users: [ {{nkey: {NKEY.public}}} ] }} }}\nno_auth_user: {NKEY.public}\n",
        {},
        first={"nonce": NONCE},
        second={"remote_account": "A", **REQUIRED},
    ),
    "accounts-without-users": Walk("accounts { A {} }"),
    "only-the-system-account": Walk(
        "accounts { $SYS { users: [ {user: anna, password: p} ] } }",
        LOGIN,
        REQUIRED,
        second={"remote_account": "$SYS", "acc_is_sys": True},
    ),
    "jetstream": Walk('jetstream { store_dir: "STORE" }', both={"jetstream": True}),
    "domain": Walk(
        'jetstream { store_dir: "STORE", domain: hub }', both={"jetstream": True, "domain": "hub"}
    ),
    "no-headers": Walk("no_header_support: true", both={"headers": False}),
    "advertised": Walk(
        'client_advertise: "example.org:77"', both={"host": "example.org", "port": 77}
    ),
    "escapes": Walk('server_name: "a<&\u00e9>b"', both={"server_name": "a<&\u00e9>b"}),
    "flags-and-tags": Walk("feature_flags { js_ack_fc_v2: true }\nserver_tags: [a, b]\n"),
    "websocket": Walk(WEBSOCKET % "", is_websocket=True),
    "websocket-advertised": Walk(
        WEBSOCKET % 'advertise: "w.example:99"' + 'client_advertise: "example.org:77"\n',
        is_websocket=True,
    ),
    "websocket-token": Walk(
        WEBSOCKET % "authorization { token: t }",
        {"auth_token": "t"},
        first=REQUIRED,
        is_websocket=True,
    ),
    "websocket-no-auth-user": Walk(
        WEBSOCKET % "no_auth_user: anna" + ONE_USER,
        {},
        REQUIRED,
        second={"remote_account": "A"},
        is_websocket=True,
    ),
    "websocket-nkey": Walk(
        WEBSOCKET % "" + f"authorization {{ users: [ {{nkey: {NKEY.public}}} ] }}",
        {"nkey": NKEY.public},
        REQUIRED,
        first={"nonce": NONCE},
        is_websocket=True,
    ),
    # Of the port for other clients, whose certificates nobody asks for here.
    "websocket-beside-tls": Walk(
        WEBSOCKET % "" + "TLS(verify: true)", both={"tls_verify": True}, is_websocket=True
    ),
    "tls": Walk("TLS()", both={"tls_required": True}),
    "tls-verify": Walk("TLS(verify: true)", both={"tls_required": True, "tls_verify": True}),
    "tls-available": Walk("TLS()allow_non_tls: true\n", both={"tls_available": True}),
    "tls-first": Walk("TLS(handshake_first: true)", both={"tls_required": True}),
    "tls-auto": Walk("TLS(handshake_first: auto)", both={"tls_required": True}),
}


def signed(fields: dict[str, Any], nonce: str) -> dict[str, Any]:
    if "nkey" in fields:
        return {**fields, "sig": NKEY.sign(nonce)}
    return login(fields["jwt"], JWT_USER, nonce) if "jwt" in fields else fields


def info_lines(walk: Walk, server: ServerProcess, certificates: Certificates | None) -> list[bytes]:
    """The first and the second INFO."""
    if walk.is_websocket:
        pattern = r"Listening for websocket clients on ws://127\.0\.0\.1:(\d+)"
        with FrameClient(int(server.wait_for_log(pattern)[1])) as browser:
            first = browser.read_until(b"\r\n")
            fields = signed(walk.login, json.loads(first[5:]).get("nonce", ""))
            line = json.dumps({"verbose": False, "protocol": 1, **fields})
            browser.send_text(f"CONNECT {line}\r\nPING\r\n")
            received = b""
            while received.count(b"\r\n") < 2:
                received += browser.read_message()
            pong, _, second = received.partition(b"\r\n")
            assert pong == b"PONG"
            return [first.removesuffix(b"\r\n"), second.removesuffix(b"\r\n")]
    with RawClient(server.port, read_info=False) as client:
        name = "anna" if "verify" in walk.config else None
        is_first = "handshake_first: true" in walk.config
        if certificates is not None and is_first:
            certificates.upgrade(client, name)
        first = client.read_line()
        if certificates is not None and not is_first:
            certificates.upgrade(client, name)
        fields = signed(walk.login, json.loads(first[5:]).get("nonce", ""))
        line = json.dumps({"verbose": False, "protocol": 1, **fields})
        client.send(f"CONNECT {line}\r\nPING\r\n")
        client.expect_bytes("PONG\r\n")
        return [first, client.read_line()]


def fields_of(line: bytes) -> dict[str, Any]:
    """Without those of the implementation; they must be in their order."""
    assert line.startswith(b"INFO {")
    assert line.endswith(b"} ")
    fields = {name: value for name, value in json.loads(line[5:]).items() if name not in OWN_FIELDS}
    assert list(fields) == [name for name in ORDER if name in fields]
    return fields


@pytest.mark.parametrize("case", WALKS)
def test_both_infos_have_exactly_their_fields(
    start: StartServer, tmp_path: Path, case: str
) -> None:
    """`git_commit`, `tradewind` and `xkey` differ, as the table of differences says."""
    walk = WALKS[case]
    config = walk.config.replace("STORE", str(tmp_path))
    certificates = None
    if options := re.search(r"TLS\((.*)\)", config):
        certificates = Certificates(tmp_path)
        certificates.clients["anna"] = certificates.authority.client("anna")
        config = config.replace(options[0], certificates.block(options[1]))
    server = start(config)
    first, second = info_lines(walk, server, certificates)
    expected = {
        "server_id": SERVER_ID,
        "server_name": NAME,
        "version": "2.15.1",
        "proto": 1,
        "go": TEXT,
        "host": "127.0.0.1",
        "port": INT if walk.is_websocket else server.port,
        "headers": True,
        "max_payload": 1048576,
        "client_id": INT,
        "client_ip": "127.0.0.1",
        "api_lvl": 5,
        **walk.both,
    }
    assert fields_of(first) == {**expected, **walk.first}
    entered = {"connect_info": True, "remote_account": "$G", **walk.second}
    assert fields_of(second) == {**expected, **entered}
    if case == "escapes":
        assert b'"a\\u003c\\u0026\xc3\xa9\\u003eb"' in first


def test_address_behind_a_proxy_is_only_in_later_infos(start: StartServer) -> None:
    server = start("proxy_protocol: true\n")
    with RawClient(server.port, read_info=False) as client:
        client.send("PROXY TCP4 10.1.2.3 127.0.0.1 55 66\r\n")
        assert "client_ip" not in client.read_info()
        client.send('CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
        client.expect_bytes("PONG\r\n")
        assert client.read_info()["client_ip"] == "10.1.2.3"


def test_reload_is_not_announced_but_shows_in_later_infos(start: StartServer) -> None:
    config = ONE_USER + "no_auth_user: anna\n"
    config += 'lame_duck_duration: "30s"\nlame_duck_grace_period: "1s"\n'
    server = start(config)
    with RawClient(server.port) as client, RawClient(server.port) as late:
        client.send('CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
        client.expect_bytes("PONG\r\n")
        before = client.read_info()
        changes = 'max_payload: 5000\nclient_advertise: "example.org:99"\nserver_tags: [x]\n'
        assert "Reloaded" in reload(server, config_path(server).read_text() + changes)
        late.send('CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
        late.expect_bytes("PONG\r\n")
        changed = {"host": "example.org", "port": 99}
        assert late.read_info() == {
            **before,
            **changed,
            "max_payload": 5000,
            "client_id": late.info["client_id"],
        }
        client.send("PING\r\n")
        client.expect_bytes("PONG\r\n")
        server.signal(signal.SIGUSR2)
        for one in (client, late):
            info = one.read_info()
            absent = {"connect_info", "remote_account"}
            assert info == {
                **{name: value for name, value in before.items() if name not in absent},
                **changed,
                "max_payload": 5000,
                "client_id": one.info["client_id"],
                "ldm": True,
            }
