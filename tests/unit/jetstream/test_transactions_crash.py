"""Transactions against a simple model, with a power failure at any step of the disk.

Whatever happens, in any order: a transaction that was answered is there, and of every other there
is all or nothing; nothing is there twice. The steps of the disk, of the threads and of the loop are
interleaved by chance, and after a power failure the disk has any selection of what was not synced.
Then the server starts, perhaps to lose power again on the way.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from engine_kit import Peer
from transaction_kit import commit, message, pull, stored

from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk

RUNS = 400 if os.environ.get("TRADEWIND_THOROUGH") == "1" else 30
INPUTS = 8
BLOCK_BYTES = 700
NOBODY_KNOWS = 20008


class World:
    """A server with an input of messages i1, i2, ..., and two outputs; the second one keeps only
    the last message of each subject.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(seed=seed)
        self.retention = self.random.choice(["limits", "workqueue", "interest"])
        self.server = InProcessServer(disk=self.disk, manual_sync=True)
        self.peer = Peer(self.server)
        for name, config in {
            "IN": {"retention": self.retention},
            "OUT": {"max_msgs_per_subject": self.random.choice([-1, -1, 2])},
            "KV": {"max_msgs_per_subject": 1},
        }.items():
            self.settle(lambda name=name, config=config: self.send_create(name, config))
        body = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 30 * 10**9}
        self.settle(
            lambda: self.peer.ask(
                "$JS.API.CONSUMER.CREATE.IN.c", {"stream_name": "IN", "config": body}
            )
        )
        for number in range(1, INPUTS + 1):
            self.settle(lambda number=number: self.peer.ask("IN.x", b"i%d" % number))
        self.settle(
            lambda: self.peer.ask(
                "$JS.API.CONSUMER.MSG.NEXT.IN.c", {"batch": INPUTS, "no_wait": True}
            )
        )
        if self.random.random() < 0.5:
            self.server.advance(1)
            self.settle(lambda: self.server.syncer.tick(self.server.clock.monotonic_ns()))
        self.peer.take()
        self.server.workers.is_held = True
        # What was asked for: number of the input -> the inbox of its transaction.
        self.asked: dict[int, str] = {}
        self.committed: set[int] = set()
        self.refused: set[int] = set()
        self.plainly_acked: set[int] = set()
        self.others = 0
        self.last_promised_other = 0

    def send_create(self, name: str, config: dict[str, Any]) -> None:
        self.peer.ask(
            f"$JS.API.STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config}
        )

    def settle(self, act: Any) -> None:
        act()
        while self.server.syncer.waiting or self.server.syncer.synced:
            self.server.syncer.run_all()
            self.server.run_until_idle()

    # -------------------------------------------------------------- steps

    def step(self) -> None:
        """Somebody does something: a client, a thread or the loop."""
        choices = [self.begin] * 2 + [self.publish_other, self.let_time_pass]
        syncer, workers = self.server.syncer, self.server.workers
        if workers.waiting_count:
            choices += [workers.run_next] * 3
        if syncer.waiting:
            choices += [lambda: syncer.run_next(self.random.randrange(len(syncer.waiting)))] * 3
        if syncer.synced:
            choices += [lambda: syncer.complete_next(self.random.randrange(len(syncer.synced)))] * 3
        self.random.choice(choices)()
        self.server.run_until_idle()
        self.hear()

    def begin(self) -> None:
        """A transaction for an input, or a plain acknowledgement of it."""
        left = [
            n for n in range(1, INPUTS + 1) if n not in self.asked and n not in self.plainly_acked
        ]
        if not left:
            return
        number = self.random.choice(left)
        ack = f"$JS.ACK.IN.c.1.{number}.{number}.0.0"
        if self.random.random() < 0.1:
            self.plainly_acked.add(number)
            self.peer.connection.send(f"PUB {ack} 4\r\n+ACK\r\n".encode())
            return
        value = b"t%d" % number
        publishes = [
            message(f"OUT.{number % 3}", value + b"." + b"x" * self.random.randrange(200)),
            message("KV.key", value),
            message(f"KV.of{number}", value),
        ]
        self.asked[number] = reply = f"inbox.commit.{number}"
        body = json.dumps({"publishes": publishes, "acks": [ack]}).encode()
        head = f"PUB $TW.API.COMMIT {reply} {len(body)}\r\n".encode()
        self.peer.connection.send(head + body + b"\r\n")

    def publish_other(self) -> None:
        """Somebody without transactions uses the same streams."""
        self.others += 1
        reply = f"inbox.other.{self.others}"
        subject = self.random.choice(["KV.key", "OUT.other"])
        payload = f"o{self.others}"
        self.peer.connection.send(f"PUB {subject} {reply} {len(payload)}\r\n{payload}\r\n".encode())

    def let_time_pass(self) -> None:
        self.server.advance(self.random.choice([0.001, 0.2, 1.1]))
        self.server.syncer.tick(self.server.clock.monotonic_ns())

    def hear(self) -> None:
        for subject, _, payload in self.peer.take():
            words = subject.split(".")
            if words[1] == "commit":
                error = json.loads(payload).get("error")
                if error is None:
                    self.committed.add(int(words[2]))
                elif error["err_code"] != NOBODY_KNOWS:
                    self.refused.add(int(words[2]))

    # -------------------------------------------------------------- the verdict

    def check(self, disk: SimulatedDisk) -> SimulatedDisk:
        """After a start on what a power failure has left."""
        server = InProcessServer(disk=disk)
        peer = Peer(server)
        out = [payload.split(b".")[0] for _, _, payload in stored(peer, "OUT")]
        every = {subject: payload for _, subject, payload in stored(peer, "KV")}
        server.advance(32)  # files have whole seconds: the wait is up to one longer
        unacked = set(pull(peer, "IN", 100))
        keeps_all = peer.api("STREAM.INFO.OUT")["config"]["max_msgs_per_subject"] < 0
        for number in range(1, INPUTS + 1):
            value = b"t%d" % number
            own = every.get(f"KV.of{number}")
            happened = own is not None
            context = (number, self.retention, sorted(self.committed), sorted(self.refused))
            assert own in (None, value), context
            assert out.count(value) <= 1, context
            if keeps_all:
                assert (value in out) == happened, context
            if number in self.committed:
                assert happened, context
            if number in self.refused or number not in self.asked:
                assert not happened, context
            if number not in self.plainly_acked:
                assert (b"i%d" % number in unacked) != happened, context
        assert server.log.texts("error") == []
        # It goes on working, and the journal is done with.
        assert "error" not in commit(peer, [message("OUT.more"), message("KV.more")])
        server.advance(10)
        assert disk.list_directory(f"{disk.root}/jetstream/$G") == ["streams"]
        return disk


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that blocks are sealed and dropped on the way."""
    monkeypatch.setattr(
        "tradewind.store.folder.stream_folder.block_bytes_max", lambda *_: BLOCK_BYTES
    )


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_power_failure_leaves_all_of_a_transaction_or_nothing(seed: int) -> None:
    world = World(seed)
    steps = world.random.randrange(5, 120)
    world.disk.stop_at = world.disk.steps + world.random.randrange(1, 120)
    with suppress(PowerLoss):
        for _ in range(steps):
            world.step()
    for outcome in (
        world.disk.crash_losing_unsynced(),
        world.disk.crash_keeping_unsynced(),
        world.disk.crash(seed),
        world.disk.crash(seed + 1),
    ):
        # The first start may be cut off, too.
        outcome.stop_at = outcome.steps + world.random.randrange(1, 40)
        with suppress(PowerLoss):
            InProcessServer(disk=outcome)
        outcome.stop_at = None
        world.check(outcome.crash(seed))
