"""The compiled frame decoder, in every chunking, against one that sees the whole input at once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from thoroughness import some
from tradewind.wire.websocket import FrameDecoder, FrameEncoder, WebsocketError
from websocket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Decoded,
    decode_all,
    deflate,
    frame,
)

LIMIT = 2000


def run(decoder: FrameDecoder, raw: bytes, cuts: list[int]) -> Decoded:
    """Feed `raw` cut at these places; after each piece everything that is pending is fetched."""
    result = Decoded()
    places = sorted({min(cut, len(raw)) for cut in cuts} | {0, len(raw)})
    try:
        for start, end in pairwise(places):
            result.data += decoder.feed(raw[start:end])
            result.controls += decoder.take_control()
            while decoder.pending:
                result.data += decoder.feed(b"")
                result.controls += decoder.take_control()
    except WebsocketError as error:
        result.error = (str(error), error.close_code)
        result.controls += decoder.take_control()
    result.closed = decoder.closed
    return result


masks = st.one_of(st.none(), st.binary(min_size=4, max_size=4))
controls = st.builds(
    lambda opcode, payload, mask: frame(opcode, payload, mask=mask),
    st.sampled_from([PING, PONG]),
    st.binary(max_size=125),
    masks,
)
closes = st.builds(
    lambda code, text, mask: frame(CLOSE, code.to_bytes(2, "big") + text, mask=mask),
    st.integers(0, 65535) | st.sampled_from([1000, 1001, 3000, 4999]),
    st.binary(max_size=10) | st.just("größe".encode()),
    masks,
)
anything = st.builds(
    lambda opcode, payload, final, reserved, mask, length_bytes: frame(
        opcode, payload, final=final, reserved=reserved, mask=mask, length_bytes=length_bytes
    ),
    st.integers(0, 15),
    st.binary(max_size=125),
    st.booleans(),
    st.integers(0, 7),
    masks,
    st.sampled_from([None, 2, 8]),
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A valid message in some frames, maybe compressed, maybe with control frames in between."""
    data = draw(st.binary(max_size=300) | st.builds(lambda n: b"ab" * n, st.integers(0, 1500)))
    compressed = draw(st.booleans())
    payload = deflate(data) if compressed else data
    cuts = sorted(draw(st.lists(st.integers(0, len(payload)), max_size=4)))
    pieces = [payload[start:end] for start, end in pairwise([0, *cuts, len(payload)])]
    raw = b""
    for index, piece in enumerate(pieces):
        raw += frame(
            CONTINUATION if index else draw(st.sampled_from([TEXT, BINARY])),
            piece,
            final=index == len(pieces) - 1,
            reserved=4 if compressed and index == 0 else 0,
            mask=draw(masks),
            length_bytes=draw(st.sampled_from([None, 8])),
        )
        raw += b"".join(draw(st.lists(controls, max_size=2)))
    return raw


conversations = st.lists(messages() | controls | closes | anything, max_size=6).map(b"".join)
chunkings = st.lists(st.integers(0, 4000), max_size=30) | st.just(list(range(10_000)))


def check(raw: bytes, cuts: list[int], require_mask: bool, compression: bool) -> None:
    model = decode_all(raw, require_mask=require_mask, compression=compression, limit=LIMIT)
    actual = run(FrameDecoder(LIMIT, require_mask, compression), raw, cuts)
    if model.error == ("compressed message is corrupt", 1007):
        # How much of a corrupt message comes out before the fault depends on the chunks.
        assert actual.data.startswith(model.data)
        actual.data = model.data
    assert actual == model


@pytest.mark.slow
@settings(max_examples=some(100, 300), deadline=None)
@given(conversations, chunkings, st.booleans(), st.booleans())
def test_every_chunking_gives_what_the_whole_input_means(
    raw: bytes, cuts: list[int], require_mask: bool, compression: bool
) -> None:
    check(raw, cuts, require_mask, compression)


@pytest.mark.slow
@settings(max_examples=some(100, 300), deadline=None)
@given(conversations, st.integers(0, 2000), st.integers(0, 255), chunkings, st.booleans())
def test_one_changed_byte_gives_what_the_whole_input_means(
    raw: bytes, place: int, byte: int, cuts: list[int], require_mask: bool
) -> None:
    changed = bytearray(raw)
    if place < len(changed):
        changed[place] = byte
    check(bytes(changed), cuts, require_mask, compression=True)


@pytest.mark.slow
@settings(max_examples=some(150, 500), deadline=None)
@given(st.binary(max_size=400), chunkings, st.booleans(), st.booleans())
@example(b"\x82\xff" + b"\xff" * 12, [], True, False)
@example(b"\xc2\x00", [], False, True)
def test_arbitrary_bytes_give_bytes_or_a_websocket_error(
    raw: bytes, cuts: list[int], require_mask: bool, compression: bool
) -> None:
    check(raw, cuts, require_mask, compression)


@pytest.mark.slow
@settings(max_examples=some(70, 200), deadline=None)
@given(
    st.lists(
        st.binary(max_size=200) | st.builds(lambda n: b"xyz" * n, st.integers(0, 600)), max_size=5
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(9, 15),
    chunkings,
)
def test_what_the_encoder_makes_the_decoder_reads(
    parts: list[bytes],
    compression: bool,
    is_browser: bool,
    mask: bool,
    fragment_compressed: bool,
    window_bits: int,
    cuts: list[int],
) -> None:
    encoder = FrameEncoder(
        compression,
        is_browser,
        mask,
        lambda size: b"\x9c\x01\xfe\x40"[:size],
        fragment_compressed=fragment_compressed,
        window_bits=window_bits,
    )
    raw = b"".join(encoder.encode(part) for part in parts)
    result = run(FrameDecoder(LIMIT, mask, compression), raw, cuts)
    assert result == Decoded(b"".join(parts))
