"""A stream's store with consumers on a server without sockets, and a client that takes frames."""

from __future__ import annotations

import itertools

import msgspec

from client_frames import Frame
from tradewind.api.consumer_types import AckPolicy, ConsumerConfig
from tradewind.consumer.consumer import DELETED, ConsumerContext, ServerConsumer
from tradewind.consumer.done_listener import DoneListener
from tradewind.consumer.removals import RemovalFanOut
from tradewind.consumer.taker import Taker
from tradewind.store.contract import StoreLimits
from tradewind.store.format.consumer_file import ConsumerState
from tradewind.store.table.message_store import MessageStore
from tradewind.testing.in_process import FakeConnection, InProcessServer

MS = 1_000_000
SECOND = 1_000_000_000


def frames_of(data: bytes) -> list[Frame]:
    """All messages in what a client got."""
    frames = []
    at = 0
    while at < len(data):
        end = data.index(b"\r\n", at)
        kind, *words = data[at:end].decode().split(" ")
        at = end + 2
        if kind not in ("MSG", "HMSG"):
            assert kind in ("+OK", "PING", "PONG"), kind
            continue
        sizes = [int(word) for word in words[-2 if kind == "HMSG" else -1 :]]
        words = words[: -len(sizes)]
        header_size = sizes[0] if kind == "HMSG" else 0
        reply = words[2] if len(words) == 3 else ""
        header, payload = data[at : at + header_size], data[at + header_size : at + sizes[-1]]
        frames.append(Frame(words[0], words[1], reply, header, payload))
        at += sizes[-1] + 2
    return frames


def _raise(error: Exception) -> None:
    raise error


class Client:
    """A connection with an inbox."""

    def __init__(self, world: World) -> None:
        self.connection: FakeConnection = world.server.connect(
            b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nPING\r\n'
        )
        self.connection.take()
        self._numbers = itertools.count(1)

    def subscribe(self, subject: str, sid: str = "", queue: str = "") -> str:
        sid = sid or str(next(self._numbers))
        self.connection.send(f"SUB {subject} {queue} {sid}\r\n".replace("  ", " ").encode())
        return sid

    def unsubscribe(self, sid: str) -> None:
        self.connection.send(f"UNSUB {sid}\r\n".encode())

    def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", header: bytes = b""
    ) -> None:
        words = [subject, reply] if reply else [subject]
        total = len(header) + len(payload)
        if header:
            line = f"HPUB {' '.join(words)} {len(header)} {total}\r\n"
        else:
            line = f"PUB {' '.join(words)} {total}\r\n"
        self.connection.send(line.encode() + header + payload + b"\r\n")

    def take(self) -> list[Frame]:
        """The frames that have arrived; the server's pings are answered."""
        data = self.connection.take()
        if data.endswith(b"PING\r\n") or b"\r\nPING\r\n" in data:
            self.connection.send(b"PONG\r\n")
        return frames_of(data)

    def ack(self, frame: Frame, payload: bytes = b"", reply: str = "") -> None:
        self.publish(frame.reply, payload, reply)

    def pull(self, consumer: ServerConsumer, inbox: str = "inbox", /, **request: object) -> None:
        body = msgspec.json.encode(request) if request else b""
        self.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{consumer.name}", body, inbox)


class World:
    """Store, server, and as much of an engine as consumers need."""

    def __init__(
        self, limits: StoreLimits | None = None, on_done: DoneListener | None = None
    ) -> None:
        self.server = InProcessServer()
        self.store = MessageStore("S", limits)
        self.removals = RemovalFanOut()
        self.store.listener = self.removals
        self.consumers: list[ServerConsumer] = []
        self.advisories: list[tuple[str, dict[str, object]]] = []
        self.saved: list[ConsumerState] = []
        self.inactive: list[ServerConsumer] = []
        self.durable_seq: int | None = None
        self.more_turns = 0
        self.on_done = on_done
        self._ids = itertools.count(1)
        self.broker = self.server.broker
        self.turn = self.broker.router.turn
        self.broker.engine = self
        self.account = self.broker.accounts["$G"]
        self.set_time()

    def set_time(self) -> None:
        self.turn.now_ns = self.server.clock.wall_ns()
        self.turn.monotonic_ns = self.server.clock.monotonic_ns()

    def end_turn(self) -> None:
        self.set_time()
        self.broker.router.changes.tell(_raise)
        for handler, subject, reply, header, payload in self.turn.take_deferred():
            handler(subject, reply, header, payload)
        for consumer in self.turn.take_woken():
            assert isinstance(consumer, Taker)
            if consumer.fill(self.visible_seq):
                self.more_turns += 1
                self.turn.wake(consumer)

    def tick(self) -> None:
        self.set_time()
        for consumer in list(self.consumers):
            due_ns = consumer.next_deadline_ns
            if due_ns and due_ns <= self.turn.monotonic_ns:
                consumer.tick()

    def next_deadline_ns(self) -> int | None:
        due = [
            consumer.next_deadline_ns for consumer in self.consumers if not consumer.delivery.closed
        ]
        return min((due_ns for due_ns in due if due_ns), default=None)

    @property
    def visible_seq(self) -> int:
        return self.store.last_seq if self.durable_seq is None else self.durable_seq

    def wake(self) -> None:
        """The stream has changed."""
        for consumer in self.consumers:
            self.turn.wake(consumer)
        self.server.run_until_idle()

    def store_messages(self, *subjects: str, header: bytes = b"", payload: bytes = b"x") -> None:
        for subject in subjects:
            self.store.store(subject.encode(), header, payload, self.server.clock.wall_ns())
        self.wake()

    def consumer(
        self, name: str = "C", state: ConsumerState | None = None, **fields: object
    ) -> ServerConsumer:
        values: dict[str, object] = {
            "durable_name": name,
            "name": name,
            "ack_policy": AckPolicy.EXPLICIT,
            "ack_wait": 30 * SECOND,
            "max_deliver": -1,
            "max_ack_pending": 1000,
            "max_waiting": 512,
        } | fields
        if values["ack_policy"] == "none":
            values["ack_wait"] = values["max_ack_pending"] = 0
        config = msgspec.convert(values, ConsumerConfig)
        context = ConsumerContext(
            router=self.broker.router,
            account=self.account,
            stream_name="S",
            store=self.store,
            removals=self.removals,
            advise=lambda kind, fields: self.advisories.append((kind, fields)),
            save=lambda consumer: self.saved.append(consumer.state()),
            inactive=self._inactive,
            new_id=lambda: f"PIN{next(self._ids)}",
            on_done=self.on_done,
        )
        self.set_time()
        consumer = ServerConsumer(context, name, config, self.turn.now_ns, state)
        self.consumers.append(consumer)
        self.wake()
        return consumer

    def _inactive(self, consumer: ServerConsumer) -> None:
        self.inactive.append(consumer)
        consumer.close(DELETED)
