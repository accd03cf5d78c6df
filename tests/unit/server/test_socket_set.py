"""The sockets of accepted connections: what their transports promise, on every event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import pytest
import uvloop
from tls_link_kit import until

from tradewind.server.links.socket_set import SocketSet, SocketTransport
from tradewind.server.links.turn_loop import TurnLoop
from tradewind.testing import InProcessServer

LOOPS: list[Any] = [
    pytest.param(asyncio.new_event_loop, id="asyncio"),
    pytest.param(uvloop.new_event_loop, id="uvloop"),
]
ROUNDS = 4000


class Recorder(asyncio.BufferedProtocol):
    """Records what a transport calls."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.received = bytearray()
        self.errors: list[BaseException | None] = []
        self.has_ended = False
        self.keeps_open = False
        self.is_slow = False
        self.on_read: Callable[[], object] = lambda: None
        self._area = bytearray(4096)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._area)

    def buffer_updated(self, nbytes: int) -> None:
        assert not self.errors, "nothing is read after the end"
        assert self.transport.is_reading()
        self.received += self._area[:nbytes]
        self.on_read()

    def eof_received(self) -> bool:
        self.has_ended = True
        return self.keeps_open

    def pause_writing(self) -> None:
        assert not self.is_slow
        self.is_slow = True

    def resume_writing(self) -> None:
        assert self.is_slow
        self.is_slow = False

    def connection_lost(self, exc: Exception | None) -> None:
        assert not self.errors, "a connection is lost once"
        self.errors.append(exc)
        self.transport = None


class Ground:
    """A set of sockets on a running loop, and the other ends of its connections."""

    def __init__(self) -> None:
        self.turns = TurnLoop(InProcessServer().broker)
        self.turns.start(asyncio.get_running_loop(), lambda: None)
        self.set: SocketSet = self.turns.sockets
        self._listening = socket.create_server(("127.0.0.1", 0))

    def close(self) -> None:
        self._listening.close()
        self.turns.stop()

    def dial(self) -> socket.socket:
        """The far end of a connection that is still to be accepted."""
        theirs = socket.create_connection(self._listening.getsockname())
        theirs.setblocking(False)
        return theirs

    def accept(self) -> Recorder:
        """The near end of the connection that was dialled first, with a small buffer."""
        ours, peer = self._listening.accept()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        ours.setblocking(False)
        recorder = Recorder()
        self.set.connect(ours, peer, recorder)
        return recorder

    def connect(self) -> tuple[Recorder, socket.socket]:
        """A connection of TCP: only such can be reset."""
        theirs = self.dial()
        return self.accept(), theirs


def run(
    make_loop: Callable[[], Any], scenario: Callable[[Ground], Coroutine[Any, Any, None]]
) -> list[dict[str, Any]]:
    """Run a scenario; returns what the loop's exception handler was told."""
    told: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        ground = Ground()
        try:
            await scenario(ground)
        finally:
            ground.close()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())
    return told


def reset(theirs: socket.socket) -> None:
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()


def taken(theirs: socket.socket, size: int = 1 << 20) -> bytes:
    """The bytes that have arrived at the other end."""
    try:
        return theirs.recv(size)
    except BlockingIOError:
        return b""


@contextmanager
def no_free_descriptor_below(number: int) -> Iterator[None]:
    held = []
    while (descriptor := os.dup(0)) < number:
        held.append(descriptor)
    os.close(descriptor)
    yield
    for descriptor in held:
        os.close(descriptor)


