"""How much leaf connections have sent and received, and what monitoring lists of them."""

from __future__ import annotations

import pytest

from tradewind.broker import leaves
from tradewind.monitor.page_options import SubszOptions
from tradewind.monitor.stepping import at_once
from tradewind.monitor.subsz import build_subsz
from tradewind.options import LeafOptions, ServerOptions
from tradewind.testing.in_process import FakeConnection, InProcessServer

CONNECT = b'CONNECT {"verbose":false,"pedantic":false}\r\n'


@pytest.fixture
def server() -> InProcessServer:
    return InProcessServer(ServerOptions(server_name="hub", leafnodes=LeafOptions(port=1)))


def say(peer: FakeConnection, text: bytes) -> None:
    peer.send(b"LMSG a %d\r\n%s\r\n" % (len(text), text))


def test_traffic_of_ended_connections_stays_in_the_sum(server: InProcessServer) -> None:
    first, second = server.connect_leaf(name="one"), server.connect_leaf(name="two")
    second.send(b"LS+ a\r\n")
    say(first, b"abc")
    before = server.broker.leaf_traffic()
    assert (before.in_msgs, before.in_bytes, before.out_msgs, before.out_bytes) == (1, 3, 1, 3)
    first.session.close("gone")
    assert server.broker.leaf_traffic() == server.broker.leaf_traffic("$G") == before
    assert server.broker.leaf_traffic("$SYS").in_msgs == 0


def test_traffic_of_many_connections_is_added_up_once_a_second(
    server: InProcessServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaves, "SUMMED_EACH_TIME_MAX", 1)
    peer = server.connect_leaf(name="one")
    server.connect_leaf(name="two")
    assert server.broker.leaf_traffic().in_msgs == 0
    say(peer, b"abc")
    assert server.broker.leaf_traffic().in_msgs == 0
    server.clock.advance_ns(leaves.SUM_AGE_NS)
    assert server.broker.leaf_traffic().in_msgs == 1


@pytest.mark.parametrize("offset", range(5))
def test_pages_of_subscriptions_skip_those_of_leaf_nodes(
    server: InProcessServer, offset: int
) -> None:
    client = server.connect(CONNECT)
    peer = server.connect_leaf(name="one")
    for number in range(4):
        client.send(b"SUB s.%d %d\r\n" % (number, number))
        peer.send(b"LS+ s.%d\r\n" % number)
    wanted = SubszOptions(subscriptions=True, account="$G", offset=offset, limit=2)
    page = at_once(build_subsz(server.broker, wanted, 0))
    assert page.total == 4
    listed = page.subscriptions_list or []
    assert len(listed) == max(min(4 - offset, 2), 0)
    assert {one.cid for one in listed} <= {client.session.cid}
