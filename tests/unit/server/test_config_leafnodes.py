"""The block `leafnodes`: what it gives, and what is wrong with it in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.durations import SECOND_NS
from tradewind.errors import ConfigError
from tradewind.nkeys import USER, KeyPair
from tradewind.options import CompressionOptions, LeafOptions, LeafProxyOptions, Secret
from tradewind.server.config.checks import check_options
from tradewind.server.config.load import load_config_file


def read(tmp_path: Path, text: str) -> LeafOptions:
    path = tmp_path / "server.conf"
    path.write_text(text)
    options = load_config_file(str(path)).options
    check_options(options)
    assert options.leafnodes is not None
    return options.leafnodes


def test_all_keys_of_a_listener(tmp_path: Path) -> None:
    options = read(
        tmp_path,
        """
        accounts { A { users: [{user: a, password: a}] } }
        leafnodes {
          listen: "127.0.0.1:7000", advertise: "hub.example.com", min_version: "2.9.0"
          compression { mode: s2_fast, rtt_thresholds: [1ms, 2ms] }
          isolate: true, reconnect: "3s", no_advertise: true
          authorization { timeout: 1.5, users: [{user: u, password: p, account: A}] }
        }
        """,
    )
    assert (options.host, options.port, options.advertise) == ("127.0.0.1", 7000, "hub.example.com")
    assert options.compression == CompressionOptions("s2_fast", (1_000_000, 2_000_000))
    assert (options.isolate, options.reconnect_ns) == (True, 3 * SECOND_NS)
    assert options.auth_timeout_ns == 1_500_000_000
    (user,) = options.authorization.users
    assert (user.user.user, user.user.password, user.account) == ("u", Secret("p"), "A")


def test_all_keys_of_a_remote(tmp_path: Path) -> None:
    seed = KeyPair.create(USER).seed
    options = read(
        tmp_path,
        f"""
        leaf {{ dial_timeout: "2s", remotes: [
          {{ urls: ["nats-leaf://u:p@a:1", "nats://b"], nkey: {seed}, no_randomize: true,
             deny_imports: "x", deny_exports: ["y", "z.>"], hub: true, compression: off,
             ignore_discovered_servers: true, isolate: true, request_isolation: true,
             proxy {{ url: "http://p:3128", username: anna, password: hush, timeout: "3s" }} }},
          {{ url: "ws://c", ws_compression: true, ws_no_masking: true, disabled: true }} ] }}
        """,
    )
    first, second = options.remotes
    assert [url.reveal() for url in first.urls] == ["nats-leaf://u:p@a:1", "nats://b"]
    assert first.nkey_seed.reveal() == seed
    assert (first.deny_imports, first.deny_exports) == (("x",), ("y", "z.>"))
    assert first.hub
    assert first.no_randomize
    assert first.ignore_discovered
    assert first.isolate
    assert first.request_isolation
    assert first.compression.mode == "off"
    assert first.dial_timeout_ns == 2 * SECOND_NS
    assert second.ws_compression
    assert second.ws_no_masking
    assert second.disabled
    assert first.proxy == LeafProxyOptions("p", 3128, False, "anna", Secret("hush"), 3 * SECOND_NS)
    assert "hush" not in repr(first)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("{}", None),
        ('{ url: "http://p" }', LeafProxyOptions("p", 80)),
        ('{ url: "https://p" }', LeafProxyOptions("p", 443, True)),
        ('{ url: "http://a:b%40@p:1/x" }', LeafProxyOptions("p", 1, False, "a", Secret("b@"))),
    ],
)
def test_what_a_proxy_may_be(tmp_path: Path, block: str, expected: LeafProxyOptions | None) -> None:
    options = read(tmp_path, f'leaf {{ remotes: [{{ url: "ws://c", proxy: {block} }}] }}')
    assert options.remotes[0].proxy == expected


@pytest.mark.parametrize(
    ("word", "mode"),
    [
        ("on", "s2_auto"),
        ("true", "s2_auto"),
        ("false", "off"),
        ("disabled", "off"),
        ("best", "s2_best"),
        ("accept", "accept"),
    ],
)
def test_names_of_compression(tmp_path: Path, word: str, mode: str) -> None:
    assert read(tmp_path, f"leafnodes {{ compression: {word} }}").compression.mode == mode


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ("compression: zip", "compression must be one of off, accept"),
        ("compression { rtt_thresholds: [2ms, 1ms] }", "each above the last"),
        ('min_version: "2.7.0"', 'from "2.8.0" on'),
        ("authorization { user: a, users: [] }", "both a single user and a users list"),
        ("authorization { users: [{password: hush}] }", "needs a user or an nkey"),
        ("authorization { user: a, password: b, account: NONE }", "account 'NONE' is not defined"),
        ("authorization { proxy_required: true }", "proxy_required is about a user"),
        ("remotes: [{}]", "needs a url"),
        ('remotes: [{url: ""}]', "has no host"),
        ('remotes: [{url: "leaf://"}]', "has no host"),
        ('remotes: [{url: "nats://u:hush@a:99999"}]', "the port must be a number"),
        ('remotes: [{urls: ["ws://a", "nats://b"]}]', "either all urls are ws:// or wss://"),
        ('remotes: [{url: "nats://a", account: NONE}]', "account 'NONE' is not defined"),
        ('remotes: [{url: "nats://a", nkey: hush}]', "must be the seed"),
        ('remotes: [{url: "nats://a", deny_imports: "a..b"}]', "is not a subject"),
        ('remotes: [{url: "nats://a"}, {url: "nats://a"}]', "duplicate remote"),
        ('remotes: [{url: "ws://a", proxy: {username: a}}]', "proxy needs a url"),
        ('remotes: [{url: "ws://a", proxy: {url: "socks5://p:1"}}]', "must be http://HOST:PORT"),
        ('remotes: [{url: "ws://a", proxy: {url: "p:1"}}]', "must be http://HOST:PORT"),
        ('remotes: [{url: "ws://a", proxy: {url: "http://"}}]', "must be http://HOST:PORT"),
        ('remotes: [{url: "ws://a", proxy: {url: "http://p:99999"}}]', "must be http://HOST:PORT"),
        ('remotes: [{url: "ws://a", proxy: {url: "http://[p:1"}}]', "must be http://HOST:PORT"),
        ('remotes: [{url: "ws://a", proxy: {url: "http://p", username: a}}]', "needs both of"),
        ('remotes: [{url: "ws://a", proxy: {url: "http://p", password: hush}}]', "needs both of"),
        ('remotes: [{url: "ws://a", proxy: {url: "http://p", timeout: "-1s"}}]', "timeout"),
        ('remotes: [{url: "ws://a", proxy: "http://p"}]', "proxy"),
        ('remotes: [{url: "nats://a", tls: {cert_file: x}}]', "only one of cert_file and key_file"),
        ("lisen: 1", "unknown key 'lisen' in leafnodes; did you mean listen"),
    ],
)
def test_mistakes_are_named_in_one_line(tmp_path: Path, inside: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f"leafnodes {{ {inside} }}")
    text = str(caught.value)
    assert problem in text
    assert "\n" not in text
    assert "hush" not in text
