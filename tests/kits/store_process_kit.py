"""A process that fills stores, killed at any time: its promises, and the conditions that must hold.

The child (store_process_child.py) prints a line for every promise, and only then is it one. What a
message holds follows from its stream, its sequence and the generation of the child that wrote it,
so nothing else has to be told.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Self

from tradewind.options import EncryptionOptions, Secret
from tradewind.store.commits.syncer import SyncMode
from tradewind.store.contract import MessageCopy, NotFoundError, StoreLimits
from tradewind.store.files.disk import OsDisk
from tradewind.store.files.vault import FileKey, MainKeyRing, StreamVault
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store
from tradewind.store.format.ciphers import KINDS

CHILD = Path(__file__).with_name("store_process_child.py")
# Messages with these sequences are removed some time after they were promised.
REMOVED_EVERY = 7
WAIT_SECONDS = 60


@dataclass(frozen=True)
class Plan:
    """One of the streams of a child."""

    name: str
    mode: SyncMode = SyncMode.ALWAYS
    msgs_max: int = 0
    block_bytes_max: int = 20_000
    cipher: str = ""

    @property
    def limits(self) -> StoreLimits:
        return StoreLimits(msgs_max=self.msgs_max)

    def open(self, folder: Path) -> FileStore:
        disk = OsDisk(str(folder))
        disk.make_directory(f"{folder}/{self.name}", sync=True)
        store, report = open_store(
            disk,
            f"{folder}/{self.name}",
            self.name,
            self.limits,
            now_ns=time.time_ns(),
            block_bytes_max=self.block_bytes_max,
            vault=self._vault(disk, f"{folder}/{self.name}"),
        )
        # A kill tears nothing: what a write call has taken stays whole.
        assert not report.lost, report
        return store

    def _vault(self, disk: OsDisk, folder: str) -> StreamVault | None:
        if not self.cipher:
            return None
        ring = MainKeyRing(EncryptionOptions(Secret("main"), cipher=self.cipher))
        kind = KINDS[self.cipher]
        key = FileKey(kind, bytes(32), bytes(kind.nonce_bytes))
        return StreamVault(disk, ring, "$G", self.name, folder, key)


PLANS = (
    Plan("A"),
    Plan("B", cipher="aes"),
    Plan("LIMITED", msgs_max=60, block_bytes_max=3000, cipher="chacha"),
    Plan("INTERVAL", SyncMode.INTERVAL, cipher="chacha"),
    Plan("ASYNC", SyncMode.ASYNC),
)


def can_mount() -> bool:
    """Whether a process may have a small disk of its own."""
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run(
        ["unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True
    )
    return done.returncode == 0


def message_of(name: str, seq: int, generation: int) -> tuple[bytes, bytes, bytes, int]:
    """Subject, header, payload and time."""
    random = Random(f"{name} {seq} {generation}")
    header = b"NATS/1.0\r\nN: %d\r\n\r\n" % seq if random.random() < 0.3 else b""
    payload = b"%d " % generation + random.randbytes(random.choice((0, 10, 200, 1500)))
    return b"%s.%d" % (name.encode(), random.randrange(5)), header, payload, 1000 + seq


def generation_of(message: MessageCopy) -> int:
    return int(message.payload.split(b" ")[0])


@dataclass
class Promises:
    """The promises about one stream in all its generations."""

    acked: dict[int, int] = field(default_factory=dict)  # sequence -> generation
    gone: set[int] = field(default_factory=set)
    last_acked: int = 0

    def ack(self, seq: int, generation: int) -> None:
        for number in range(self.last_acked + 1, seq + 1):
            self.acked[number] = generation
        self.last_acked = max(self.last_acked, seq)


class Child:
    """A running child."""

    def __init__(self, folder: Path, generation: int, *arguments: str, wrap: str = "") -> None:
        command = [sys.executable, str(CHILD), str(folder), str(generation), *arguments]
        if wrap:
            command = ["unshare", "-Urm", "sh", "-c", f'{wrap} && exec "$@"', "sh", *command]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def lines(self) -> Iterator[list[str]]:
        """Whole lines only: what was cut off was not said."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                yield line.decode().split()

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
            self.end()

    def end(self) -> tuple[int, str]:
        """The exit code and what it complained about."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        complaint = self.process.stderr.read().decode()
        code = self.process.wait(WAIT_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()
        return code, complaint


def problems_of(store: FileStore, plan: Plan, promises: Promises) -> list[str]:
    """All that is wrong with a store after its process was killed."""
    store.verify()
    problems = []
    state = store.table.state
    if plan.mode is not SyncMode.ASYNC and state.last_seq < promises.last_acked:
        problems.append(f"{plan.name}: ends at {state.last_seq}, promised {promises.last_acked}")
    floor = state.last_seq - plan.msgs_max if plan.msgs_max else 0
    for seq, generation in promises.acked.items():
        if plan.mode is SyncMode.ASYNC and seq > state.last_seq:
            break
        try:
            found = generation_of(store.table.get(seq))
        except NotFoundError:
            if seq > floor and seq % REMOVED_EVERY:
                problems.append(f"{plan.name}: promised message {seq} is missing")
            continue
        if seq in promises.gone and plan.mode is not SyncMode.ASYNC:
            problems.append(f"{plan.name}: removed message {seq} is back")
        if found != generation:
            problems.append(f"{plan.name}: message {seq} is of generation {found}")
    for message in store.table.messages():
        expected = message_of(plan.name, message.seq, generation_of(message))
        if (message.subject, message.header, message.payload, message.timestamp_ns) != expected:
            problems.append(f"{plan.name}: message {message.seq} is not what was stored")
    return problems


class Cycles:
    """Kill after kill on one folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = Random(seed)
        self.promises = {plan.name: Promises() for plan in PLANS}
        self.generation = 0
        self.kills = 0
        self.acks = 0

    def run_one(self) -> list[str]:
        """Start a child, kill it when it has said a random number of things, and look."""
        self.generation += 1
        left = self.random.choice((0, 1, 5, 30, 100))
        with Child(self.folder, self.generation) as child:
            for line in child.lines():
                if line[0] == "failed":
                    return [f"{line} in generation {self.generation}"]
                self.note(line)
                if left == 0:
                    child.kill()
                left -= 1
            code, complaint = child.end()
        self.kills += 1
        if code != -signal.SIGKILL:
            return [f"generation {self.generation} ended by itself with {code}: {complaint}"]
        return self.look()

    def note(self, line: list[str]) -> None:
        if line[0] == "ready":
            return
        kind, name, number = line
        if kind == "ack":
            self.promises[name].ack(int(number), self.generation)
            self.acks += 1
        else:
            assert kind == "gone", line
            self.promises[name].gone.add(int(number))

    def look(self) -> list[str]:
        problems = []
        for plan in PLANS:
            store = plan.open(self.folder)
            problems += problems_of(store, plan, self.promises[plan.name])
            self.settle(store, self.promises[plan.name])
            if self.random.random() < 0.5:
                store.close()
            else:
                store.abandon()
        return problems

    def settle(self, store: FileStore, promises: Promises) -> None:
        """Record the content of an opened store, which must stay, promised or not; the next child
        continues.
        """
        for seq in [seq for seq in promises.acked if seq > store.table.last_seq]:
            del promises.acked[seq]
        for message in store.table.messages():
            promises.acked[message.seq] = generation_of(message)
        promises.gone = {seq for seq in promises.gone if seq <= store.table.last_seq}
        promises.last_acked = store.table.last_seq
