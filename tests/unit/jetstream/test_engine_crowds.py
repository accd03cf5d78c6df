"""Very many streams and consumers with something to do in one turn: it is divided, in turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from engine_kit import Peer

from tradewind.testing import FakeClock, InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

CROWD = 60
MILLISECOND_NS = 1_000_000


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> InProcessServer:
    """Every look at its clock takes 3 ms."""

    def slow(clock: FakeClock) -> int:
        clock.advance_ns(3 * MILLISECOND_NS)
        return clock._monotonic_ns

    monkeypatch.setattr(FakeClock, "monotonic_ns", slow)
    return InProcessServer(disk=SimulatedDisk())


def send_only(peer: Peer, data: bytes) -> None:
    """The server reads this, and has not had its turn yet."""
    peer.connection._unread += data
    peer.connection.pump()


def test_streams_that_wait_to_be_written_are_divided_over_turns(server: InProcessServer) -> None:
    peer = Peer(server)
    for number in range(CROWD):
        peer.create(f"S{number}", storage="memory")
    lines = (b"PUB S%d.x inbox.%d 1\r\nx\r\n" % (number, number) for number in range(CROWD))
    send_only(peer, b"".join(lines))
    server.broker.end_turn()
    peer.connection.flush()
    first = len(peer.take())
    assert 0 < first < CROWD
    server.run_until_idle()
    assert first + len(peer.take()) == CROWD


def test_consumers_that_have_something_to_send_are_divided_over_turns_without_starving(
    server: InProcessServer,
) -> None:
    peer = Peer(server)
    peer.create("S", storage="memory", max_consumers=CROWD)
    for number in range(CROWD):
        peer.connection.send(b"SUB push.%d %d\r\n" % (number, number + 10))
        config = {"name": f"c{number}", "deliver_subject": f"push.{number}", "ack_policy": "none"}
        body = {"stream_name": "S", "config": config}
        assert "error" not in peer.api(f"CONSUMER.CREATE.S.c{number}", body)
    send_only(peer, b"PUB S.x 1\r\nx\r\n")
    server.broker.end_turn()
    peer.connection.flush()
    first = len(peer.take())
    assert 0 < first < CROWD
    server.run_until_idle()
    assert first + len(peer.take()) == CROWD


@pytest.mark.parametrize(("retention", "expected"), [("limits", 0), ("workqueue", 1)])
def test_only_work_queues_compare_a_new_consumer_with_all_others_beside_the_loop(
    retention: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.jetstream.consumer_catalog.INLINE_COMPARISONS_MAX", 20)
    server = InProcessServer(disk=SimulatedDisk())
    peer = Peer(server)
    peer.create("S", storage="memory", retention=retention, max_consumers=100)
    calls: list[object] = []
    submit = server.workers.submit

    def submit_noted(work: Callable[[], object], done: Callable[..., None]) -> None:
        calls.append(work)
        submit(work, done)

    monkeypatch.setattr(server.workers, "submit", submit_noted)
    for number in range(40):
        calls.clear()
        config = {"durable_name": f"c{number}", "filter_subject": f"S.{number}"}
        config["ack_policy"] = "explicit"
        body = {"stream_name": "S", "config": config}
        assert "error" not in peer.api(f"CONSUMER.CREATE.S.c{number}", body)
    assert len(calls) == expected


@pytest.mark.parametrize(("subject", "expected"), [("a.new", 0), ("b.*.x", 0), ("a.*.x", 1)])
def test_a_new_stream_is_compared_with_very_many_beside_the_loop_only_if_that_takes_long(
    subject: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.jetstream.stream_catalog.INLINE_COMPARISONS_MAX", 20)
    server = InProcessServer(disk=SimulatedDisk())
    peer = Peer(server)
    for number in range(40):
        peer.create(f"S{number}", storage="memory", subjects=[f"a.s{number}.y"])
    calls: list[object] = []
    submit = server.workers.submit

    def submit_noted(work: Callable[[], object], done: Callable[..., None]) -> None:
        calls.append(work)
        submit(work, done)

    monkeypatch.setattr(server.workers, "submit", submit_noted)
    assert "error" not in peer.create("NEW", storage="memory", subjects=[subject])
    assert len(calls) == expected
    refused = peer.create("OTHER", storage="memory", subjects=[subject])
    assert refused["error"]["err_code"] == 10065
