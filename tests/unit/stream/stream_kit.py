"""A stream on a router without sockets, with everything a test wants to turn itself."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from tradewind.api.configs import stream_config_from_dict, stream_config_to_dict
from tradewind.api.stream_types import StreamConfig
from tradewind.broker.broker import Broker
from tradewind.broker.turn import Participant
from tradewind.store.files.creation import Creation
from tradewind.store.files.joint_step import make
from tradewind.store.folder.stream_folder import StreamFolder
from tradewind.store.format.meta import StreamMeta
from tradewind.stream.ingest import Ingest
from tradewind.stream.stream import Stream
from tradewind.stream.stream_context import StreamContext
from tradewind.stream.stream_opening import open_stream
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk
from tradewind.testing.fake_syncer import SteppedSyncer

SECOND_NS = 1_000_000_000
DEFAULTS = {"storage": "memory", "duplicate_window": 120 * SECOND_NS, "num_replicas": 1}


class Engine:
    """The smallest engine: streams, their syncer, and the end of a turn."""

    def __init__(self, broker: Broker, syncer: SteppedSyncer) -> None:
        self.broker = broker
        self.syncer = syncer
        self.auto_sync = True

    def end_turn(self) -> None:
        turn = self.broker.router.turn
        for handler, *message in turn.take_deferred():
            handler(*message)
        dirty: list[Participant] = turn.take_dirty()
        for ingest in dirty:
            assert isinstance(ingest, Ingest)
            ingest.stream.commits.commit_changes(turn.monotonic_ns)
        self.syncer.end_turn(turn.monotonic_ns)
        if self.auto_sync:
            self.syncer.run_all()

    def next_deadline_ns(self) -> None:
        return None

    def tick(self) -> None:
        """Streams are ticked by the tests."""


class StreamKit:
    """A server, a client `peer` that has subscribed to `inbox.>`, and streams."""

    def __init__(self, **context: Any) -> None:
        self.server = InProcessServer()
        self.clock = self.server.clock
        self.router = self.server.broker.router
        self.turn = self.router.turn
        self.account = self.server.broker.accounts["$G"]
        self.disk = SimulatedDisk()
        self.syncer = SteppedSyncer(self.clock)
        self.engine = Engine(self.server.broker, self.syncer)
        self.server.broker.engine = self.engine
        self.context = StreamContext(
            self.router, self.account, self.server.log, self.server.broker.chance, **context
        )
        self.turn.now_ns = self.clock.wall_ns()
        self.turn.monotonic_ns = self.clock.monotonic_ns()
        self.turn.monotonic_clock = self.clock.monotonic_ns
        self.peer = self.server.connect(
            b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB inbox.> 1\r\n'
        )
        self.peer.take()

    def pass_ns(self, duration_ns: int) -> None:
        """Let time pass; the turn has the time after it."""
        self.clock.advance_ns(duration_ns)
        self.turn.now_ns = self.clock.wall_ns()
        self.turn.monotonic_ns = self.clock.monotonic_ns()

    def folder(self, name: str) -> StreamFolder:
        return StreamFolder(self.disk, "/disk", "$G", name)

    def create(self, name: str = "S", **config: Any) -> Stream:
        return self.started(self.made(name, **config))

    def made(
        self, name: str = "S", *, settings: dict[str, Any] | None = None, **config: Any
    ) -> Stream:
        """A new stream that takes no messages yet; `settings`: of its store in files."""
        document = {"name": name, "subjects": [f"{name.lower()}.>"]} | DEFAULTS | config
        typed = stream_config_to_dict(stream_config_from_dict(document))
        meta = StreamMeta(typed, self.clock.wall_ns())
        if document["storage"] == "memory":
            return Stream.in_memory(self.context, meta)
        steps = Stream.in_files(self.context, meta, self.folder(name), **(settings or {}))
        return finished(steps)

    def reopen(self, name: str = "S") -> Stream:
        stream, _ = open_stream(self.context, self.folder(name), self.clock.wall_ns())
        return self.started(stream)

    def started(self, stream: Stream) -> Stream:
        stream.commits.attach(self.syncer)
        stream.activate()
        return stream

    def publish(
        self, subject: str, payload: bytes = b"", header: bytes = b"", reply: str = "inbox.1"
    ) -> bytes:
        """Publish, with header lines separated by CRLF; gives the header and body of the reply."""
        self.peer.send(frame(subject, payload, header, reply))
        return self.reply()

    def replies(self) -> list[bytes]:
        """The header blocks and bodies of everything that has arrived."""
        return [header + payload for _, header, payload in self.messages()]

    def reply(self) -> bytes:
        replies = self.replies()
        assert len(replies) <= 1, replies
        return replies[0] if replies else b""

    def messages(self) -> list[tuple[str, bytes, bytes]]:
        """Everything that has arrived as (subject, header, payload)."""
        data = self.peer.take()
        found = []
        while data:
            line, _, data = data.partition(b"\r\n")
            words = line.split(b" ")
            if line == b"PING":
                continue
            assert words[0] in (b"MSG", b"HMSG"), line
            size = int(words[-1])
            header_size = int(words[-2]) if words[0] == b"HMSG" else 0
            body, data = data[:size], data[size + 2 :]
            found.append((words[1].decode(), body[:header_size], body[header_size:]))
        return found


def finished(steps: Generator[Creation | Callable[[], object], None, Stream]) -> Stream:
    """The stream after all steps of its creation, which a worker would do."""
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            made: Stream = end.value
            return made
        if isinstance(step, Creation):
            make(step)
        else:
            step()


def update(stream: Stream, config: StreamConfig) -> None:
    """Change a stream's configuration, with all steps of a request at once."""
    meta = stream.meta_with(config)
    if stream.folder is not None:
        stream.folder.update(meta)
    for _ in stream.before_change(config):
        pass
    stream.apply(meta, config)
    while stream.upkeep.step(stream.turn.now_ns):
        pass


def purge(stream: Stream, pattern: str = "", *, seq: int = 0, keep: int = 0) -> int:
    """All steps of a purge at once; how many messages it removed."""
    return sum(stream.purge_steps(pattern, seq=seq, keep=keep))


def close(stream: Stream) -> None:
    """Close a stream, as at the end of the server."""
    if (finish := stream.begin_close()) is not None:
        finish()


def frame(subject: str, payload: bytes = b"", header: bytes = b"", reply: str = "inbox.1") -> bytes:
    """A PUB or HPUB."""
    head = f"{subject} {reply} ".encode() if reply else f"{subject} ".encode()
    if not header:
        return b"PUB %s%d\r\n%s\r\n" % (head, len(payload), payload)
    block = header if header.startswith(b"NATS/") else b"NATS/1.0\r\n" + header + b"\r\n\r\n"
    return b"HPUB %s%d %d\r\n%s%s\r\n" % (
        head,
        len(block),
        len(block) + len(payload),
        block,
        payload,
    )
