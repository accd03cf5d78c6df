"""/varz: its fields, the settings it shows, and its counters."""

from __future__ import annotations

import re
from typing import Any

import pytest
from helpers_ops import (
    AGE,
    FEATURE_FLAGS,
    INT,
    NUMBER,
    OBJECT,
    TEXT,
    TIME,
    fetch,
    login,
    publish,
    replies,
    shared_server,
)

from harness import ServerProcess, StartServer, wait_for
from jwt_kit import memory_configuration

server = shared_server('server_name: crow\nhttp: "127.0.0.1:-1"\n')
OPTIONAL = {"git_commit", "tradewind_version", "tradewind_internal_errors", "tradewind_turns"}
KIND_COUNTS = {"clients": 0, "routes": 0, "gateways": 0, "leafs": 0}


def varz(server: ServerProcess) -> dict[str, Any]:
    return fetch(server, "/varz").json()


def test_varz_fields(server: ServerProcess) -> None:
    page = {key: value for key, value in varz(server).items() if key not in OPTIONAL}
    assert page == {
        "server_id": TEXT,
        "server_name": "crow",
        "version": TEXT,
        "proto": 1,
        "go": TEXT,
        "host": "127.0.0.1",
        "port": server.port,
        "max_connections": 65536,
        "ping_interval": 120_000_000_000,
        "ping_max": 2,
        "http_host": "127.0.0.1",
        "http_port": -1,
        "http_base_path": "",
        "https_port": 0,
        "auth_timeout": 2,
        "max_control_line": 4096,
        "max_payload": 1048576,
        "max_pending": 67108864,
        "cluster": {},
        "gateway": {},
        "leaf": {},
        "mqtt": {},
        "websocket": {},
        "jetstream": {},
        "tls_timeout": 2,
        "write_deadline": 10_000_000_000,
        "start": TIME,
        "now": TIME,
        "uptime": AGE,
        "mem": INT,
        "cores": INT,
        "gomaxprocs": INT,
        "cpu": NUMBER,
        "connections": INT,
        "total_connections": INT,
        "routes": 0,
        "remotes": 0,
        "leafnodes": 0,
        "in_msgs": INT,
        "in_bytes": INT,
        "in_client_msgs": INT,
        "in_client_bytes": INT,
        "out_msgs": INT,
        "out_bytes": INT,
        "out_client_msgs": INT,
        "out_client_bytes": INT,
        "slow_consumers": 0,
        "stale_connections": 0,
        "stalled_clients": 0,
        "subscriptions": INT,
        "http_req_stats": OBJECT,
        "config_load_time": TIME,
        "config_digest": TEXT,
        "feature_flags": FEATURE_FLAGS,
        "system_account": "$SYS",
        "slow_consumer_stats": KIND_COUNTS,
        "stale_connection_stats": KIND_COUNTS,
        "disk_io_wait_stats": {"waiters": 0, "waits": 0, "wait_time": 0, "max_wait_time": 0},
    }


def test_varz_agrees_with_info(server: ServerProcess) -> None:
    with login(server) as client:
        page = varz(server)
        for field in ("server_id", "server_name", "version", "proto", "go", "max_payload"):
            assert page[field] == client.info[field], field
    assert re.fullmatch(r"N[A-Z2-7]{55}", page["server_id"])
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", page["config_digest"])
    assert page["mem"] > 1_000_000
    assert page["cores"] >= 1


def test_varz_shows_settings(start: StartServer) -> None:
    server = start("""
http: "127.0.0.1:-1"
max_connections: 100
max_payload: 2000
max_control_line: 2048
max_pending: 30000000
ping_interval: "30s"
ping_max: 5
write_deadline: "3s"
max_subscriptions: 7
authorization { user: u, password: p, timeout: 4 }
""")
    page = varz(server)
    assert page["max_connections"] == 100
    assert page["max_payload"] == 2000
    assert page["max_control_line"] == 2048
    assert page["max_pending"] == 30_000_000
    assert page["ping_interval"] == 30_000_000_000
    assert page["ping_max"] == 5
    assert page["write_deadline"] == 3_000_000_000
    assert page["max_subscriptions"] == 7
    assert page["auth_timeout"] == 4
    assert page["auth_required"] is True


ANYBODY = "accounts { A { users: [{user: u, password: p}] } }\nno_auth_user: u"
OPERATOR_MODE = memory_configuration({})


@pytest.mark.parametrize(
    ("config", "is_required"),
    [("", None), ("accounts { A {} }", None), (ANYBODY, True), (OPERATOR_MODE, True)],
    ids=["open", "accounts without users", "no_auth_user", "operator"],
)
def test_varz_says_whether_logins_are_checked(
    start: StartServer, config: str, is_required: bool | None
) -> None:
    assert varz(start(f'http: "127.0.0.1:-1"\n{config}')).get("auth_required") is is_required


def test_varz_counts_messages_and_bytes(server: ServerProcess) -> None:
    wait_for(lambda: varz(server)["connections"] == 0, "earlier connections to be gone")
    before = varz(server)
    with login(server) as first, login(server) as second:
        assert replies(first, "SUB counted 1\r\n") == []
        assert replies(second, "SUB counted 1\r\n") == []
        assert len(replies(first, publish("counted", "12345") * 3)) == 6

        def growth() -> dict[str, int]:
            now = varz(server)
            return {name: now[name] - before[name] for name in before if type(now[name]) is int}

        expected = {
            "in_msgs": 3,
            "in_bytes": 15,
            "in_client_msgs": 3,
            "in_client_bytes": 15,
            "out_msgs": 6,
            "out_bytes": 30,
            "out_client_msgs": 6,
            "out_client_bytes": 30,
            "subscriptions": 2,
            "total_connections": 2,
        }
        wait_for(lambda: expected.items() <= growth().items(), f"counters grown by {expected}")


def test_varz_counts_open_connections(server: ServerProcess) -> None:
    wait_for(lambda: varz(server)["connections"] == 0, "earlier connections to be gone")
    with login(server), login(server):
        assert varz(server)["connections"] == 2
    wait_for(lambda: varz(server)["connections"] == 0, "the connections to be gone")


def test_subscriptions_of_a_closed_connection_are_gone(server: ServerProcess) -> None:
    wait_for(lambda: varz(server)["connections"] == 0, "earlier connections to be gone")
    before = varz(server)["subscriptions"]
    with login(server) as client:
        replies(client, "SUB a 1\r\nSUB b.* 2\r\nSUB c q 3\r\nUNSUB 1\r\n")
        assert varz(server)["subscriptions"] == before + 2
    wait_for(lambda: varz(server)["subscriptions"] == before, "the subscriptions to be gone")
