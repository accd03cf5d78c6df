"""A tombstone of sequence 0, which is how our marks look, means nothing to nats-server anywhere."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop_kit import official, official_truth
from our_streams import CONFIG
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.stream_folder import StreamFolder
from tradewind.store.format.hash import key_for
from tradewind.store.format.layout import TOMBSTONE_BIT, block_key_text
from tradewind.store.format.meta import StreamMeta

NOW = time.time_ns()
# What each block holds: "m" is the next message, "t" the tombstone of the last one, "x" a mark.
PLACES = {
    "start": {1: "xmm"},
    "middle": {1: "mxm"},
    "end": {1: "mmx"},
    "everywhere": {1: "xmxxmx", 2: "xmmx", 3: "xmx"},
    "alone": {1: "x"},
    "alone-in-last": {1: "mm", 2: "x"},
    "before-tombstone": {1: "mm", 2: "xt"},
    "behind-tombstone": {1: "mm", 2: "tx"},
    "only-tombstone-left": {5: "tx"},
    "only-tombstone-left-before": {5: "xt"},
    "high-block": {7: "xmm"},
}


def record(stream: str, number: int, sequence: int, time_ns: int, subject: bytes = b"") -> bytes:
    hashed = struct.pack("<Qq", sequence, time_ns)
    checksum = key_for(block_key_text(stream, number)).hash(hashed + subject)
    length = struct.pack("<I", 30 + len(subject))
    return length + hashed + struct.pack("<H", len(subject)) + subject + checksum


def blocks(stream: str, places: dict[int, str], *, marks: bool) -> Iterator[tuple[int, bytes]]:
    last = 0
    for number, kinds in places.items():
        data = b""
        for kind in kinds:
            if kind == "m":
                last += 1
                data += record(stream, number, last, NOW + last, f"{stream}.a".encode())
            elif kind == "t":
                data += record(stream, number, TOMBSTONE_BIT | (last or 99), NOW)
            elif marks:
                # The kind of a mark is in the highest byte of its time.
                data += record(stream, number, TOMBSTONE_BIT, 3 << 56 | number << 32 | len(data))
        yield number, data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each shape twice: with marks in it and without."""
    root = tmp_path_factory.mktemp("marks")
    disk = OsDisk(str(root))
    for index, places in enumerate(PLACES.values()):
        for marks in (False, True):
            name = f"{'MARKED' if marks else 'PLAIN'}{index}"
            stream = StreamFolder(disk, str(root), "$G", name)
            stream.create(StreamMeta({**CONFIG, "name": name, "subjects": [f"{name}.>"]}, NOW))
            for number, data in blocks(name, places, marks=marks):
                Path(stream.path, "msgs", f"{number}.blk").write_bytes(data)
    return root


async def test_marked_blocks_are_read_like_blocks_without_marks(folder: Path) -> None:
    for _ in range(2):  # the second time after a restart with new messages
        async with official(folder) as server:
            for index, place in enumerate(PLACES):
                plain = await official_truth(server, f"PLAIN{index}")
                marked = await official_truth(server, f"MARKED{index}")
                assert list(plain.content) == list(marked.content), place
                assert plain.deleted == marked.deleted, place
                assert (plain.first_seq, plain.last_seq) == (marked.first_seq, marked.last_seq), (
                    place
                )
                for name in (f"PLAIN{index}", f"MARKED{index}"):
                    assert await server.publish(f"{name}.b", b"x") == plain.last_seq + 1, place
        assert server.complaints() == []
