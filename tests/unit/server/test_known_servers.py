"""`known_servers`: what an entry is, and how a change reaches the clients."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.helpers_ops import reload, running
from harness import RawClient, ServerProcess
from tradewind import interfaces
from tradewind.errors import ConfigError
from tradewind.options import ServerOptions, WebsocketOptions
from tradewind.server.config.checks import check_options
from tradewind.server.config.known_servers import KNOWN_SERVERS_MAX
from tradewind.server.config.load import load_config_file
from tradewind.server.links.gossip import OWN_PLACES_MAX, advertised, connect_urls
from tradewind.testing import InProcessServer

LOOPBACK = "127.0.0.1"
BOUND = (LOOPBACK, 4222)
FORM = '"host:port", such as "nats2.example.com:4222" or "[fd00::2]:4222"'


def known(tmp_path: Path, text: str) -> tuple[str, ...]:
    path = tmp_path / "server.conf"
    path.write_text(f"known_servers: {text}\n")
    return load_config_file(str(path)).options.known_servers


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[]", ()),
        ("'a:1'", ("a:1",)),
        (
            "['a:1', 'b.example:65535', '10.0.0.1:4222']",
            ("a:1", "b.example:65535", "10.0.0.1:4222"),
        ),
        ("['A:1', 'a:1', 'a:01']", ("a:1",)),
        ("['[FD00:0::1]:4222', '[fd00::1]:4222']", ("[fd00::1]:4222",)),
    ],
)
def test_entries_are_named_once_in_one_form(
    tmp_path: Path, text: str, wanted: tuple[str, ...]
) -> None:
    assert known(tmp_path, text) == wanted


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("b", 'must be "host:port"'),
        ("b:", 'must be "host:port"'),
        (":4222", "must have a host name"),
        ("nats://b:4222", "without a scheme"),
        ("b:0", "port from 1 to 65535"),
        ("b:65536", "port from 1 to 65535"),
        ("b:99999999", 'must be "host:port"'),
        ("fd00::1:4222", 'must be "host:port"'),
        ("[fd00::1]", 'must be "host:port"'),
        ("[b.example]:4222", "IPv6 address in the brackets"),
        ("[::]:4222", "clients can connect to"),
        ("0.0.0.0:4222", "clients can connect to"),
        ("[fe80::1%eth0]:4222", "clients can connect to"),
        ("a b:4222", "must have a host name"),
        (f"{'b' * 254}:4222", "must have a host name"),
        ("user@b:4222", "must have a host name"),
        ("a..b:4222", "must have a host name"),
    ],
)
def test_wrong_entry_is_named_with_what_would_be_right(
    tmp_path: Path, entry: str, words: str
) -> None:
    with pytest.raises(ConfigError) as error:
        known(tmp_path, f"['a:1', '{entry}']")
    assert "entry 2 of known_servers must " in str(error.value)
    shown = entry if len(entry) <= 253 else f"{entry[:40]}..."
    assert str(error.value).endswith(f", not {shown!r}")
    assert words in str(error.value)


@pytest.mark.parametrize("text", ["5", "{a: 1}", "[5]", "true"])
def test_anything_but_strings_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="known_servers"):
        known(tmp_path, text)


def test_list_has_a_limit(tmp_path: Path) -> None:
    entries = [f"'h{number}:4222'" for number in range(KNOWN_SERVERS_MAX + 1)]
    assert len(known(tmp_path, f"[{', '.join(entries[1:])}]")) == KNOWN_SERVERS_MAX
    with pytest.raises(ConfigError, match=f"65 entries, at most {KNOWN_SERVERS_MAX}"):
        known(tmp_path, f"[{', '.join(entries)}]")


def test_list_of_a_program_is_checked_too() -> None:
    check_options(ServerOptions(known_servers=("b:1", "[::1]:2")))
    many = tuple(f"h{number}:1" for number in range(KNOWN_SERVERS_MAX + 1))
    websocket = WebsocketOptions(port=-1, no_tls=True, known_servers=("nats://b",))
    for options, words in (
        (
            ServerOptions(known_servers=("b:1", "b")),
            re.escape(f"entry 2 of known_servers must be {FORM}, not 'b'"),
        ),
        (ServerOptions(known_servers=many), "has 65 entries"),
        (ServerOptions(websocket=websocket), "entry 1 of websocket known_servers"),
    ):
        with pytest.raises(ConfigError, match=words):
            check_options(options)


def test_server_itself_is_named_first_and_once() -> None:
    others = ("b:1", "127.0.0.1:4222")
    assert named("", others) == ("127.0.0.1:4222", "b:1")
    assert named("a.example", ("a.example:4222", "b:1")) == ("a.example:4222", "b:1")
    assert named("a.example:80", others) == ("a.example:80", "b:1", "127.0.0.1:4222")
    assert named("", others, is_leaving=True) == ("b:1",)
    assert named("A.example", ("a.EXAMPLE:4222",)) == ("A.example:4222",)
    assert named("[FD00:0::1]", ("[fd00::1]:4222", "b:1")) == ("[FD00:0::1]:4222", "b:1")
    assert named("", ()) == ()


def named(advertise: str, others: tuple[str, ...], *, is_leaving: bool = False) -> tuple[str, ...]:
    return connect_urls(advertise, BOUND, others, both_families=True, is_leaving=is_leaving)


def test_machine_with_many_addresses_names_some(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [f"10.0.0.{number}" for number in range(1, 255)]
    monkeypatch.setattr(interfaces, "interface_ips", lambda: many)
    bound = ("0.0.0.0", 4222)
    urls = connect_urls("", bound, ("b:1",), both_families=True, is_leaving=False)
    assert urls == (*(f"{ip}:4222" for ip in many[:OWN_PLACES_MAX]), "b:1")


def test_advertised_host_may_be_without_a_port() -> None:
    assert advertised("", *BOUND) == BOUND
    assert advertised("[fd00::1]", *BOUND) == ("fd00::1", 4222)
    assert advertised("[fd00::1]:80", *BOUND) == ("fd00::1", 80)
    assert advertised("a.example:80", *BOUND) == ("a.example", 80)


def test_clients_are_told_one_per_step() -> None:
    server = InProcessServer(accounts=["A"])
    peers = [server.connect(b'CONNECT {"verbose":false,"protocol":1}\r\n') for _ in range(20)]
    server.run_until_idle()
    for peer in peers:
        peer.take()
    told = []
    for _ in server.broker.broadcast_info():
        server.run_until_idle()
        told.append(sum(peer.take().startswith(b"INFO {") for peer in peers))
    assert max(told) == 1


# ---------------------------------------------------------------- a running server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with running("tradewind", tmp_path, f"known_servers: ['{LOOPBACK}:1']\n") as process:
        yield process


def test_list_may_hold_the_server_itself(server: ServerProcess) -> None:
    own = f"{LOOPBACK}:{server.port}"
    with RawClient(server.port) as client:
        client.connect()
        client.read_info()
        reload(server, f"known_servers: ['b.example:4222', '{own}', 'B.example:4222']\n")
        assert client.read_info()["connect_urls"] == [own, "b.example:4222"]
        server.wait_for_log(rf"Reloaded: known_servers = b\.example:4222, {LOOPBACK}")
        server.signal(signal.SIGUSR2)
        assert client.read_info()["connect_urls"] == ["b.example:4222"]


def test_empty_list_takes_the_servers_out_of_info(server: ServerProcess) -> None:
    with RawClient(server.port) as client:
        client.connect()
        assert "connect_urls" in client.read_info()
        reload(server, "known_servers: []\n")
        assert "connect_urls" not in client.read_info()
        reload(server, "known_servers: []\nmax_payload: 1000\n")
        client.send("PING\r\n")
        assert client.read_line() in (b"PONG", b"PING")  # nothing has changed for it


def test_wrong_list_changes_nothing(server: ServerProcess) -> None:
    outcome = reload(server, "known_servers: ['b.example:4222', 'b.example']\n")
    assert f"entry 2 of known_servers must be {FORM}, not 'b.example'" in outcome
    with RawClient(server.port) as client:
        assert client.info["connect_urls"] == [f"{LOOPBACK}:{server.port}", f"{LOOPBACK}:1"]
