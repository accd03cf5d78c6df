"""SHA-256 with and without the instructions of the processor, and BLAKE3, against others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from random import Random

import pytest
from blake3 import blake3

from tradewind.store.format.chain_hash import chain_digest, use_sha_instructions

SHA256, BLAKE3 = 1, 2
LENGTHS = [*range(301), 1023, 1024, 1025, 2048, 2049, 3071, 3072, 3073, 7000, 65_537, 1 << 20]


@pytest.fixture(params=[True, False], ids=["instructions", "portable"])
def is_quick(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Both ways; where the processor has no such instructions they are the same one."""
    yield use_sha_instructions(request.param)
    use_sha_instructions(wanted=True)


def test_every_length_of_sha256_is_that_of_hashlib(is_quick: bool) -> None:
    chance = Random(1)
    for length in LENGTHS:
        data = chance.randbytes(length)
        assert chain_digest(SHA256, data) == hashlib.sha256(data).digest(), (length, is_quick)


def test_every_length_of_blake3_is_that_of_the_reference() -> None:
    chance = Random(2)
    for length in LENGTHS:
        data = chance.randbytes(length)
        assert chain_digest(BLAKE3, data) == blake3(data).digest(), length


@pytest.mark.parametrize("algorithm", [SHA256, BLAKE3])
def test_pieces_hash_as_if_they_lay_side_by_side(algorithm: int, is_quick: bool) -> None:
    chance = Random(3)
    for _ in range(200):
        pieces = [chance.randbytes(chance.choice((0, 1, 31, 63, 64, 65, 200))) for _ in range(9)]
        whole = chain_digest(algorithm, b"".join(pieces))
        assert chain_digest(algorithm, *pieces) == whole, is_quick
