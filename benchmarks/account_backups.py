"""What a backup of an account costs: all of it, an hour of it, and nothing new.

    .venv/bin/python -m benchmarks.account_backups [--messages 480000] [--size 128]

A stream gets 24 hours' worth of messages; a backup is made, and one more after each of three more
hours. Then a key-value bucket is overwritten, and what that adds is shown too. CPU times are those
of the process that makes the backup and of the server; turns of our server above its budget are
listed. Payloads are random, so compression saves nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable

import tradewind.sync
from benchmarks.bystander import turns_over_budget
from benchmarks.cli import installed
from benchmarks.procfs import session_usage
from benchmarks.servers import Server
from tradewind.backups import AccountBackups, RestoreChoice

CONFIG = 'http: "127.0.0.1:{port}"\njetstream { store_dir: "{folder}/store" }\n'
HOURS = 24
KEYS = 10_000


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=480_000)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--streams", type=int, default=0, help="small streams beside it")
    given = parser.parse_args()
    for name in ("tradewind-server", "nats-server"):
        print(f"{name:34} {'bytes':>12} {'client CPU s':>13} {'server CPU s':>13} {'wall s':>8}")
        with (
            Server(installed(name), CONFIG) as server,
            tempfile.TemporaryDirectory() as place,
            tradewind.sync.connect(f"127.0.0.1:{server.port}", timeout=60) as connection,
        ):
            Run(server, connection, AccountBackups(place)).all(given)
            if name == "tradewind-server":
                print(f"turns over budget: {turns_over_budget(server) or 'none'}")
        print()


class Run:
    """The measurements on one server."""

    def __init__(
        self, server: Server, connection: tradewind.sync.Connection, backups: AccountBackups
    ) -> None:
        self.server = server
        self.connection = connection
        self.backups = backups
        self.js = connection.jetstream()
        self.random = random.Random(1)

    def all(self, given: argparse.Namespace) -> None:
        """Fill, back up, and print a line for each backup."""
        self.js.manager.streams.add(name="LOG", subjects=["log.>"])
        for number in range(given.streams):
            self.js.manager.streams.add(name=f"S{number}", subjects=[f"s{number}"])
            self.js.publish(f"s{number}", b"x")
        hour = given.messages // HOURS
        self.publish(given.messages, given.size)
        self.create(f"a day: {given.messages:,} messages")
        for _ in range(3):
            self.publish(hour, given.size)
            self.create(f"an hour: {hour:,} messages")
        self.create("nothing new")
        self.js.kv.create("keys")
        self.overwrite(KEYS, given.size)
        self.create(f"a new bucket: {KEYS:,} keys")
        self.overwrite(KEYS // 10, given.size)
        self.create(f"{KEYS // 10:,} keys overwritten")
        self.measure("verify all", lambda: self.backups.verify().bytes)
        choice = RestoreChoice(streams=("LOG",), renames={"LOG": "COPY"})
        record = self.backups.find()
        self.measure("restore", lambda: bool(self.backups.restore(self.connection, record, choice)))

    def publish(self, count: int, size: int) -> None:
        """Store messages in the log."""
        for number in range(count):
            self.js.publish_async(f"log.{number % 1000}", self.random.randbytes(size))
        self.js.publish_async_completed()

    def overwrite(self, count: int, size: int) -> None:
        """Give some keys new values."""
        for number in range(count):
            self.js.publish_async(f"$KV.keys.k{number}", self.random.randbytes(size))
        self.js.publish_async_completed()

    def create(self, what: str) -> None:
        """Measure one more backup."""
        self.measure(what, lambda: self.backups.create(self.connection).added_bytes)

    def measure(self, what: str, work: Callable[[], int]) -> None:
        """Print what it costs."""
        server_s = session_usage(self.server.session).cpu_s
        wall_s, own_s = time.perf_counter(), time.process_time()
        size = work()
        own_s, wall_s = time.process_time() - own_s, time.perf_counter() - wall_s
        server_s = session_usage(self.server.session).cpu_s - server_s
        print(f"{what:34} {size:>12,} {own_s:>13.2f} {server_s:>13.2f} {wall_s:>8.2f}")


if __name__ == "__main__":
    os.nice(5)
    main()
