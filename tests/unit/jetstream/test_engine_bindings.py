"""Push consumers and their receivers: who is looked at when subscriptions come and go."""

from __future__ import annotations

from typing import Any

import pytest
from engine_kit import Peer

from tradewind.consumer.consumer import ServerConsumer
from tradewind.testing import FakeConnection, InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

CONSUMERS = 40


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the consumers that were told to look for a receiver, or looked by themselves."""
    names: list[str] = []

    def count(method: str) -> None:
        real = getattr(ServerConsumer, method)

        def counted(consumer: ServerConsumer, *arguments: int) -> object:
            names.append(consumer.name)
            return real(consumer, *arguments)

        monkeypatch.setattr(ServerConsumer, method, counted)

    count("look_at_binding")
    count("fill")
    return names


def open_server(**stream: Any) -> tuple[InProcessServer, Peer]:
    server = InProcessServer(disk=SimulatedDisk())
    peer = Peer(server)
    peer.create("S", storage="memory", **stream)
    return server, peer


def push(peer: Peer, name: str, **config: Any) -> None:
    config = {"name": name, "deliver_subject": f"to.{name}", "ack_policy": "none", **config}
    assert "error" not in peer.api(
        f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config}
    )


def bound(peer: Peer, name: str) -> bool:
    info = peer.api(f"CONSUMER.INFO.S.{name}")
    assert "error" not in info, info
    return bool(info.get("push_bound"))


def receiver(server: InProcessServer) -> FakeConnection:
    return server.connect(b'CONNECT {"verbose":false}\r\n')


def test_subscription_looks_at_no_consumer_that_pushes_elsewhere(looked: list[str]) -> None:
    server, peer = open_server()
    for number in range(CONSUMERS):
        push(peer, f"c{number}", durable_name=f"c{number}")
    client = receiver(server)
    looked.clear()
    client.send(b"SUB other 1\r\n")
    client.send(b"SUB to.* 2\r\nSUB to.> 3\r\nSUB to.c1 group 4\r\nSUB to.c1.more 5\r\n")
    client.send(b"UNSUB 1\r\nUNSUB 2\r\nUNSUB 3\r\nUNSUB 5\r\n")
    client.close()
    assert set(looked) <= {"c1"}


def test_receiver_that_comes_or_goes_is_noticed_by_its_consumer_alone(looked: list[str]) -> None:
    server, peer = open_server()
    for number in range(CONSUMERS):
        push(peer, f"c{number}", durable_name=f"c{number}")
    client, second = receiver(server), receiver(server)
    looked.clear()
    client.send(b"SUB to.c7 1\r\n")
    assert bound(peer, "c7")
    second.send(b"SUB to.c7 1\r\n")
    client.close()
    assert bound(peer, "c7")
    second.send(b"UNSUB 1\r\n")
    assert not bound(peer, "c7")
    assert set(looked) == {"c7"}


def test_group_of_a_consumer_is_its_own(looked: list[str]) -> None:
    server, peer = open_server()
    for group in ("one", "two"):
        push(peer, group, durable_name=group, deliver_subject="to.all", deliver_group=group)
    client = receiver(server)
    looked.clear()
    client.send(b"SUB to.all one 1\r\nSUB to.all three 2\r\n")
    assert bound(peer, "one")
    assert not bound(peer, "two")
    assert "two" not in looked
    client.send(b"UNSUB 1\r\n")
    assert not bound(peer, "one")


def test_consumer_that_was_given_another_subject_watches_that_one(looked: list[str]) -> None:
    server, peer = open_server()
    push(peer, "c", durable_name="c")
    push(peer, "c", durable_name="c", deliver_subject="new.c")
    client = receiver(server)
    looked.clear()
    client.send(b"SUB to.c 1\r\n")
    assert looked == []
    client.send(b"SUB new.c 2\r\n")
    assert bound(peer, "c")
    peer.publish("S.a", b"hello")
    assert b"hello" in client.take()


def test_deleted_consumer_watches_nothing(looked: list[str]) -> None:
    server, peer = open_server()
    push(peer, "c", durable_name="c")
    peer.api("CONSUMER.DELETE.S.c")
    looked.clear()
    receiver(server).send(b"SUB to.c 1\r\n")
    assert looked == []


def test_time_without_a_receiver_counts_from_the_moment_it_left() -> None:
    server, peer = open_server()
    client = receiver(server)
    client.send(b"SUB to.c 1\r\n")
    push(peer, "c", inactive_threshold=10_000_000_000)
    # Nothing happens for long: the clock of the last turn is far behind.
    server.advance(60)
    server.clock.advance_ns(60_000_000_000)
    client.close()
    server.advance(5)
    assert not bound(peer, "c")
    server.advance(20)
    assert peer.api("CONSUMER.INFO.S.c")["error"]["err_code"] == 10014


def test_receiver_that_the_server_closes_at_the_end_of_a_turn_is_missed_at_once() -> None:
    server, peer = open_server()
    client = receiver(server)
    client.send(b"SUB to.c 1\r\n")
    push(peer, "c", durable_name="c")
    server.broker.sessions[client.session.cid].close("Kicked")
    server.run_until_idle()
    assert not server.broker.router.changes
    assert not bound(peer, "c")
