"""One acknowledgement for very many messages: what it lets go is removed in steps."""

from __future__ import annotations

import pytest
from engine_kit import Peer

from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

COUNT = 25_000
REMOVED_PER_TURN_MAX = 10_000


def delivered(peer: Peer, retention: str, storage: str = "memory", **more: bool) -> list[str]:
    """A stream whose messages one consumer has; gives where they are acknowledged."""
    peer.create("S", storage=storage, retention=retention)
    ack_policy = "all" if retention == "interest" else "explicit"
    config = {"durable_name": "C", "ack_policy": ack_policy, "max_ack_pending": -1, **more}
    peer.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
    for _ in range(0, COUNT, 1000):
        peer.connection.send(b"PUB S.x 1\r\nx\r\n" * 1000)
    peer.connection.send(b"SUB got 2\r\n")
    body = b'{"batch":%d}' % COUNT
    peer.connection.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.C got %d\r\n%s\r\n" % (len(body), body))
    words = peer.connection.take().decode().split()
    return [word for word in words if word.startswith("$JS.ACK.")]


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
def test_what_acknowledgements_let_go_is_removed_over_several_turns(retention: str) -> None:
    server = InProcessServer(disk=SimulatedDisk())
    peer = Peer(server)
    replies = delivered(peer, retention)
    assert server.engine is not None
    store = server.engine.accounts["$G"].streams["S"].stream.store
    assert store.msgs == COUNT == len(replies)
    for reply in replies[-1:] if retention == "interest" else replies:
        peer.connection._unread += f"PUB {reply} 4\r\n+ACK\r\n".encode()
    peer.connection.pump()
    assert store.msgs >= COUNT - REMOVED_PER_TURN_MAX
    server.run_until_idle()
    for _ in range(COUNT // REMOVED_PER_TURN_MAX + 1):
        server.advance(0.001)
    assert store.msgs == 0
    assert peer.api("CONSUMER.INFO.S.C")["num_ack_pending"] == 0


def test_work_that_was_acknowledged_is_not_given_to_the_next_consumer() -> None:
    """Also if the one that did it goes before the messages do."""
    server = InProcessServer(disk=SimulatedDisk())
    peer = Peer(server)
    for reply in delivered(peer, "workqueue"):
        peer.connection._unread += f"PUB {reply} 4\r\n+ACK\r\n".encode()
    peer.connection.send(b"PUB $JS.API.CONSUMER.DELETE.S.C inbox.d 0\r\n\r\n")
    peer.take()
    config = {"durable_name": "D", "ack_policy": "explicit"}
    answer = peer.api("CONSUMER.DURABLE.CREATE.S.D", {"stream_name": "S", "config": config})
    assert answer["num_pending"] == 0
    assert peer.api("STREAM.INFO.S")["state"]["messages"] == 0


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_an_acknowledgement_is_answered_when_all_that_it_lets_go_is_gone_for_good(
    is_in_memory: bool,
) -> None:
    disk = SimulatedDisk()
    server = InProcessServer(disk=disk)
    peer = Peer(server)
    last = delivered(peer, "interest", "file", mem_storage=is_in_memory)[-1]
    peer.connection.send(f"PUB {last} inbox.ack 4\r\n+ACK\r\n".encode())
    for _ in range(100):
        if "inbox.ack" in [subject for subject, _, _ in peer.take()]:
            break
        server.advance(0.001)
    else:
        pytest.fail("no answer")
    after = Peer(InProcessServer(disk=disk.crash_losing_unsynced()))
    assert after.api("STREAM.INFO.S")["state"]["messages"] == 0
