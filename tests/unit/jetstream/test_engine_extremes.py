"""The longest durations in a running engine: through acknowledgements, restarts and the clock."""

from __future__ import annotations

import json
from typing import Any

import pytest
from engine_kit import Peer

from tradewind.options import JetStreamOptions, ServerOptions
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

LONGEST = 2**63 - 1
SECOND_NS = 10**9


def started(disk: SimulatedDisk, **options: Any) -> tuple[InProcessServer, Peer]:
    # Nobody answers pings here.
    settings = ServerOptions(ping_max=10**6, jetstream=JetStreamOptions(enabled=True, **options))
    server = InProcessServer(settings, disk=disk)
    return server, Peer(server)


def restarted(server: InProcessServer, disk: SimulatedDisk) -> tuple[InProcessServer, Peer]:
    assert server.engine is not None
    assert server.engine.root is not None
    server.engine.begin_stop()
    server.run_until_idle()
    server.syncer.begin_drain(server.clock.monotonic_ns())
    server.syncer.run_all()
    server.engine.close()
    server.engine.root.close()
    return started(disk)


def consume(peer: Peer, **config: Any) -> None:
    """A stream S with a message, and a durable consumer c to which it was delivered."""
    peer.create("S")
    config = {"durable_name": "c", "ack_policy": "explicit", **config}
    answer = peer.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    assert "error" not in answer, answer
    peer.publish("S.a")
    assert [payload for *_, payload in pull(peer)] == [b"x"]


def pull(peer: Peer) -> list[tuple[str, bytes, bytes]]:
    return peer.ask("$JS.API.CONSUMER.MSG.NEXT.S.c", {"batch": 1, "no_wait": True})


def is_empty(answers: list[tuple[str, bytes, bytes]]) -> bool:
    return [header[:12] for _, header, _ in answers] == [b"NATS/1.0 404"]


@pytest.mark.parametrize(
    "config",
    [
        {"ack_wait": LONGEST},
        {"backoff": [LONGEST, LONGEST], "max_deliver": 3},
        {"ack_wait": LONGEST, "inactive_threshold": LONGEST},
    ],
)
def test_nothing_is_due_for_the_longest_wait_nor_after_a_restart(config: dict[str, Any]) -> None:
    disk = SimulatedDisk()
    server, peer = started(disk)
    consume(peer, **config)
    server.advance(3600)
    assert is_empty(pull(peer))
    server, peer = restarted(server, disk)
    server.advance(3600)
    assert is_empty(pull(peer))
    assert peer.api("CONSUMER.INFO.S.c")["num_ack_pending"] == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_a_delay_counts_within_the_longest_wait(restarts: bool) -> None:
    disk = SimulatedDisk()
    server, peer = started(disk)
    consume(peer, ack_wait=LONGEST)
    peer.ask("$JS.ACK.S.c.1.1.1.1.0", b'-NAK {"delay": %d}' % (10 * SECOND_NS))
    server.advance(8)
    assert is_empty(pull(peer))
    if restarts:
        server, peer = restarted(server, disk)
    server.advance(12)
    assert [payload for *_, payload in pull(peer)] == [b"x"]


def test_the_longest_delay_is_kept() -> None:
    disk = SimulatedDisk()
    server, peer = started(disk)
    consume(peer)
    peer.ask("$JS.ACK.S.c.1.1.1.1.0", b'-NAK {"delay": %d}' % LONGEST)
    server.advance(3600)
    assert is_empty(pull(peer))
    server, peer = restarted(server, disk)
    server.advance(3600)
    assert is_empty(pull(peer))


@pytest.mark.parametrize("delay", [b"9" * 5000, b"-" + b"9" * 30, b"[" * 50_000, b'{"a":' * 5000])
def test_a_delay_that_cannot_be_read_delivers_at_once(delay: bytes) -> None:
    _, peer = started(SimulatedDisk())
    consume(peer)
    peer.ask("$JS.ACK.S.c.1.1.1.1.0", b'-NAK {"delay": ' + delay)
    assert [payload for *_, payload in pull(peer)] == [b"x"]


def test_duplicates_are_found_in_the_longest_window_after_a_restart() -> None:
    disk = SimulatedDisk()
    server, peer = started(disk)
    assert "error" not in peer.create("S", duplicate_window=LONGEST)

    def publish() -> dict[str, Any]:
        header = b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n"
        peer.connection.send(
            b"HPUB S.a inbox.x %d %d\r\n%b\r\n" % (len(header), len(header), header)
        )
        [(_, _, body)] = peer.take()
        return dict(json.loads(body))

    assert publish() == {"stream": "S", "seq": 1}
    server.advance(3600)
    assert publish() == {"stream": "S", "seq": 1, "duplicate": True}
    server, peer = restarted(server, disk)
    assert publish() == {"stream": "S", "seq": 1, "duplicate": True}


def test_the_longest_interval_of_syncs_is_one_that_does_not_come() -> None:
    disk = SimulatedDisk()
    server, peer = started(disk, sync_interval_ns=LONGEST)
    server.syncer.interval_ns = LONGEST
    peer.create("S")
    assert peer.publish("S.a") == {"stream": "S", "seq": 1}
    server.advance(3600)
    assert peer.publish("S.a") == {"stream": "S", "seq": 2}


@pytest.mark.parametrize("replay", ["instant", "original"])
def test_the_longest_heartbeat_is_one_that_does_not_come(replay: str) -> None:
    server, peer = started(SimulatedDisk())
    peer.create("S")
    peer.publish("S.a", b"one")
    server.advance(1)
    peer.publish("S.a", b"two")
    config = {"durable_name": "c", "ack_policy": "none", "deliver_subject": "push"}
    config |= {"idle_heartbeat": LONGEST, "replay_policy": replay}
    peer.connection.send(b"SUB push 9\r\n")
    found = peer.ask("$JS.API.CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    server.advance(3600)
    found += peer.take()
    assert [payload for subject, _, payload in found if subject == "S.a"] == [b"one", b"two"]
    server.advance(3600)
    assert peer.take() == []
