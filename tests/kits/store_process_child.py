"""Fill stores through the real syncer and print every promise; meant to be killed.

    store_process_child.py FOLDER GENERATION [--streams A,B] [--fail-sync NAME] [--file-bytes N]
                           [--ballast N]

Lines: "ready", "ack STREAM SEQ", "gone STREAM SEQ", "failed STREAM CLASS", "resumed STREAM",
"verified STREAM LAST". On its input it is told "free" (remove the ballast file) and "stop".
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import resource
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from random import Random

from store_process_kit import PLANS, REMOVED_EVERY, Plan, Promises, message_of, problems_of
from tradewind.clock import SystemClock
from tradewind.errors import StoreError
from tradewind.server.threads.sync_threads import ThreadedSyncer
from tradewind.server.threads.threads import Threads
from tradewind.store.commits.commit import SyncTarget
from tradewind.store.files import disk
from tradewind.store.files.disk import OsFile
from tradewind.store.folder.filestore import FileStore

WAITING_MAX = 500
# The room that was made must not be used up again before anybody looks.
MESSAGES_AFTER_RESUME = 50
CLOCK = SystemClock()


def say(*words: object) -> None:
    """In one write, so that a kill cannot cut a line that was begun."""
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


class Stream:
    """A store with what waits for its promise: (round, last sequence, removed sequence or 0)."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.store: FileStore = plan.open(folder)
        self.waiting: deque[tuple[int, int, int]] = deque()
        self.promises = Promises()
        self.acked = self.store.table.last_seq
        self.removed = self.store.table.last_seq
        self.has_failed = False
        self.messages_left = sys.maxsize

    def kept(self, _: SyncTarget, number: int) -> None:
        while self.waiting and self.waiting[0][0] <= number:
            _, seq, gone = self.waiting.popleft()
            if gone:
                self.promises.gone.add(gone)
                say("gone", self.plan.name, gone)
            elif seq > self.acked:
                self.acked = seq
                say("ack", self.plan.name, seq)

    def failed(self, _: SyncTarget, error: StoreError) -> None:
        self.has_failed = True
        say("failed", self.plan.name, type(error).__name__)

    def resumed(self, _: SyncTarget) -> None:
        self.has_failed = False
        self.messages_left = MESSAGES_AFTER_RESUME
        say("resumed", self.plan.name)


class Work:
    """All streams, in one loop."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.generation = arguments.generation
        self.folder = arguments.folder
        self.random = Random(arguments.generation)
        wanted = arguments.streams.split(",") if arguments.streams else None
        self.streams = [
            Stream(plan, arguments.folder)
            for plan in PLANS
            if wanted is None or plan.name in wanted
        ]
        self.progress = asyncio.Event()
        self.stopped = False
        loop = asyncio.get_running_loop()
        self.threads = Threads(loop, CLOCK.monotonic_ns)
        self.syncer = ThreadedSyncer(
            loop,
            CLOCK,
            self.threads,
            interval_ns=30_000_000,
            after_batch=self.progress.set,
        )
        for stream in self.streams:
            self.syncer.attach(
                stream.store,
                mode=stream.plan.mode,
                on_synced=stream.kept,
                on_failure=stream.failed,
                on_resumed=stream.resumed,
            )

    def change(self, stream: Stream) -> None:
        """Some messages, and now and then a removal of one that was promised."""
        store, name = stream.store, stream.plan.name
        for _ in range(min(self.random.randint(1, 12), stream.messages_left)):
            stream.messages_left -= 1
            seq = store.table.last_seq + 1
            with suppress(StoreError):  # the syncer tells what happened
                store.table.store(*message_of(name, seq, self.generation))
            number = self.syncer.mark_dirty(store, CLOCK.monotonic_ns())
            if store.table.last_seq < seq:
                return
            stream.waiting.append((number, seq, 0))
        seq = (stream.removed // REMOVED_EVERY + 1) * REMOVED_EVERY
        if seq <= stream.acked and self.random.random() < 0.5:
            stream.removed = seq
            if store.table.remove(seq):
                number = self.syncer.mark_dirty(store, CLOCK.monotonic_ns())
                stream.waiting.append((number, 0, seq))

    async def run(self) -> None:
        say("ready")
        while not self.stopped:
            self.progress.clear()
            for stream in self.streams:
                if not stream.has_failed and len(stream.waiting) < WAITING_MAX:
                    self.change(stream)
            self.syncer.end_turn(CLOCK.monotonic_ns())
            await self.progress.wait()

    def hear(self) -> None:
        """A word on our input."""
        for word in sys.stdin.readline().split():
            if word == "free":
                (self.folder / "ballast").unlink()
            elif word == "stop":
                self.stopped = True
                self.progress.set()

    async def stop(self) -> None:
        """Close everything, open it again and compare."""
        unsafe = await self.syncer.drain(30)
        assert not [target for target in unsafe if target.failure is None]
        self.syncer.close()
        self.threads.stop(30)
        for stream in self.streams:
            stream.store.close()
            store = stream.plan.open(self.folder)
            problems = problems_of(store, stream.plan, stream.promises)
            assert not problems, problems
            say("verified", stream.plan.name, store.table.last_seq)
            store.close()


def fail_syncs_of(name: str) -> None:
    """From the third one on, the disk answers with an I/O error."""
    plain, seen = disk.sync_descriptor, 0

    def failing(descriptor: int, path: str | None) -> None:
        nonlocal seen
        if f"/{name}/msgs/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            seen += 1
            if seen > 3:
                raise OSError(errno.EIO, "injected")
        plain(descriptor, path)

    disk.sync_descriptor = failing
    OsFile.fileno = lambda _: -1  # else a thread syncs the descriptor without asking Python


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("generation", type=int)
    parser.add_argument("--streams", default="")
    parser.add_argument("--fail-sync", default="")
    parser.add_argument("--file-bytes", type=int, default=0)
    parser.add_argument("--ballast", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.file_bytes:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (arguments.file_bytes, hard))
    if arguments.ballast:
        (arguments.folder / "ballast").write_bytes(bytes(arguments.ballast))
    work = Work(arguments)
    if arguments.fail_sync:
        fail_syncs_of(arguments.fail_sync)
    asyncio.get_running_loop().add_reader(0, work.hear)
    await work.run()
    await work.stop()


if __name__ == "__main__":
    asyncio.run(main())
