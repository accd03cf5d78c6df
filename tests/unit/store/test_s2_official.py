"""Compressed blocks between us and nats-server: each reads what the other wrote."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest

from harness import ServerProcess
from tradewind.store.format.hash import key_for
from tradewind.store.format.s2 import decode_block, encode_block, is_compressed, salvage_block

STREAM = "PACKED"
SUBJECT = "packed.data"
HEADER_BIT = 1 << 31
BLOCK_BYTES = 8 << 20
WAIT_SECONDS = 20


def bodies() -> list[bytes]:
    """Two blocks of text and then two of noise, so that every kind of chunk occurs."""
    source = random.Random(7)
    words = [source.randbytes(source.randint(2, 9)).hex().encode() for _ in range(800)]
    text = [b" ".join(source.choices(words, k=700)) for _ in range(1800)]
    zeros = [bytes(size) for size in range(20_000, 20_050)]
    return [*text, *zeros, *(source.randbytes(8000) for _ in range(2100))]


def records(block: bytes, number: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Sequence, header and payload of each record, after its checksum was compared."""
    key, position = key_for(f"{STREAM}-{number}"), 0
    while position < len(block):
        (size,) = struct.unpack_from("<I", block, position)
        has_header, size = bool(size & HEADER_BIT), size & ~HEADER_BIT
        record = block[position : position + size]
        assert len(record) == size >= 30
        sequence, _, subject_size = struct.unpack_from("<QqH", record, 4)
        rest, header_size = 22 + subject_size, 0
        if has_header:
            (header_size,) = struct.unpack_from("<I", record, rest)
            rest += 4
        parts = [record[4:20], record[22 : 22 + subject_size], record[rest:-8]]
        assert key.hash_parts(parts) == record[-8:], f"record {sequence} of block {number}"
        assert parts[1] == SUBJECT.encode()
        yield sequence, record[rest : rest + header_size], record[rest + header_size : -8]
        position += size


def block_files(folder: Path) -> dict[int, Path]:
    messages = folder / "jetstream" / "$G" / "streams" / STREAM / "msgs"
    return {int(path.stem): path for path in sorted(messages.glob("*.blk"))}


def head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(24)


def plain_blocks(folder: Path) -> dict[int, bytes]:
    """All blocks of the stream by number, unpacked where necessary."""
    content = {number: path.read_bytes() for number, path in block_files(folder).items()}
    return {
        number: decode_block(data) if is_compressed(data[:24]) else data
        for number, data in content.items()
    }


def start(folder: Path) -> ServerProcess:
    args = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(folder)]
    return ServerProcess("official", args).wait_ready()


async def fill(server: ServerProcess) -> None:
    client = await nats.connect(server.url)
    config = {"name": STREAM, "subjects": ["packed.>"], "storage": "file", "compression": "s2"}
    reply = await client.request(f"$JS.API.STREAM.CREATE.{STREAM}", json.dumps(config).encode())
    assert "error" not in json.loads(reply.data), reply.data
    stream = client.jetstream()
    for index, body in enumerate(bodies()):
        headers = {"Index": str(index)} if index % 5 == 0 else None
        await client.publish(SUBJECT, body, headers=headers)
        if index % 50 == 0:
            await client.flush()
    deadline = time.monotonic() + WAIT_SECONDS
    while (await stream.stream_info(STREAM)).state.messages < len(bodies()):
        assert time.monotonic() < deadline
    await client.close()


def wait_until_compressed(folder: Path) -> None:
    """The server packs a block in the background once there is a newer one."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        full = list(block_files(folder).values())[:-1]
        if full and all(is_compressed(head(path)) for path in full):
            return
        assert time.monotonic() < deadline, [head(path) for path in full]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that the official server wrote and closed."""
    folder = tmp_path_factory.mktemp("store")
    server = start(folder)
    try:
        asyncio.run(fill(server))
        wait_until_compressed(folder)
    finally:
        server.stop()
    return folder


@pytest.mark.slow
@pytest.mark.xdist_group("s2_official")
def test_blocks_of_the_official_server_are_read_to_the_last_record(store: Path) -> None:
    found = [
        record for number, block in plain_blocks(store).items() for record in records(block, number)
    ]
    expected = bodies()
    assert [sequence for sequence, _, _ in found] == list(range(1, len(expected) + 1))
    assert [body for _, _, body in found] == expected
    assert found[5][1] == b"NATS/1.0\r\nIndex: 5\r\n\r\n"
    compressed = [path for path in block_files(store).values() if is_compressed(head(path))]
    assert len(compressed) >= 3


@pytest.mark.slow
@pytest.mark.xdist_group("s2_official")
def test_damage_in_an_official_block_costs_only_the_records_it_hits(store: Path) -> None:
    path = block_files(store)[1]
    whole = decode_block(path.read_bytes())
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 0x10
    salvaged, error = salvage_block(bytes(damaged))
    assert error is not None
    assert len(salvaged) == len(whole)
    different = [index for index in range(len(whole)) if whole[index] != salvaged[index]]
    assert different
    assert different[-1] - different[0] < 1 << 20


@pytest.mark.slow
@pytest.mark.xdist_group("s2_official")
async def test_the_official_server_serves_blocks_that_we_compressed(
    store: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(store, folder)
    full = list(block_files(folder).items())[:-1]
    for _, path in full:
        official = path.read_bytes()
        ours = encode_block(decode_block(official))
        assert len(ours) < len(official) * 1.15
        path.write_bytes(ours)
        (path.parent / "index.db").unlink(missing_ok=True)
    server = start(folder)
    try:
        client = await nats.connect(server.url)
        stream = client.jetstream()
        for sequence, body in enumerate(bodies(), 1):
            message = await stream.get_msg(STREAM, sequence)
            assert message.data == body, sequence
        await client.close()
    finally:
        server.stop()
    assert "corrupt" not in server.log.lower()
