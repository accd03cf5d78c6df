"""A server with JetStream whose clock jumps, and which is stopped, killed and started again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tradewind.testing import InProcessServer
from tradewind.testing.fake_clock import FakeClock
from tradewind.testing.fake_disk import SimulatedDisk
from unit.jetstream.engine_kit import Peer

if TYPE_CHECKING:
    from tradewind.store.table.message_store import MessageStore

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
YEAR = 365 * 24 * HOUR


class ClockWorld:
    """`error_ns` is by how much the wall clock is wrong."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.clock = FakeClock()
        self.error_ns = 0
        self.start()

    def start(self) -> None:
        """Start a server on what is on disk."""
        self.server = InProcessServer(disk=self.disk, clock=self.clock)
        self.peer = Peer(self.server)

    def stop(self) -> None:
        """Stop the server as an operator does."""
        engine = self.server.engine
        assert engine is not None
        assert engine.root is not None
        engine.begin_stop()
        self.server.run_until_idle()
        self.server.syncer.begin_drain(self.clock.monotonic_ns())
        self.server.syncer.run_all()
        engine.close()
        engine.root.close()

    def restart(self, *, kill: bool = False) -> None:
        """Stop the server, or cut the power, and start another one."""
        if kill:
            self.disk = self.disk.crash_losing_unsynced()
        else:
            self.stop()
        self.start()

    def jump(self, distance_ns: int) -> None:
        """Set the wall clock."""
        self.clock.jump_ns(distance_ns)
        self.error_ns += distance_ns

    def correct(self) -> None:
        """Set the wall clock right."""
        self.jump(-self.error_ns)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.server.advance(seconds)
        if not self.peer.connection.is_open:
            self.peer = Peer(self.server)  # it does not answer pings

    def publish(self, subject: str, *lines: str) -> dict[str, Any]:
        """The answer to a message with these header lines."""
        head = "NATS/1.0\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n"
        frame = f"HPUB {subject} inbox.p {len(head)} {len(head) + 1}\r\n{head}x\r\n"
        self.peer.connection.send(frame.encode())
        answers = self.peer.take()
        assert len(answers) == 1, answers
        answer: dict[str, Any] = json.loads(answers[0][2])
        return answer

    def store(self, name: str = "S") -> MessageStore:
        """The store of a stream in the server."""
        engine = self.server.engine
        assert engine is not None
        return engine.accounts["$G"].streams[name].stream.store

    def live(self, name: str = "S") -> list[int]:
        """The sequences that are there."""
        return [message.seq for message in self.store(name).messages()]
