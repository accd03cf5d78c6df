"""Very many connections or subscriptions that end at once go in steps; others notice nothing."""

from __future__ import annotations

from tradewind.testing import InProcessServer
from tradewind.wire import ops

QUIET = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
# What one turn does at most, see `router.pxd`.
DROPPED_MAX = 10_000
TOUCHED_MAX = 1024


def subscriptions(subject: bytes, count: int) -> bytes:
    return b"".join(b"SUB %b %d\r\n" % (subject, number) for number in range(count))


def test_subscriptions_of_many_that_end_together_are_removed_in_steps() -> None:
    server = InProcessServer()
    account = server.broker.accounts["$G"]
    stayer = server.connect(QUIET + b"SUB a 1\r\n")
    clients = [server.connect(QUIET) for _ in range(5)]
    for client in clients:
        client.send(subscriptions(b"a", 6000))
    assert account.subscription_count == 30_001
    for client in clients:
        client.session.close(ops.CLOSED_BY_CLIENT)
    left = [account.subscription_count]
    assert left[0] == 30_001 - DROPPED_MAX
    while server.broker.router.has_work:
        # Whoever is closed is given nothing, however many of its subscriptions are still there.
        before = [client.session.out_msgs for client in clients]
        assert account.publish("a", b"x") == 1
        assert [client.session.out_msgs for client in clients] == before
        server.broker.end_turn()
        left.append(account.subscription_count)
        assert left[-2] - left[-1] <= DROPPED_MAX
    assert left[-1] == 1
    assert [client.session.subscription_count for client in clients] == [0] * 5
    stayer.flush()
    assert stayer.take() == b"MSG a 1 1\r\nx\r\n" * (len(left) - 1)


def test_all_connections_end_in_steps_and_are_listed_once() -> None:
    server = InProcessServer()
    clients = [server.connect(QUIET) for _ in range(50)]
    steps = server.broker.close_all(ops.CLOSED_SERVER_SHUTDOWN)
    for _, client in zip(range(10), clients, strict=False):
        assert not client.session.is_closed
        next(steps)
        assert client.session.is_closed
    # One that goes by itself in between is not closed again.
    clients[-1].close()
    for _ in steps:
        pass
    assert not server.broker.sessions
    closed = server.broker.closed
    assert len(closed) == 50
    reasons = [record.reason for record in closed]
    assert reasons.count(ops.CLOSED_SERVER_SHUTDOWN) == 49
    assert reasons.count(ops.CLOSED_BY_CLIENT) == 1


def test_a_session_whose_end_fails_does_not_keep_the_others() -> None:
    server = InProcessServer()
    clients = [server.connect(QUIET) for _ in range(3)]
    forget, broken = server.broker.session_closing, clients[1].session

    def fail(session: object) -> None:
        if session is broken:
            raise RuntimeError("broken")
        forget(session)  # type: ignore[arg-type]

    server.broker.session_closing = fail  # type: ignore[method-assign]
    for _ in server.broker.close_all(ops.CLOSED_SERVER_SHUTDOWN):
        pass
    assert not server.broker.sessions
    assert server.broker.faults.counts == {"session": 1}


def test_a_message_for_very_many_connections_leaves_in_parts_and_in_order() -> None:
    server = InProcessServer()
    publisher = server.connect(QUIET)
    clients = [server.connect(QUIET + b"SUB a 1\r\n") for _ in range(TOUCHED_MAX + 500)]
    publisher.session.feed(b"PUB a 1\r\n1\r\n", 1)
    first = server.broker.end_turn()
    assert len(first) == TOUCHED_MAX
    publisher.session.feed(b"PUB a 1\r\n2\r\n", 1)
    second = server.broker.end_turn()
    # Those that had to wait come first.
    assert {one.cid for one in second[:500]}.isdisjoint(one.cid for one in first)
    while server.broker.router.has_touched:
        server.broker.end_turn()
    for client in clients:
        client.flush()
        assert client.take() == b"MSG a 1 1\r\n1\r\nMSG a 1 1\r\n2\r\n"
