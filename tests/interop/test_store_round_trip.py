"""One folder goes from server to server; a model that knows no files says what must be in it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from block_reads import read
from interop_kit import (
    SECOND,
    Official,
    StreamTruth,
    copy_store,
    official,
    official_truth,
    our_truth,
    wait_for,
)
from our_streams import CONFIG, CONSUMER
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.stream_folder import StoreRoot, StreamFolder
from tradewind.store.format.consumer_file import ConsumerState
from tradewind.store.format.layout import record_bytes
from tradewind.store.format.meta import ConsumerMeta, StreamMeta

ROUNDS = 5
STEPS = 40
SMALL = {"max_bytes": 127_900}
STREAMS: dict[str, dict[str, Any]] = {
    "FREE": SMALL,
    "KEYS": {**SMALL, "max_msgs_per_subject": 2},
    "SHORT": {"max_msgs": 30},
    "SQUEEZED": {**SMALL, "compression": "s2"},
}
# The official server forgets what a limit has removed when it is killed.
SURVIVE_KILL = ("FREE", "SQUEEZED")
HEADER = b"NATS/1.0\r\nKind: test\r\n\r\n"


@dataclass
class Model:
    """What a stream must hold: sequence -> (subject, header, payload)."""

    config: dict[str, Any]
    held: dict[int, tuple[str, bytes, bytes]] = field(default_factory=dict)
    last_seq: int = 0

    def publish(self, subject: str, header: bytes, payload: bytes) -> None:
        self.last_seq += 1
        self.held[self.last_seq] = (subject, header, payload)
        limit = self.config.get("max_msgs_per_subject", 0)
        same = [seq for seq, entry in self.held.items() if entry[0] == subject]
        if limit and len(same) > limit:
            del self.held[same[0]]
        while len(self.held) > self.config.get("max_msgs", len(self.held)):
            del self.held[min(self.held)]
        while self.bytes > self.config.get("max_bytes", self.bytes):
            del self.held[min(self.held)]

    def purge(self, subject: str, below: int, keep: int) -> None:
        chosen = [seq for seq, entry in self.held.items() if not subject or entry[0] == subject]
        if keep:
            chosen = chosen[:-keep]
        for seq in chosen:
            if not below or seq < below:
                del self.held[seq]

    @property
    def bytes(self) -> int:
        return sum(
            record_bytes(len(subject), len(header), len(payload))
            for subject, header, payload in self.held.values()
        )

    def check(self, truth: StreamTruth) -> None:
        assert {seq: entry[1:] for seq, entry in truth.content.items()} == self.held
        assert list(truth.content) == sorted(self.held)
        assert truth.messages == len(self.held)
        assert truth.bytes == self.bytes
        assert truth.last_seq == self.last_seq
        assert truth.first_seq == min(self.held, default=self.last_seq + 1)
        wanted = range(truth.first_seq, self.last_seq + 1) if self.held else ()
        assert truth.deleted == [seq for seq in wanted if seq not in self.held]


Step = tuple[str, tuple[Any, ...]]


def random_steps(random: Random, name: str, model: Model) -> list[Step]:
    """What one server shall do next, already done in the model."""
    steps: list[Step] = []
    for _ in range(STEPS):
        kind = random.choices(["publish", "delete", "purge"], [30, 6, 1])[0]
        if kind == "publish":
            size = random.choice([0, 5, 300, 2000])
            subject = f"{name}.{random.randrange(12)}"
            step = (subject, random.choice([b"", HEADER]), random.randbytes(size))
            model.publish(*step)
        elif kind == "delete":
            if not model.held:
                continue
            edges = (min(model.held), max(model.held))
            seq = random.choice([*edges, random.choice(list(model.held))])
            step = (seq, random.random() < 0.5)
            del model.held[seq]
        else:
            subject = random.choice(["", f"{name}.{random.randrange(12)}"])
            below, keep = random.choice([(0, 0), (0, 3), (model.last_seq - 5, 0)])
            step = (subject, max(below, 0), keep)
            model.purge(*step)
        steps.append((kind, step))
    return steps


def run_ours(store: FileStore, steps: list[Step], random: Random) -> None:
    now_ns = time.time_ns()
    for index, (kind, step) in enumerate(steps):
        if kind == "publish":
            subject, header, payload = step
            store.table.store(subject.encode(), header, payload, now_ns + index)
        elif kind == "delete":
            assert store.table.remove(step[0], erase=step[1])
        else:
            store.table.purge(step[0].encode(), below=step[1], keep=step[2])
        if random.random() < 0.2:
            store.commit()
    store.commit()
    store.verify()


async def run_official(server: Official, name: str, steps: list[Step]) -> None:
    for kind, step in steps:
        if kind == "publish":
            subject, header, payload = step
            await server.publish(subject, payload, {"Kind": "test"} if header else None)
        elif kind == "delete":
            request: dict[str, Any] = {"seq": step[0], "no_erase": not step[1]}
            await server.api(f"STREAM.MSG.DELETE.{name}", request)
        else:
            request = {"filter": step[0], "seq": step[1], "keep": step[2]}
            request = {key: value for key, value in request.items() if value}
            await server.api(f"STREAM.PURGE.{name}", request)


def our_turn(path: Path, target: Path, random: Random, models: dict[str, Model]) -> None:
    """Open, compare, change, and leave to `target` what a clean end or a kill leaves."""
    root = StoreRoot(OsDisk(str(path)), str(path))
    opened = {}
    for name, model in models.items():
        folder = root.stream("$G", name)
        _, store, report = folder.open(time.time_ns())
        assert report.is_clean
        if model.last_seq:
            model.check(our_truth(folder, store))
        run_ours(store, random_steps(random, name, model), random)
        model.check(our_truth(folder, store))
        opened[name] = store
    is_killed = random.random() < 0.5
    if is_killed:
        copy_store(path, target)
    for store in opened.values():
        store.close()
    root.close()
    if not is_killed:
        copy_store(path, target, with_index=random.random() < 0.7)


async def official_turn(path: Path, random: Random, models: dict[str, Model]) -> None:
    kill = random.random() < 0.5
    async with official(path) as server:
        for name, model in models.items():
            model.check(await official_truth(server, name))
            if not kill or name in SURVIVE_KILL:
                await run_official(server, name, random_steps(random, name, model))
            model.check(await official_truth(server, name))
            if kill:
                await wait_until_written(path, name, model)
        await server.stop(kill=kill)


async def wait_until_written(path: Path, name: str, model: Model) -> None:
    """The official server writes what it has acknowledged a little later; a kill would lose it."""

    async def is_written() -> bool:
        return name not in SURVIVE_KILL or read(path, name).keys() == model.held.keys()

    await wait_for(is_written, f"the files of {name}")


@pytest.mark.parametrize("seed", range(3))
def test_random_work_on_both_sides_in_turn_keeps_every_message(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    models = {name: Model(config) for name, config in STREAMS.items()}
    path = tmp_path / "0"
    disk = OsDisk(str(path))
    for name, config in STREAMS.items():
        settings = {**CONFIG, "name": name, "subjects": [f"{name}.>"], **config}
        StreamFolder(disk, str(path), "$G", name).create(StreamMeta(settings, time.time_ns()))
    for turn in range(1, ROUNDS + 1):
        target = tmp_path / str(turn)
        our_turn(path, target, random, models)
        asyncio.run(official_turn(target, random, models))
        path = target
    our_turn(path, tmp_path / "end", random, models)


async def test_a_consumer_goes_on_from_server_to_server(tmp_path: Path) -> None:
    folder = StreamFolder(OsDisk(str(tmp_path)), str(tmp_path), "$G", "S")
    settings = {**CONFIG, "name": "S", "subjects": ["s"]}
    folder.create(StreamMeta(settings, time.time_ns()))
    _, store, _ = folder.open(time.time_ns())
    for index in range(100):
        store.table.store(b"s", b"", b"%d" % index, time.time_ns())
    store.close()
    for name in ("explicit", "all"):
        config = {**CONSUMER, "durable_name": name, "name": name, "ack_policy": name}
        folder.create_consumer(ConsumerMeta(name, config), ConsumerState(), time.time_ns())
    for turn in range(ROUNDS):
        async with official(tmp_path) as server:
            for name in ("explicit", "all"):
                messages = await server.fetch("S", name, 10)
                assert messages[0].data == b"%d" % (turn * 10)
                for index in (0, 1, 4):
                    await server.answer(messages[index])
            truth = await official_truth(server, "S")
        _, store, _ = folder.open(time.time_ns())
        assert our_truth(folder, store) == truth
        store.close()
        for consumer in folder.consumers()[0]:
            state = consumer.state
            assert len(state.pending) == {"explicit": 7, "all": 5}[consumer.meta.name]
            state.pending.clear()
            state.ack_floor = state.delivered
            folder.states.mark(consumer.meta.name, state)
        folder.states.commit(time.time_ns() + SECOND)
