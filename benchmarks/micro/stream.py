"""How long a publish to a stream takes: bytes of the client in, bytes of the acknowledgement out.

Parser, router, stream, store in memory and reply; no socket, no disk.
"""

from typing import TYPE_CHECKING, Any

from benchmarks.micro.registry import Operation, micro

if TYPE_CHECKING:
    from tradewind.testing import FakeConnection

MESSAGE_COUNT = 1000
KEPT = 100_000


class _Engine:
    """The end of a turn of a server with one stream in memory."""

    def __init__(self, turn: Any) -> None:
        self._turn = turn

    def end_turn(self) -> None:
        for ingest in self._turn.take_dirty():
            ingest.stream.commits.commit_changes(self._turn.monotonic_ns)

    def tick(self) -> None:
        pass

    def next_deadline_ns(self) -> None:
        return None


def _publisher(**config: Any) -> "FakeConnection":
    """A client that is subscribed to its inbox, and a stream that listens to `orders.>`."""
    from tradewind.api.configs import stream_config_to_dict
    from tradewind.api.stream_types import StorageType, StreamConfig
    from tradewind.store.format.meta import StreamMeta
    from tradewind.stream.stream import Stream, StreamContext
    from tradewind.testing import InProcessServer

    server = InProcessServer()
    broker = server.broker
    broker.engine = _Engine(broker.router.turn)
    context = StreamContext(broker.router, broker.accounts["$G"], server.log, broker.chance)
    wanted = StreamConfig(
        name="BENCH",
        subjects=["orders.>"],
        storage=StorageType.MEMORY,
        max_msgs=KEPT,
        duplicate_window=120_000_000_000,
        **config,
    )
    meta = StreamMeta(stream_config_to_dict(wanted), server.clock.wall_ns())
    stream = Stream.in_memory(context, meta)
    stream.activate()
    return server.connect(b'CONNECT {"headers":true}\r\nSUB _INBOX.abcdefgh.* 1\r\n')


def _repeated(peer: "FakeConnection", burst: bytes) -> Operation:
    def work(repetitions: int) -> int:
        for _ in range(repetitions):
            peer.send(burst)
            peer.take()
        return repetitions * MESSAGE_COUNT

    return work


@micro("stream-publish-128", "publish 128 B with acknowledgement, 100,000 kept")
def publish_128() -> Operation:
    """The plain case."""
    payload = b"x" * 128
    burst = b"".join(
        b"PUB orders.%d _INBOX.abcdefgh.%d 128\r\n%s\r\n" % (number % 16, number, payload)
        for number in range(MESSAGE_COUNT)
    )
    return _repeated(_publisher(), burst)


@micro("stream-publish-id-128", "the same with a Nats-Msg-Id")
def publish_id_128() -> Operation:
    """Every id is new the first time and a duplicate ever after."""
    payload = b"x" * 128
    peer = _publisher()
    numbers = iter(range(10**12))

    def work(repetitions: int) -> int:
        for _ in range(repetitions):
            peer.send(
                b"".join(
                    b"HPUB orders.1 _INBOX.abcdefgh.1 43 171\r\n"
                    b"NATS/1.0\r\nNats-Msg-Id: id-%013d\r\n\r\n%s\r\n" % (next(numbers), payload)
                    for _ in range(MESSAGE_COUNT)
                )
            )
            peer.take()
        return repetitions * MESSAGE_COUNT

    return work


@micro("stream-publish-expect-128", "the same with a Nats-Expected-Stream: the slow path")
def publish_expect_128() -> Operation:
    """What the checks in Python cost."""
    payload = b"x" * 128
    burst = b"".join(
        b"HPUB orders.%d _INBOX.abcdefgh.%d 41 169\r\n"
        b"NATS/1.0\r\nNats-Expected-Stream: BENCH\r\n\r\n%s\r\n" % (number % 16, number, payload)
        for number in range(MESSAGE_COUNT)
    )
    return _repeated(_publisher(), burst)
