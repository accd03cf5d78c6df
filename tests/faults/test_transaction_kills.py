"""Servers that are killed in the middle of transactions: each has happened once or not at all.

A program takes messages of one stream, and writes something about each to two others in the same
transaction that acknowledges it. It never asks what has become of a transaction without an answer.
Power failures are tested without processes, in test_transactions_crash.py.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import tradewind.sync
from harness import ServerProcess
from tradewind.client.errors import ClientError

if TYPE_CHECKING:
    from tradewind.sync import Connection

KILLS = 30 if os.environ.get("TRADEWIND_THOROUGH") == "1" else 3
MESSAGES = 3000
WAIT_SECONDS = 20.0
OUTPUTS = ("ONE", "TWO")


def start_server(folder: Path) -> ServerProcess:
    flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(folder)]
    return ServerProcess("tradewind", flags).wait_ready()


def work(connection: Connection, ended: threading.Event) -> None:
    """Move messages until the server is gone."""
    js = connection.jetstream()
    consumer = js.consumers.get("IN", "c")
    while not ended.is_set():
        message = consumer.next(timeout=5)
        if message is None:
            continue  # a busy machine
        with js.transaction() as transaction:
            transaction.publish("one", message.data)
            transaction.publish(f"two.{int(message.data) % 7}", message.data)
            transaction.ack(message)


def live(folder: Path, random: Random) -> None:
    """One life of a server, which ends by a kill while several work."""
    server = start_server(folder)
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            # The server is gone, or it has not answered in time.
            with (
                suppress(ClientError),
                tradewind.sync.connect(server.url, reconnect=False) as connection,
            ):
                work(connection, ended)

    workers = [threading.Thread(target=run, daemon=True) for _ in range(3)]
    for worker in workers:
        worker.start()
    with tradewind.sync.connect(server.url, timeout=WAIT_SECONDS) as connection:
        js = connection.jetstream()
        begun = js.manager.streams.info("ONE").state.last_seq
        wanted = begun + random.randrange(1, 40)
        while js.manager.streams.info("ONE").state.last_seq < wanted:
            pass
        ended.set()
        server.signal(signal.SIGKILL)
    server.wait()
    for worker in workers:
        worker.join(WAIT_SECONDS)
        assert not worker.is_alive()


def test_a_kill_leaves_each_transaction_whole_or_undone(tmp_path: Path) -> None:
    random = Random(7)
    server = start_server(tmp_path)
    with tradewind.sync.connect(server.url) as connection:
        js = connection.jetstream()
        js.manager.streams.add(name="IN", subjects=["in"], retention="workqueue")
        js.manager.streams.add(name="ONE", subjects=["one"])
        js.manager.streams.add(name="TWO", subjects=["two.*"])
        js.manager.consumers.add("IN", durable_name="c", ack_policy="explicit")
        for number in range(MESSAGES):
            js.publish_async("in", str(number))
        js.publish_async_completed()
    server.signal(signal.SIGTERM)
    server.wait()
    for _ in range(KILLS):
        live(tmp_path, random)
    server = start_server(tmp_path)
    with tradewind.sync.connect(server.url) as connection:
        streams = connection.jetstream().manager.streams
        moved = []
        for name in OUTPUTS:
            last_seq = streams.info(name).state.last_seq
            found = [streams.get_message(name, seq=seq).data for seq in range(1, last_seq + 1)]
            assert max(Counter(found).values()) == 1, "a transaction has happened twice"
            moved.append(set(found))
        assert moved[0] == moved[1]
        assert len(moved[0]) >= KILLS
        # What was not moved is still there, and nothing else.
        assert streams.info("IN").state.messages == MESSAGES - len(moved[0])
    server.signal(signal.SIGTERM)
    server.wait()
