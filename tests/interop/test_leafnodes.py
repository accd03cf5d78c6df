"""Leaf nodes: each of both servers as the hub and as the leaf node of each of them."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from harness import RawClient
from leaf_kit import PAIRINGS, Node, hub_config, joined, leaf_config

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.parametrize("kinds", PAIRINGS, ids=["-".join(pair) for pair in PAIRINGS]),
]
Kinds = tuple[str, str]


def ask(client: RawClient, subject: str, inbox: str = "answers") -> tuple[str, bytes, bytes]:
    client.send(f"PUB {subject} {inbox} 0\r\n\r\n")
    return client.read_message()


def test_messages_go_both_ways_once(kinds: Kinds, tmp_path: Path) -> None:
    with joined(kinds, tmp_path) as (hub, leaf):
        above, below = hub.client(), leaf.client()
        # Several subscriptions match: over the link there is one message.
        above.send("SUB up.> 1\r\nSUB up.x 2\r\n")
        below.send("SUB down.* 1\r\nSUB down.> 2\r\n")
        hub.wait_asked("down.*")
        hub.wait_asked("down.>")
        leaf.wait_asked("up.>")
        leaf.wait_asked("up.x")
        below.send("PUB up.x 2\r\nhi\r\n")
        got = sorted(above.read_message() for _ in range(2))
        assert got == [("MSG up.x 1 2", b"", b"hi"), ("MSG up.x 2 2", b"", b"hi")]
        above.send("HPUB down.y re.ply 18 21\r\nNATS/1.0\r\nA: b\r\n\r\nabc\r\n")
        header = b"NATS/1.0\r\nA: b\r\n\r\n"
        got = sorted(below.read_message() for _ in range(2))
        expected = [(f"HMSG down.y {sid} re.ply 18 21", header, b"abc") for sid in (1, 2)]
        assert got == expected
        for node in (hub, leaf):
            node.wait_received(1)
        assert [one["is_spoke"] for one in (*hub.leafs(), *leaf.leafs())] == [False, True]


def test_interest_goes_with_its_last_subscription(kinds: Kinds, tmp_path: Path) -> None:
    with joined(kinds, tmp_path) as (hub, leaf):
        one, two = leaf.client(), leaf.client()
        one.send("SUB here 1\r\nSUB here 2\r\n")
        two.send("SUB here 1\r\n")
        one.ping()
        two.ping()
        hub.wait_asked("here")
        one.send("UNSUB 1\r\nUNSUB 2\r\nSUB marker 3\r\n")
        hub.wait_asked("marker")
        hub.wait_asked("here")
        two.send("UNSUB 1\r\n")
        hub.wait_asked("here", count=0)


def test_request_and_answer_cross_without_a_pause(kinds: Kinds, tmp_path: Path) -> None:
    with joined(kinds, tmp_path) as (hub, leaf):
        service = hub.client()
        service.send("SUB svc 1\r\n")
        leaf.wait_asked("svc")
        client = leaf.client()
        # The answer arrives, although the inbox is a moment old.
        client.send("SUB inbox.a 7\r\nPUB svc inbox.a 1\r\n?\r\n")
        assert service.read_message() == ("MSG svc 1 inbox.a 1", b"", b"?")
        service.send("PUB inbox.a 1\r\n!\r\n")
        assert client.read_message() == ("MSG inbox.a 7 1", b"", b"!")


def test_no_responders_follow_the_interest(kinds: Kinds, tmp_path: Path) -> None:
    with joined(kinds, tmp_path) as (hub, leaf):
        client, service = leaf.client(), hub.client()
        client.send("SUB answers 1\r\n")
        assert ask(client, "svc")[1].startswith(b"NATS/1.0 503")
        service.send("SUB svc 1\r\n")
        leaf.wait_asked("svc")
        client.send("PUB svc answers 0\r\n\r\n")
        assert service.read_message()[0] == "MSG svc 1 answers 0"
        hub.stop()
        leaf.wait_linked(0)
        assert ask(client, "svc")[1].startswith(b"NATS/1.0 503")


def test_queue_group_prefers_members_of_its_own_server(kinds: Kinds, tmp_path: Path) -> None:
    with joined(kinds, tmp_path) as (hub, leaf):
        above, below = hub.client(), leaf.client()
        above.send("SUB work g 1\r\nSUB done 9\r\n")
        below.send("SUB work g 1\r\n")
        hub.wait_asked("work")
        leaf.wait_asked("work")
        leaf.wait_asked("done")
        below.send("PUB work 1\r\na\r\n" * 20)
        assert {below.read_message()[0] for _ in range(20)} == {"MSG work 1 1"}
        below.send("UNSUB 1\r\n")
        hub.wait_asked("work", count=0)
        below.send("PUB work 1\r\nb\r\nPUB done 0\r\n\r\n")
        assert above.read_message() == ("MSG work 1 1", b"", b"b")
        assert above.read_message() == ("MSG done 9 0", b"", b"")


def test_queue_groups_and_plain_subscriptions_share_one_message(
    kinds: Kinds, tmp_path: Path
) -> None:
    with joined(kinds, tmp_path) as (hub, leaf):
        above, below = hub.client(), leaf.client()
        above.send("SUB w 1\r\nSUB w a 2\r\nSUB w a 3\r\nSUB w b 4\r\nSUB end 5\r\n")
        leaf.wait_asked("w", count=1)
        leaf.wait_asked("end")
        below.send("PUB w 1\r\nx\r\nPUB end 0\r\n\r\n")
        got = set()
        while (message := above.read_message())[0] != "MSG end 5 0":
            got.add(int(message[0].split()[2]))
        assert got in ({1, 2, 4}, {1, 3, 4})
        hub.wait_received(2)


@pytest.mark.parametrize("mode", ["off", "s2_auto", "s2_fast", "s2_best"])
def test_compression_changes_no_byte(kinds: Kinds, tmp_path: Path, mode: str) -> None:
    with joined(kinds, tmp_path, hub=f"compression: {mode}", remote=f"compression: {mode}") as (
        hub,
        leaf,
    ):
        above, below = hub.client(), leaf.client()
        above.send("SUB up 1\r\n")
        below.send("SUB down 1\r\n")
        hub.wait_asked("down")
        leaf.wait_asked("up")
        for size in (0, 1, 128, 70_000, 1_000_000):
            payload = (b"abcdefgh" * (size // 8 + 1))[:size]
            below.send(b"PUB up %d\r\n%s\r\n" % (size, payload))
            assert above.read_message() == (f"MSG up 1 {size}", b"", payload)
            above.send(b"PUB down %d\r\n%s\r\n" % (size, payload))
            assert below.read_message() == (f"MSG down 1 {size}", b"", payload)
        shown = hub.leafs()[0]["compression"]
        assert shown == mode or (mode == "s2_auto" and shown.startswith("s2_")), shown


def test_accounts_are_joined_as_configured(kinds: Kinds, tmp_path: Path) -> None:
    accounts = (
        "accounts { A { users: [{user: a, password: a}] }, B { users: [{user: b, password: b}] } }"
    )
    with joined(
        kinds,
        tmp_path,
        hub="authorization { users: [{user: l, password: p, account: A}] }",
        around_hub=accounts,
        around_leaf=accounts,
        remote="account: B",
        login="l:p@",
    ) as (hub, leaf):
        assert [one["account"] for one in (*hub.leafs(), *leaf.leafs())] == ["A", "B"]
        in_a, in_b = hub.client(user="a", **{"pass": "a"}), hub.client(user="b", **{"pass": "b"})
        below = leaf.client(user="b", **{"pass": "b"})
        for client in (in_a, in_b):
            client.send("SUB t 1\r\n")
            client.ping()
        leaf.wait_asked("t")
        below.send("PUB t 1\r\nx\r\n")
        assert in_a.read_message() == ("MSG t 1 1", b"", b"x")
        in_b.ping()  # nothing came before the PONG


def test_user_permissions_hold_for_the_leaf_node(kinds: Kinds, tmp_path: Path) -> None:
    rules = (
        'authorization { users: [{user: l, password: p, permissions: { publish: {allow: ["up.>"]},'
        ' subscribe: {allow: ["down.>"], deny: ["down.secret"]} }}, {user: c, password: c}] }'
    )
    with joined(kinds, tmp_path, around_hub=rules, login="l:p@") as (hub, leaf):
        above, below = hub.client(user="c", **{"pass": "c"}), leaf.client()
        above.send("SUB up.x 1\r\nSUB other 2\r\n")
        below.send("SUB down.> 1\r\nSUB else 2\r\nSUB answers 3\r\n")
        hub.wait_asked("down.>")
        leaf.wait_asked("up.x")
        assert "other" not in leaf.leafs()[0]["subscriptions_list"]
        assert "else" not in hub.leafs()[0]["subscriptions_list"]
        assert ask(below, "other")[1].startswith(b"NATS/1.0 503")
        below.send("PUB up.x 1\r\na\r\n")
        assert above.read_message() == ("MSG up.x 1 1", b"", b"a")
        above.send("PUB down.secret 1\r\nb\r\nPUB down.open 1\r\nc\r\n")
        assert below.read_message() == ("MSG down.open 1 1", b"", b"c")
        assert len(hub.leafs()) == 1


def test_remote_denies_imports_and_exports(kinds: Kinds, tmp_path: Path) -> None:
    remote = 'deny_imports: ["in.no"]\n deny_exports: "out.no"\n'
    with joined(kinds, tmp_path, remote=remote) as (hub, leaf):
        above, below = hub.client(), leaf.client()
        above.send("SUB out.> 1\r\n")
        below.send("SUB in.> 1\r\nSUB in.no 2\r\n")
        hub.wait_asked("in.>")
        leaf.wait_asked("out.>")
        assert "in.no" not in hub.leafs()[0]["subscriptions_list"]
        below.send("PUB out.no 1\r\na\r\nPUB out.yes 1\r\nb\r\n")
        assert above.read_message() == ("MSG out.yes 1 1", b"", b"b")
        above.send("PUB in.no 1\r\na\r\nPUB in.yes 1\r\nb\r\n")
        assert below.read_message() == ("MSG in.yes 1 1", b"", b"b")


def test_wrong_login_is_refused_and_tried_again(kinds: Kinds, tmp_path: Path) -> None:
    hub = Node(kinds[0], tmp_path, "hub", hub_config("authorization { user: l, password: right }"))
    leaf = Node(kinds[1], tmp_path, "leaf", leaf_config(hub.leaf_port, login="l:wrong@"))
    try:
        leaf.process.wait_for_log("Authorization Violation")
        assert hub.leafs() == []
    finally:
        leaf.stop()
        hub.stop()


def test_leaf_node_comes_back_to_a_hub_that_was_restarted(kinds: Kinds, tmp_path: Path) -> None:
    with joined(kinds, tmp_path) as (hub, leaf):
        below = leaf.client()
        below.send("SUB here 1\r\n")
        hub.wait_asked("here")
        port = hub.leaf_port
        hub.stop()
        leaf.wait_linked(0)
        again = Node(kinds[0], tmp_path, "hub", f'leafnodes {{ listen: "127.0.0.1:{port}" }}')
        try:
            again.wait_asked("here")
            above = again.client()
            above.send("PUB here 1\r\nx\r\n")
            assert below.read_message() == ("MSG here 1 1", b"", b"x")
        finally:
            again.stop()


def test_mappings_of_the_hub_are_known_at_the_leaf_node(kinds: Kinds, tmp_path: Path) -> None:
    with joined(kinds, tmp_path, around_hub='mappings { "old.*": "new.$1" }') as (hub, leaf):
        above, below = hub.client(), leaf.client()
        above.send("SUB new.* 1\r\n")
        leaf.wait_asked("old.*")
        leaf.wait_asked("new.*")
        below.send("PUB old.x 1\r\na\r\n")
        assert above.read_message() == ("MSG new.x 1 1", b"", b"a")


ACCOUNTS = "\naccounts { $SYS { users: [ { user: sys, password: sys } ] } }"


def test_remote_of_a_reloaded_file_is_dialled_and_one_that_is_gone_is_left(
    kinds: Kinds, tmp_path: Path
) -> None:
    """And both sides tell of it in events, but not in those for gateways."""
    hub = Node(kinds[0], tmp_path, "hub", hub_config("", ACCOUNTS))
    inside = 'listen: "127.0.0.1:-1", remotes: []'
    leaf = Node(kinds[1], tmp_path, "leaf", f"leafnodes {{ {inside} }}{ACCOUNTS}")
    try:
        watching = [node.client(user="sys", **{"pass": "sys"}) for node in (hub, leaf)]
        for client in watching:
            client.send("SUB $SYS.ACCOUNT.*.CONNECT 1\r\nSUB $SYS.ACCOUNT.*.DISCONNECT 2\r\n")
            client.send("SUB $SYS.ACCOUNT.*.LEAFNODE.> 3\r\nPING\r\n")
            # nats-server may tell of this connection itself, or of the other one, before.
            while client.read_line() != b"PONG":
                pass
        before = leaf.config_path.read_text()
        url = f'{{ url: "nats-leaf://127.0.0.1:{hub.leaf_port}" }}'
        leaf.config_path.write_text(before.replace("remotes: []", f"remotes: [ {url} ]"))
        leaf.process.signal(signal.SIGHUP)
        hub.wait_linked()
        leaf.wait_linked()
        # nats-server tells of a link a moment after it is there.
        for client in watching:
            assert link_event(client) == "$SYS.ACCOUNT.$G.CONNECT"
        leaf.config_path.write_text(before)
        leaf.process.signal(signal.SIGHUP)
        hub.wait_linked(0)
        for client in watching:
            assert link_event(client) == "$SYS.ACCOUNT.$G.DISCONNECT"
    finally:
        leaf.stop()
        hub.stop()


def link_event(client: RawClient) -> str:
    """The subject of the next event about a leaf connection."""
    while True:
        line, _, body = client.read_message()
        if json.loads(body)["client"]["kind"] == "Leafnode":
            return line.split()[1]
