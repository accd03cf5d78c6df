"""What expires before a consumer is done with it goes to its dead letters: once, or it stays."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from dead_letter_kit import header_of, info
from engine_kit import Peer
from hypothesis import given, settings
from hypothesis import strategies as st
from transaction_kit import add_consumer, pull, stored

from tradewind.testing import InProcessServer
from tradewind.testing.fake_clock import FakeClock
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk

AGE = 100
NS = 10**9


def keeper(on: str = "expired", **more: Any) -> dict[str, Any]:
    """The settings of a consumer whose dead letters go to D."""
    metadata = {"tradewind.dead_letter.stream": "D", "tradewind.dead_letter.on": on}
    return {"metadata": metadata, "ack_wait": 30 * NS, **more}


class World:
    """Stream S, whose messages live for a while, and consumer c."""

    def __init__(self, stream: dict[str, Any] | None = None, **dead: Any) -> None:
        self.disk = SimulatedDisk()
        self.server = InProcessServer(disk=self.disk)
        self.peer = Peer(self.server)
        self.peer.create("S", **(stream if stream is not None else {"max_age": AGE * NS}))
        self.peer.create("D", subjects=["dead.>"], **dead)
        add_consumer(self.peer, "S", **keeper())

    def dead(self) -> list[bytes]:
        return [payload for _, _, payload in stored(self.peer, "D")]

    def left(self) -> list[bytes]:
        return [payload for _, _, payload in stored(self.peer, "S")]

    def publish_for(self, seconds: int, payload: bytes) -> None:
        """A message with a time to live of its own."""
        header = b"NATS/1.0\r\nNats-TTL: %ds\r\n\r\n" % seconds
        size = len(header) + len(payload)
        self.peer.connection.send(
            b"HPUB S.a %d %d\r\n%b%b\r\n" % (len(header), size, header, payload)
        )


def test_pending_and_undelivered_messages_go_and_acknowledged_ones_do_not() -> None:
    world = World()
    for word in (b"acked", b"pending", b"unseen"):
        world.peer.publish("S.a", word)
    assert pull(world.peer, "S", 2) == [b"acked", b"pending"]
    world.peer.ask("$JS.ACK.S.c.1.1.1.0.0", b"+ACK")
    world.server.advance(AGE + 1)
    assert world.dead() == [b"pending", b"unseen"]
    assert world.left() == []
    header = header_of(world.peer, "D", 1)
    assert header["Tradewind-Dead-Letter-Reason"] == "expired"
    assert header["Tradewind-Dead-Letter-Sequence"] == "2"
    assert int(header["Tradewind-Dead-Letter-Deliveries"]) >= 1
    assert header_of(world.peer, "D", 2)["Tradewind-Dead-Letter-Deliveries"] == "0"
    found = info(world.peer)
    assert (found["num_ack_pending"], found["num_pending"]) == (0, 0)
    world.server.advance(AGE + 1)
    assert world.dead() == [b"pending", b"unseen"]


def test_without_the_word_expired_nothing_is_kept() -> None:
    world = World()
    add_consumer(world.peer, "S", **keeper(on="max_deliver,term"))
    world.peer.publish("S.a", b"x")
    world.server.advance(AGE + 1)
    assert (world.dead(), world.left()) == ([], [])


def test_each_consumer_that_misses_it_gets_a_letter_and_others_none() -> None:
    world = World()
    add_consumer(world.peer, "S", "second", **keeper())
    add_consumer(world.peer, "S", "other", **keeper(filter_subject="S.b"))
    add_consumer(world.peer, "S", "plain")
    world.peer.publish("S.a", b"x")
    world.server.advance(AGE + 1)
    subjects = [subject for _, subject, _ in stored(world.peer, "D")]
    assert sorted(subjects) == ["dead.S.c.S.a", "dead.S.second.S.a"]


def test_a_time_to_live_of_its_own_counts_too() -> None:
    world = World({"allow_msg_ttl": True})
    world.publish_for(10, b"short")
    world.publish_for(50, b"long")
    world.peer.publish("S.a", b"for ever")
    world.server.advance(20)
    assert (world.dead(), world.left()) == ([b"short"], [b"long", b"for ever"])
    world.server.advance(40)
    assert (world.dead(), world.left()) == ([b"short", b"long"], [b"for ever"])
    assert "Tradewind-Original-Nats-TTL" in header_of(world.peer, "D", 1)


def test_the_last_of_a_subject_leaves_its_marker_in_the_same_commit() -> None:
    world = World(
        {"max_age": AGE * NS, "allow_msg_ttl": True, "subject_delete_marker_ttl": 60 * NS}
    )
    world.peer.publish("S.a", b"x")
    assert pull(world.peer, "S", 1) == [b"x"]
    world.server.advance(AGE + 1)
    assert world.dead() == [b"x"]
    assert header_of(world.peer, "S", 2)["Nats-Marker-Reason"] == "MaxAge"


def test_a_full_stream_keeps_them_and_holds_up_nobody_else() -> None:
    world = World(max_msgs=1, discard="new")
    add_consumer(world.peer, "S", **keeper(filter_subject="S.a"))
    events = Peer(world.server, inbox="$TW.EVENT.ADVISORY.CONSUMER.DEAD_LETTER.S")
    for subject, word in (("S.a", b"1"), ("S.a", b"2"), ("S.b", b"bystander"), ("S.a", b"3")):
        world.peer.publish(subject, word)
    world.server.advance(AGE + 1)
    assert (world.dead(), world.left()) == ([b"1"], [b"2", b"3"])
    told = [json.loads(payload) for _, _, payload in events.take()]
    assert [one["reason"] for one in told] == ["expired"] * 3
    # What is kept can still be had, and is no dead letter then.
    assert pull(world.peer, "S", 1) == [b"2"]
    world.peer.ask("$JS.ACK.S.c.1.2.1.0.0", b"+ACK")
    world.peer.api("STREAM.MSG.DELETE.D", {"seq": 1})
    world.server.advance(130)
    assert (world.dead(), world.left()) == ([b"3"], [])


def test_what_lives_longer_after_all_stays() -> None:
    world = World(max_msgs=1, discard="new")
    world.peer.publish("S.a", b"1")
    world.peer.publish("S.a", b"2")
    world.server.advance(AGE + 1)
    assert world.left() == [b"2"]
    world.peer.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["S.>"], "max_age": 9 * AGE * NS})
    world.peer.api("STREAM.MSG.DELETE.D", {"seq": 1})
    world.server.advance(130)
    assert (world.dead(), world.left()) == ([], [b"2"])
    world.server.advance(9 * AGE)
    world.peer = Peer(world.server)
    assert (world.dead(), world.left()) == ([b"2"], [])


def test_a_consumer_that_is_deleted_lets_go() -> None:
    world = World(max_msgs=1, discard="new")
    world.peer.publish("S.a", b"1")
    world.peer.publish("S.a", b"2")
    world.server.advance(AGE + 1)
    world.peer.api("CONSUMER.DELETE.S.c")
    world.server.advance(130)
    assert (world.dead(), world.left()) == ([b"1"], [])
    # One that comes back begins anew.
    add_consumer(world.peer, "S", **keeper())
    world.peer.publish("S.a", b"3")
    world.peer.api("STREAM.MSG.DELETE.D", {"seq": 1})
    world.server.advance(AGE + 1)
    assert (world.dead(), world.left()) == ([b"3"], [])


def test_a_consumer_that_comes_back_while_its_letters_wait_is_no_fault() -> None:
    world = World({"allow_msg_ttl": True}, max_msgs=1, discard="new")
    world.publish_for(10, b"1")
    world.publish_for(10, b"2")
    world.server.advance(11)
    assert (world.dead(), world.left()) == ([b"1"], [b"2"])
    for _ in range(2):
        world.peer.api("CONSUMER.DELETE.S.c")
        add_consumer(world.peer, "S", **keeper())
        world.server.advance(1)
    world.peer.api("STREAM.MSG.DELETE.D", {"seq": 1})
    world.server.advance(130)
    assert (world.dead(), world.left()) == ([b"2"], [])


def test_messages_that_never_expire_are_passed_over() -> None:
    world = World({"max_age": AGE * NS, "allow_msg_ttl": True})
    header = b"NATS/1.0\r\nNats-TTL: never\r\n\r\n"
    for _ in range(3):
        world.peer.connection.send(
            b"HPUB S.a %d %d\r\n%bx\r\n" % (len(header), len(header) + 1, header)
        )
    world.peer.publish("S.a", b"ages")
    world.server.advance(AGE + 1)
    assert (world.dead(), world.left()) == ([b"ages"], [b"x"] * 3)
    world.peer.publish("S.a", b"too")
    world.server.advance(AGE + 1)
    assert (world.dead(), world.left()) == ([b"ages", b"too"], [b"x"] * 3)


@pytest.mark.parametrize("stream", [{"max_age": AGE * NS}, {"allow_msg_ttl": True}])
def test_what_expires_while_the_server_is_away_is_not_lost(
    stream: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(stream)
    world.publish_for(AGE, b"x") if "allow_msg_ttl" in stream else world.peer.publish("S.a", b"x")
    assert pull(world.peer, "S", 1) == [b"x"]
    world.server.advance(1)
    later_ns = world.server.clock.wall_ns() + 10 * AGE * NS
    monkeypatch.setattr("tradewind.testing.in_process.FakeClock", lambda: FakeClock(later_ns))
    for outcome in (world.disk.crash_losing_unsynced(), world.disk.crash(7)):
        server = InProcessServer(disk=outcome)
        server.advance(1)
        peer = Peer(server)
        assert [payload for _, _, payload in stored(peer, "D")] == [b"x"]
        assert stored(peer, "S") == []


@pytest.mark.slow
def test_a_power_failure_at_any_step_leaves_it_in_one_place() -> None:
    for step in range(1, 200):
        world = World()
        world.peer.publish("S.a", b"x")
        pull(world.peer, "S", 1)
        world.server.advance(AGE - 1)
        first = world.disk.steps
        world.disk.stop_at = first + step
        with suppress(PowerLoss):
            world.server.advance(2)
        is_over = world.disk.steps + 1 < first + step
        world.disk.stop_at = None
        for outcome in (
            world.disk.crash_losing_unsynced(),
            world.disk.crash_keeping_unsynced(),
            world.disk.crash(step),
        ):
            server = InProcessServer(disk=outcome)
            peer = Peer(server)
            places = [payload for name in "DS" for _, _, payload in stored(peer, name)]
            assert places == [b"x"]
            server.advance(2 * AGE)
            assert [payload for _, _, payload in stored(peer, "D")] == [b"x"]
            assert stored(peer, "S") == []
        if is_over:
            return
    pytest.fail("it never came to an end")


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(["publish", "pull", "ack", "wait", "room", "restart"]), max_size=30)
)
def test_every_message_is_acknowledged_or_becomes_one_letter(steps: list[str]) -> None:
    """Against a model that knows only what was published and what was acknowledged."""
    world = World(max_msgs=2, discard="new")
    published: list[bytes] = []
    acked: set[bytes] = set()
    letters: list[bytes] = []

    def take_letters() -> None:
        for seq, _, payload in stored(world.peer, "D"):
            letters.append(payload)
            world.peer.api("STREAM.MSG.DELETE.D", {"seq": seq})

    for step in steps:
        if step == "publish":
            published.append(b"%d" % len(published))
            world.peer.publish("S.a", published[-1])
        elif step == "pull":
            pull(world.peer, "S", 1)
        elif step == "ack":
            pending = info(world.peer)["ack_floor"]["stream_seq"] + 1
            held = {seq: payload for seq, _, payload in stored(world.peer, "S")}
            delivered = info(world.peer)["delivered"]["stream_seq"]
            if pending in held and pending <= delivered:
                world.peer.ask(f"$JS.ACK.S.c.1.{pending}.{pending}.0.0", b"+ACK")
                if info(world.peer)["ack_floor"]["stream_seq"] >= pending:
                    acked.add(held[pending])
        elif step == "wait":
            world.server.advance(AGE // 2 + 1)
        elif step == "room":
            take_letters()
        else:
            world.disk = world.disk.crash_losing_unsynced()
            world.server = InProcessServer(disk=world.disk)
            world.peer = Peer(world.server)
    for _ in range(len(published) + 2):
        world.server.advance(AGE + 61)
        world.peer = Peer(world.server)
        take_letters()
    assert world.left() == []
    assert sorted(letters) == sorted(set(published) - acked)
