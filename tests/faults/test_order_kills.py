"""Servers that are killed while several workers handle keys in order, and refuse at random."""

from __future__ import annotations

import signal
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from random import Random

import tradewind.sync
from harness import ServerProcess, wait_for
from thoroughness import some
from tradewind.api.consumer_types import ConsumerInfo
from tradewind.client.errors import ClientError

KILLS = some(3, 30)
KEYS = 8
MESSAGES = 1200
WAIT_SECONDS = 30.0


class Log:
    """What the workers have seen of one life of the server, under one lock."""

    def __init__(self, handled: set[int], confirmed: set[int]) -> None:
        self.lock = threading.Lock()
        self.handled = handled
        self.confirmed = confirmed
        # By key: the message in flight, and the last that was finished.
        self.in_flight: dict[str, int] = {}
        self.finished: dict[str, int] = defaultdict(int)
        self.faults: list[str] = []

    def received(self, key: str, seq: int) -> None:
        with self.lock:
            if seq in self.confirmed:
                self.faults.append(f"{seq} came again after its acknowledgement was stored")
            if self.in_flight.get(key, seq) != seq:
                self.faults.append(f"{seq} came while {self.in_flight[key]} was in flight")
            if seq <= self.finished[key]:
                self.faults.append(f"{seq} came after {self.finished[key]}")
            self.in_flight[key] = seq

    def finishing(self, key: str, seq: int) -> None:
        """Called before the acknowledgement is sent: the next message may come at once."""
        with self.lock:
            self.in_flight.pop(key, None)
            self.finished[key] = seq
            self.handled.add(seq)

    def stored(self, seq: int) -> None:
        with self.lock:
            self.confirmed.add(seq)


def start_server(folder: Path) -> ServerProcess:
    flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(folder)]
    return ServerProcess("tradewind", flags).wait_ready()


def work(url: str, log: Log, seed: int, ended: threading.Event) -> None:
    """Handle messages until the server is gone or nothing is left."""
    random = Random(seed)
    with suppress(ClientError), tradewind.sync.connect(url, reconnect=False) as connection:
        consumer = connection.jetstream().consumers.get("S", "c")
        while not ended.is_set():
            message = consumer.next(timeout=0.2)
            if message is None:
                continue
            seq, key = message.metadata.stream_sequence, message.subject
            log.received(key, seq)
            if random.random() < 0.1:
                message.nak(delay=random.choice([0, 0.005]))
                continue
            log.finishing(key, seq)
            message.ack_sync()
            log.stored(seq)


def live(folder: Path, handled: set[int], confirmed: set[int], seed: int, share: int) -> None:
    """One life of a server; it ends by a kill once so many more messages are handled, or, with
    none, by itself when nothing is left.
    """
    server = start_server(folder)
    log, ended = Log(handled, confirmed), threading.Event()
    workers = [
        threading.Thread(target=work, args=(server.url, log, seed * 10 + number, ended))
        for number in range(3)
    ]
    wanted = len(handled) + share
    for worker in workers:
        worker.start()
    if share:
        wait_for(lambda: len(handled) >= wanted or log.faults, seconds=WAIT_SECONDS)
        server.signal(signal.SIGKILL)
        server.wait()
    else:
        with tradewind.sync.connect(server.url) as connection:
            infos = connection.jetstream().manager.consumers
            wait_for(lambda: is_done(infos.info("S", "c")) or log.faults, seconds=WAIT_SECONDS)
    ended.set()
    for worker in workers:
        worker.join(WAIT_SECONDS)
        assert not worker.is_alive()
    server.stop()
    assert log.faults == []


def is_done(info: ConsumerInfo) -> bool:
    return info.num_pending + info.num_ack_pending == 0


def test_kills_lose_nothing_and_keep_the_order_of_keys(tmp_path: Path) -> None:
    server = start_server(tmp_path)
    with tradewind.sync.connect(server.url) as connection:
        js = connection.jetstream()
        js.manager.streams.add(name="S", subjects=["s.*"])
        js.manager.consumers.add(
            "S",
            durable_name="c",
            ack_policy="explicit",
            ack_wait=0.3,
            metadata={"tradewind.order_by": "subject"},
        )
        random = Random(11)
        for _ in range(MESSAGES):
            js.publish_async(f"s.{random.choice([0, 0, 0, *range(KEYS)])}", b"x")
        js.publish_async_completed()
    server.stop()
    handled: set[int] = set()
    confirmed: set[int] = set()
    for seed in range(KILLS):
        live(tmp_path, handled, confirmed, seed, share=MESSAGES // (2 * KILLS))
    live(tmp_path, handled, confirmed, KILLS, share=0)
    assert handled == set(range(1, MESSAGES + 1))
