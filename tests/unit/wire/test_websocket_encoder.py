"""Writing WebSocket frames."""

from __future__ import annotations

import os
import zlib

import pytest

from tradewind.wire.websocket import COMPRESS_BYTES_MIN, FrameEncoder
from websocket_frames import BINARY, CLOSE, PING, PONG, decode_all, frame, inflate

NOISE = os.urandom(20_000)


def split(raw: bytes) -> list[tuple[int, bytes]]:
    """Unmasked frames as (first byte, payload)."""
    frames = []
    while raw:
        size, start = raw[1], 2
        if size == 126:
            size, start = int.from_bytes(raw[2:4], "big"), 4
        elif size == 127:
            size, start = int.from_bytes(raw[2:10], "big"), 10
        frames.append((raw[0], raw[start : start + size]))
        raw = raw[start + size :]
    return frames


@pytest.mark.parametrize("size", [1, 125, 126, 65535, 65536, 100_000])
def test_bytes_become_one_final_binary_frame_with_the_shortest_length(size: int) -> None:
    data = bytes(index % 256 for index in range(size))
    assert FrameEncoder(False, False).encode(data) == frame(BINARY, data, mask=None)


@pytest.mark.parametrize("compression", [False, True])
def test_no_bytes_give_no_frame(compression: bool) -> None:
    assert FrameEncoder(compression, False).encode(b"") == b""


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_encoded(kind: type) -> None:
    data = b"abc" * 100
    assert split(FrameEncoder(False, False).encode(kind(data))) == [(0x82, data)]
    first, payload = split(FrameEncoder(True, False).encode(kind(data)))[0]
    assert (first, inflate(payload)) == (0xC2, data)


def test_64_bytes_are_not_compressed_and_65_are() -> None:
    encoder = FrameEncoder(True, False)
    assert split(encoder.encode(b"a" * 64)) == [(0x82, b"a" * 64)]
    [(first, payload)] = split(encoder.encode(b"a" * 65))
    assert first == 0xC2
    assert inflate(payload) == b"a" * 65


def test_what_does_not_get_smaller_is_sent_as_it_is() -> None:
    assert split(FrameEncoder(True, False).encode(NOISE)) == [(0x82, NOISE)]


def test_nothing_is_compressed_unless_negotiated() -> None:
    assert split(FrameEncoder(False, False).encode(b"a" * 1000)) == [(0x82, b"a" * 1000)]


