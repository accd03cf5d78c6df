"""Input that costs much waits for later turns, so that others are heard in between."""

from __future__ import annotations

from tradewind.options import LeafOptions, ServerOptions
from tradewind.route.permission_rules import PermissionRules
from tradewind.testing import InProcessServer, User, UserGate
from tradewind.testing.in_process import FakeConnection

SUBSCRIPTIONS = 5000
PUBLISHES = 100
SILENT = b'CONNECT {"verbose":false,"pedantic":false,"echo":false}\r\n'
QUIET = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
FLOOD = b"PUB wide 0\r\n\r\n" * PUBLISHES


def subscriptions() -> bytes:
    """All to one subject: every message costs as many steps."""
    return b"".join(b"SUB wide %d\r\n" % number for number in range(SUBSCRIPTIONS))


def feed(connection: FakeConnection, data: bytes) -> None:
    """Give input to the session alone; the turn goes on."""
    connection.session.feed(data, 1)


def test_a_costly_flood_runs_in_parts_and_to_its_end() -> None:
    server = InProcessServer()
    client = server.connect(SILENT + subscriptions())
    feed(client, FLOOD)
    done = client.session.in_msgs
    assert 0 < done < PUBLISHES
    assert client.session.input_pending_bytes
    assert client.session.blocked
    server.run_until_idle()
    assert client.session.in_msgs == PUBLISHES
    assert not client.session.blocked
    assert client.ask(b"PING\r\n") == b"PONG\r\n"


def test_whoever_asks_for_little_does_not_wait_for_the_flood_of_another() -> None:
    server = InProcessServer()
    flooding, bystander = server.connect(SILENT + subscriptions()), server.connect(QUIET)
    feed(flooding, FLOOD)
    feed(bystander, b"SUB a 1\r\n" + b"PUB a 0\r\n\r\n" * 50 + b"PING\r\n")
    assert not bystander.session.blocked
    assert bystander.session.in_msgs == 50
    assert flooding.session.in_msgs < PUBLISHES
    server.run_until_idle()
    assert bystander.take().endswith(b"PONG\r\n")


def test_the_turn_in_which_a_flood_gave_way_does_not_continue_it() -> None:
    server = InProcessServer()
    client = server.connect(SILENT + subscriptions())
    feed(client, FLOOD)
    done = client.session.in_msgs
    server.broker.end_turn()
    assert client.session.in_msgs == done
    server.broker.end_turn()
    assert done < client.session.in_msgs < PUBLISHES


def test_floods_of_subscriptions_run_in_parts() -> None:
    server = InProcessServer()
    client, bystander = server.connect(QUIET), server.connect(QUIET)
    count = 20_000
    for line, left in ((b"SUB a %d\r\n", count), (b"UNSUB %d\r\n", 0)):
        before = client.session.subscription_count
        feed(client, b"".join(line % number for number in range(count)))
        changed = abs(client.session.subscription_count - before)
        assert 0 < changed < count // 4
        assert client.session.blocked
        feed(bystander, b"SUB a 1\r\nUNSUB 1\r\nPING\r\n")
        assert not bystander.session.blocked
        server.broker.end_turn()
        server.broker.end_turn()
        assert changed < abs(client.session.subscription_count - before) < count // 2
        server.run_until_idle()
        assert client.session.subscription_count == left
    assert client.ask(b"PING\r\n") == b"PONG\r\n"


def test_many_floods_share_a_turn() -> None:
    server = InProcessServer()
    server.connect(QUIET + subscriptions())
    clients = [server.connect(SILENT) for _ in range(8)]
    few = 20
    for client in clients:
        feed(client, b"PUB wide 0\r\n\r\n" * few)
    at_first = [client.session.in_msgs for client in clients]
    assert all(at_first)
    assert sum(at_first) < 2 * few
    server.broker.end_turn()
    server.broker.end_turn()
    more = sum(client.session.in_msgs for client in clients) - sum(at_first)
    assert 0 < more < 2 * few
    server.run_until_idle()
    assert [client.session.in_msgs for client in clients] == [few] * 8


def test_a_flood_that_is_closed_while_it_waits_is_dropped() -> None:
    server = InProcessServer()
    client = server.connect(SILENT + subscriptions())
    feed(client, FLOOD)
    done = client.session.in_msgs
    client.close()
    server.run_until_idle()
    assert client.session.in_msgs == done
    assert server.connect(QUIET + b"PING\r\n").take() == b"PONG\r\n"


def test_comparing_subscriptions_with_very_many_rules_is_costly_too() -> None:
    rules = PermissionRules(subscribe_deny=tuple(f"no.{number}" for number in range(2000)))
    server = InProcessServer(gate=UserGate([User("a", permissions=rules)]))
    client = server.connect(b'CONNECT {"user":"a","verbose":false}\r\n')
    feed(client, b"".join(b"SUB yes.%d %d\r\n" % (number, number) for number in range(50)))
    assert 0 < client.session.subscription_count < 50
    server.run_until_idle()
    assert client.session.subscription_count == 50


def test_a_flood_through_a_leaf_connection_gives_way() -> None:
    server = InProcessServer(ServerOptions(leafnodes=LeafOptions()))
    server.connect(QUIET + subscriptions())
    peer = server.connect_leaf(name="p")
    feed(peer, b"LMSG wide 0\r\n\r\n" * PUBLISHES)
    assert 0 < peer.session.in_msgs < PUBLISHES
    server.run_until_idle()
    assert peer.session.in_msgs == PUBLISHES


def test_a_subscription_of_more_than_255_tokens_is_refused_by_default() -> None:
    client = InProcessServer().connect(QUIET)
    longest = b".".join([b"*"] * 255)
    assert client.ask(b"SUB %b 1\r\nPING\r\n" % longest) == b"PONG\r\n"
    answer = client.ask(b"SUB %b.* 2\r\nPING\r\n" % longest)
    assert answer.endswith(b", too many tokens'\r\nPONG\r\n")
    assert client.session.subscription_count == 1


def test_a_message_may_have_more_tokens_than_a_subscription() -> None:
    client = InProcessServer().connect(QUIET + b"SUB a.> 1\r\n")
    subject = b".".join([b"a"] * 2000)
    assert client.ask(b"PUB %b 0\r\n\r\n" % subject) == b"MSG %b 1 0\r\n\r\n" % subject
