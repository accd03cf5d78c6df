"""A whole server in one thread, without sockets: the test owns its clock, peers and log.

Owns the tasks of `tradewind.server` around the broker: transferring bytes, ending turns and firing
timers. Everything is complete when a call returns, so a test never waits.

    server = InProcessServer()
    alice, bob = server.connect(), server.connect()
    alice.send(b"CONNECT {}\\r\\nSUB greet 1\\r\\n")
    bob.send(b"PUB greet 2\\r\\nhi\\r\\n")
    assert alice.take() == b"+OK\\r\\n+OK\\r\\nMSG greet 1 2\\r\\nhi\\r\\n"
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import msgspec

from tradewind.broker.accounts import AccountLimits
from tradewind.broker.broker import Broker
from tradewind.broker.contracts import RemoteAddress
from tradewind.broker.identity import Gate
from tradewind.broker.session import Session
from tradewind.durations import SECOND_NS
from tradewind.jetstream.engine import EngineSettings, JetStreamEngine
from tradewind.jetstream.replication.origin_links import Remotes
from tradewind.jetstream.store_opening import recover
from tradewind.options import MIB, ServerOptions
from tradewind.store.files.disk import Disk
from tradewind.store.folder.stream_folder import StoreRoot
from tradewind.testing.fake_clock import FakeClock
from tradewind.testing.fake_syncer import SteppedSyncer
from tradewind.testing.fake_workers import InlineWorkers
from tradewind.testing.gates import OpenGate
from tradewind.testing.log import MemoryLog
from tradewind.wire import ops

MEMORY_BYTES_MAX = 256 * MIB
DISK_BYTES_MAX = 1024 * MIB
_ABORTED = (ops.CLOSED_SLOW_PENDING, ops.CLOSED_SLOW_DEADLINE, ops.CLOSED_WRITE_ERROR)


class FakeConnection:
    """A peer of an `InProcessServer`; `session` is the server's side of the connection.

    With `through_buffer`, bytes are passed as from a socket (`read_buffer`, `received`), else
    through `feed`.
    """

    def __init__(self, server: InProcessServer, session: Session, *, through_buffer: bool) -> None:
        self._server = server
        self._through_buffer = through_buffer
        self._unread = bytearray()  # sent, but the server has not read it yet
        self._arrived = bytearray()  # written by the server, not yet taken
        self._is_reading = True
        self.is_open = True
        self.session = session
        session.link = self
        session.touch()

    def send(self, data: bytes, chunk_bytes: int | None = None) -> None:
        """Send bytes, in chunks of at most this size, and run the server until it is idle."""
        step = chunk_bytes or max(len(data), 1)
        for start in range(0, len(data), step):
            self._unread += data[start : start + step]
            self.pump()
        self._server.run_until_idle()

    def take(self) -> bytes:
        """Return all bytes that have arrived since the last call."""
        arrived = bytes(self._arrived)
        self._arrived.clear()
        return arrived

    def take_line(self) -> bytes:
        """Return the first line that has arrived, with its end; the rest stays for `take`."""
        line, end, rest = self.take().partition(b"\r\n")
        self._arrived += rest
        return line + end

    def ask(self, data: bytes) -> bytes:
        """Call `send`, then `take`."""
        self.send(data)
        return self.take()

    def stop_reading(self) -> None:
        """Let the server's output pile up, as in front of a slow network."""
        self._is_reading = False
        self._server.broker.write_blocked(self.session)

    def resume_reading(self) -> None:
        """Receive the output that has piled up."""
        self._is_reading = True
        self._server.broker.write_resumed(self.session)
        self.flush()
        self._server.run_until_idle()

    def close(self) -> None:
        """Close the connection."""
        self.is_open = False
        self.session.close(ops.CLOSED_BY_CLIENT)
        self._server.run_until_idle()

    # ---------------------------------------------------------------- the server's side

    def pump(self) -> None:
        """Let the session read the sent bytes, as long as it accepts input."""
        now_ns = self._server.clock.wall_ns()
        while self._unread and not self.session.blocked and not self.session.is_closed:
            if not self._through_buffer:
                data = bytes(self._unread)
                self._unread.clear()
                self.session.feed(data, now_ns)
                continue
            view = self.session.read_buffer()
            size = min(len(view), len(self._unread))
            view[:size] = self._unread[:size]
            view.release()
            del self._unread[:size]
            self.session.received(size, now_ns)

    def flush(self) -> None:
        """Do the work of a link with its session at the end of a turn."""
        session = self.session
        if not self.is_open:
            return
        if self._is_reading or (session.is_closed and session.close_reason not in _ABORTED):
            self._arrived += session.take_output()
        if session.is_closed:
            self.is_open = False


