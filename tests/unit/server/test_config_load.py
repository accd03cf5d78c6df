"""Configuration files to options: every key, its aliases, and the texts about mistakes."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from thoroughness import some
from tradewind.errors import ConfigError
from tradewind.options import (
    AuthorizationOptions,
    JetStreamOptions,
    OpenTelemetryOptions,
    Secret,
    ServerOptions,
    UserOptions,
    WebsocketOptions,
)
from tradewind.route.permission_rules import PermissionRules, ResponseRule
from tradewind.server.config.checks import check_options
from tradewind.server.config.load import LoadedConfig, load_config_file

USER_NKEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def load_text(text: str) -> LoadedConfig:
        path = tmp_path / "test.conf"
        path.write_text(text)
        return load_config_file(str(path), {})

    return load_text


@pytest.fixture
def options(load: Any) -> Any:
    return lambda text: load(text).options


@pytest.fixture
def error_of(load: Any) -> Any:
    def error_text(text: str) -> str:
        with pytest.raises(ConfigError) as caught:
            check_options(load(text).options)
        return str(caught.value).replace(str(Path(caught.value.path).parent) + "/", "")

    return error_text


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("port: 4333", "port", 4333),
        ("port: 0", "port", 4222),
        ("host: h", "host", "h"),
        ("net: h", "host", "h"),
        ("server_name: n", "server_name", "n"),
        ("client_advertise: 'a:1'", "client_advertise", "a:1"),
        ("server_tags: [B, ' a ', b]", "server_tags", ("b", "a")),
        ("server_tags: One", "server_tags", ("one",)),
        ("server_metadata: {a: b}", "server_metadata", {"a": "b"}),
        ("http_port: 1", "http_port", 1),
        ("monitor_port: 1", "http_port", 1),
        ("https_port: 1", "https_port", 1),
        ("http_base_path: /x", "http_base_path", "/x"),
        ("DEBUG: true", "debug", True),
        ("trace: true", "trace", True),
        ("trace_verbose: true", "trace", True),
        ("trace_verbose: true", "trace_verbose", True),
        ("trace_headers: true", "trace", True),
        ("logtime: false", "logtime", False),
        ("logtime_utc: true", "logtime_utc", True),
        ("logfile: x", "log_file", "x"),
        ("log_file: x", "log_file", "x"),
        ("logfile_size_limit: 1kb", "log_size_limit_bytes", 1024),
        ("log_size_limit: 1kb", "log_size_limit_bytes", 1024),
        ("logfile_max_num: 3", "log_files_max", 3),
        ("log_max_num: 3", "log_files_max", 3),
        ("max_traced_msg_len: 3", "max_traced_msg_len", 3),
        ("syslog: true", "syslog", True),
        ("remote_syslog: 'udp://h:1'", "remote_syslog", "udp://h:1"),
        ("pid_file: x", "pid_file", "x"),
        ("pidfile: x", "pid_file", "x"),
        ("ports_file_dir: x", "ports_file_dir", "x"),
        ("max_control_line: 2kb", "max_control_line_bytes", 2048),
        ("max_payload: 2mb", "max_payload_bytes", 2 * 2**20),
        ("max_payload: 0", "max_payload_bytes", 2**20),
        ("max_payload: -1", "max_payload_bytes", -1),
        ("max_pending: 1gb", "max_pending_bytes", 2**30),
        ("max_connections: 5", "max_connections", 5),
        ("max_conn: 0", "max_connections", 65536),
        ("max_subscriptions: 5", "max_subscriptions", 5),
        ("max_subs: 5", "max_subscriptions", 5),
        ("max_subscription_tokens: 5", "max_subscription_tokens", 5),
        ("max_sub_tokens: 5", "max_subscription_tokens", 5),
        ("max_closed_clients: 5", "max_closed_clients", 5),
        ("ping_interval: 10s", "ping_interval_ns", 10 * 10**9),
        ("ping_interval: 10", "ping_interval_ns", 10 * 10**9),
        ("ping_max: 5", "ping_max", 5),
        ("write_deadline: '1.5s'", "write_deadline_ns", 1_500_000_000),
        ("write_timeout: retry", "write_timeout", "retry"),
        ("lame_duck_duration: '1m'", "lame_duck_duration_ns", 60 * 10**9),
        ("lame_duck_grace_period: '5s'", "lame_duck_grace_ns", 5 * 10**9),
        ("no_header_support: true", "no_header_support", True),
        ("no_sublist_cache: true", "disable_sublist_cache", True),
        ("disable_sublist_cache: true", "disable_sublist_cache", True),
        ("no_fast_producer_stall: true", "no_fast_producer_stall", True),
        ("no_auth_user: u", "no_auth_user", "u"),
        ("system_account: A", "system_account", "A"),
        ("system: A", "system_account", "A"),
        ("no_system_account: true", "system_account", ""),
        ("no_system_account: false", "system_account", "$SYS"),
        ("allow_non_tls: true", "allow_non_tls", True),
        ("store_dir: x", "jetstream", JetStreamOptions(store_dir="x")),
    ],
)
def test_top_level_key(options: Any, text: str, field: str, value: object) -> None:
    assert getattr(options(text), field) == value


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("listen: 4333", "0.0.0.0", 4333),
        ("listen: 'a:4333'", "a", 4333),
        ("listen: 127.0.0.1:-1", "127.0.0.1", -1),
        ("listen: ':4333'", "0.0.0.0", 4333),
        ("listen: '[::1]:4333'", "::1", 4333),
        ("listen: 'a:1', port: 2", "a", 2),
        ("port: 2, listen: 'a:1'", "a", 1),
        ("listen: 'a:1', host: b", "b", 1),
    ],
)
def test_listen(options: Any, text: str, host: str, port: int) -> None:
    assert (options(text).host, options(text).port) == (host, port)


def test_http_names_host_and_port(options: Any) -> None:
    assert (options("http: 'h:1'").http_host, options("http: 'h:1'").http_port) == ("h", 1)
    assert options("https: 'h:1'").https_port == 1


def test_where_it_came_from_is_recorded(options: Any, tmp_path: Path) -> None:
    loaded = options("port: -1")
    assert loaded.config_file == str(tmp_path / "test.conf")
    assert loaded.config_digest.startswith("sha256:7ea4cc5c")


def test_a_bare_number_for_a_duration_is_a_warning_that_is_also_logged(load: Any) -> None:
    loaded = load("ping_interval: 10")
    (warning,) = loaded.warnings
    assert 'write "10s"' in warning.text
    assert warning.line == 1
    assert loaded.options.notices == (str(warning),)


# -- access


def test_single_user_and_token(options: Any) -> None:
    login = options("authorization { username: a, pass: b, timeout: 1.5 }").authorization
    assert login == AuthorizationOptions("a", Secret("b"), timeout_ns=1_500_000_000, defined=True)
    assert options("authorization { token: t }").authorization.token.reveal() == "t"
    assert (
        options("authorization { token: t, timeout: '3s' }").authorization.timeout_ns == 3 * 10**9
    )


def test_users(options: Any) -> None:
    users = options(
        f"authorization {{ users = [ {{user: a, password: $2a$11$abc}}, {{nkey: {USER_NKEY}}}\n"
        " {username: c, pass: d, clients: [standard, WEBSOCKET]} ] }"
    ).authorization.users
    assert users == (
        UserOptions("a", Secret("$2a$11$abc")),
        UserOptions(nkey=USER_NKEY),
        UserOptions("c", Secret("d"), connection_types=frozenset({"STANDARD", "WEBSOCKET"})),
    )


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("{}", PermissionRules()),
        ("{publish: a}", PermissionRules(publish_allow=("a",))),
        ("{pub: [a, 'b.>']}", PermissionRules(publish_allow=("a", "b.>"))),
        ("{import: a, export: b}", PermissionRules(("a",), (), ("b",))),
        ("{sub: ['a q', 'b  q*']}", PermissionRules(subscribe_allow=("a q", "b q*"))),
        ("{publish: {allow: a, deny: [b]}}", PermissionRules(("a",), ("b",))),
        ("{subscribe: {deny: 'a q'}}", PermissionRules(subscribe_deny=("a q",))),
        ("{publish: {}}", PermissionRules()),
        ("{publish: []}", PermissionRules()),
        ("{publish: {allow: []}}", PermissionRules()),
        ("{allow_responses: false}", PermissionRules()),
        ("{allow_responses: true}", PermissionRules((), responses=ResponseRule())),
        (
            "{allow_responses: {max: 5, expires: '1m'}, publish: a}",
            PermissionRules(("a",), responses=ResponseRule(5, 60 * 10**9)),
        ),
        (
            "{publish_allow_responses: {max_msgs: -1, ttl: '-1s'}}",
            PermissionRules((), responses=ResponseRule(-1, -(10**9))),
        ),
        (
            "{publish: {deny: a}, allow_responses: {max: 0}}",
            PermissionRules((), ("a",), responses=ResponseRule()),
        ),
    ],
)
def test_permissions(options: Any, text: str, rules: PermissionRules) -> None:
    config = f"authorization {{ users: [{{user: a, password: b, permissions: {text}}}] }}"
    assert options(config).authorization.users[0].permissions == rules


def test_an_empty_allow_list_permits_everything_but_not_silently(options: Any) -> None:
    loaded = options("authorization { users: [{user: a, permissions: {publish: []}}] }")
    assert "permits everything" in loaded.notices[0]


def test_default_permissions_are_for_users_without_their_own(options: Any) -> None:
    text = "default_permissions: {publish: x}, users: [{user: a}, {user: b, permission: {}}]"
    for users in (
        options(f"authorization {{ {text} }}").authorization.users,
        options(f"accounts {{ A {{ {text} }} }}").accounts["A"].users,
    ):
        assert users[0].permissions == PermissionRules(publish_allow=("x",))
        assert users[1].permissions == PermissionRules()


def test_accounts(options: Any) -> None:
    accounts = options(
        "accounts { LIMIT: 7, A { users: [{user: a}], limits: {max_conn: $LIMIT, max_subs: 2, "
        "max_pay: 3kb, max_leafs: 1} }, B { jetstream: enabled }\n"
        "C { jetstream: {max_mem: 1k, max_file: 2gb, max_streams: 3, max_consumers: -1, "
        "max_template_streams: 6, max_ack_pending: 4, mem_max_stream_bytes: 5, "
        "disk_max_stream_bytes: '1M', max_stream_bytes: true} } }"
    ).accounts
    assert list(accounts) == ["A", "B", "C"]
    first = accounts["A"]
    assert (first.max_connections, first.max_subscriptions, first.max_payload_bytes) == (7, 2, 3072)
    assert not first.jetstream
    assert accounts["B"].jetstream
    assert accounts["C"].jetstream_limits == {
        "max_memory": 1000,
        "max_file": 2 * 2**30,
        "max_streams": 3,
        "max_consumers": -1,
        "max_template_streams": 6,
        "max_ack_pending": 4,
        "memory_max_stream_bytes": 5,
        "store_max_stream_bytes": 2**20,
        "max_bytes_required": 1,
    }


def test_accounts_as_a_list_of_names(options: Any) -> None:
    assert list(options("accounts [A, B]").accounts) == ["A", "B"]


# -- other blocks


def test_websocket(options: Any) -> None:
    websocket = options(
        "websocket { listen: 'h:-1', no_tls: true, advertise: 'x:80', same_origin: true, "
        "allowed_origins: 'http://x', compression: true, handshake_timeout: '3s', user_cookie: u, "
        "pass_cookie: p, token_cookie: t, headers: {A: b}, ping_interval: '5s', "
        "authorization: {user: a, password: b} }"
    ).websocket
    assert websocket == WebsocketOptions(
        host="h",
        port=-1,
        advertise="x:80",
        no_tls=True,
        same_origin=True,
        allowed_origins=("http://x",),
        compression=True,
        handshake_timeout_ns=3 * 10**9,
        user_cookie="u",
        pass_cookie="p",
        token_cookie="t",
        authorization=AuthorizationOptions("a", Secret("b")),
        headers={"A": "b"},
        ping_interval_ns=5 * 10**9,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", JetStreamOptions(enabled=True)),
        ("enabled", JetStreamOptions(enabled=True)),
        ("disabled", JetStreamOptions()),
        ("{}", JetStreamOptions(enabled=True)),
        ("{enabled: false, store: x}", JetStreamOptions(store_dir="x")),
        ("{legacy_preview: off}", JetStreamOptions(enabled=True, legacy_preview=False)),
        ("{chain_key: a.nk}", JetStreamOptions(enabled=True, chain_key=Secret("a.nk"))),
        (
            "{store_dir: x, max_mem: 1gb, max_file_store: '10G', domain: hub, strict: false}",
            JetStreamOptions(
                enabled=True,
                store_dir="x",
                max_memory_bytes=2**30,
                max_file_bytes=10 * 2**30,
                domain="hub",
                strict=False,
            ),
        ),
        ("{sync_interval: always}", JetStreamOptions(enabled=True)),
        ("{sync: '2m'}", JetStreamOptions(enabled=True, sync_interval_ns=120 * 10**9)),
        (
            "{limits: {max_ack_pending: 1, duplicate_window: '2s', batch: {timeout: '3s'}}}",
            JetStreamOptions(
                enabled=True,
                limits={
                    "max_ack_pending": 1,
                    "duplicate_window_ns": 2 * 10**9,
                    "batch_timeout_ns": 3 * 10**9,
                },
            ),
        ),
        (
            """{max_buffered_size: 1kb, max_buffered_msgs: 2, request_queue_limit: 3, cipher: aes,
            info_queue_limit: 4, max_concurrent_io: 5, extension_hint: e, unique_tag: az,
            max_outstanding_catchup: 1mb, meta_compact: 1}""",
            JetStreamOptions(
                enabled=True,
                max_buffered_bytes=1024,
                max_buffered_msgs=2,
                request_queue_limit=3,
                info_queue_limit=4,
                max_concurrent_io=5,
                extension_hint="e",
                unique_tag="az",
            ),
        ),
    ],
)
def test_jetstream(options: Any, text: str, expected: JetStreamOptions) -> None:
    assert options(f"jetstream: {text}").jetstream == expected


def test_feature_flags(options: Any) -> None:
    loaded = options("feature_flags { js_ack_fc_v2: true, js_raft_delete_range: true }")
    assert loaded.feature_flags == {"js_ack_fc_v2": True}
    (notice,) = loaded.notices
    assert notice.startswith("feature_flags: js_raft_delete_range controls a nats-server feature")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("feature_flags: true", "feature_flags must be a block of flags, not true or false"),
        ("feature_flags { js_ack_fc_v2: 1 }", "js_ack_fc_v2 must be true or false, not an integer"),
    ],
)
def test_feature_flags_that_are_no_flags(options: Any, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        options(text)


# -- what this server does not have


@pytest.mark.parametrize(
    "text",
    [
        "cluster { name: x, listen: 127.0.0.1:-1 }",
        "cluster { port: -1, routes: ['nats://a:1'], authorization {user: a, password: hush} }",
        "gateway { name: x, port: -1, gateways: [] }",
        "mqtt { port: -1 }",
        "prof_port: 6060",
    ],
)
def test_parts_for_many_servers_are_answered_with_one_line(options: Any, text: str) -> None:
    loaded = options(text)
    (notice,) = loaded.notices
    assert notice.startswith(text.split()[0].rstrip(":") + ": ")
    assert "ignored" in notice
    assert "hush" not in notice
    check_options(loaded)


@pytest.mark.parametrize(
    "text",
    [
        "ocsp: true",
        "ocsp_cache: {}",
    ],
)
def test_a_security_setting_that_is_not_supported_stops_the_start(error_of: Any, text: str) -> None:
    error = error_of(text)
    assert "not supported in this version" in error
    assert "test.conf:1:" in error
    assert "hush" not in error


@pytest.mark.parametrize("name", ["key", "ek", "encryption_key"])
@pytest.mark.parametrize("previous", ["prev_key", "prev_ek", "prev_encryption_key"])
def test_keys_of_the_store_have_three_names_and_never_show(
    options: Any, name: str, previous: str
) -> None:
    text = f"MINE: from_elsewhere, jetstream {{ {name}: $MINE, {previous}: hush, cipher: AES }}"
    found = options(text).jetstream
    assert found.encryption.key.reveal() == "from_elsewhere"
    assert found.encryption.previous_key.reveal() == "hush"
    assert found.encryption.cipher == "aes"
    assert "hush" not in repr(found)


def test_store_without_a_key_is_not_encrypted_whatever_the_cipher(options: Any) -> None:
    assert options("jetstream { cipher: chachapoly }").jetstream.encryption is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("key: ''", "key is empty: nothing would be encrypted"),
        ("prev_key: hush", "prev_key needs key"),
        ("key: hush, cipher: rot13", "cipher 'rot13' is unknown"),
        ("key: [hush]", "key"),
        ("tpm: {}", "keys from a TPM are not supported"),
    ],
)
def test_keys_that_would_not_do_stop_the_start(error_of: Any, text: str, words: str) -> None:
    error = error_of(f"jetstream {{ {text} }}")
    assert words in error
    assert "hush" not in error


def test_a_refused_setting_that_is_off_is_fine(options: Any) -> None:
    assert options("proxy_protocol: false, ocsp: false, port: 1").port == 1


# -- mistakes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("prot: 1", "test.conf:1: unknown key 'prot'; did you mean port"),
        ("a: 1", "unknown key 'a'"),
        ("port: x", "port must be an integer, not a string"),
        ("port: true", "port must be an integer, not true or false"),
        ("port: 70000", "port must be a port up to 65535, or -1 for any free one, not 70000"),
        ("debug: 1", "debug must be true or false, not an integer"),
        ("server_name: 'a b'", "must not contain spaces"),
        ("server_name: [a]", "must be a string"),
        ("listen: 'a'", 'must be a port or "host:port"'),
        ("listen: '::1:4222'", 'must be a port or "host:port"'),
        ("max_payload: 3gb", "max_payload must be from -1 to 2147483647, not 3221225472"),
        ("max_sub_tokens: 256", "from 1 to 255"),
        ("ping_interval: 'soon'", 'must be a duration such as "2s"'),
        ("ping_interval: '-2s'", "must not be negative"),
        ("ping_interval: 9223372036854775807", "longer than 290 years"),
        ("authorization { timeout: -1 }", "must not be negative"),
        ("authorization { timeout: 99999999999.5 }", "longer than 290 years"),
        ("lame_duck_duration: '1s'", "at least 30 seconds"),
        ("write_timeout: never", "one of default, close, retry"),
        ("server_metadata: {a: 1}", "server_metadata.a must be a string"),
        ("authorization: 5", "authorization must be a block"),
        ("authorization { token: 12345 }", "token must be a string"),
        ("authorization { user: a, token: b }", "both a user and a token"),
        ("authorization { proxy_required: true }", "set it for each of users"),
        ("authorization { proxy_required: true, users: [] }", "set it for each of users"),
        ("proxies: 1", "proxies"),
        ("proxies { trusted: [ {key: abc} ] }", "key must be a public nkey: 56 letters such as U"),
        ("proxies { trusted: [ {} ] }", "each of trusted needs a key"),
        ("proxies { trusted: [ abc ] }", "each of trusted"),
        ("proxies { hush: [] }", "hush"),
        ("authorization { token: b, users: [] }", "both a token and a users list"),
        ("authorization { user: b, users: [] }", "both a single user and a users list"),
        ("authorization { users: {} }", "users must be a list"),
        ("authorization { users: [a] }", "a user must be a block"),
        ("authorization { users: [{password: a}] }", "needs a user name or an nkey"),
        (
            "authorization { users: [{user: a},\n{user: a}] }",
            "test.conf:2: user 'a' is defined twice",
        ),
        ("authorization { users: [{nkey: UABC}] }", "public nkey of a user"),
        (f"authorization {{ users: [{{nkey: {USER_NKEY}, user: a}}] }}", "not both"),
        (
            "authorization { users: [{user: a, clients: [x]}] }",
            "X unknown; valid values: STANDARD",
        ),
        (
            "authorization { users: [{user: a, permissions: {publish: 'a..b'}}] }",
            "not a valid subject",
        ),
        (
            "authorization { users: [{user: a, permissions: {publish: 'a b'}}] }",
            "not a valid subject",
        ),
        (
            "authorization { users: [{user: a, permissions: {sub: 'a b c'}}] }",
            "not a valid subject",
        ),
        (
            "authorization { users: [{user: a, permissions: {pub: {denny: a}}}] }",
            "did you mean deny",
        ),
        ("authorization { users: [{user: a, permissions: {all: a}}] }", "unknown key 'all'"),
        ("accounts { '$G': {} }", "reserved"),
        ("accounts [A, A]", "listed twice"),
        ("accounts { A: 1 }", "account A must be a block"),
        ("accounts { A { nkey: x } }", "public nkey of an account"),
        ("accounts { A {users: [{user: a}]}, B {users: [{user: a}]} }", "defined twice"),
        ("jetstream: 5", "must be a block, true, false, enabled or disabled"),
        ("jetstream { max_file: '10X' }", "such as 10gb"),
        ("jetstream { domain: 'a.b' }", "must not contain '.'"),
        ("jetstream { cipher: rot13 }", "'rot13' is unknown"),
        ("jetstream { store_dir: a }, store_dir: b", "store_dir is set twice"),
        ("tls { cert_file: x }", "tls needs key_file"),
        ("tls { cert_file: no-such-file, key_file: y }", "no-such-file"),
        ("tls { handshake_first: maybe }", "must be a duration"),
        ("tls { cipher_suites: [] }", "must not be empty"),
        ("tls: true", "tls must be a block"),
        ("cluster: 5", "cluster must be a block"),
        # Rules between settings.
        ("max_payload: 65mb", "cannot be higher than max_pending"),
        ("lame_duck_grace_period: '3m'", "must be below lame_duck_duration (2m0s)"),
        ("no_auth_user: a", "no users or nkeys are defined"),
        ("no_auth_user: b, authorization { users: [{user: a}] }", "'b' is not a user"),
        ("system_account: A", "not defined under accounts"),
        ("accounts { A {jetstream: true} }, system_account: A", "on the system account"),
        ("authorization {token: x}, accounts {A {users: [{user: a}]}}", "cannot be combined"),
        ("authorization {user: x}, accounts {A {users: [{user: a}]}}", "cannot be combined"),
        ("http_port: 1, https_port: 2", "are both set"),
        ("https_port: 2", "needs a tls block"),
        ("client_advertise: 'a:b'", "host or host:port"),
        ("client_advertise: 'a:65536'", "host or host:port"),
        ("client_advertise: 'fd00::1'", "an IPv6 address in brackets"),
        ("websocket {port: -1, no_tls: true, advertise: 'a:b'}", "websocket advertise 'a:b' must"),
        ("leafnodes {port: -1, advertise: 'a:b:1'}", "leafnodes advertise 'a:b:1' must be a host"),
        ("host: '[::]'", "host '[::]' must be without brackets: ::"),
        ("websocket {host: '[::1]', port: -1, no_tls: true}", "must be without brackets: ::1"),
        ("leafnodes {host: '[::1]', port: -1}", "leafnodes host '[::1]' must be without brackets"),
        ("websocket {port: -1}", "or no_tls: true"),
        ("websocket {port: -1, no_tls: true, jwt_cookie: c}", "trusted operators or trusted keys"),
        ("websocket {port: -1, no_tls: true, no_auth_user: c}", "no users or nkeys"),
        ("websocket {port: -1, no_tls: true, allowed_origins: 'a b'}", "is not a URL"),
    ],
)
def test_mistake_is_explained(error_of: Any, text: str, words: str) -> None:
    assert words in error_of(text)


def test_all_mistakes_are_reported_together(error_of: Any) -> None:
    text = "prot: 1\nhost: 5\nauthorization {\n usr: a\n users: [{user: 1}, {user: a, pss: b}]\n}"
    lines = error_of(text).splitlines()
    assert [line.split(":")[1] for line in lines] == ["1", "2", "4", "5", "5", "5"]


def test_values_of_secrets_never_show(load: Any) -> None:
    for text in (
        "authorization { password: [hush], user: a }",
        "authorization { users: [{user: a, password: hush, bad: 1}] }",
        "authorization { token: {hush: 1} }",
        "accounts { A { users: [{nkey: hush}] } }",
    ):
        with pytest.raises(ConfigError) as caught:
            load(text)
        assert "hush" not in str(caught.value)
    loaded = load(
        "authorization { user: a, password: hush }, websocket { authorization {token: hush} }"
    )
    assert "hush" not in repr(loaded)


def test_a_key_that_is_only_a_variable_needs_no_meaning(options: Any) -> None:
    assert options("MY: 5, port: $MY").port == 5
    assert options("authorization { P: x, user: a, password: $P }").authorization.password


def test_default_options_are_consistent() -> None:
    check_options(ServerOptions())
    for place in ("[::1]", "[::1]:65535", "a", "a.example:80", "a:0"):
        check_options(replace(ServerOptions(), client_advertise=place, system_account=""))


WORDS = [
    "port",
    "host",
    "listen",
    "authorization",
    "users",
    "user",
    "password",
    "token",
    "permissions",
    "publish",
    "allow",
    "deny",
    "nkey",
    "accounts",
    "A",
    "jetstream",
    "max_mem",
    "limits",
    "tls",
    "cert_file",
    "websocket",
    "no_tls",
    "headers",
    "cluster",
    "timeout",
    "server_tags",
    "ping_interval",
    "true",
    "5",
    "1.5",
    "1kb",
    "'2s'",
    "x",
    "{",
    "}",
    "[",
    "]",
    ":",
    "=",
    ",",
    "\n",
    "$port",
]


@pytest.mark.slow
@given(st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))
@settings(max_examples=some(150, 500))
def test_any_soup_of_keys_loads_or_is_refused(text: str) -> None:
    with tempfile.NamedTemporaryFile("w") as file, contextlib.suppress(ConfigError):
        file.write(text)
        file.flush()
        check_options(load_config_file(file.name, {}).options)


def test_opentelemetry(options: Any) -> None:
    assert options("opentelemetry: 'http://127.0.0.1:4318'").opentelemetry == OpenTelemetryOptions(
        "http://127.0.0.1:4318"
    )
    text = """
    opentelemetry {
      endpoint: "https://collector/own", sampling: 0, service_name: shop, timeout: "2s"
      headers { Authorization: "Bearer key" }
    }
    """
    found = options(text).opentelemetry
    assert found == OpenTelemetryOptions(
        "https://collector/own", 0, "shop", {"Authorization": Secret("Bearer key")}, 2_000_000_000
    )
    assert "key" not in repr(found).replace("Authorization", "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "opentelemetry has no endpoint: name a url like http://127.0.0.1:4318"),
        ("{endpoint: 'a:1'}", "endpoint must be a URL such as http://127.0.0.1:4318, not 'a:1'"),
        ("'ftp://a'", "endpoint must be a URL such as http://127.0.0.1:4318, not 'ftp://a'"),
        ("{endpoint: 'http://a', sampling: 101}", "sampling"),
        ("{endpoint: 'http://a', sampling: '5%'}", "sampling"),
        ("{endpoint: 'http://a', timeout: '0s'}", "timeout must be longer than 0"),
        ("{endpoint: 'http://a', headers: {A: \"x\\ny\"}}", "'A' is not a valid HTTP header"),
        ("{endpoint: 'http://a', nope: 1}", "nope"),
        ("5", "opentelemetry"),
    ],
)
def test_opentelemetry_that_is_wrong(error_of: Any, text: str, problem: str) -> None:
    assert problem in str(error_of(f"opentelemetry: {text}"))


CALLOUT = "authorization { auth_callout { %s } }"
ISSUER = "ACEEXCCX6TVKCYJ4MFIE3M2NJPVPGRSRPIHDDXR43XKNTNBADWOQWV7H"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (CALLOUT % "auth_users: [a]", "auth_callout needs an issuer"),
        (CALLOUT % f"issuer: {ISSUER}", "auth_callout needs auth_users"),
        (CALLOUT % f"issuer: {ISSUER}, auth_users: []", "auth_callout needs auth_users"),
        (CALLOUT % "issuer: x, auth_users: [a]", "issuer must be the public nkey of an account"),
        (CALLOUT % f"issuer: {ISSUER}, auth_users: [a], xkey: A", "xkey must be the public nkey"),
        (CALLOUT % f"issuer: {ISSUER}, auth_users: [a], foo: A", "unknown key 'foo'"),
        ("authorization { auth_callout: false }", "auth_callout must be a block"),
    ],
)
def test_a_callout_that_names_nobody_is_refused(error_of: Any, text: str, wanted: str) -> None:
    assert wanted in error_of(text)
