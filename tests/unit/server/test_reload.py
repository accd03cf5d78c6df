"""What a reload may change, and the lines about it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tradewind.errors import ConfigError
from tradewind.options import (
    AccountOptions,
    AuthorizationOptions,
    JetStreamOptions,
    Secret,
    ServerOptions,
    TlsOptions,
    UserOptions,
    WebsocketOptions,
)
from tradewind.server.lifecycle.reload import describe_changes

OLD = ServerOptions(
    server_name="n1", authorization=AuthorizationOptions("a", Secret("hush"), Secret("hush"))
)


def changed(**options: Any) -> list[str]:
    return describe_changes(OLD, replace(OLD, **options))


def test_nothing_changed_says_nothing() -> None:
    assert changed() == []


# The texts are those that nats-server logs after "Reloaded: " on SIGHUP.
@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({"debug": True}, ["debug = true"]),
        ({"logtime": False}, ["logtime = false"]),
        ({"max_payload_bytes": 2048}, ["max_payload = 2048"]),
        ({"max_control_line_bytes": 512}, ["max_control_line = 512"]),
        ({"max_connections": 10}, ["max_connections = 10"]),
        ({"ping_interval_ns": 10 * 10**9}, ["ping_interval = 10s"]),
        ({"write_deadline_ns": 120 * 10**9}, ["write_deadline = 2m0s"]),
        ({"pid_file": "pp"}, ["pid_file = pp"]),
        ({"log_file": "lf.log"}, ["log_file = lf.log"]),
        ({"server_tags": ("a",)}, ["tags"]),
        ({"server_metadata": {"a": "b"}}, ["metadata"]),
        ({"no_fast_producer_stall": True}, ["fast producers will not be stalled"]),
        ({"accounts": {"A": AccountOptions("A")}}, ["accounts"]),
        ({"tls": TlsOptions("c", "k")}, ["tls = enabled"]),
        ({"config_digest": "x", "notices": ("n",)}, []),
        ({"debug": True, "ping_max": 5}, ["debug = true", "ping_max = 5"]),
    ],
)
def test_reloadable_change(options: dict[str, Any], lines: list[str]) -> None:
    assert changed(**options) == lines


def test_authorization_changes_are_named_but_never_shown() -> None:
    after = AuthorizationOptions(
        "b", Secret("hush2"), Secret("hush3"), 3 * 10**9, (UserOptions("u", Secret("hush4")),)
    )
    lines = changed(authorization=after)
    assert lines == [
        "authorization users",
        "authorization username",
        "authorization password",
        "authorization token",
        "authorization timeout = 3s",
    ]
    assert "hush" not in str(lines)


def test_pins_are_counted_when_they_change() -> None:
    one = replace(OLD, tls=TlsOptions("c", "k", pinned_certs=frozenset({"a"})))
    none = replace(OLD, tls=TlsOptions("c", "k"))
    assert describe_changes(one, none) == ["tls = enabled", "0 pinned_certs"]
    assert describe_changes(none, one) == ["tls = enabled", "1 pinned_certs"]
    assert describe_changes(one, one) == ["tls = enabled"]


def test_certificates_of_websocket_may_change_and_nothing_else_of_it() -> None:
    old = replace(OLD, websocket=WebsocketOptions(port=1, tls=TlsOptions("c", "k")))
    renewed = replace(OLD, websocket=WebsocketOptions(port=1, tls=TlsOptions("d", "k")))
    moved = replace(OLD, websocket=WebsocketOptions(port=2, tls=TlsOptions("c", "k")))
    assert describe_changes(old, renewed) == []
    with pytest.raises(ConfigError, match="config reload not supported for Websocket"):
        describe_changes(old, moved)
    with pytest.raises(ConfigError, match="config reload not supported for Websocket"):
        describe_changes(old, OLD)


def test_certificates_are_always_read_again() -> None:
    with_tls = replace(OLD, tls=TlsOptions("c", "k"))
    assert describe_changes(with_tls, with_tls) == ["tls = enabled"]
    assert describe_changes(with_tls, OLD) == ["tls = disabled"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"port": 4999}, "Port: old=4222, new=4999"),
        ({"host": "h"}, "Host: old=0.0.0.0, new=h"),
        ({"server_name": "n2"}, "ServerName: old=n1, new=n2"),
        ({"http_port": 5}, "HTTPPort: old=0, new=5"),
        ({"http_base_path": "/x"}, "HTTPBasePath: old=, new=/x"),
        ({"max_pending_bytes": 5}, "MaxPending: old=67108864, new=5"),
        ({"max_subscriptions": 5}, "MaxSubs: old=0, new=5"),
        ({"lame_duck_duration_ns": 60 * 10**9}, "LameDuckDuration: old=2m0s, new=1m0s"),
        ({"no_auth_user": "a"}, "NoAuthUser: old=, new=a"),
        ({"no_header_support": True}, "NoHeaderSupport: old=false, new=true"),
        ({"allow_non_tls": True}, "AllowNonTLS: old=false, new=true"),
        ({"log_files_max": 3}, "LogMaxFiles: old=0, new=3"),
        ({"websocket": WebsocketOptions(port=1)}, "Websocket"),
        ({"jetstream": JetStreamOptions(enabled=True)}, "JetStream"),
        ({"jetstream": JetStreamOptions(store_dir="x")}, "jetstream storage directory"),
    ],
)
def test_change_that_needs_a_restart_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        changed(**options)
    assert caught.value.text == f"config reload not supported for {text}"


def test_one_refused_change_refuses_all() -> None:
    with pytest.raises(ConfigError):
        changed(debug=True, port=1)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in ServerOptions.__struct_fields__
        if name not in ("authorization", "jetstream")
    ],
)
def test_no_change_of_any_option_goes_unnoticed(name: str) -> None:
    """Each is reported, refused, or known to be of no consequence."""
    try:
        lines = changed(**{name: TlsOptions("c", "k") if name == "tls" else "something else"})
    except ConfigError:
        return
    assert lines or name in ("config_file", "config_digest", "notices")
