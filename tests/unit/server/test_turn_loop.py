"""The end of a turn, asked for inside of the end of a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tls_link_kit import until

from tradewind.broker.session import Session
from tradewind.server.links.turn_loop import TurnLoop
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

TURNS = 4


class EagerLink:
    """Has more to write whenever it has written, and wants that to leave at once."""

    def __init__(self, turns: TurnLoop, session: Session) -> None:
        self._turns = turns
        self._session = session
        self._depth = 0
        self.deepest = 0
        self.flushed = 0

    def flush(self) -> None:
        self._depth += 1
        self.deepest = max(self.deepest, self._depth)
        self.flushed += 1
        if self.flushed < TURNS:
            self._session.write(b"more")
            self._turns.turn_now()
        self._depth -= 1

    def give_up(self, error: Exception) -> None:
        raise error


async def test_a_turn_that_is_wanted_inside_of_another_comes_after_it() -> None:
    server = InProcessServer()
    turns = TurnLoop(server.broker)
    turns.start(asyncio.get_running_loop(), lambda: None)
    session = server.connect().session
    session.link = link = EagerLink(turns, session)
    session.write(b"first")
    turns.turn_now()
    await until(lambda: link.flushed == TURNS)
    turns.stop()
    assert link.deepest == 1


async def test_a_session_that_is_unblocked_by_a_flush_continues_in_the_next_turn() -> None:
    server = InProcessServer()
    turns = TurnLoop(server.broker)
    turns.start(asyncio.get_running_loop(), lambda: None)
    session = server.connect(b'CONNECT {"verbose":false}\r\n').session
    session.block(1)
    session.feed(b"PUB a 2\r\nhi\r\n", 0)

    published: list[int] = []

    class UnblockingLink(EagerLink):
        def flush(self) -> None:
            session.unblock(1)
            published.append(session.in_msgs)

    session.link = UnblockingLink(turns, session)
    turns.turn_now()
    assert published == [0]
    await until(lambda: session.in_msgs == 1)
    turns.stop()


async def test_sessions_of_many_lost_connections_are_closed_in_parts() -> None:
    server = InProcessServer()
    turns = TurnLoop(server.broker)
    turns.start(asyncio.get_running_loop(), lambda: None)
    sessions = [server.connect().session for _ in range(1000)]
    for session in sessions:
        session.link = None
        turns.lost(session, "Client Closed")
    closed = sum(session.is_closed for session in sessions)
    assert 0 < closed < 200
    turns.turn_now()
    assert closed < sum(session.is_closed for session in sessions) < 400
    await until(lambda: all(session.is_closed for session in sessions))
    turns.stop()
    assert not server.broker.sessions


async def test_a_connection_that_is_lost_while_another_is_closed_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many were lost in this turn."""
    server = InProcessServer()
    broker = server.broker
    turns = TurnLoop(broker)
    turns.start(asyncio.get_running_loop(), lambda: None)
    sessions = [server.connect().session for _ in range(300)]
    late = {session.cid: server.connect().session for session in sessions[::2]}
    session_closed = broker.session_closed

    def closed(session: Session) -> None:
        session_closed(session)
        if (other := late.get(session.cid)) is not None:
            other.link = None
            turns.lost(other, "Client Closed")

    monkeypatch.setattr(broker, "session_closed", closed)
    for session in sessions:
        session.link = None
        turns.lost(session, "Client Closed")
    await until(lambda: not broker.sessions)
    turns.stop()


class Timers:
    """A loop that only keeps the times after which it was asked to call something."""

    def __init__(self) -> None:
        self.delays_ms: list[float] = []

    def add_reader(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Nothing is ever ready."""

    def remove_reader(self, descriptor: int) -> None:
        """There is none."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> Handle:
        self.delays_ms.append(delay * 1000)
        return Handle()


class Handle:
    def cancel(self) -> None:
        """Nothing would be called anyway."""


@pytest.mark.parametrize(
    ("left_ns", "delay_ms"),
    [(0, 0), (1, 1), (400_000, 1), (1_000_000, 1), (1_000_001, 2), (7_999_999, 8)],
)
def test_the_timer_waits_for_whole_ms_and_never_less_than_the_deadline(
    left_ns: int, delay_ms: int
) -> None:
    server, timers = InProcessServer(), Timers()
    turns = TurnLoop(server.broker)
    turns.start(timers, lambda: None)  # type: ignore[arg-type]
    server.broker.deadlines.add(server.broker.monotonic_ns() + left_ns, 0, "ping")
    turns.schedule_timer()
    assert timers.delays_ms == [pytest.approx(delay_ms)]
    turns.stop()


@dataclass
class StoredLater:
    next_deadline_ns: int

    def tick(self) -> None:
        """Nothing is due in these tests."""


async def test_the_timer_of_what_is_stored_is_exact() -> None:
    server, timers = InProcessServer(disk=SimulatedDisk()), Timers()
    turns = TurnLoop(server.broker)
    turns.start(timers, lambda: None)  # type: ignore[arg-type]
    engine = server.engine
    assert engine is not None
    due_ns = server.broker.monotonic_ns() + 2_400_000
    engine.timers.set(StoredLater(due_ns), due_ns)
    turns.schedule_timer()
    assert timers.delays_ms == [pytest.approx(2.4)]
    turns.stop()
