"""What a consumer with a long way to go leaves to others: the turns in which they are answered."""

from __future__ import annotations

from engine_kit import Peer

from tradewind.broker.turn import ROOM_BYTES_MAX
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

ROOM_BYTES_MIN = 4_096
ROOM_BYTES_SHARED = 65_536
# Of one message, with everything that it is counted with.
MESSAGE_BYTES = 1_100
COUNT = 3_000
LONG_AGO_NS = 1_000_000_000


class Replay:
    """A stream of three megabytes that a consumer is about to push, turn by turn, and a client that
    asks for an answer in some of them.
    """

    def __init__(self) -> None:
        self.server = InProcessServer(disk=SimulatedDisk())
        self.reader, self.other = Peer(self.server), Peer(self.server, inbox="other")
        self.other.create("S", storage="memory")
        for _ in range(COUNT):
            self.other.publish("S.x", bytes(1000))
        config = {"deliver_subject": "replayed", "ack_policy": "none"}
        self.other.api("CONSUMER.CREATE.S", {"stream_name": "S", "config": config})
        self.server.clock.advance_ns(LONG_AGO_NS)
        self._feed(self.reader, b"SUB replayed 2\r\n")
        self.received = 0

    def _feed(self, peer: Peer, line: bytes) -> None:
        peer.connection.session.feed(line, self.server.clock.wall_ns())

    def turn(self, *, asks: bool, after_ns: int = 0) -> tuple[int, bool]:
        """End one turn; returns the bytes of the stream that were sent, and whether the question
        was answered.
        """
        self.server.clock.advance_ns(after_ns)
        if asks:
            self._feed(self.other, b"PING\r\n")
        self.server.broker.watch.begin()
        for session in self.server.broker.end_turn():
            session.link.flush()
        self.server.broker.watch.end_turn()
        messages = self.reader.take()
        self.received += len(messages)
        return sum(len(body) for *_, body in messages), self.other.connection.take() == b"PONG\r\n"


def is_about(size: int, room_bytes: int) -> bool:
    """Whether messages of this size fill the room, as far as whole messages can."""
    return room_bytes * 1_000 // MESSAGE_BYTES - MESSAGE_BYTES < size <= room_bytes + MESSAGE_BYTES


def test_a_replay_alone_uses_its_whole_budget() -> None:
    replay = Replay()
    for _ in range(5):
        size, _ = replay.turn(asks=False)
        assert 200_000 < size <= ROOM_BYTES_MAX + MESSAGE_BYTES


def test_answers_leave_before_a_replay_goes_on_and_it_goes_on_in_the_next_turn() -> None:
    replay = Replay()
    replay.turn(asks=False)
    assert replay.turn(asks=True) == (0, True)
    size, is_answered = replay.turn(asks=True)
    assert 0 < size <= ROOM_BYTES_MIN + MESSAGE_BYTES
    assert is_answered
    assert replay.turn(asks=True) == (0, True)


def test_a_replay_sends_more_with_each_turn_in_which_nobody_asks() -> None:
    replay = Replay()
    replay.turn(asks=False)
    for _ in range(2):
        assert replay.turn(asks=True) == (0, True)
        room = ROOM_BYTES_MIN
        for _ in range(6):
            size, _ = replay.turn(asks=False)
            assert is_about(size, room)
            room = min(2 * room, ROOM_BYTES_SHARED)


def test_a_replay_gets_the_time_of_others_once_they_have_used_much() -> None:
    replay = Replay()
    replay.turn(asks=False)
    replay.turn(asks=True, after_ns=40_000)
    size, _ = replay.turn(asks=True, after_ns=20_000)
    assert size <= ROOM_BYTES_MIN + MESSAGE_BYTES
    replay.turn(asks=True, after_ns=20_000)
    size, _ = replay.turn(asks=True, after_ns=10_000)
    owed = 40_000 + 20_000 - ROOM_BYTES_MIN + 20_000 + 10_000
    assert is_about(size, owed)
    replay.turn(asks=True, after_ns=10_000)
    size, _ = replay.turn(asks=True)
    assert size <= ROOM_BYTES_MIN + MESSAGE_BYTES


def test_a_replay_has_half_of_the_time_however_much_others_ask() -> None:
    replay = Replay()
    replay.turn(asks=False)
    before, turns = replay.received, 60
    for _ in range(turns):
        replay.turn(asks=True, after_ns=20_000)
    sent = (replay.received - before) * 1_000
    assert 0.8 * turns * 20_000 < sent < 1.1 * turns * 20_000


def test_time_in_which_nobody_asks_is_not_owed() -> None:
    replay = Replay()
    replay.turn(asks=False)
    replay.turn(asks=True, after_ns=60_000)
    replay.turn(asks=False, after_ns=60_000)
    size, _ = replay.turn(asks=False, after_ns=500_000)
    assert size <= ROOM_BYTES_SHARED + MESSAGE_BYTES
    replay.turn(asks=True)
    size, _ = replay.turn(asks=False)
    assert size <= ROOM_BYTES_MIN + MESSAGE_BYTES


def test_a_replay_ends_however_often_others_ask() -> None:
    replay = Replay()
    turns = 0
    while replay.received < COUNT:
        replay.turn(asks=True)
        turns += 1
        assert turns < 2 * COUNT * MESSAGE_BYTES // ROOM_BYTES_MIN
    assert replay.received == COUNT


def test_a_replay_has_its_budget_again_soon_after_the_last_question() -> None:
    replay = Replay()
    replay.turn(asks=True)
    size, _ = replay.turn(asks=False)
    assert size <= ROOM_BYTES_MIN + MESSAGE_BYTES
    size, _ = replay.turn(asks=False, after_ns=6_000_000)
    assert size > 200_000
