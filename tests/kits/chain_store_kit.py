"""A stream in a store folder with its chain, and blocks rewritten with valid checksums."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from chain_kit import ReferenceChain, Stored
from tradewind.api.times import format_time
from tradewind.store.files.disk import OsDisk
from tradewind.store.files.vault import MainKeyRing
from tradewind.store.folder.stream_folder import StoreRoot
from tradewind.store.format.hash import key_for
from tradewind.store.format.layout import INDEX_FILE, block_key_text
from tradewind.store.format.meta import StreamMeta

CREATED_NS = 1_700_000_000_123_456_000
ACCOUNT = "$G"


def stored_chain(count: int, every: int = 5) -> ReferenceChain:
    """Messages 1 to `count`; each tenth is removed again, and 3 more are missing as a gap."""
    from chain_kit import stored

    chain = ReferenceChain(created=format_time(CREATED_NS))
    for sequence in range(1, count + 1):
        chain.add(stored(sequence))
        if sequence % 10 == 0:
            chain.remove((sequence - 1, sequence - 1))
        if sequence % every == 0:
            chain.checkpoint()
    return chain


def write_store(path: Path, chain: ReferenceChain, ring: MainKeyRing | None = None) -> Path:
    """The stream with all messages of the chain, in order; gives the folder of the stream."""
    root = StoreRoot(OsDisk(str(path)), str(path), ring)
    folder = root.stream(ACCOUNT, chain.stream)
    folder.create(StreamMeta({"name": chain.stream, "subjects": ["orders.>"]}, CREATED_NS))
    _, store, _ = folder.open(CREATED_NS)
    everything = {**chain.gone, **chain.live}
    for sequence in sorted(everything):
        message = everything[sequence]
        if sequence > store.table.last_seq + 1:
            store.table.skip(sequence - 1, message.time_ns)
        store.table.store(message.subject, message.header, message.payload, message.time_ns)
    for sequence in chain.gone:
        store.table.remove(sequence, erase=True)
    store.close()
    root.close()
    place = Path(folder.path)
    chain.write(place / "chain")
    return place


def block_record(message: Stored, stream: str, block: int = 1) -> bytes:
    """A record as the store writes it, with the checksum of what it holds."""
    header = message.header
    length = 22 + len(message.subject) + len(message.payload) + 8
    length += 4 + len(header) if header else 0
    numbers = struct.pack("<Qq", message.sequence, message.time_ns)
    checksum = key_for(block_key_text(stream, block)).hash_parts(
        [numbers, message.subject, header, message.payload]
    )
    head = struct.pack("<I", length | (1 << 31 if header else 0)) + numbers
    head += struct.pack("<H", len(message.subject)) + message.subject
    if header:
        head += struct.pack("<I", len(header)) + header
    return head + message.payload + checksum


def rewrite_block(folder: Path, stream: str, messages: Iterable[Stored]) -> None:
    """Write the only block of a stream, like an attacker who knows the format."""
    ordered = sorted(messages, key=lambda message: message.sequence)
    data = b"".join(block_record(message, stream) for message in ordered)
    (folder / "msgs/1.blk").write_bytes(data)
    (folder / "msgs" / INDEX_FILE).unlink(missing_ok=True)
