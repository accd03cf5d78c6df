"""A whole server that is killed while clients publish and consume, and what must hold after.

`Cycles` starts the real server again and again on one folder. Each stream has a publisher with a
connection of its own, and each consumer a reader. Every message has a number, from which its
subject, header and payload follow, so that whatever is found can be compared to the byte. A promise
counts when its bytes have arrived here.
"""

from __future__ import annotations

import base64
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from harness import ServerProcess
from server_kill_streams import PLANS, READERS, Lane, Reader, Wire, WireClosedError

WAIT_SECONDS = 60.0
GET_AT_ONCE = 200
SENT_PER_LIFE_MAX = 200
# What the server says when others have the processor.
BUSY_MACHINE = "The event loop was busy"
Work = Callable[[Wire, Random, Callable[[], None]], None]
IDS_ASKED_AGAIN = 20


@dataclass
class Found:
    """The state that a server reports for a stream."""

    state: dict[str, Any]
    numbers: dict[int, int] = field(default_factory=dict)  # sequence -> number of the message
    problems: list[str] = field(default_factory=list)


class Cycles:
    """Kill after kill on one folder. `run_one` gives what is wrong, `finish` empties it all."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self._seed = seed
        self.random = Random(seed)
        self.lanes = {plan.name: Lane(plan) for plan in PLANS}
        self.readers = {reader.key: reader for reader in (Reader(*each) for each in READERS)}
        self.generation = 0
        self.kills = 0
        self.log = ""

    @property
    def acks(self) -> int:
        return sum(len(lane.acked) for lane in self.lanes.values())

    # ------------------------------------------------------------------ a generation

    def run_one(self) -> list[str]:
        """Start, look at what is there, let clients work, and kill."""
        self.generation += 1
        with self.running() as server:
            problems = self.look(server)
            if problems:
                return problems
            problems = self.work(server)
            server.signal(signal.SIGKILL)
            server.wait()
            self.kills += 1
        return problems

    @contextmanager
    def running(self) -> Iterator[ServerProcess]:
        flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(self.folder)]
        if self._seed % 2:
            # Every second store is encrypted.
            config = self.folder.with_name(f"{self.folder.name}.conf")
            config.write_text(f'jetstream {{ store_dir: "{self.folder}", key: hush }}')
            flags = ["-a", "127.0.0.1", "-p", "-1", "-c", str(config)]
        server = ServerProcess("tradewind", flags)
        try:
            server.wait_ready()
            yield server
        finally:
            server.stop()
            self.log = server.log

    def work(self, server: ServerProcess) -> list[str]:
        """Clients work until a random number of things was promised; then the server dies."""
        problems: list[str] = []
        reached = threading.Condition()
        left = [self.random.choice((0, 1, 5, 30, 150, 500))]

        def promised() -> None:
            with reached:
                left[0] -= 1
                if left[0] <= 0:
                    reached.notify_all()

        def guarded(work: Work, wire: Wire, random: Random) -> None:
            try:
                with wire:
                    work(wire, random, promised)
            except (WireClosedError, OSError):
                return  # the server is gone, as planned
            except AssertionError as error:
                with reached:
                    problems.append(f"generation {self.generation}: {error}")
                    reached.notify_all()

        clients: list[Work] = [partial(publish, lane) for lane in self.lanes.values()]
        clients += [reader.run for reader in self.readers.values()]
        jobs = [(work, Wire(server.port), Random(self.random.random())) for work in clients]
        threads = [threading.Thread(target=guarded, args=job, daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        with reached:
            if not reached.wait_for(lambda: left[0] <= 0 or problems, WAIT_SECONDS):
                problems.append(f"generation {self.generation}: no progress, {left[0]} to go")
        server.signal(signal.SIGKILL)
        for thread in threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()
        return problems

    # ------------------------------------------------------------------ what is found

    def look(self, server: ServerProcess) -> list[str]:
        """Compare everything with what was promised; makes the streams in the first life."""
        complaints = [
            line
            for line in server.lines
            if ("[ERR]" in line or "[WRN]" in line) and BUSY_MACHINE not in line
        ]
        if complaints:
            return [f"generation {self.generation}: {complaints}"]
        with Wire(server.port) as wire:
            if self.generation == 1:
                create_all(wire)
            problems = []
            for lane in self.lanes.values():
                found = find(wire, lane)
                problems += found.problems + self.compare(lane, found)
                lane.settle(found.numbers, found.state["last_seq"])
                problems += lane.resend(wire, IDS_ASKED_AGAIN)
        return [f"generation {self.generation}: {problem}" for problem in problems]

    def compare(self, lane: Lane, found: Found) -> list[str]:
        name, state = lane.plan.name, found.state
        problems = []
        if state.get("lost"):
            problems.append(f"{name}: a kill has damaged {state['lost']}")
        if state["last_seq"] < lane.last_seq:
            problems.append(f"{name}: ends at {state['last_seq']}, promised {lane.last_seq}")
        if len(set(found.numbers.values())) != len(found.numbers):
            problems.append(f"{name}: a message is there twice")
        used = {seq for reader in self.readers_of(name) for seq in reader.used}
        full_below = lane.full_below(found.numbers)
        for seq, number in lane.acked.items():
            if seq in found.numbers:
                if found.numbers[seq] != number:
                    problems.append(f"{name}: {seq} was {number}, now {found.numbers[seq]}")
            elif seq > full_below and not lane.may_be_gone(
                seq, state["last_seq"], found.numbers, used
            ):
                problems.append(f"{name}: promised message {seq} is missing")
        if lane.plan.retention == "workqueue":
            # Removed by the acknowledgement itself, before it was confirmed.
            gone = {seq for reader in self.readers_of(name) for seq in reader.confirmed}
            problems += [f"{name}: used message {seq} is back" for seq in gone & set(found.numbers)]
        return problems

    def readers_of(self, stream: str) -> list[Reader]:
        return [reader for reader in self.readers.values() if reader.key[0] == stream]

    # ------------------------------------------------------------------ the end

    def finish(self) -> list[str]:
        """Take the remaining messages: none was skipped, and none stays undelivered."""
        self.generation += 1
        with self.running() as server:
            problems = self.look(server)
            with Wire(server.port) as wire:
                for reader in self.readers.values():
                    problems += self.finish_reader(wire, reader)
                for lane in self.lanes.values():
                    left = find(wire, lane).numbers
                    if lane.plan.retention != "limits" and left:
                        problems.append(f"{lane.plan.name}: {sorted(left)} stay for ever")
        return problems

    def finish_reader(self, wire: Wire, reader: Reader) -> list[str]:
        lane = self.lanes[reader.key[0]]
        there = set(find(wire, lane).numbers)
        wanted = there - reader.used
        taken = set(reader.drain(wire, wanted, WAIT_SECONDS))
        problems = []
        if missing := wanted - taken:
            problems.append(f"{reader.key}: never got {sorted(missing)}")
        if invented := taken - set(lane.known):
            problems.append(f"{reader.key}: got {sorted(invented)}, which were never there")
        if again := taken & reader.confirmed:
            problems.append(f"{reader.key}: {sorted(again)} were acknowledged before")
        return problems


def create_all(wire: Wire) -> None:
    for plan in PLANS:
        wire.api(f"STREAM.CREATE.{plan.name}", plan.config)
    for stream, name, settings in READERS:
        config = {"durable_name": name, "ack_policy": "explicit", **settings}
        wire.api(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})


def publish(lane: Lane, wire: Wire, random: Random, promised: Callable[[], None]) -> None:
    """Bursts of messages, with some answers still to come, until the connection breaks."""
    end = lane.sent + SENT_PER_LIFE_MAX
    while True:
        if lane.sent < end:
            lane.send(wire, random.choice((1, 3, 20)))
        while lane.waiting > random.choice((0, 10, 60)) or lane.sent >= end:
            lane.take_answer(wire)
            promised()


def find(wire: Wire, lane: Lane) -> Found:
    """All messages of a stream, each checked against what was sent."""
    name = lane.plan.name
    info = wire.api(f"STREAM.INFO.{name}", {"deleted_details": True})
    state = info["state"]
    found = Found(state)
    deleted = set(state.get("deleted") or ())
    wanted = range(max(state["first_seq"], 1), state["last_seq"] + 1)
    live = [seq for seq in wanted if seq not in deleted]
    if len(live) != state["messages"]:
        found.problems.append(f"{name}: says {state['messages']} messages, has {len(live)}")
    for start in range(0, len(live), GET_AT_ONCE):
        part = live[start : start + GET_AT_ONCE]
        answers = wire.api_all([(f"STREAM.MSG.GET.{name}", {"seq": seq}) for seq in part])
        for seq, answer in zip(part, answers, strict=True):
            if "error" in answer:
                found.problems.append(f"{name}: {seq} cannot be read: {answer['error']}")
                continue
            message = answer["message"]
            got = (
                message["subject"],
                base64.b64decode(message.get("hdrs", "")),
                base64.b64decode(message.get("data", "")),
            )
            number = lane.number_of(got)
            if number is None:
                found.problems.append(f"{name}: nobody has sent {seq}: {got}")
            else:
                found.numbers[seq] = number
    return found