@pytest.mark.parametrize("size", [4095, 4096, 4097, 8192, 20_000])
def test_browser_gets_messages_of_at_most_4096_bytes(size: int) -> None:
    frames = split(FrameEncoder(False, True).encode(NOISE[:size]))
    assert {first for first, _ in frames} == {0x82}
    assert max(len(payload) for _, payload in frames) <= 4096
    assert len(frames) == -(-size // 4096)
    assert b"".join(payload for _, payload in frames) == NOISE[:size]


def test_browser_gets_a_compressed_message_in_fragments() -> None:
    data = NOISE.hex().encode()
    frames = split(FrameEncoder(True, True).encode(data))
    assert [first for first, _ in frames] == [0x42, *[0x00] * (len(frames) - 2), 0x80]
    assert max(len(payload) for _, payload in frames) <= 4096
    assert inflate(b"".join(payload for _, payload in frames)) == data


def test_small_compressed_message_for_a_browser_is_one_frame() -> None:
    [(first, payload)] = split(FrameEncoder(True, True).encode(b"a" * 1000))
    assert first == 0xC2
    assert inflate(payload) == b"a" * 1000


def test_safari_gets_a_compressed_message_in_one_frame() -> None:
    data = NOISE.hex().encode()
    [(first, payload)] = split(FrameEncoder(True, True, fragment_compressed=False).encode(data))
    assert first == 0xC2
    assert inflate(payload) == data


@pytest.mark.parametrize("window_bits", [9, 12])
def test_smaller_window_is_kept_to(window_bits: int) -> None:
    data = NOISE.hex().encode()
    [(_, payload)] = split(FrameEncoder(True, False, window_bits=window_bits).encode(data))
    assert zlib.decompressobj(-window_bits).decompress(payload + b"\0\0\xff\xff") == data


@pytest.mark.parametrize("window_bits", [8, 16])
def test_window_that_zlib_cannot_keep_to_is_refused(window_bits: int) -> None:
    with pytest.raises(ValueError, match="window_bits"):
        FrameEncoder(True, False, window_bits=window_bits)


def test_client_masks_each_frame_with_its_own_mask() -> None:
    masks = iter([b"\x01\x02\x03\x04", b"\xaa\xbb\xcc\xdd"])
    encoder = FrameEncoder(False, False, mask=True, mask_source=lambda size: next(masks))
    assert encoder.encode(b"hello") == frame(BINARY, b"hello", mask=b"\x01\x02\x03\x04")
    assert encoder.encode_control(PING, b"x") == frame(PING, b"x", mask=b"\xaa\xbb\xcc\xdd")


def test_masked_browser_frames_decode() -> None:
    encoder = FrameEncoder(True, True, mask=True, mask_source=os.urandom)
    data = NOISE.hex().encode() + b"tail"
    decoded = decode_all(encoder.encode(data), require_mask=True, compression=True, limit=1 << 20)
    assert decoded.data == data


def test_masking_needs_a_source_of_masks() -> None:
    with pytest.raises(ValueError, match="mask_source"):
        FrameEncoder(False, False, mask=True)


@pytest.mark.parametrize("given", [b"", b"abc", b"abcde"])
def test_mask_of_the_wrong_size_is_refused(given: bytes) -> None:
    encoder = FrameEncoder(False, False, mask=True, mask_source=lambda size: given)
    with pytest.raises(ValueError, match="mask_source"):
        encoder.encode(b"hello")


@pytest.mark.parametrize("opcode", [CLOSE, PING, PONG])
def test_control_frame_is_never_compressed(opcode: int) -> None:
    encoder = FrameEncoder(True, True)
    assert encoder.encode_control(opcode, b"a" * 125) == frame(opcode, b"a" * 125, mask=None)
    assert encoder.encode_control(opcode) == frame(opcode, mask=None)


@pytest.mark.parametrize("opcode", [-1, 0, 1, 2, 7, 11, 256])
def test_other_opcode_is_no_control_frame(opcode: int) -> None:
    with pytest.raises(ValueError, match="opcode"):
        FrameEncoder(False, False).encode_control(opcode)


def test_control_payload_above_125_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="125"):
        FrameEncoder(False, False).encode_control(PING, b"a" * 126)


def test_close_frame_has_code_and_reason() -> None:
    raw = FrameEncoder(False, False).encode_close(1008, "Authentication Failure")
    assert raw == frame(CLOSE, b"\x03\xf0Authentication Failure", mask=None)


def test_close_without_status_is_empty() -> None:
    assert FrameEncoder(False, False).encode_close(1005, "dropped") == frame(CLOSE, mask=None)


@pytest.mark.parametrize("code", [-1, 0, 999, 5000, 65536])
def test_code_that_is_no_close_code_is_refused(code: int) -> None:
    with pytest.raises(ValueError, match="close code"):
        FrameEncoder(False, False).encode_close(code)


def test_long_reason_is_cut_between_characters() -> None:
    encoder = FrameEncoder(False, False)
    [(_, payload)] = split(encoder.encode_close(1002, "a" * 123))
    assert payload[2:] == b"a" * 123
    [(_, payload)] = split(encoder.encode_close(1002, "a" * 124))
    assert payload[2:] == b"a" * 120 + b"..."
    [(_, payload)] = split(encoder.encode_close(1002, "a" + "é" * 100))
    assert payload[2:].decode() == "a" + "é" * 59 + "..."


def test_reason_with_a_lone_surrogate_is_still_sent() -> None:
    [(_, payload)] = split(FrameEncoder(False, False).encode_close(1011, "x\ud800y"))
    assert payload[2:] == b"x?y"


@pytest.mark.parametrize("size", [1, 125, 126, 65535, 65536])
@pytest.mark.parametrize("is_browser", [False, True])
@pytest.mark.parametrize("compression", [False, True])
def test_head_in_front_of_the_data_is_the_frame_or_there_is_none(
    size: int, is_browser: bool, compression: bool
) -> None:
    encoder = FrameEncoder(compression, is_browser)
    data = bytes(size)
    head = encoder.frame_head(size)
    if head is None:
        assert size >= COMPRESS_BYTES_MIN if compression else is_browser and size > 4096
    else:
        assert head + data == encoder.encode(data)


def test_masked_and_empty_frames_have_no_head_of_their_own() -> None:
    assert FrameEncoder(False, False, True, lambda size: bytes(size)).frame_head(5) is None
    assert FrameEncoder(False, False).frame_head(0) is None
