"""A message stays where it is read from until it is sent, whatever the store does meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumer_kit import Client, World
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.recover import open_store

SIZE = 3000


def payload(seq: int) -> bytes:
    return b"%08d" % seq * (SIZE // 8)


@pytest.mark.parametrize("compresses", [False, True])
def test_counting_what_is_left_does_not_take_the_message_away(
    tmp_path: Path, compresses: bool
) -> None:
    """The counting loads other blocks, and there is memory for one of them."""
    disk = OsDisk(str(tmp_path))
    disk.make_directory(f"{disk.root}/S")
    world = World()
    files, _ = open_store(
        disk,
        f"{disk.root}/S",
        "S",
        now_ns=0,
        block_bytes_max=16_000,
        index_bytes_max=1,
        compresses=compresses,
    )
    world.store = files.table
    world.store.listener = world.removals
    client = Client(world)
    client.subscribe("inbox")
    consumer = world.consumer(filter_subject="a.*")
    for first in range(1, 500, 100):
        # What was stored since the last message was sent is counted when the next one is.
        for seq in range(first, first + 100):
            world.store.store(b"a.%d" % (seq % 2), b"", payload(seq), seq)
        files.commit()
        for seq in range(first, first + 100):
            client.pull(consumer)
            (frame,) = client.take()
            assert frame.payload == payload(seq)
