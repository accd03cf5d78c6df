"""The compiled S2 codec against the slow decoder of s2_frames: built, cut and damaged streams."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from s2_frames import (
    S2_IDENTIFIER,
    SNAPPY_IDENTIFIER,
    RefusedError,
    chunk,
    copy1,
    copy2,
    copy4,
    literal,
    packed,
    raw,
    repeat,
    slow_decompress,
    slow_elements,
)
from thoroughness import some
from tradewind.store.format.s2 import (
    Compressor,
    Decompressor,
    S2Error,
    compress,
    decode_block,
    decompress,
    encode_block,
    salvage_block,
)

LIMIT = 3000
MUTATIONS = some(60_000, 4_000_000)

literals = st.one_of(
    st.builds(literal, st.binary(min_size=1, max_size=60)),
    st.builds(literal, st.binary(min_size=1, max_size=100), st.integers(1, 4)),
)
copies = st.one_of(
    st.builds(copy1, st.integers(1, 60) | st.integers(0, 2047), st.integers(4, 11)),
    st.builds(copy2, st.integers(1, 60) | st.integers(0, 65535), st.integers(1, 64)),
    st.builds(copy4, st.integers(1, 60) | st.integers(0, 0xFFFFFFFF), st.integers(1, 64)),
    st.builds(repeat, st.integers(4, 300) | st.integers(4, 100_000)),
)
element_lists = st.lists(literals | copies, max_size=12)


def outcome(decoder: Callable[..., bytes], *arguments: object) -> bytes | None:
    """What `decoder` returns; None if it refuses the data. Anything else raised is a failure."""
    try:
        return decoder(*arguments)
    except (RefusedError, S2Error):
        return None


def sized(elements: list[bytes]) -> bytes:
    """A packed chunk of as many of these elements as make sense one after the other."""
    kept = b""
    for element in elements:
        if outcome(slow_elements, kept + element, LIMIT) is not None:
            kept += element
    return packed(kept, slow_elements(kept, LIMIT))


chunks = st.one_of(
    st.builds(sized, st.lists(literals | copies, min_size=1, max_size=4)),
    st.builds(packed, st.builds(b"".join, element_lists), st.binary(max_size=20)),
    st.builds(raw, st.binary(max_size=50)),
    st.builds(chunk, st.integers(0x80, 0xFE), st.binary(max_size=20)),
    st.builds(chunk, st.integers(0, 255), st.binary(max_size=20)),
)
streams = st.builds(
    lambda identifier, parts: identifier + b"".join(parts),
    st.sampled_from([S2_IDENTIFIER, S2_IDENTIFIER, SNAPPY_IDENTIFIER, b""]),
    st.lists(chunks, max_size=4),
)
chunkings = st.lists(st.integers(0, 400), max_size=8) | st.just(list(range(400)))


def fed(data: bytes, cuts: list[int], size_limit: int) -> bytes:
    """`data` decoded in these pieces."""
    decoder, result = Decompressor(size_limit), b""
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, end in pairwise(places):
        result += decoder.feed(data[start:end])
        while decoder.pending:
            result += decoder.feed(b"")
    decoder.finish()
    return result


def salvaged(data: bytes, size_limit: int) -> bytes:
    return salvage_block(data, size_limit)[0]


def check(data: bytes, cuts: list[int], size_limit: int) -> None:
    expected = outcome(slow_decompress, data, size_limit)
    assert outcome(decompress, data, size_limit) == expected
    assert outcome(fed, data, cuts, size_limit) == expected


@given(streams, chunkings, st.integers(0, LIMIT))
def test_built_streams_mean_the_same_to_both_decoders(
    data: bytes, cuts: list[int], size_limit: int
) -> None:
    check(data, cuts, size_limit)


@given(streams, st.integers(0, 400), st.integers(0, 255), chunkings)
def test_one_changed_byte_means_the_same_to_both_decoders(
    data: bytes, place: int, byte: int, cuts: list[int]
) -> None:
    changed = bytearray(data)
    if place < len(changed):
        changed[place] = byte
    check(bytes(changed), cuts, LIMIT)


@pytest.mark.slow
@given(st.binary(max_size=300), chunkings)
@example(b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", [])
def test_arbitrary_bytes_mean_the_same_to_both_decoders(tail: bytes, cuts: list[int]) -> None:
    check(tail, cuts, LIMIT)
    check(S2_IDENTIFIER + tail, cuts, LIMIT)


contents = st.one_of(
    st.binary(max_size=300),
    st.builds(
        b"".join, st.lists(st.sampled_from([b"a", b"bcd", b"efghijk", bytes(70)]), max_size=80)
    ),
    st.builds(lambda part, count: part * count, st.binary(max_size=40), st.integers(0, 200)),
)


@given(st.lists(contents, max_size=4), chunkings)
def test_what_is_encoded_is_read_by_both_decoders(parts: list[bytes], cuts: list[int]) -> None:
    whole, encoder = b"".join(parts), Compressor()
    written = b"".join(encoder.write(part) + encoder.flush() for part in parts)
    for data in (compress(whole), written):
        assert slow_decompress(data, len(whole)) == whole
        assert decompress(data, len(whole)) == whole
        assert fed(data, cuts, len(whole)) == whole


@given(contents.filter(lambda content: len(content) >= 8), st.data())
def test_a_damaged_block_is_refused_and_salvaged_within_its_limit(
    plain: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(encode_block(plain))
    place = data.draw(st.integers(0, len(damaged) - 1))
    damaged[place] ^= data.draw(st.integers(1, 255))
    damaged = damaged[: data.draw(st.just(len(damaged)) | st.integers(0, len(damaged)))]
    whole = outcome(decode_block, bytes(damaged), LIMIT)
    assert whole is None or len(whole) == len(plain)
    # Only the raw checksum at the end has nothing in the format to protect it.
    assert whole is None or whole[:-8] == plain[:-8]
    rest = outcome(salvaged, bytes(damaged), LIMIT)
    assert rest is None or len(rest) <= LIMIT + 8


@pytest.mark.slow
def test_random_damage_never_does_more_than_an_error() -> None:
    source = random.Random(2)
    text = b"".join(b'{"id":%d,"name":"n%d"}' % (n, n % 13) for n in range(60))
    seeds = [
        compress(text),
        compress(bytes(500) + text[:300] + bytes(500)),
        S2_IDENTIFIER + packed(literal(b"abcdefghijklmnop") + copy2(16, 64) + repeat(300), b"") * 3,
        S2_IDENTIFIER + raw(source.randbytes(100)) + compress(text[:200]),
    ]
    blocks = [encode_block(text), encode_block(source.randbytes(200) + text)]
    for number in range(MUTATIONS):
        is_block = number % 4 == 0
        data = bytearray(source.choice(blocks if is_block else seeds))
        for _ in range(source.choice((1, 1, 2, 4, 20))):
            place = source.randrange(len(data))
            match source.randrange(4):
                case 0:
                    data[place] = source.randrange(256)
                case 1:
                    data[place] ^= 1 << source.randrange(8)
                case 2:
                    del data[place : place + source.randrange(1, 4)]
                case _:
                    data[place:place] = source.randbytes(source.randrange(1, 4))
            if not data:
                break
        damaged = bytes(data)
        if is_block:
            outcome(decode_block, damaged, 100_000)
            outcome(salvaged, damaged, 100_000)
        else:
            outcome(decompress, damaged, 100_000)
            outcome(fed, damaged, list(range(0, len(damaged), source.randrange(1, 200))), 100_000)