class InProcessServer:
    """A broker with a fake clock. `gate` decides about logins, `accounts` adds to the global one.

    With `disk` the server has JetStream, and recovers what is on the disk. Commits run by
    themselves, unless `manual_sync` is set: then `syncer` waits for the test, which may cut the
    power before. `remotes` lead to other servers. A test that stops the server and starts another
    one may pass on its `clock`.

    Options about sockets, files, users and monitoring have no effect here.
    """

    def __init__(
        self,
        options: ServerOptions | None = None,
        *,
        gate: Gate | None = None,
        accounts: Mapping[str, AccountLimits] | Iterable[str] = (),
        log: MemoryLog | None = None,
        seed: int = 1,
        disk: Disk | None = None,
        manual_sync: bool = False,
        remotes: Remotes | None = None,
        server_id: str = "SERVER",
        clock: FakeClock | None = None,
    ) -> None:
        limits = (
            dict(accounts)
            if isinstance(accounts, Mapping)
            else {name: AccountLimits() for name in accounts}
        )
        self.clock = clock or FakeClock()
        self.log = log or MemoryLog()
        self.broker = Broker(
            options or ServerOptions(server_name="in-process"),
            dict.fromkeys(("STANDARD", "LEAFNODE"), gate or OpenGate()),
            limits,
            server_id=server_id,
            clock=self.clock,
            log=self.log,
            chance=random.Random(seed),  # noqa: S311 - must be repeatable, keeps no secret
        )
        if self.broker.options.leafnodes is not None:
            self.broker.start_leaves(self.broker.options.leafnodes)
        # Whether the test expects a fault of the server; otherwise a fault fails the test.
        self.expects_faults = False
        self._connections = 0
        self.manual_sync = manual_sync
        self.syncer = SteppedSyncer(self.clock)
        self.workers = InlineWorkers()
        self.engine: JetStreamEngine | None = None
        if disk is not None:
            self.engine = self._start_engine(disk, remotes)

    def _start_engine(self, disk: Disk, remotes: Remotes | None) -> JetStreamEngine:
        settings = EngineSettings(self.broker.options.jetstream, MEMORY_BYTES_MAX, DISK_BYTES_MAX)
        root = StoreRoot(disk, disk.root)
        engine = JetStreamEngine(self.broker, settings, root, self.syncer, self.workers, remotes)
        recover(engine, root)
        engine.start()
        return engine

    def connect(
        self, greeting: bytes = b"", *, through_buffer: bool = True, keep_info: bool = False
    ) -> FakeConnection:
        """Open a connection that has sent `greeting`; its INFO line is dropped unless `keep_info`
        is set.
        """
        self._connections += 1
        session = self.broker.open_session(RemoteAddress("127.0.0.1", self._connections))
        connection = FakeConnection(self, session, through_buffer=through_buffer)
        self.run_until_idle()
        if not keep_info:
            connection.take_line()
        if greeting:
            connection.send(greeting)
        return connection

    def connect_leaf(self, **fields: object) -> FakeConnection:
        """Open a connection of a server that has dialled and sent CONNECT with these fields."""
        leaves = self.broker.leaves
        assert leaves is not None, "the options have no leafnodes"
        self._connections += 1
        session = leaves.accepted(RemoteAddress("127.0.0.1", self._connections))
        connection = FakeConnection(self, session, through_buffer=True)
        connection.send(b"CONNECT " + msgspec.json.encode(fields) + b"\r\n")
        return connection

    def run_until_idle(self) -> None:
        """End turns, and commits unless the test runs them, until nothing is left to do."""
        while self.broker.router.has_work or (self.syncer.waiting and not self.manual_sync):
            if not self.manual_sync:
                self.syncer.run_all()
            self.broker.watch.begin()
            for session in self.broker.end_turn():
                link = session.link
                if isinstance(link, FakeConnection):
                    link.flush()
                    link.pump()
            self.broker.watch.end_turn()
        if not self.expects_faults:
            assert not self.broker.faults.total, self.log.texts("error")

    def run_deferred(self) -> int:
        """Run the password checks that a worker thread would run; returns their number."""
        count = 0
        while (check := self.broker.deferred.take()) is not None:
            self.broker.authenticated(check, check.decide())
            count += 1
        self.run_until_idle()
        return count

    def advance(self, seconds: float) -> None:
        """Let time pass; every timer fires at its own time."""
        left_ns = round(seconds * SECOND_NS)
        while left_ns > 0:
            due_ns = self.broker.next_deadline_ns()
            step_ns = left_ns
            if due_ns is not None:
                step_ns = min(max(due_ns - self.clock.monotonic_ns(), 0), left_ns)
            self.clock.advance_ns(step_ns)
            left_ns -= step_ns
            self.broker.watch.begin()
            self.broker.tick()
            self.run_until_idle()
