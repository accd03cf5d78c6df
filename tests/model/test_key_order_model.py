"""Order per key against a naive model that walks all messages for every question.

Random operations on a whole consumer without sockets: publishing, acknowledging, refusing, giving
up, removing, clients that leave, restarts with the last state or an earlier one. After each of them
no key has more messages in flight than allowed, none overtakes another of its key, and nothing is
held back that could be sent.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field

import msgspec
import pytest

from consumer_kit import SECOND, Client, Frame, World
from thoroughness import some
from tradewind.consumer.consumer_document import consumer_document
from tradewind.store.format.consumer_file import ConsumerState

KEYS = ["a", "b", "c", "d", ""]
LIVES = some(25, 800)
STEPS = 100
ACK_WAIT_NS = 2 * SECOND
BATCH = 1000


@dataclass
class Model:
    """What became of each message: it is in flight, done, or neither was sent nor is gone."""

    in_flight_max: int
    # {sequence: key} of all that the stream has.
    keys: dict[int, str] = field(default_factory=dict)
    in_flight: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    deliveries: dict[int, int] = field(default_factory=dict)

    def fresh(self) -> list[int]:
        """All that was never sent."""
        return [seq for seq in self.keys if seq not in self.in_flight | self.done]

    def to_repeat(self) -> set[int]:
        """Messages that were in flight before a restart, and wait for their turn again."""
        return {seq for seq in self.fresh() if seq in self.deliveries}

    def restart(self, deliveries_max: int) -> None:
        """What is in flight beyond the limit is sent again in its turn."""
        for seq in sorted(self.in_flight):
            earlier = [other for other in self.busy(self.keys[seq]) if other < seq]
            is_last = 0 < deliveries_max <= self.deliveries[seq]
            if self.keys[seq] and len(earlier) >= self.in_flight_max and not is_last:
                self.in_flight.discard(seq)

    def busy(self, key: str) -> list[int]:
        return [seq for seq in self.in_flight if self.keys.get(seq) == key]

    def may_be_sent(self, seq: int) -> bool:
        key = self.keys[seq]
        if not key:
            return True
        is_next = not any(other < seq and self.keys[other] == key for other in self.fresh())
        return is_next and len(self.busy(key)) < self.in_flight_max

    def sent(self, seq: int) -> None:
        assert seq in self.keys, f"{seq} is gone"
        assert seq not in self.done, f"{seq} is done"
        if seq not in self.in_flight:
            assert self.may_be_sent(seq), f"{seq} overtakes {self.busy(self.keys[seq])}"
            self.in_flight.add(seq)
        self.deliveries[seq] = self.deliveries.get(seq, 0) + 1

    def end(self, seq: int) -> None:
        if seq in self.in_flight:
            self.in_flight.discard(seq)
            self.done.add(seq)

    def remove(self, seq: int) -> None:
        self.keys.pop(seq, None)
        self.in_flight.discard(seq)


class OrderedLife:
    """One ordered consumer, its clients, and everything that can happen to them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        pick = self.random.choice
        self.kind = pick(["subject", "token:2", "header:Key"])
        self.pushes = pick([False, False, True])
        self.max_deliver = pick([-1, -1, 3])
        self.window = pick([2, 10, 1000])
        self.model = Model(pick([1, 1, 1, 3]))
        self.world = World()
        self.clients = [self.new_client() for _ in range(3)]
        self.world.consumer(
            ack_wait=ACK_WAIT_NS,
            max_deliver=self.max_deliver,
            max_ack_pending=pick([-1, 2, 1000]),
            deliver_subject="inbox" if self.pushes else "",
            deliver_group="workers" if self.pushes else "",
            max_waiting=0 if self.pushes else 512,
            metadata={
                "tradewind.order_by": self.kind,
                "tradewind.order_in_flight": str(self.model.in_flight_max),
                "tradewind.order_window": str(self.window),
            },
        )
        self.held: list[tuple[Client, Frame]] = []
        self.given_up = set[int]()
        self.saved: tuple[ConsumerState, Model] | None = None

    @property
    def consumer(self):  # type: ignore[no-untyped-def]
        return self.world.consumers[0]

    def new_client(self) -> Client:
        client = Client(self.world)
        if self.pushes:
            client.subscribe("inbox", "inbox", "workers")
        else:
            client.subscribe(f"inbox{id(client)}", "inbox")
        return client

    # ---------------------------------------------------------------- operations

    def step(self) -> None:
        operations = [
            (self.publish, 30),
            (self.acknowledge, 40),
            (self.pass_time, 10),
            (self.remove, 4),
            (self.purge, 1),
            (self.resize, 1),
            (self.leave, 3),
            (self.save, 3),
            (self.restart, 2),
            (self.crash, 1),
        ]
        names, weights = zip(*operations, strict=True)
        self.random.choices(names, weights)[0]()
        self.take()
        self.ask()
        self.take()
        self.check()

    def publish(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            # One key is much more frequent than the others.
            key = self.random.choice([*KEYS, "a", "a", "a", "a"])
            subject, header = "s", b""
            if self.kind == "header:Key":
                header = f"NATS/1.0\r\nKey: {key}\r\n\r\n".encode() if key else b""
            elif self.kind == "token:2":
                subject = f"s.{key}.x" if key else "s"
            else:
                subject = f"s.{key or 'e'}"
                key = subject
            self.world.store_messages(subject, header=header)
            self.model.keys[self.world.store.last_seq] = key

    def ask(self) -> None:
        if not self.pushes:
            for client in self.clients:
                client.pull(self.consumer, f"inbox{id(client)}", batch=BATCH, expires=SECOND)

    def acknowledge(self) -> None:
        self.random.shuffle(self.held)
        for _ in range(min(len(self.held), self.random.randint(1, 4))):
            client, frame = self.held.pop()
            seq = frame.numbers[1]
            kind = self.random.choice([b"", b"+ACK", b"-NAK", b"-NAK 300ms", b"+TERM", b"+WPI"])
            client.ack(frame, kind)
            if kind in (b"", b"+ACK", b"+TERM"):
                self.model.end(seq)
            elif kind == b"+WPI":
                self.held.append((client, frame))

    def pass_time(self) -> None:
        self.world.server.advance(self.random.choice([0.1, 0.5, 3]))

    def give_up(self) -> None:
        """What the consumer has given up counts as done once its last delivery was seen."""
        self.given_up |= {
            fields["stream_seq"] for kind, fields in self.world.advisories if kind == "max_deliver"
        }
        self.world.advisories.clear()
        for seq in sorted(self.given_up):
            if self.model.deliveries.get(seq, 0) >= self.max_deliver:
                self.model.end(seq)
                self.given_up.discard(seq)

    def remove(self) -> None:
        if self.model.keys:
            seq = self.random.choice(sorted(self.model.keys))
            self.world.store.remove(seq)
            self.model.remove(seq)
            self.world.wake()

    def purge(self) -> None:
        """All messages go up to one of them."""
        if self.model.keys:
            seq = self.random.choice(sorted(self.model.keys))
            self.world.store.purge(below=seq)
            self.world.removals.purged()
            for each in [each for each in self.model.keys if each < seq]:
                self.model.remove(each)
            self.world.wake()

    def resize(self) -> None:
        """Another number of messages may be in flight."""
        self.model.in_flight_max = self.random.choice([1, 2, 3])
        config = self.consumer.config
        number = str(self.model.in_flight_max)
        changed = {"tradewind.order_in_flight": number}
        self.consumer.update(msgspec.structs.replace(config, metadata=config.metadata | changed))
        self.world.server.run_until_idle()

    def leave(self) -> None:
        """A client goes away, with all that it holds."""
        gone = self.clients.pop(0)
        gone.connection.close()
        self.held = [(client, frame) for client, frame in self.held if client is not gone]
        self.clients.append(self.new_client())
        if self.pushes and self.consumer.delivery.check_binding():
            self.consumer.look_at_binding()
        self.world.server.run_until_idle()

    def save(self) -> None:
        self.saved = (self.consumer.state(), copy.deepcopy(self.model))

    def restart(self) -> None:
        """The server stops and starts."""
        self._start(self.consumer.state())

    def crash(self) -> None:
        """The server ends, and finds an older state."""
        if self.saved is None:
            return
        state, model = self.saved
        # What the stream has is not older.
        gone = set(model.keys) - set(self.model.keys)
        model.keys = dict(self.model.keys)
        model.in_flight -= gone
        model.in_flight_max = self.model.in_flight_max
        self.model = copy.deepcopy(model)
        self._start(state)

    def _start(self, state: ConsumerState) -> None:
        config = self.consumer.config
        self.take()
        self.consumer.close()
        self.world.consumers.clear()
        self.world.turn.take_woken()
        self.held.clear()
        self.world.advisories.clear()
        self.given_up.clear()
        self.model.restart(self.max_deliver)
        self.world.consumer(state=state, **msgspec.structs.asdict(config))
        self.world.server.advance(0.001)

    def take(self) -> None:
        """Take what was sent. The model is asked in the order in which it was sent, which the
        consumer's own numbers state.
        """
        arrived = []
        for client in self.clients:
            for frame in client.take():
                if frame.sid == "inbox" and frame.reply:
                    arrived.append((frame.numbers[2], client, frame))
        for _, client, frame in sorted(arrived, key=lambda each: each[0]):
            self.give_up()
            deliveries, seq = frame.numbers[:2]
            self.model.sent(seq)
            assert self.max_deliver < 0 or deliveries <= self.max_deliver
            # Refused a second time, an earlier delivery would count as well.
            self.held = [each for each in self.held if each[1].numbers[1] != seq]
            self.held.append((client, frame))
        self.give_up()

    # ---------------------------------------------------------------- what must hold

    def check(self) -> None:
        consumer, acks, model = self.consumer, self.consumer.acks, self.model
        assert not self.given_up
        acks.verify()
        info = consumer_document(consumer)
        awaited = {seq for seq in acks.pending() if acks.is_awaited(seq)}
        assert awaited == model.in_flight | model.to_repeat()
        assert info.num_ack_pending == len(model.in_flight)
        assert info.num_pending == len(model.fresh())
        assert acks.parked_count <= self.window + len(model.to_repeat())
        assert all(acks.floor_stream < seq for seq in acks.pending())
        numbers = [each.consumer_seq for each in acks.pending().values() if each.consumer_seq]
        assert acks.floor_consumer == min(numbers, default=acks.delivered_consumer + 1) - 1
        held_back = [seq for seq in model.fresh() if model.may_be_sent(seq)]
        is_full = 0 < consumer.delivery.max_ack_pending <= len(model.in_flight)
        if held_back and not is_full:
            # Only those that the consumer cannot see beyond its window.
            assert acks.parked_count >= self.window, (held_back, consumer.delivery.waits_for)
            assert min(held_back) >= consumer.cursor.next_seq

    def finish(self) -> None:
        """From now on the clients do all they should."""
        for _ in range(2000):
            self.ask()
            self.take()
            if not self.model.in_flight and not self.model.fresh():
                return
            for client, frame in self.held:
                client.ack(frame)
                self.model.end(frame.numbers[1])
            if not self.held:
                self.world.server.advance(0.5)
            self.held.clear()
        pytest.fail(f"stuck: {self.model.in_flight} {self.consumer.delivery.waits_for}")


@pytest.mark.parametrize("seed", range(LIVES))
def test_keys_keep_their_order_and_hold_back_nothing_else(seed: int) -> None:
    life = OrderedLife(seed)
    for _ in range(STEPS):
        life.step()
    life.finish()
    assert life.consumer.acks.count == 0
