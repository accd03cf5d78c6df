"""A consumer with work and demand is served, or has a deadline; and in the end everything is done.

Random operations on a whole consumer without sockets. After each of them, what it says it waits for
must be true. At the end the receivers behave, and everything must be delivered and acknowledged.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from consumer_kit import MS, SECOND, Client, Frame, World
from thoroughness import some
from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.times import format_time
from tradewind.consumer.consumer_document import consumer_document
from tradewind.store.contract import StoreLimits
from tradewind.subjects import is_subset

SUBJECTS = ["a", "b", "c.d", "c.e"]
# 100,000 operations when there is time for them.
LIVES = some(30, 840)
STEPS = 120


class Life:
    """One consumer and everything that can happen to it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        pick = self.random.choice
        self.world = World(StoreLimits(msgs_max=pick([0, 50]), subject_msgs_max=pick([0, 0, 10])))
        self.client = Client(self.world)
        self.client.subscribe("control", "control")
        self.pushes = pick([False, True])
        config: dict[str, object] = {
            "ack_policy": pick(["explicit", "explicit", "all", "none"]),
            "max_ack_pending": pick([-1, 3, 10]),
            "max_deliver": pick([-1, -1, 3]),
            "ack_wait": pick([200 * MS, 2 * SECOND]),
            "filter_subject": pick(["", "a", "c.*"]),
            "max_waiting": 5,
        }
        if self.pushes:
            config |= {
                "deliver_subject": "inbox",
                "idle_heartbeat": SECOND,
                "flow_control": pick([False, True]),
                "rate_limit_bps": pick([0, 0, 8_000_000]),
                "replay_policy": pick(["instant", "original"]),
            }
        for _ in range(self.random.randint(0, 20)):
            self.publish()
        self.consumer = self.world.consumer(**config)
        self.held: list[Frame] = []
        self.is_subscribed = False
        self.is_reading = True
        self.subscribe()

    # ---------------------------------------------------------------- operations

    def step(self) -> None:
        operations = [
            (self.publish, 30),
            (self.pull, 0 if self.pushes else 20),
            (self.acknowledge, 30),
            (self.pass_time, 15),
            (self.subscribe, 3),
            (self.unsubscribe, 2),
            (self.remove, 3),
            (self.purge, 1),
            (self.pause, 1),
            (self.refilter, 1),
            (self.stop_reading, 1),
            (self.resume_reading, 3),
            (self.restart, 1),
        ]
        names, weights = zip(*operations, strict=True)
        self.random.choices(names, weights)[0]()
        self.reconnect()
        self.take()
        self.check()

    def reconnect(self) -> None:
        """Whoever does not read for too long is cut off."""
        if not self.client.connection.is_open:
            self.client = Client(self.world)
            self.is_reading = True
            self.is_subscribed = False
            self.notice()

    def publish(self) -> None:
        size = self.random.choice([10, 10, 10, 200_000])
        for _ in range(self.random.randint(1, 5)):
            self.world.store_messages(self.random.choice(SUBJECTS), payload=b"x" * size)

    def pull(self) -> None:
        request: dict[str, object] = {"batch": self.random.randint(1, 10)}
        if self.random.random() < 0.5:
            request["expires"] = self.random.choice([100 * MS, 5 * SECOND])
            if self.random.random() < 0.5:
                request["idle_heartbeat"] = 50 * MS
        request["no_wait"] = self.random.random() < 0.2
        if self.random.random() < 0.2:
            request["max_bytes"] = 1000
        self.client.pull(self.consumer, "inbox", **request)

    def acknowledge(self) -> None:
        self.random.shuffle(self.held)
        for _ in range(min(len(self.held), self.random.randint(1, 6))):
            kind = self.random.choice([b"", b"+ACK", b"-NAK", b"-NAK 300ms", b"+WPI", b"+TERM"])
            self.client.ack(self.held.pop(), kind)

    def pass_time(self) -> None:
        self.world.server.advance(self.random.choice([0.01, 0.25, 3]))

    def subscribe(self) -> None:
        if not self.is_subscribed:
            self.is_subscribed = True
            self.client.subscribe("inbox", "inbox")
            self.notice()

    def unsubscribe(self) -> None:
        if self.is_subscribed:
            self.is_subscribed = False
            self.client.unsubscribe("inbox")
            self.notice()

    def notice(self) -> None:
        """The engine sees that subscriptions changed."""
        if self.consumer.delivery.check_binding():
            self.consumer.binding_changed()
        self.world.server.run_until_idle()

    def remove(self) -> None:
        if self.world.store.msgs:
            seq = self.random.randint(self.world.store.first_seq, self.world.store.last_seq)
            self.world.store.remove(seq)
            self.world.wake()

    def purge(self) -> None:
        self.world.store.purge(self.random.choice([b"", b"a"]))
        self.world.removals.purged()
        self.world.wake()

    def pause(self) -> None:
        until = format_time(self.world.server.clock.wall_ns() + SECOND)
        self.update(msgspec.structs.replace(self.consumer.config, pause_until=until))

    def refilter(self) -> None:
        pattern = self.random.choice(["", "a", "c.>"])
        self.update(msgspec.structs.replace(self.consumer.config, filter_subject=pattern))

    def update(self, config: ConsumerConfig) -> None:
        self.consumer.update(config)
        self.world.server.run_until_idle()

    def stop_reading(self) -> None:
        if self.is_reading:
            self.is_reading = False
            self.client.connection.stop_reading()

    def resume_reading(self) -> None:
        if not self.is_reading:
            self.is_reading = True
            self.client.connection.resume_reading()

    def restart(self) -> None:
        """The server goes and comes back with what was saved."""
        state, config = self.consumer.state(), self.consumer.config
        self.consumer.close()
        self.world.consumers.clear()
        self.held.clear()
        fields = msgspec.structs.asdict(config)
        self.consumer = self.world.consumer(state=state, **fields)
        self.world.server.advance(0.001)

    def take(self) -> None:
        """Keep messages, answer flow control."""
        for frame in self.client.take():
            if frame.sid != "inbox":
                continue
            stalled = frame.lines.get("Nats-Consumer-Stalled", "") if frame.header else ""
            if stalled or frame.reply.startswith("$JS.FC."):
                self.client.publish(stalled or frame.reply)
            elif frame.reply:
                self.held.append(frame)

    # ---------------------------------------------------------------- what must hold

    def check(self) -> None:
        consumer, acks = self.consumer, self.consumer.acks
        waits_for, due_ns = consumer.delivery.waits_for, consumer.next_deadline_ns
        acks.verify()
        assert consumer.cursor.pending() == self.recount()
        has_work = acks.queue_count > 0 or consumer.cursor.pending() > 0
        if waits_for == "messages":
            assert not has_work
        elif waits_for == "demand":
            pulls = consumer.pulls
            assert not consumer.delivery.is_bound if pulls is None else pulls.count == 0
        elif waits_for == "acks":
            assert acks.queue_count == 0
            assert acks.count >= consumer.delivery.max_ack_pending > 0
        elif waits_for == "flow":
            assert consumer.delivery.flow_subject
        else:
            assert waits_for in ("pause", "pace", "receiver")
            assert due_ns > 0
        if acks.count > acks.queue_count:
            # What is pending and not queued comes up by itself.
            assert 0 < due_ns <= max(acks.next_due_ns(), 1)
        if due_ns:
            assert due_ns > self.world.turn.monotonic_ns

    def recount(self) -> int:
        """How many messages are still to come, counted one by one."""
        pattern = self.consumer.config.filter_subject
        return sum(
            not pattern or is_subset(message.subject.decode(), pattern)
            for message in self.world.store.messages(self.consumer.cursor.next_seq)
        )

    def finish(self) -> None:
        """From now on the receiver does all it should."""
        self.resume_reading()
        self.reconnect()
        self.subscribe()
        for _ in range(400):
            self.take()
            for frame in self.held:
                self.client.ack(frame)
            self.held.clear()
            acks = self.consumer.acks
            if acks.count == 0 and self.consumer.cursor.pending() == 0:
                return
            if not self.pushes:
                self.client.pull(self.consumer, "inbox", batch=20, no_wait=True, expires=MS)
            self.world.server.advance(1)
        info = consumer_document(self.consumer)
        pytest.fail(f"stuck, waiting for {self.consumer.delivery.waits_for}: {info}")


@pytest.mark.parametrize("seed", range(LIVES))
def test_a_consumer_is_never_stuck(seed: int) -> None:
    life = Life(seed)
    for _ in range(STEPS):
        life.step()
    life.finish()
