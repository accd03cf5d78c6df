"""CPU time per message and per task of Celery's transport, beside both servers.

    .venv/bin/python -m benchmarks.celery_tasks [--messages 3000] [--queues 0,100,1000]

A message is published (and stored) by one connection of kombu, and received and acknowledged by
another with a prefetch count of 100, while other queues exist in the same stream. A task is sent,
run by a worker in the same process (pool solo) and its result fetched. kombu's memory transport is
the floor: the same calls without any server.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from celery import Celery
from celery.contrib.testing.worker import start_worker
from kombu import Connection, Consumer, Queue

import tradewind.contrib.kombu
from benchmarks.cli import installed
from benchmarks.procfs import session_usage
from benchmarks.servers import Server

SECONDS = 60.0
KINDS = ("memory", "tradewind", "nats-server")
assert tradewind.contrib.kombu.PATH  # registers the scheme


class Costs:
    """CPU microseconds per unit of this process and of the server."""

    def __init__(self, server: Server | None) -> None:
        self._server = server

    @contextmanager
    def of(self, name: str, units: int) -> Iterator[None]:
        """Print what a block costs."""
        client, server = time.process_time(), self._server_s()
        yield
        spent = [time.process_time() - client, self._server_s() - server]
        mine, its = (round(seconds / units * 1e6) for seconds in spent)
        print(f"{name:44} {mine:>8} {its:>8}", flush=True)

    def _server_s(self) -> float:
        return session_usage(self._server.session).cpu_s if self._server else 0.0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=3000)
    parser.add_argument("--queues", default="0,100,1000")
    given = parser.parse_args()
    counts = [int(text) for text in given.queues.split(",")]
    logging.disable(logging.WARNING)
    print(f"{'CPU microseconds per unit':44} {'client':>8} {'server':>8}")
    for kind in KINDS:
        command = installed("tradewind-server" if kind == "tradewind" else "nats-server")
        config = 'jetstream: {store_dir: "{folder}/js"}\n'
        with nullcontext() if kind == "memory" else Server(command, config) as server:
            url = f"nats://127.0.0.1:{server.port}" if server else "memory://"
            costs = Costs(server)
            for count in counts if server else counts[:1]:
                measure_messages(f"{kind}, {count} other queues", url, count, given.messages, costs)
            if server:
                measure_tasks(kind, url, given.messages // 5, costs)


def measure_messages(name: str, url: str, others: int, messages: int, costs: Costs) -> None:
    """One queue among others."""
    with Connection(url) as connection:
        channel = connection.default_channel
        for number in range(others):
            Queue(f"other{number}")(channel).declare()
        Queue("main")(channel).declare()
        producer = connection.Producer(serializer="json")
        with costs.of(f"{name}: publish", messages):
            for number in range(messages):
                producer.publish({"number": number}, routing_key="main")
        received: list[Any] = []

        def take(message: Any) -> None:
            received.append(message.delivery_tag)
            message.ack()

        consumer = Consumer(
            connection.channel(), [Queue("main")], on_message=take, prefetch_count=100
        )
        with costs.of(f"{name}: receive", messages), consumer:
            while len(received) < messages:
                connection.drain_events(timeout=SECONDS)


def measure_tasks(name: str, url: str, tasks: int, costs: Costs) -> None:
    """Tasks that add, one after the other."""
    app = Celery("bench", broker=url, backend=url)
    app.conf.broker_connection_retry_on_startup = True

    @app.task(name="bench.add", lazy=False, shared=False)
    def add(first: int, second: int) -> int:
        return first + second

    with start_worker(app, pool="solo", perform_ping_check=False, loglevel="CRITICAL"):
        add.delay(1, 1).get(timeout=SECONDS)
        with costs.of(f"{name}: task and its result", tasks):
            for number in range(tasks):
                assert add.delay(number, 1).get(timeout=SECONDS) == number + 1


if __name__ == "__main__":
    main()