@pytest.mark.parametrize("make_loop", LOOPS)
def test_bytes_go_both_ways(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        recorder, theirs = ground.connect()
        theirs.send(b"hello")
        await until(lambda: recorder.received == b"hello")
        recorder.transport.write(memoryview(b"good"))
        recorder.transport.writelines([b" ", bytearray(b"day")])
        seen = bytearray()
        await until(lambda: seen.extend(taken(theirs)) or seen == b"good day")
        assert recorder.transport.get_extra_info("peername") == theirs.getsockname()
        assert recorder.transport.get_extra_info("socket").fileno() >= 0
        assert recorder.transport.get_extra_info("cipher", "none") == "none"
        theirs.close()
        await until(lambda: recorder.errors == [None])
        assert recorder.has_ended
        assert ground.set.count == 0

    assert run(make_loop, scenario) == []


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_slow_socket_pauses_its_protocol_and_gets_everything_in_order(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        recorder, theirs = ground.connect()
        transport = recorder.transport
        transport.set_write_buffer_limits(high=100_000, low=10_000)
        written = bytes(range(256)) * 4096
        while not recorder.is_slow:
            transport.write(written)
        size = transport.get_write_buffer_size()
        assert size > 100_000
        total = 0
        while recorder.is_slow:
            piece = taken(theirs)
            assert piece == (written * 2)[total % 256 :][: len(piece)]
            total += len(piece)
            await asyncio.sleep(0)
        assert transport.get_write_buffer_size() <= 10_000
        transport.close()
        assert transport.is_closing()
        transport.close()
        end = b""
        while not recorder.errors:
            end = taken(theirs) or end
            await asyncio.sleep(0)
        assert recorder.errors == [None]
        while piece := taken(theirs):
            end = piece
        assert end.endswith(b"\xff")
        theirs.close()

    assert run(make_loop, scenario) == []


@pytest.mark.parametrize("make_loop", LOOPS)
def test_nothing_is_read_while_reading_is_paused(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        recorder, theirs = ground.connect()
        other, others = ground.connect()
        recorder.transport.pause_reading()
        assert not recorder.transport.is_reading()
        theirs.send(b"late")
        others.send(b"early")
        await until(lambda: other.received == b"early")
        assert recorder.received == b""
        recorder.transport.resume_reading()
        await until(lambda: recorder.received == b"late")
        theirs.close()
        others.close()
        await until(lambda: not ground.set.count)

    assert run(make_loop, scenario) == []


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_reset_is_an_error_and_an_end_is_none(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        recorder, theirs = ground.connect()
        reset(theirs)
        await until(lambda: recorder.errors != [])
        (error,) = recorder.errors
        assert isinstance(error, ConnectionResetError)
        assert error.errno == errno.ECONNRESET

    assert run(make_loop, scenario) == []


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_reset_while_reading_is_paused_is_found_by_writing(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        recorder, theirs = ground.connect()
        recorder.transport.pause_reading()
        reset(theirs)
        await asyncio.sleep(0)
        assert recorder.errors == []
        await until(lambda: recorder.transport is None or recorder.transport.write(b"x") or False)
        assert isinstance(recorder.errors[0], OSError)

    assert run(make_loop, scenario) == []


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_half_closed_connection_may_still_be_written_to(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        recorder, theirs = ground.connect()
        recorder.keeps_open = True
        theirs.send(b"last words")
        theirs.shutdown(socket.SHUT_WR)
        await until(lambda: recorder.has_ended)
        assert recorder.received == b"last words"
        recorder.transport.write(b"answer")
        recorder.transport.write_eof()
        with pytest.raises(RuntimeError, match="write_eof"):
            recorder.transport.write(b"more")
        seen = bytearray()
        await until(lambda: seen.extend(taken(theirs)) or seen == b"answer")
        assert recorder.errors == []
        recorder.transport.abort()
        recorder.transport.abort()
        await until(lambda: recorder.errors == [None])
        theirs.close()

    assert run(make_loop, scenario) == []


@pytest.mark.parametrize("make_loop", LOOPS)
def test_write_eof_comes_after_everything_written(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        recorder, theirs = ground.connect()
        recorder.transport.write(bytes(3_000_000))
        assert recorder.transport.get_write_buffer_size()
        recorder.transport.write_eof()
        seen = 0
        theirs.setblocking(True)
        while piece := await asyncio.to_thread(theirs.recv, 1 << 20):
            seen += len(piece)
        assert seen == 3_000_000
        theirs.close()
        await until(lambda: recorder.errors == [None])

    assert run(make_loop, scenario) == []


@pytest.mark.parametrize("make_loop", LOOPS)
@pytest.mark.parametrize("where", ["buffer_updated", "eof_received", "pause_writing"])
def test_a_protocol_that_fails_loses_its_own_connection_only(make_loop: Any, where: str) -> None:
    async def scenario(ground: Ground) -> None:
        victim, theirs = ground.connect()
        bystander, others = ground.connect()

        def fail(*_: object) -> bool:
            raise RuntimeError("injected")

        setattr(victim, where, fail)
        theirs.send(b"some")
        theirs.shutdown(socket.SHUT_WR)
        if where == "pause_writing":
            victim.keeps_open = True
            victim.transport.write(bytes(9_000_000))
        await until(lambda: len(victim.errors) == 1)
        assert str(victim.errors[0]) == "injected"
        others.send(b"still here")
        await until(lambda: bystander.received == b"still here")
        theirs.close()
        others.close()
        await until(lambda: not ground.set.count)

    (context,) = run(make_loop, scenario)
    assert str(context["exception"]) == "injected"


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_report_about_a_closed_socket_does_not_reach_its_successor(make_loop: Any) -> None:
    """Both have the same descriptor, and the report is from before."""

    async def scenario(ground: Ground) -> None:
        pairs = [ground.connect() for _ in range(8)]
        dialled = [ground.dial() for _ in pairs[1:]]
        successors: list[Recorder] = []

        def replace(first: Recorder) -> None:
            """Close all others, and give their descriptors to new connections."""
            for recorder, _ in pairs:
                recorder.on_read = lambda: None
                if recorder is not first:
                    ours = recorder.transport.get_extra_info("socket")
                    recorder.transport.abort()
                    number = ours.fileno()
                    ours.close()
                    with no_free_descriptor_below(number):
                        successors.append(ground.accept())
                    ours = successors[-1].transport.get_extra_info("socket")
                    assert ours.fileno() == number

        for recorder, theirs in pairs:
            recorder.on_read = partial(replace, recorder)
            theirs.send(b"for the old one")
        await until(lambda: sum(len(each.errors) for each, _ in pairs) == 7)
        assert [each.received for each in successors] == [b""] * 7
        for each, theirs in zip(successors, dialled, strict=True):
            theirs.send(b"new")
            await until(partial(bytearray.__eq__, each.received, b"new"))
        for theirs in [*dialled, *(theirs for _, theirs in pairs)]:
            theirs.close()
        await until(lambda: not ground.set.count)

    assert run(make_loop, scenario) == []


@pytest.mark.parametrize("make_loop", LOOPS)
def test_each_socket_is_read_once_before_any_is_read_again(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        order: list[int] = []
        pairs = [ground.connect() for _ in range(3)]
        for number, (recorder, theirs) in enumerate(pairs):
            recorder.on_read = lambda number=number: order.append(number)
            theirs.send(bytes(4096 * (8 if number == 0 else 1)))
        await until(lambda: len(pairs[0][0].received) == 8 * 4096)
        assert max(order.index(1), order.index(2)) <= 2
        for _, theirs in pairs:
            theirs.close()
        await until(lambda: not ground.set.count)

    assert run(make_loop, scenario) == []


@pytest.mark.parametrize("make_loop", LOOPS)
def test_more_sockets_than_one_call_serves_are_all_served(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        pairs = [ground.connect() for _ in range(300)]
        for _, theirs in pairs:
            theirs.send(b"x")
        await until(lambda: all(recorder.received == b"x" for recorder, _ in pairs))
        for _, theirs in pairs:
            theirs.close()
        await until(lambda: not ground.set.count)

    assert run(make_loop, scenario) == []


@pytest.mark.parametrize("make_loop", LOOPS)
def test_the_set_ends_with_its_last_connection(make_loop: Any) -> None:
    async def scenario(ground: Ground) -> None:
        recorder, theirs = ground.connect()
        ground.set.stop()
        theirs.send(b"still read")
        await until(lambda: recorder.received == b"still read")
        with socket.socket() as late, pytest.raises(ConnectionAbortedError):
            ground.set.connect(late, None, Recorder())
        theirs.close()
        await until(lambda: recorder.errors == [None])
        ground.set.stop()

    assert run(make_loop, scenario) == []


def test_limits_are_checked() -> None:
    async def scenario(ground: Ground) -> None:
        recorder, theirs = ground.connect()
        transport: SocketTransport = recorder.transport
        assert transport.get_write_buffer_limits() == (16384, 65536)
        transport.set_write_buffer_limits(low=10)
        assert transport.get_write_buffer_limits() == (10, 40)
        with pytest.raises(ValueError, match=r"high \(5\) must be at least low \(6\)"):
            transport.set_write_buffer_limits(high=5, low=6)
        theirs.close()
        await until(lambda: not ground.set.count)

    assert run(asyncio.new_event_loop, scenario) == []


# ---------------------------------------------------------------- by chance, against a model


class Modelled:
    """A connection and all that was sent in each direction; peers take and send by chance."""

    def __init__(self, ground: Ground, random: Random) -> None:
        self.random = random
        self.ground = ground
        self.recorder, self.theirs = ground.connect()
        self.recorder.on_read = self.read
        self.recorder.keeps_open = random.random() < 0.3
        self.sent = bytearray()
        self.written = bytearray()
        self.seen = bytearray()
        self.is_rude = False  # some end has dropped bytes
        self.has_shut = False
        self.is_closed = False

    def read(self) -> None:
        """Something that a protocol does inside of its own callback."""
        chance = self.random.random()
        if chance < 0.02:
            self.abort()
        elif chance < 0.04:
            self.close()
        elif chance < 0.3:
            self.write()

    def write(self) -> None:
        transport = self.recorder.transport
        if transport is not None and not transport.is_closing():
            data = self.random.randbytes(self.random.choice((1, 100, 5000, 100_000)))
            self.written += data
            if self.random.random() < 0.5:
                transport.write(data)
            else:
                size = self.random.choice((len(data), len(data) // 3 + 1, len(data) // 40 + 1))
                places = range(0, len(data), size)
                transport.writelines([data[place : place + size] for place in places])

    def abort(self) -> None:
        if self.recorder.transport is not None:
            self.is_rude = True
            self.recorder.transport.abort()

    def close(self) -> None:
        if self.recorder.transport is not None:
            self.is_closed = True
            self.recorder.transport.close()

    def steer(self) -> None:
        transport = self.recorder.transport
        if transport is not None:
            self.random.choice((transport.pause_reading, transport.resume_reading))()

    def send(self) -> None:
        if not self.has_shut:
            data = self.random.randbytes(self.random.choice((1, 100, 5000, 50_000)))
            try:
                self.sent += data[: self.theirs.send(data)]
            except BlockingIOError:
                return
            except OSError:
                self.has_shut = True

    def take(self) -> None:
        try:
            self.seen += taken(self.theirs, self.random.choice((1, 1000, 200_000)))
        except OSError:
            self.is_rude = True

    def shut(self) -> None:
        if not self.has_shut:
            self.has_shut = True
            try:
                self.theirs.shutdown(socket.SHUT_WR)
            except OSError:
                self.is_rude = True

    def step(self) -> None:
        chance = self.random.random()
        deeds = (self.send, self.take, self.write, self.steer)
        if chance < 0.01:
            self.shut()
        elif chance < 0.015:
            self.close()
        elif chance < 0.02:
            self.abort()
        else:
            self.random.choice(deeds)()
        self.check()

    def check(self) -> None:
        assert self.recorder.received == self.sent[: len(self.recorder.received)]
        assert self.seen == self.written[: len(self.seen)]

    def has_noticed(self) -> bool:
        """Whether a reset is known, or cannot be without reading."""
        recorder = self.recorder
        return bool(recorder.errors) or recorder.has_ended or not recorder.transport.is_reading()

    async def end(self) -> None:
        """Let everything arrive, unless one end was rude."""
        transport = self.recorder.transport
        if transport is not None:
            transport.resume_reading()
        self.shut()
        while not self.recorder.errors:
            self.take()
            if self.recorder.has_ended or self.is_rude:
                self.close()
            await asyncio.sleep(0)
        self.theirs.setblocking(True)
        self.theirs.settimeout(60)
        try:
            while piece := self.theirs.recv(1 << 20):
                self.seen += piece
        except OSError:
            # Closed before everything sent was read: TCP then resets the connection.
            assert len(self.recorder.received) < len(self.sent) or self.is_rude or self.is_closed
        else:
            assert self.is_rude or self.seen == self.written
        self.check()
        assert self.is_closed or self.is_rude or self.recorder.received == self.sent
        self.theirs.close()


@pytest.mark.parametrize("make_loop", LOOPS)
@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_bytes_arrive_in_order_and_once(make_loop: Any, seed: int) -> None:
    async def scenario(ground: Ground) -> None:
        random = Random(seed)
        live = [Modelled(ground, random) for _ in range(6)]
        for _ in range(ROUNDS):
            random.choice(live).step()
            if random.random() < 0.5:
                await asyncio.sleep(0)
            for one in [one for one in live if one.recorder.errors or random.random() < 0.0005]:
                if random.random() < 0.3 and not one.recorder.errors:
                    reset(one.theirs)
                    await until(one.has_noticed)
                    one.abort()
                else:
                    await one.end()
                live.remove(one)
                live.append(Modelled(ground, random))
        for one in live:
            await one.end()
        await until(lambda: not ground.set.count)

    assert run(make_loop, scenario) == []
