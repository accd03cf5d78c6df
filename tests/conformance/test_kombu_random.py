"""Random programs of kombu on both servers against a naive model: nothing is lost or held twice."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Connection, Consumer, Queue

import tradewind.contrib.kombu
import tradewind.sync
from harness import ServerProcess, wait_for
from thoroughness import some

QUEUES = [Queue("a"), Queue("b", max_priority=9)]
STEPS = 60
_numbers = itertools.count(1)


@pytest.fixture
def url(js_server: ServerProcess) -> Iterator[str]:
    stream = f"RANDOM{next(_numbers)}"
    yield f"{js_server.url}/{stream}"
    with tradewind.sync.connect(js_server.url) as client:
        client.jetstream().manager.streams.delete(stream)


class Member:
    """A client that consumes from both queues; `held` are its messages by their body."""

    def __init__(self, url: str, prefetch: int) -> None:
        self.connection = Connection(url)
        self.prefetch = prefetch
        self.held: dict[int, Any] = {}
        self.consumer = Consumer(
            self.connection.channel(), QUEUES, on_message=self._receive, prefetch_count=prefetch,
            accept=["json"],
        )  # fmt: skip
        self.consumer.consume()

    def _receive(self, message: Any) -> None:
        number = message.payload
        assert number not in self.held
        self.held[number] = message
        assert len(self.held) <= self.prefetch

    def drain(self, timeout: float) -> None:
        """Take what comes."""
        try:
            while True:
                self.connection.drain_events(timeout=timeout)
        except TimeoutError:
            return

    def leave(self) -> None:
        """Close; the messages that it holds go back."""
        self.connection.release()
        self.held.clear()


@pytest.mark.parametrize("seed", range(some(2, 40)))
def test_every_message_is_settled_by_one_client(url: str, seed: int) -> None:
    chance = random.Random(seed)
    publisher = Connection(url)
    producer = publisher.Producer(serializer="json")
    for queue in QUEUES:
        queue(publisher.default_channel).declare()
    members = [Member(url, chance.randint(1, 4)) for _ in range(2)]
    published = itertools.count()
    settled: Counter[int] = Counter()
    rejected = 0
    for _ in range(STEPS):
        member = chance.choice(members)
        match chance.choice(["publish", "publish", "drain", "ack", "ack", "requeue", "reject",
                             "leave", "prefetch"]):  # fmt: skip
            case "publish":
                for _ in range(chance.randint(1, 5)):
                    queue = chance.choice(QUEUES)
                    number = next(published)
                    producer.publish(number, routing_key=queue.name, priority=chance.randint(0, 9))
            case "drain":
                member.drain(0.02)
            case "leave" if chance.random() < 0.3:
                member.leave()
                members[members.index(member)] = Member(url, chance.randint(1, 4))
            case "prefetch":
                # Never less than before: what is on its way would still come.
                member.prefetch += chance.randint(0, 1)
                member.consumer.qos(prefetch_count=member.prefetch)
            case action if action in ("ack", "requeue", "reject") and member.held:
                number = chance.choice(sorted(member.held))
                message = member.held.pop(number)
                if action == "requeue":
                    message.requeue()
                    continue
                settled[number] += 1
                message.ack() if action == "ack" else message.reject()
                rejected += action == "reject"
        both = [number for each in members for number in each.held]
        assert len(both) == len(set(both)), "two clients hold the same message"
        assert not set(both) & set(settled), "a settled message came again"
    count = next(published)

    def is_all_settled() -> bool:
        for each in members:
            each.drain(0.02)
            for number in list(each.held):
                each.held.pop(number).ack()
                settled[number] += 1
        return len(settled) == count

    wait_for(is_all_settled, lambda: f"{count - len(settled)} of {count} messages are missing")
    assert set(settled.values()) <= {1}
    queues = publisher.transport.queues
    session = publisher.transport.session
    for queue in QUEUES:
        wait_for(lambda name=queue.name: session.run(queues.is_empty(name)))
    for each in [*members]:
        each.leave()
    publisher.release()
