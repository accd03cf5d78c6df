"""HighwayHash-64 against published vectors and against checksums that nats-server wrote."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tradewind.store.format.hash import VECTORED, Key, key_for

STREAM_META = (
    rb'{"Created":"2026-11-15T18:07:45.826310608Z","name":"EMPTY","subjects":["empty.\u003e"],'
    rb'"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,'
    rb'"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"old","storage":"file",'
    rb'"num_replicas":1,"duplicate_window":120000000000,"compression":"none",'
    rb'"allow_direct":false,"mirror_direct":false,"sealed":false,"deny_delete":false,'
    rb'"deny_purge":false,"allow_rollup_hdrs":false,"consumer_limits":{},"allow_msg_ttl":false,'
    rb'"metadata":{"_nats.req.level":"0"}}'
).hex()
CONSUMER_META = (
    b'{"Created":"2026-11-15T18:07:45.872094295Z","Name":"CNONE","durable_name":"CNONE",'
    b'"name":"CNONE","deliver_policy":"all","ack_policy":"none","max_deliver":-1,'
    b'"replay_policy":"instant","max_waiting":512,"num_replicas":0,'
    b'"metadata":{"_nats.req.level":"0"}}'
).hex()

# Key text, message, stored hash: all read from files that nats-server 2.15.1 wrote.
REAL = [
    ("EMPTIED-2", "03000000000000409b2d2f513a4ae818", "909edd62d56954cb"),
    ("PURGED-2", "0a00000000000040629e283c3a4ae818", "59c93415ff63624d"),
    ("WQ-1", "0100000000000000b19165503a4ae81877712e6130", "676143166bb9594a"),
    ("LIM-1", "0100000000000000a45a7c513a4ae8186c696d2e6130", "4288e480a3c444c7"),
    ("ATOM-1", "0100000000000000a4fd66523a4ae81861746f6d2e6178", "5738ca5dfc2010ee"),
    ("TINY-1", "0100000000000000481e833b3a4ae81874696e792e61616263", "2bef559901b22aa1"),
    ("PLAIN-1", "0100000000000000de2d133a3a4ae818706c61696e2e6168656c6c6f", "9afcb28a1f4a344f"),
    ("EMPTY", "0b040000000000000001010001000000000000010000000000000000", "ea09ca03d0d24706"),
    (
        "TINY-1",
        "03000000000000000852933b3a4ae81874696e792e6330313233343536373839",
        "bc0b48368b72f3a6",
    ),
    (
        "TINY-1",
        "0200000000000000d7bc8b3b3a4ae81874696e792e624e4154532f312e300d0a4b3a20560d0a0d0a78797a",
        "fde66e35ca2c942c",
    ),
    (
        "PURGED",
        "0b0400000b000ac4f9c4c2c78ea5e831000102000b000ac4f9c4c2c78ea5e8310000000259c93415ff63624d",
        "99498837ee7ca1b7",
    ),
    (
        "TTLS-1",
        (
            "01000000000000007869f14e3a4ae81874746c732e304e4154532f312e300d0a4e6174732d54544c3a"
            "2031730d0a0d0a74"
        ),
        "98b0a43835772a1c",
    ),
    (
        "PLAIN-1",
        (
            "020000000000000011cd1d3a3a4ae818706c61696e2e624e4154532f312e300d0a582d4b3a2076310d"
            "0a4e6174732d4d73672d49643a2069642d310d0a0d0a776f726c6421"
        ),
        "255b6bd13dfd77ec",
    ),
    ("EMPTY", STREAM_META, "9435f0e93943d983"),
    ("PLAIN/CNONE", CONSUMER_META, "546d1e4d0b9fe09b"),
]


@pytest.mark.parametrize(
    ("message", "value"), [(b"", 0x907A56DE22C26E53), (b"\x00", 0x7EAB43AAC7CDDD78)]
)
def test_published_vectors_hold(message: bytes, value: int) -> None:
    key = Key(bytes(range(32)))
    assert int.from_bytes(key.hash(message), "little") == value
    assert int.from_bytes(key.hash_parts_portable([message]), "little") == value


@pytest.mark.parametrize(("text", "message", "stored"), REAL)
def test_checksums_of_real_files_hold(text: str, message: str, stored: str) -> None:
    key, data = key_for(text), bytes.fromhex(message)
    assert key.hash(data).hex() == stored
    assert key.hash_parts([data]).hex() == stored
    assert key.hash_parts_portable([data]).hex() == stored
    assert key.hash_parts([data[:16], data[16:]]).hex() == stored


@pytest.mark.parametrize("size_first", range(0, 601, 25))
def test_both_forms_agree_on_every_length_and_split(size_first: int) -> None:
    source = random.Random(size_first)
    for size in range(size_first, min(size_first + 25, 601)):
        key, data = Key(source.randbytes(32)), source.randbytes(size)
        expected = key.hash_parts_portable([data])
        assert key.hash(data) == expected
        splits = [[16], [16, 36]] + [
            [source.randint(0, size) for _ in range(source.randint(0, 5))] for _ in range(6)
        ]
        for split in splits:
            places = [0, *sorted(min(place, size) for place in split), size]
            parts = [data[start:end] for start, end in pairwise(places)]
            assert key.hash_parts(parts) == expected, (size, places)
            assert key.hash_parts_portable(parts) == expected, (size, places)


def test_every_bit_of_message_and_key_counts() -> None:
    key_bytes, message = bytes(range(100, 132)), bytes(range(71))
    seen = {Key(key_bytes).hash(message)}
    for index in range(71 * 8):
        changed = bytearray(message)
        changed[index // 8] ^= 1 << index % 8
        seen.add(Key(key_bytes).hash(changed))
    for index in range(32 * 8):
        changed = bytearray(key_bytes)
        changed[index // 8] ^= 1 << index % 8
        seen.add(Key(bytes(changed)).hash(message))
    assert len(seen) == 1 + 71 * 8 + 32 * 8


def test_trailing_zero_bytes_are_not_lost_in_the_padding() -> None:
    key = key_for("ORDERS-1")
    assert len({key.hash(bytes(size)) for size in range(200)}) == 200


def test_no_parts_hash_as_the_empty_message() -> None:
    key = key_for("ORDERS-1")
    assert key.hash_parts([]) == key.hash_parts([b"", b""]) == key.hash(b"")
    assert key.hash_parts_portable([]) == key.hash(b"")


def test_any_buffer_is_hashed_where_it_lies() -> None:
    key, data = key_for("ORDERS-1"), bytes(range(200))
    expected = key.hash(data[3:])
    assert key.hash(bytearray(data[3:])) == expected
    assert key.hash(memoryview(data)[3:]) == expected


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"a hash key has 32 bytes, not {size}"):
        Key(bytes(size))


def test_vectors_are_used_exactly_where_the_processor_has_them() -> None:
    with open("/proc/cpuinfo") as facts:
        assert (" avx2" in facts.read()) == VECTORED
