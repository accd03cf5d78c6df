"""Publishers that are faster than their receivers: who is not read for a moment, and who is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import pytest
import uvloop
from tls_link_kit import CONNECT, RecordingLog, until

from tradewind.broker.contracts import RemoteAddress
from tradewind.options import ServerOptions
from tradewind.server.lifecycle.app import ServerApp
from tradewind.server.links.link import StreamLink
from tradewind.testing import FakeClock

LOOPS: list[Any] = [
    pytest.param(asyncio.new_event_loop, id="asyncio"),
    pytest.param(uvloop.new_event_loop, id="uvloop"),
]
SECONDS = 60
MESSAGE = b"PUB a 100000\r\n%b\r\n" % bytes(100_000)
ENOUGH = 12  # so many of them are too much for a receiver


class Ground:
    """A server whose clock stands still, and connections whose sockets take very little."""

    def __init__(self, server: ServerApp, sockets: ExitStack) -> None:
        self.server = server
        self.clock = FakeClock()
        server.broker.clock = self.clock
        self._sockets = sockets

    async def connect(self, lines: bytes = b"") -> tuple[Any, socket.socket]:
        """The link of a connection that has sent these lines, and the socket of its client."""
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for end in (ours, theirs):
            end.setblocking(False)
        self._sockets.enter_context(theirs)
        remote = RemoteAddress("192.0.2.1", 4711)
        _, link = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: StreamLink(self.server.turns, lambda: self.server.broker.open_session(remote)),
            ours,
        )
        await asyncio.sleep(0)
        read(link, CONNECT + lines)
        return link, theirs


def read(link: Any, data: bytes) -> None:
    """The transport has read this; the loop does nothing meanwhile."""
    while data:
        view = link.get_buffer(-1)
        size = min(len(view), len(data))
        view[:size] = data[:size]
        data = data[size:]
        link.buffer_updated(size)


def is_read(link: Any) -> bool:
    return bool(link.transport.is_reading())


def run(
    make_loop: Callable[[], Any], scenario: Callable[[Ground], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        log: Any = RecordingLog()
        async with ServerApp(ServerOptions(host="127.0.0.1", port=-1), log) as server:
            with ExitStack() as sockets:
                await scenario(Ground(server, sockets))
        assert [line for line in log.lines if line[0] == "error"] == []

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_publisher_is_not_read_while_its_receiver_is_crowded(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        receiver, _ = await ground.connect(b"SUB a 1\r\n")
        publisher, _ = await ground.connect()
        read(publisher, MESSAGE)
        ground.server.turns.turn_now()
        assert receiver.write_paused
        assert is_read(publisher)
        read(publisher, MESSAGE * ENOUGH)
        assert not is_read(publisher)
        assert is_read(receiver)

    run(make_loop, scenario)


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_held_publisher_goes_on_as_soon_as_a_receiver_does(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        receiver, theirs = await ground.connect(b"SUB a 1\r\n")
        publisher, _ = await ground.connect()
        read(publisher, MESSAGE * ENOUGH)
        assert not is_read(publisher)
        while len(theirs.recv(1 << 20)) == 1 << 20:
            pass
        receiver.resume_writing()
        assert is_read(publisher)

    run(make_loop, scenario)


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_publisher_is_held_only_for_a_moment(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        receiver, _ = await ground.connect(b"SUB a 1\r\n")
        publisher, _ = await ground.connect()
        read(publisher, MESSAGE * ENOUGH)
        assert not is_read(publisher)
        await until(lambda: is_read(publisher), SECONDS)
        assert receiver.write_paused
        read(publisher, MESSAGE)
        assert not is_read(publisher)

    run(make_loop, scenario)


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_receiver_that_takes_nothing_holds_nobody(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        receiver, _ = await ground.connect(b"SUB a 1\r\n")
        publisher, _ = await ground.connect()
        read(publisher, MESSAGE)
        ground.server.turns.turn_now()
        assert receiver.write_paused
        ground.clock.advance_ns(10_000_000)
        read(publisher, MESSAGE * ENOUGH)
        assert is_read(publisher)
        assert receiver.session.pending_bytes > ENOUGH * 100_000

    run(make_loop, scenario)


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_publisher_to_others_is_not_held(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        await ground.connect(b"SUB a 1\r\n")
        publisher, _ = await ground.connect()
        bystander, _ = await ground.connect()
        read(publisher, MESSAGE * ENOUGH)
        read(bystander, b"PUB b 10\r\n0123456789\r\nPING\r\n")
        assert not is_read(publisher)
        assert is_read(bystander)

    run(make_loop, scenario)


SMALL = b"PUB nobody 0\r\n\r\n"


class EndlessSender:
    """Whatever is read of it, there is more."""

    def __init__(self, ground: Ground, link: Any) -> None:
        self._ground = ground
        self._link = link
        self._sent = 0

    def fill_a_read(self) -> None:
        """One read that takes all there is room for; it is run for 3 ms."""
        view = self._link.get_buffer(-1)
        start = self._sent % len(SMALL)
        view[:] = (SMALL * (len(view) // len(SMALL) + 2))[start : start + len(view)]
        self._sent += len(view)
        self._ground.clock.advance_ns(3_000_000)
        self._link.buffer_updated(len(view))


@pytest.mark.parametrize("make_loop", LOOPS)
def test_who_sends_without_end_lets_others_be_read(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        link, _ = await ground.connect()
        other, _ = await ground.connect()
        sender = EndlessSender(ground, link)
        for _ in range(2):
            sender.fill_a_read()
            assert is_read(link)
        sender.fill_a_read()
        assert not is_read(link)
        assert is_read(other)
        await until(lambda: is_read(link), SECONDS)
        for _ in range(2):
            sender.fill_a_read()
            assert is_read(link)

    run(make_loop, scenario)


@pytest.mark.parametrize("make_loop", LOOPS)
def test_who_is_idle_between_long_messages_is_read_at_once(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        sender, _ = await ground.connect()
        for _ in range(5):
            read(sender, b"PING\r\n")
            ground.clock.advance_ns(1_000_000_000)
            assert is_read(sender)

    run(make_loop, scenario)


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_held_publisher_may_hang_up(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        await ground.connect(b"SUB a 1\r\n")
        publisher, theirs = await ground.connect()
        other, _ = await ground.connect()
        read(publisher, MESSAGE * ENOUGH)
        read(other, MESSAGE)
        publisher.transport.abort()
        theirs.close()
        await until(lambda: publisher.session is None, SECONDS)
        await until(lambda: is_read(other), SECONDS)

    run(make_loop, scenario)
