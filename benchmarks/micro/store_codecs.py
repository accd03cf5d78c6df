"""How long the hash and S2 of `tradewind.store.format` take for one record or one KiB."""

import functools
import json
import random
import struct
from collections.abc import Callable
from typing import Any

from benchmarks.micro.registry import Operation, micro

BLOCK_BYTES = 1 << 20
TEXT_BYTES = 4 << 20
START_NS = 1_700_000_000_000_000_000


def _scan(payload_bytes: int) -> Operation:
    """Checks all records of a block; one operation is one record."""
    from benchmarks.micro.store_probes import check_records
    from tradewind.store.format.hash import key_for

    source, key, records = random.Random(1), key_for("ORDERS-1"), []
    for seq in range(1, BLOCK_BYTES // payload_bytes):
        stamp = struct.pack("<Qq", seq, START_NS + seq)
        subject, payload = b"orders.eu.%06d" % seq, source.randbytes(payload_bytes)
        size = 22 + len(subject) + len(payload) + 8
        sizes = struct.pack("<I", size), struct.pack("<H", len(subject))
        checksum = key.hash_parts([stamp, subject, payload])
        records.append(b"".join([sizes[0], stamp, sizes[1], subject, payload, checksum]))
    return functools.partial(check_records, key, b"".join(records))


def _text() -> bytes:
    """Orders as JSON, each different from the one before in a few places."""
    source, lines, size = random.Random(2), [], 0
    while size < TEXT_BYTES:
        order = {
            "order": source.randrange(10**9),
            "customer": f"c-{source.randrange(5000)}",
            "state": source.choice(["created", "paid", "sent"]),
            "total": round(source.random() * 1000, 9),
        }
        line = json.dumps(order).encode()
        lines.append(line)
        size += len(line)
    return b"".join(lines)[:TEXT_BYTES]


def _repeat(work: Callable[[], Any], repetitions: int) -> int:
    for _ in range(repetitions):
        work()
    return repetitions * (TEXT_BYTES // 1024)


@micro("hash-record-16", "checksum of a record with 16 B")
def hash_16() -> Operation:
    """Nearly all of it is the finish."""
    return _scan(16)


@micro("hash-record-128", "checksum of a record with 128 B")
def hash_128() -> Operation:
    """The usual small message."""
    return _scan(128)


@micro("hash-record-1k", "checksum of a record with 1 KiB")
def hash_1k() -> Operation:
    """The rate at which recovery reads."""
    return _scan(1024)


@micro("s2-encode-text", "1 KiB of JSON compressed")
def encode_text() -> Operation:
    """What a full block costs in the background."""
    from tradewind.store.format.s2 import compress

    return functools.partial(_repeat, functools.partial(compress, _text()))


@micro("s2-decode-text", "1 KiB of JSON decompressed")
def decode_text() -> Operation:
    """What opening a compressed block costs."""
    from tradewind.store.format.s2 import compress, decompress

    packed = compress(_text())
    return functools.partial(_repeat, functools.partial(decompress, packed, TEXT_BYTES))


@micro("s2-encode-noise", "1 KiB of random bytes found incompressible")
def encode_noise() -> Operation:
    """Compressing what was compressed before."""
    from tradewind.store.format.s2 import compress

    return functools.partial(
        _repeat, functools.partial(compress, random.Random(3).randbytes(TEXT_BYTES))
    )
