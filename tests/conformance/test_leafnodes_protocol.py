"""What a hub answers to the server at the other end of a leaf connection, byte for byte."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers_ops import INT, TEXT, Certificates

from harness import RawClient, wait_for
from leaf_kit import Node, RawLeaf, hub_config

Start = Callable[..., Node]


@pytest.fixture
def node(kind: str, tmp_path: Path) -> Iterator[Start]:
    """node("inside of leafnodes", "rest of the file") gives a hub, stopped after the test."""
    started: list[Node] = []

    def start(inside: str = "", outside: str = "", name: str = "hub") -> Node:
        if "authorization" not in inside:
            # Time enough to say something on a busy machine.
            inside += "\nauthorization { timeout: 60 }"
        started.append(Node(kind, tmp_path, name, hub_config(inside, outside)))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def peers() -> Iterator[Callable[..., RawLeaf]]:
    """peers(node) gives a raw connection to its leaf port, closed after the test."""
    opened: list[RawLeaf] = []

    def dial(hub: Node, **fields: object) -> RawLeaf:
        peer = RawLeaf(hub.leaf_port)
        opened.append(peer)
        if fields:
            peer.login(**fields)
        return peer

    yield dial
    for one in opened:
        one.close()


Peers = Callable[..., RawLeaf]


def test_info_names_what_a_leaf_node_needs(node: Start, peers: Peers) -> None:
    hub = node("compression: off")
    info = peers(hub).info
    assert info["server_name"] == "hub"
    assert info["client_id"] > 0
    assert len(info["nonce"]) == 15
    assert info["headers"] is info["auth_required"] is info["info_on_connect"] is True
    assert info["leafnode_urls"] == [f"127.0.0.1:{hub.leaf_port}"]
    assert info["max_payload"] == 1048576


# In the order in which they are written; not what names the implementation.
INFO_ORDER = [
    *("server_id", "server_name", "version", "proto", "go", "host", "port", "headers"),
    *("auth_required", "tls_required", "tls_verify", "max_payload", "jetstream", "ip"),
    *("client_id", "nonce", "domain", "compression", "connect_info", "remote_account"),
    *("acc_is_sys", "api_lvl", "import", "export", "info_on_connect", "leafnode_urls"),
]
RULES = """authorization { users: [ { user: l, password: p, permissions: {
  publish: { allow: [a, b], deny: [c] }, subscribe: x } } ] }"""
SYSTEM_USER = "accounts { $SYS { users: [ { user: l, password: p } ] } }"
# inside of leafnodes, the rest of the file, fields of both INFO lines and of the second one
INFO_WALKS: dict[str, tuple[str, str, dict[str, object], dict[str, object]]] = {
    "default": ("", "", {}, {}),
    "own-login": ("authorization { user: l, password: p }", "", {}, {}),
    "advertised": (
        'advertise: "l.example:55"',
        "",
        {"host": "l.example", "port": 55, "ip": "l.example:55", "leafnode_urls": ["l.example:55"]},
        {},
    ),
    "domain": (
        "",
        'jetstream { store_dir: "STORE", domain: d }',
        {"jetstream": True, "domain": "d"},
        {},
    ),
    "permissions": (
        "",
        RULES,
        {},
        {"import": {"allow": ["x"]}, "export": {"allow": ["a", "b"], "deny": ["c"]}},
    ),
    "system-account": ("", SYSTEM_USER, {}, {"remote_account": "$SYS", "acc_is_sys": True}),
    "no-headers": ("", "no_header_support: true", {"headers": False}, {}),
    "payload": ("", "max_payload: 1000", {"max_payload": 1000}, {}),
    "tls": ("TLS()", "", {"tls_required": True}, {}),
    "tls-verify": ("TLS(verify: true)", "", {"tls_required": True, "tls_verify": True}, {}),
}


@pytest.mark.parametrize("case", INFO_WALKS)
def test_both_infos_have_exactly_their_fields(
    node: Start, peers: Peers, tmp_path: Path, case: str
) -> None:
    inside, outside, both, second = INFO_WALKS[case]
    certificates = None
    if options := re.search(r"TLS\((.*)\)", inside):
        certificates = Certificates(tmp_path)
        certificates.clients["l"] = certificates.authority.client("l")
        inside = inside.replace(options[0], certificates.block(options[1]))
    hub = node(inside, outside.replace("STORE", str(tmp_path)))
    peer = peers(hub)
    expected = {
        "server_id": TEXT,
        "server_name": "hub",
        "version": "2.15.1",
        "proto": 3,
        "go": TEXT,
        "host": "127.0.0.1",
        "port": hub.leaf_port,
        "headers": True,
        "auth_required": True,
        "max_payload": 1048576,
        "ip": f"127.0.0.1:{hub.leaf_port}",
        "client_id": INT,
        "api_lvl": 5,
        "info_on_connect": True,
        "leafnode_urls": [f"127.0.0.1:{hub.leaf_port}"],
        **both,
    }
    first = _walked(peer.info)
    assert first == {**expected, "nonce": TEXT, "compression": "s2_auto"}
    if certificates is not None:
        certificates.upgrade(peer, "l")
    answer = peer.login(user="l", **{"pass": "p"})
    assert _walked(answer) == {
        **expected,
        "connect_info": True,
        "remote_account": "$G",
        **second,
    }


def _walked(info: dict[str, object]) -> dict[str, object]:
    fields = {
        name: value for name, value in info.items() if name not in ("git_commit", "tradewind")
    }
    assert list(fields) == [name for name in INFO_ORDER if name in fields]
    return fields


def test_connect_is_answered_with_the_account_and_all_interest(node: Start, peers: Peers) -> None:
    hub = node()
    client = hub.client()
    client.send("SUB foo 1\r\nSUB bar q 2\r\nSUB bar q 3\r\n")
    client.ping()
    peer = peers(hub)
    answer = peer.login()
    assert answer["connect_info"] is True
    assert answer["remote_account"] == "$G"
    assert "nonce" not in answer
    lines = peer.quiet_ping()
    assert b"LS+ foo" in lines
    assert b"LS+ bar q 2" in lines
    assert sum(line.startswith(b"LS+ $LDS.") for line in lines) == 1
    assert all(line.startswith(b"LS+ ") for line in lines)


def test_changes_of_interest_are_told(node: Start, peers: Peers) -> None:
    hub = node()
    peer, client = peers(hub, name="p"), hub.client()
    peer.quiet_ping()
    client.send("SUB a 1\r\nSUB a 2\r\nSUB w g 3\r\n")
    client.ping()
    assert sorted(peer.quiet_ping()) == [b"LS+ a", b"LS+ w g 1"]
    client.send("SUB w g 4\r\n")
    client.ping()
    assert peer.quiet_ping() == [b"LS+ w g 2"]
    client.send("UNSUB 1\r\nUNSUB 3\r\n")
    client.ping()
    assert peer.quiet_ping() == [b"LS+ w g 1"]
    client.send("UNSUB 2\r\nUNSUB 4\r\n")
    client.ping()
    assert sorted(peer.quiet_ping()) == [b"LS- a", b"LS- w g"]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("PING\r\n", "-ERR 'Authorization Violation'\r\n"),
        ("LS+ foo\r\n", "-ERR 'Authorization Violation'\r\n"),
        ("LMSG foo 0\r\n\r\n", "-ERR 'Authorization Violation'\r\n"),
        ("CONNECT {nonsense\r\n", ""),
        ('CONNECT {"lang":"go"}\r\n', "-ERR 'attempted to connect to leaf node port'\r\n"),
        (
            'CONNECT {"gateway":"G"}\r\n',
            "-ERR 'Rejecting connection from gateway \"G\" on the leafnode port'\r\n",
        ),
        (
            'CONNECT {"cluster":"with space"}\r\n',
            "-ERR 'cluster name cannot contain spaces'\r\n",
        ),
    ],
)
def test_what_is_no_leaf_node_is_turned_away(
    node: Start, peers: Peers, line: str, answer: str
) -> None:
    peer = peers(node())
    peer.send(line)
    peer.expect_closed(answer)


def test_client_on_the_leaf_port_and_its_password(kind: str, node: Start, peers: Peers) -> None:
    """nats-server looks at the login first, and tells of it in events; Tradewind does not."""
    hub = node(outside="authorization { user: u, password: p }")
    peer = peers(hub)
    peer.send('CONNECT {"lang":"go","user":"u","pass":"wrong"}\r\n')
    answers = {
        "official": "-ERR 'Authorization Violation'\r\n",
        "tradewind": "-ERR 'attempted to connect to leaf node port'\r\n",
    }
    peer.expect_closed(answers[kind])


def test_wrong_password_is_refused(node: Start, peers: Peers) -> None:
    hub = node("authorization { user: l, password: p }")
    peer = peers(hub)
    peer.send('CONNECT {"user":"l","pass":"x"}\r\n')
    peer.expect_closed("-ERR 'Authorization Violation'\r\n")
    assert peers(hub).login(user="l", **{"pass": "p"})["connect_info"] is True


def test_users_of_clients_are_not_those_of_leaf_nodes(node: Start, peers: Peers) -> None:
    hub = node(
        "authorization { user: l, password: p }",
        "authorization { users: [{user: c, password: c}] }",
    )
    peer = peers(hub)
    peer.send('CONNECT {"user":"c","pass":"c"}\r\n')
    peer.expect_closed("-ERR 'Authorization Violation'\r\n")


def test_leaf_node_without_connect_is_closed_in_time(node: Start, peers: Peers) -> None:
    peer = peers(node("authorization { timeout: 0.3 }"))
    peer.expect_closed("-ERR 'Authentication Timeout'\r\n")


def test_account_has_so_many_leaf_nodes(node: Start, peers: Peers) -> None:
    hub = node(
        "authorization { users: [{user: l, password: p, account: A}] }",
        "accounts { A { limits { max_leafnodes: 1 }, users: [{user: a, password: a}] } }",
    )
    login = {"user": "l", "pass": "p"}
    assert peers(hub).login(name="one", **login)["remote_account"] == "A"
    peer = peers(hub)
    peer.send(f"CONNECT {json.dumps({'name': 'two', **login})}\r\n")
    peer.expect_closed("-ERR 'Authorization Violation'\r\n")


def test_old_versions_are_refused(node: Start, peers: Peers) -> None:
    peer = peers(node('min_version: "2.10.0"'))
    peer.send('CONNECT {"version":"2.9.9"}\r\n')
    assert b'minimum version required is "2.10.0"' in peer.read_to_end()


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("LS+ foo bar\r\n", ""),
        ("LS+ a b 1 c\r\n", ""),
        ("HMSG foo 5 2\r\nab\r\n", ""),
        ("NONSENSE\r\n", "-ERR 'Unknown Protocol Operation'\r\n"),
        ("LMSG foo 2000000\r\n", "-ERR 'Maximum Payload Violation'\r\n"),
    ],
)
def test_wrong_lines_end_the_connection(node: Start, peers: Peers, line: str, answer: str) -> None:
    peer = peers(node(), name="p")
    peer.quiet_ping()
    peer.send(line)
    peer.expect_closed(answer)


def test_wrong_subject_is_told_and_the_connection_stays(node: Start, peers: Peers) -> None:
    peer = peers(node(), name="p")
    peer.quiet_ping()
    peer.send("LS+ a..b\r\n")
    assert peer.quiet_ping() == [b"-ERR 'Invalid Subscription'"]
    peer.send("LS- never.asked\r\nLS- never.asked q\r\n")
    assert peer.quiet_ping() == []


def test_message_reaches_plain_subscriptions_and_named_groups(node: Start, peers: Peers) -> None:
    hub = node()
    client = hub.client()
    client.send("SUB t 1\r\nSUB t a 2\r\nSUB t a 3\r\nSUB t b 4\r\n")
    client.ping()
    peer = peers(hub, name="p")
    peer.quiet_ping()

    def send(line: str) -> list[str]:
        peer.send(f"{line} 1\r\nx\r\n")
        assert peer.quiet_ping() == []
        client.send("PING\r\n")
        got = []
        while (line_of := client.read_line()) != b"PONG":
            if line_of.startswith(b"MSG"):
                got.append(line_of.decode())
                client.read_exact(3)
        return sorted(got)

    assert send("LMSG t") == ["MSG t 1 1"]
    assert send("LMSG t re") == ["MSG t 1 re 1"]
    assert send("LMSG t | b") == ["MSG t 1 1", "MSG t 4 1"]
    both = send("LMSG t + re a b")
    assert both in (
        ["MSG t 1 re 1", "MSG t 2 re 1", "MSG t 4 re 1"],
        ["MSG t 1 re 1", "MSG t 3 re 1", "MSG t 4 re 1"],
    )
    assert send("LMSG t | other") == ["MSG t 1 1"]


def test_messages_are_written_with_their_groups(node: Start, peers: Peers) -> None:
    hub = node()
    peer = peers(hub, name="p", cluster="P")
    peer.send("LS+ t\r\nLS+ t.>\r\nLS+ t.a g 3\r\nLS+ t.* h 1\r\n")
    peer.quiet_ping()
    client = hub.client()
    client.send("PUB t.a 1\r\nx\r\nPUB t.b re 1\r\ny\r\nPUB t 1\r\nz\r\n")
    client.ping()

    def words() -> list[bytes]:
        line = peer.read_until(b"LMSG")[-1].split()
        peer.read_exact(int(line[-1]) + 2)
        return line

    first = words()
    assert first[:3] == [b"LMSG", b"t.a", b"|"]
    assert sorted(first[3:-1]) == [b"g", b"h"]
    assert words() == [b"LMSG", b"t.b", b"+", b"re", b"h", b"1"]
    assert words() == [b"LMSG", b"t", b"1"]
    client.send("HPUB t re 12 13\r\nNATS/1.0\r\n\r\nx\r\n")
    assert peer.read_until(b"HMSG")[-1] == b"HMSG t re 12 13"
    assert peer.read_exact(15) == b"NATS/1.0\r\n\r\nx\r\n"


def test_nothing_comes_back(node: Start, peers: Peers) -> None:
    hub = node()
    sender, same, other = (
        peers(hub, name=name, cluster=cluster)
        for name, cluster in (("s", "C"), ("t", "C"), ("o", "D"))
    )
    for peer in (sender, same, other):
        peer.quiet_ping()
        peer.send("LS+ t\r\n")
    for peer in (sender, same, other):
        peer.quiet_ping()
    # What a server asks for is not told to servers of its cluster; the others know.
    sender.send("LS+ mine\r\n")
    sender.quiet_ping()
    assert b"LS+ mine" in other.quiet_ping()
    assert b"LS+ mine" not in same.quiet_ping()
    sender.send("LMSG t 1\r\nx\r\n")
    assert sender.quiet_ping() == []
    assert same.quiet_ping() == []
    assert other.read_until(b"LMSG")[-1] == b"LMSG t 1"


def test_subject_of_a_delivered_message_rides_behind_its_reply(node: Start, peers: Peers) -> None:
    hub = node()
    client, peer = hub.client(), peers(hub, name="p")
    client.send("SUB inbox 1\r\n")
    client.ping()
    peer.quiet_ping()
    ack = "$JS.ACK.S.c.1.2.3.4.5"
    peer.send(f"LMSG inbox {ack}@orders.new 1\r\nx\r\n")
    assert client.read_message() == (f"MSG orders.new 1 {ack} 1", b"", b"x")
    peer.send("LMSG inbox $JS.ACK.short@x 1\r\nx\r\n")
    assert client.read_message() == ("MSG inbox 1 $JS.ACK.short@x 1", b"", b"x")


def test_second_connection_of_a_server_replaces_the_first(node: Start, peers: Peers) -> None:
    hub = node()
    fields = {"name": "same", "cluster": "C", "remote_account": "$G"}
    first = peers(hub, **fields)
    first.quiet_ping()
    second = peers(hub, **fields)
    lines = first.read_until(b"-ERR")
    assert lines[-1] == b"-ERR 'Duplicate Remote LeafNode Connection'"
    first.expect_closed()
    second.quiet_ping()
    hub.wait_linked()


def test_loop_is_found(node: Start, peers: Peers) -> None:
    hub = node()
    peer = peers(hub, name="p")
    (own,) = [line for line in peer.quiet_ping() if line.startswith(b"LS+ $LDS.")]
    peer.send("LS+ $LDS.another\r\n")
    assert peer.quiet_ping() == []
    peer.send(own + b"\r\n")
    text = b'Loop detected for leafnode account="$G". Delaying attempt to reconnect for 30s'
    assert b"-ERR '%b'" % text in peer.read_to_end()


def test_permissions_of_a_leaf_node(node: Start, peers: Peers) -> None:
    rules = (
        'authorization { users: [{user: l, password: p, permissions: { publish: {allow: ["up.>"]},'
        ' subscribe: {allow: ["down.>"], deny: ["down.no"]} }}, {user: c, password: c}] }'
    )
    hub = node("", rules)
    login = {"user": "l", "pass": "p"}
    peer = peers(hub)
    answer = peer.login(name="a", **login)
    assert answer["import"] == {"allow": ["down.>"], "deny": ["down.no"]}
    assert answer["export"] == {"allow": ["up.>"]}
    peer.quiet_ping()
    # A wildcard is accepted, and what comes is filtered.
    peer.send("LS+ >\r\n")
    peer.quiet_ping()
    client = hub.client(user="c", **{"pass": "c"})
    client.send("PUB down.no 1\r\na\r\nPUB x 1\r\nb\r\nPUB down.yes 1\r\nc\r\n")
    assert peer.read_until(b"LMSG")[-1] == b"LMSG down.yes 1"
    peer.read_exact(3)
    peer.send("LS+ else\r\n")
    assert b'Permissions Violation for Subscription to "else"' in peer.read_to_end()
    peer = peers(hub)
    peer.login(name="b", **login)
    peer.quiet_ping()
    peer.send("LMSG else 1\r\nx\r\n")
    assert b'Permissions Violation for Publish to "else"' in peer.read_to_end()


@pytest.mark.parametrize(
    ("rule", "name", "is_purged"),
    [
        ('deny: ["$JS.HUB.API.>"]', "$JS.HUB.API.STREAM.PURGE.S", False),
        ('deny: ["mapped.>"]', "mapped.purge", False),
        ('allow: ["$JS.HUB.API.>"]', "$JS.HUB.API.STREAM.PURGE.S", True),
        ('allow: ["mapped.>"]', "mapped.purge", True),
        ('allow: ["$JS.API.>"]', "$JS.HUB.API.STREAM.PURGE.S", False),
        # nats-server obeys these. The peer cannot know to what the hub maps what it may send, and
        # others use the same connection: here, only the message is dropped.
        ('deny: ["$JS.API.STREAM.PURGE.>"]', "$JS.HUB.API.STREAM.PURGE.S", None),
        ('deny: ["$JS.API.STREAM.PURGE.>"]', "mapped.purge", None),
    ],
)
def test_permissions_of_a_leaf_node_are_about_what_it_sends_and_denials_about_what_it_means(
    node: Start, peers: Peers, tmp_path: Path, rule: str, name: str, is_purged: bool | None
) -> None:
    hub = node(
        "",
        f'jetstream {{ domain: HUB, store_dir: "{tmp_path / "store"}" }}\n'
        'mappings: { "mapped.purge": "$JS.API.STREAM.PURGE.S" }\n'
        "authorization { users: [{user: l, password: p, permissions: { publish: { "
        f"{rule} }} }}}}, {{user: c, password: c}}] }}",
    )
    client = hub.client(user="c", **{"pass": "c"})
    client.send("SUB answers 1\r\n")
    for subject, body in (("$JS.API.STREAM.CREATE.S", '{"name":"S","subjects":["s"]}'), ("s", "x")):
        client.send(f"PUB {subject} answers {len(body)}\r\n{body}\r\n")
        assert b"error" not in client.read_message()[2]
    is_dropped = is_purged is None and hub.process.kind != "official"
    if is_purged is None:
        is_purged = hub.process.kind == "official"
    peer = peers(hub)
    peer.login(name="a", user="l", **{"pass": "p"})
    peer.quiet_ping()
    peer.send(f"LMSG {name} 0\r\n\r\n")
    if is_purged or is_dropped:
        peer.quiet_ping()
    else:
        refused = b'Permissions Violation for Publish to "$JS.API.STREAM.PURGE.S"'
        assert refused in peer.read_to_end()

    def count() -> int:
        client.send("PUB $JS.API.STREAM.INFO.S answers 0\r\n\r\n")
        return int(json.loads(client.read_message()[2])["state"]["messages"])

    if is_purged:
        wait_for(lambda: count() == 0)
    assert count() == (0 if is_purged else 1)


def test_compression_begins_with_a_plain_info(node: Start, peers: Peers) -> None:
    peer = peers(node("compression: s2_fast"))
    assert peer.info["compression"] == "s2_fast"
    peer.send('INFO {"compression":"none such"}\r\n')
    peer.expect_closed("-ERR 'unsupported route compression mode \"none such\"'\r\n")


def test_bytes_that_are_no_compressed_stream_end_the_connection(node: Start, peers: Peers) -> None:
    peer = peers(node("compression: s2_fast"))
    peer.send('INFO {"compression":"s2_fast"}\r\n')
    assert peer.read_exact(10) == b"\xff\x06\x00\x00S2sTwO"
    peer.send(b"CONNECT {}\r\n" * 3)
    peer.read_to_end()


def test_leaf_nodes_are_no_clients(node: Start) -> None:
    hub = node()
    with RawClient(hub.leaf_port) as client:
        client.send('CONNECT {"lang":"python","verbose":false}\r\nPING\r\n')
        client.expect_closed("-ERR 'attempted to connect to leaf node port'\r\n")
    assert hub.page("varz")["leafnodes"] == 0


def test_monitoring_shows_the_connection(node: Start, peers: Peers) -> None:
    hub = node()
    peer = peers(hub, name="p", cluster="C")
    peer.send("LS+ foo\r\nLS+ w g 1\r\nLMSG nobody 3\r\nabc\r\n")
    peer.quiet_ping()
    hub.wait_received(1)
    (leaf,) = hub.leafs()
    shown = {"name", "is_spoke", "account", "in_msgs", "out_msgs", "in_bytes", "subscriptions"}
    assert {key: leaf[key] for key in shown} == {
        "name": "p",
        "is_spoke": False,
        "account": "$G",
        "in_msgs": 1,
        "out_msgs": 0,
        "in_bytes": 3,
        "subscriptions": 2,
    }
    assert sorted(leaf["subscriptions_list"]) == ["foo", "w"]
    assert leaf["compression"] == "not supported"
    varz = hub.page("varz")
    assert varz["leafnodes"] == 1
    assert varz["leaf"]["port"] == hub.leaf_port
    assert hub.page("leafz?acc=none")["leafnodes"] == 0
    peer.close()
    hub.wait_linked(0)
    wait_for(lambda: hub.page("connz?state=closed")["total"] == 1)
    (closed,) = hub.page("connz?state=closed")["connections"]
    assert closed["kind"] == "Leafnode"
