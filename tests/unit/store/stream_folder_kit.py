"""Folders of streams on a simulated disk."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tradewind.store.folder.stream_folder import StreamFolder
from tradewind.store.format.consumer_file import ConsumerState, PendingDelivery, SequencePair
from tradewind.store.format.meta import ConsumerMeta, StreamMeta
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk

ROOT = "/disk"
NOW = 1_800_000_000_000_000_000
OLD = StreamMeta({"name": "S", "subjects": ["a"]}, NOW)
NEW = StreamMeta({"name": "S", "subjects": ["a", "b"], "max_msgs": 5}, NOW)
CONSUMER = ConsumerMeta("C", {"durable_name": "C", "ack_policy": "explicit"}, NOW)
CRASHES = 30
Judge = Callable[[SimulatedDisk, bool], None]


def folder_on(disk: SimulatedDisk) -> StreamFolder:
    return StreamFolder(disk, ROOT, "$G", "S")


def made() -> SimulatedDisk:
    disk = SimulatedDisk()
    folder_on(disk).create(OLD)
    return disk


def made_with_consumer() -> SimulatedDisk:
    disk = made()
    folder_on(disk).create_consumer(CONSUMER, state_at(1), NOW)
    return disk


def state_at(seq: int) -> ConsumerState:
    at = SequencePair(seq, seq)
    pending = {number: PendingDelivery(number, NOW) for number in range(seq + 1, seq + 4)}
    return ConsumerState(SequencePair(seq + 3, seq + 3), at, pending, {seq + 1: 2})


def crash_everywhere(
    prepare: Callable[[], SimulatedDisk], act: Callable[[SimulatedDisk], None], judge: Judge
) -> None:
    """Cut the power before each step of `act` and after the last; judge what is left each time."""
    disk = prepare()
    before = disk.steps
    act(disk)
    total = disk.steps
    assert total > before
    for stop_at in range(before + 1, total + 2):
        disk = prepare()
        disk.stop_at = stop_at
        with suppress(PowerLoss):
            act(disk)
        for seed in range(CRASHES):
            judge(disk.crash(seed), stop_at > total)
