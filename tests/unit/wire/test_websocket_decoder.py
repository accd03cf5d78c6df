"""Reading WebSocket frames: what is accepted, what is refused with which code, what it may cost."""

from __future__ import annotations

import gc
import tracemalloc
import zlib

import pytest

from tradewind.errors import ProtocolError
from tradewind.wire.websocket import (
    CONTROL_FRAMES_MAX,
    INFLATED_BYTES_PER_FEED,
    FrameDecoder,
    WebsocketError,
    close_code_for,
)
from websocket_frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, deflate, frame

MIB = 1024 * 1024
CALL_DEPTH = 10


def server_decoder(limit: int = MIB, *, compression: bool = True) -> FrameDecoder:
    return FrameDecoder(limit, require_mask=True, compression=compression)


def fail(decoder: FrameDecoder, raw: bytes) -> WebsocketError:
    with pytest.raises(WebsocketError) as caught:
        decoder.feed(raw)
    return caught.value


def drain(decoder: FrameDecoder, raw: bytes) -> bytes:
    data = decoder.feed(raw)
    while decoder.pending:
        data += decoder.feed(b"")
    return data


def test_masked_binary_frame_is_unmasked() -> None:
    assert (
        server_decoder().feed(frame(BINARY, b"PING\r\n", mask=b"\x01\x02\x03\x04")) == b"PING\r\n"
    )


def test_text_frame_is_read_like_a_binary_one_even_when_it_is_not_utf8() -> None:
    assert server_decoder().feed(frame(TEXT, b"\xff\xfe")) == b"\xff\xfe"


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 125, 126, 65535, 65536, 200_000])
def test_all_three_forms_of_length_are_read(size: int) -> None:
    payload = bytes(index % 251 for index in range(size))
    assert server_decoder().feed(frame(BINARY, payload)) == payload


@pytest.mark.parametrize("length_bytes", [2, 8])
def test_longer_form_of_length_than_needed_is_read_as_the_official_server_does(
    length_bytes: int,
) -> None:
    assert server_decoder().feed(frame(BINARY, b"abc", length_bytes=length_bytes)) == b"abc"


def test_payload_is_handed_on_before_its_frame_is_complete() -> None:
    decoder = server_decoder()
    raw = frame(BINARY, b"PUB a 5\r\nhello\r\n")
    assert decoder.feed(raw[:10]) == b"PUB "
    assert decoder.feed(raw[10:]) == b"a 5\r\nhello\r\n"


def test_frame_split_at_every_byte_is_read() -> None:
    decoder = server_decoder()
    raw = frame(BINARY, b"x" * 130, length_bytes=8) + frame(PING, b"hi") + frame(BINARY, b"y")
    data = b"".join(decoder.feed(raw[index : index + 1]) for index in range(len(raw)))
    assert data == b"x" * 130 + b"y"
    assert decoder.take_control() == [(PING, b"hi")]


def test_fragments_are_joined_with_control_frames_in_between() -> None:
    decoder = server_decoder()
    data = decoder.feed(
        frame(BINARY, b"PI", final=False)
        + frame(PING, b"hello")
        + frame(CONTINUATION, b"", final=False)
        + frame(PONG, b"")
        + frame(CONTINUATION, b"NG\r\n")
    )
    assert data == b"PING\r\n"
    assert decoder.take_control() == [(PING, b"hello"), (PONG, b"")]
    assert decoder.take_control() == []


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_fed(kind: type) -> None:
    assert server_decoder().feed(kind(frame(BINARY, b"abc"))) == b"abc"


def test_text_is_no_buffer() -> None:
    with pytest.raises(TypeError):
        server_decoder().feed("abc")  # type: ignore[arg-type]


def test_client_decoder_reads_unmasked_frames() -> None:
    decoder = FrameDecoder(MIB, require_mask=False, compression=False)
    assert decoder.feed(frame(BINARY, b"a", mask=None) + frame(BINARY, b"b")) == b"ab"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (frame(BINARY, b"a", mask=None), "mask bit missing"),
        (frame(BINARY, b"a", reserved=2), "RSV2 and RSV3 must be clear"),
        (frame(BINARY, b"a", reserved=1), "RSV2 and RSV3 must be clear"),
        (frame(PING, reserved=4), "control frame must not be compressed"),
        (frame(3), "unknown opcode 3"),
        (frame(7), "unknown opcode 7"),
        (frame(11), "unknown opcode 11"),
        (frame(15), "unknown opcode 15"),
        (frame(PING, final=False), "control frame does not have final bit set"),
        (frame(CLOSE, final=False), "control frame does not have final bit set"),
        (
            frame(PING, b"a" * 126),
            "control frame length bigger than maximum allowed of 125 bytes",
        ),
        (frame(CONTINUATION, b"a"), "invalid continuation frame"),
        (
            frame(BINARY, b"", final=False) + frame(CONTINUATION, b"", reserved=4),
            "invalid continuation frame",
        ),
        (
            frame(BINARY, b"", final=False) + frame(TEXT, b"a"),
            "new message started before final frame for previous message was received",
        ),
        (b"\x82\xff\x80" + bytes(11), "invalid 64-bit payload length"),
        (frame(CLOSE, b"\x03"), "close frame payload cannot be 1 byte"),
    ],
)
def test_violation_closes_with_a_protocol_error(raw: bytes, text: str) -> None:
    error = fail(server_decoder(), raw)
    assert isinstance(error, ProtocolError)
    assert (str(error), error.close_code) == (text, 1002)


def test_compressed_frame_is_refused_when_compression_was_not_negotiated() -> None:
    error = fail(server_decoder(compression=False), frame(BINARY, deflate(b"abc"), reserved=4))
    assert error.close_code == 1002
    assert str(error) == "compressed frame received without negotiated permessage-deflate"


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535])
def test_close_code_that_must_not_be_sent_is_refused(code: int) -> None:
    error = fail(server_decoder(), frame(CLOSE, code.to_bytes(2, "big")))
    assert (str(error), error.close_code) == (f"invalid close status code {code}", 1002)


@pytest.mark.parametrize("code", [1000, 1003, 1007, 1014, 3000, 4999])
def test_valid_close_ends_the_input(code: int) -> None:
    decoder = server_decoder()
    payload = code.to_bytes(2, "big") + "tschüß".encode()
    assert decoder.feed(frame(BINARY, b"last") + frame(CLOSE, payload) + frame(3)) == b"last"
    assert decoder.closed
    assert decoder.feed(b"\xff" * 100) == b""
    assert decoder.take_control() == [(CLOSE, payload)]


def test_close_without_status_is_valid() -> None:
    decoder = server_decoder()
    decoder.feed(frame(CLOSE))
    assert decoder.take_control() == [(CLOSE, b"")]


@pytest.mark.parametrize("text", [b"\xff", b"\xed\xa0\x80", b"\xc0\xaf"])
def test_close_reason_that_is_not_utf8_is_refused(text: bytes) -> None:
    error = fail(server_decoder(), frame(CLOSE, b"\x03\xe8" + text))
    assert (str(error), error.close_code) == ("invalid utf8 body in close frame", 1007)


def test_bytes_before_a_violation_come_first_and_then_the_error_stays() -> None:
    decoder = server_decoder()
    assert decoder.feed(frame(BINARY, b"PING\r\n") + frame(PING, b"p") + frame(3)) == b"PING\r\n"
    assert decoder.pending
    assert decoder.take_control() == [(PING, b"p")]
    assert fail(decoder, b"").close_code == 1002
    assert not decoder.pending
    assert fail(decoder, frame(BINARY, b"PING\r\n")).close_code == 1002


def test_compressed_message_is_inflated() -> None:
    decoder = server_decoder()
    assert decoder.feed(frame(BINARY, deflate(b"PING\r\n" * 50), reserved=4)) == b"PING\r\n" * 50
    assert decoder.feed(frame(BINARY, b"plain")) == b"plain"


def test_compressed_message_in_fragments_is_inflated() -> None:
    payload = deflate(bytes(range(256)) * 4)
    raw = frame(BINARY, payload[:1], final=False, reserved=4)
    raw += frame(CONTINUATION, payload[1:-1], final=False) + frame(PING)
    raw += frame(CONTINUATION, payload[-1:], final=False) + frame(CONTINUATION)
    assert server_decoder().feed(raw) == bytes(range(256)) * 4


def test_empty_compressed_message_is_one_zero_byte() -> None:
    decoder = server_decoder()
    assert decoder.feed(frame(BINARY, b"\0", reserved=4) + frame(BINARY, b"a")) == b"a"


def test_each_message_is_compressed_by_itself() -> None:
    decoder = server_decoder()
    for text in (b"one" * 100, b"two" * 100):
        assert decoder.feed(frame(BINARY, deflate(text), reserved=4)) == text


def test_message_that_ends_in_a_final_block_may_have_padding() -> None:
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
    payload = deflater.compress(b"abc" * 50) + deflater.flush()
    decoder = server_decoder()
    assert decoder.feed(frame(BINARY, payload + b"\0", reserved=4)) == b"abc" * 50
    assert decoder.feed(frame(BINARY, deflate(b"x" * 9), reserved=4)) == b"x" * 9


@pytest.mark.parametrize("payload", [b"", b"\xff\xff\xff\xff", deflate(b"PING\r\n" * 9)[:-2]])
def test_corrupt_or_cut_compressed_message_is_refused(payload: bytes) -> None:
    decoder = server_decoder()
    with pytest.raises(WebsocketError) as caught:
        drain(decoder, frame(BINARY, payload, reserved=4))
    assert caught.value.close_code == 1007


def test_compressed_message_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    assert (
        drain(server_decoder(1000), frame(BINARY, deflate(b"a" * 1000), reserved=4)) == b"a" * 1000
    )
    decoder = server_decoder(1000)
    assert decoder.feed(frame(BINARY, deflate(b"a" * 1001), reserved=4)) == b"a" * 1000
    error = fail(decoder, b"")
    assert (str(error), error.close_code) == ("maximum payload exceeded", 1009)


def test_limit_counts_per_message_and_over_all_its_fragments() -> None:
    decoder = server_decoder(1000)
    for _ in range(5):
        assert drain(decoder, frame(BINARY, deflate(b"a" * 1000), reserved=4)) == b"a" * 1000
    payload = deflate(bytes(range(250)) * 8, level=0)
    raw = frame(BINARY, payload[:500], final=False, reserved=4)
    raw += frame(CONTINUATION, payload[500:900], final=False) + frame(CONTINUATION, payload[900:])
    with pytest.raises(WebsocketError) as caught:
        drain(decoder, raw)
    assert caught.value.close_code == 1009


def test_limit_can_be_raised_after_login_and_lowered_again() -> None:
    decoder = server_decoder(10)
    decoder.max_message_bytes = 5000
    assert drain(decoder, frame(BINARY, deflate(b"a" * 5000), reserved=4)) == b"a" * 5000
    payload = deflate(bytes(range(250)) * 10, level=0)
    decoder.feed(frame(BINARY, payload[:2000], final=False, reserved=4))
    decoder.max_message_bytes = 100
    assert fail(decoder, frame(CONTINUATION, payload[2000:])).close_code == 1009


@pytest.mark.parametrize("limit", [0, -1, 1 << 31])
def test_senseless_limit_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="max_message_bytes"):
        server_decoder(limit)


def test_plain_message_has_no_limit_because_nothing_of_it_is_held() -> None:
    assert server_decoder(10).feed(frame(BINARY, b"a" * 100_000)) == b"a" * 100_000


# --- regressions of published faults in other servers


def peak_bytes(decoder: FrameDecoder, raw: bytes) -> int:
    """The most memory that feeding takes, above what was there, while results are thrown away."""
    tracemalloc.start()
    try:
        decoder.feed(raw)
        while decoder.pending:
            decoder.feed(b"")
    except WebsocketError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.slow
def test_decompression_bomb_takes_bounded_memory() -> None:
    """Advisory 2026-02: a small frame that inflates to hundreds of megabytes."""
    bomb = frame(BINARY, deflate(bytes(100 * MIB), level=9), reserved=4)
    assert len(bomb) < 110_000
    assert peak_bytes(server_decoder(limit=8 * MIB), bomb) < 4 * INFLATED_BYTES_PER_FEED


def test_many_small_bombs_in_one_read_take_bounded_memory() -> None:
    bombs = frame(BINARY, deflate(bytes(MIB), level=9), reserved=4) * 50
    decoder = server_decoder(limit=MIB)
    assert peak_bytes(decoder, bombs) < 4 * INFLATED_BYTES_PER_FEED + len(bombs)
    assert not decoder.pending


def test_each_call_gives_at_most_its_budget_and_nothing_is_lost() -> None:
    text = bytes(range(200)) * 10_000
    decoder = server_decoder(limit=4 * MIB)
    raw = (
        frame(BINARY, deflate(text), reserved=4) * 2 + frame(PING, b"after") + frame(BINARY, b"end")
    )
    portions = [decoder.feed(raw)]
    while decoder.pending:
        assert decoder.take_control() == []
        portions.append(decoder.feed(b""))
    assert max(map(len, portions)) <= INFLATED_BYTES_PER_FEED + len(b"end")
    assert b"".join(portions) == text + text + b"end"
    assert decoder.take_control() == [(PING, b"after")]


def test_input_fed_while_output_is_pending_keeps_its_order() -> None:
    decoder = server_decoder(limit=4 * MIB)
    data = decoder.feed(frame(BINARY, deflate(bytes(2 * MIB)), reserved=4))
    assert decoder.pending
    data += decoder.feed(frame(BINARY, b"next"))
    while decoder.pending:
        data += decoder.feed(b"")
    assert data == bytes(2 * MIB) + b"next"


@pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 1, (1 << 63) - 1, 1 << 40])
@pytest.mark.parametrize("reserved", [0, 4])
def test_absurd_frame_length_neither_crashes_nor_allocates(length: int, reserved: int) -> None:
    """Advisories 2026-03 and 2026-11: lengths that overflow or reserve memory before login."""
    header = bytes([0x82 | reserved << 4, 0xFF]) + length.to_bytes(8, "big") + b"mask"
    # Other threads of the process can only add to a peak, so the least of several is the decoder's.
    assert min(peak_bytes(server_decoder(), header + b"abc") for _ in range(3)) < 100_000
    if length >= 1 << 63:
        assert fail(server_decoder(), header).close_code == 1002


def test_flood_of_pings_keeps_only_the_latest() -> None:
    decoder = server_decoder()
    for number in range(CONTROL_FRAMES_MAX + 10):
        decoder.feed(frame(PING, str(number).encode()))
    taken = decoder.take_control()
    assert len(taken) == CONTROL_FRAMES_MAX
    assert taken[-1] == (PING, str(CONTROL_FRAMES_MAX + 9).encode())


@pytest.mark.slow
def test_idle_decoder_is_small() -> None:
    """Advisory 2026-11: ten thousand idle connections."""
    decoders = [server_decoder() for _ in range(1000)]
    gc.collect()
    tracemalloc.start(CALL_DEPTH)
    for decoder in decoders:
        decoder.feed(frame(BINARY, deflate(b"PING\r\n" * 100), reserved=4))
        decoder.feed(frame(PING, b"x" * 125)[:60])
    snapshot = tracemalloc.take_snapshot()
    tracemalloc.stop()
    # Only what was allocated by these lines: other threads of the process allocate meanwhile.
    own = snapshot.filter_traces([tracemalloc.Filter(True, __file__, all_frames=True)])
    assert sum(trace.size for trace in own.traces) < 1000 * 64
    assert decoders[0].__sizeof__() < 512


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("Client Closed", 1000),
        ("Authentication Timeout", 1008),
        ("Authentication Failure", 1008),
        ("Authentication Expired", 1008),
        ("Slow Consumer (Pending Bytes)", 1008),
        ("Slow Consumer (Write Deadline)", 1008),
        ("Maximum Connections Exceeded", 1008),
        ("Maximum Account Connections Exceeded", 1008),
        ("Maximum Control Line Exceeded", 1008),
        ("Maximum Subscriptions Exceeded", 1008),
        ("Missing Account", 1008),
        ("Credentials Revoked", 1008),
        ("TLS Handshake Failure", 1015),
        ("Parse Error", 1002),
        ("Protocol Violation", 1002),
        ("Bad Client Protocol Version", 1002),
        ("Maximum Message Payload Exceeded", 1009),
        ("Write Error", 1001),
        ("Read Error", 1001),
        ("Stale Connection", 1001),
        ("Server Shutdown", 1001),
        ("Kicked", 1011),
        ("", 1011),
    ],
)
def test_reason_of_a_close_has_its_code(reason: str, code: int) -> None:
    assert close_code_for(reason) == code


# Into memory of the caller


def masked(payload: bytes) -> bytes:
    return frame(BINARY, payload, mask=b"\x01\x02\x03\x04")


def test_frames_are_decoded_into_given_memory() -> None:
    decoder = server_decoder(compression=False)
    data = masked(b"hello") + masked(b"world")
    area = memoryview(bytearray(len(data)))
    assert decoder.feed_into(data, area) == 10
    assert bytes(area[:10]) == b"helloworld"


def test_frames_cut_anywhere_are_decoded_into_given_memory() -> None:
    data = masked(b"hello") + masked(b"x" * 300)
    for cut in range(len(data) + 1):
        decoder, heard = server_decoder(compression=False), b""
        for part in (data[:cut], data[cut:]):
            area = memoryview(bytearray(len(part)))
            heard += bytes(area[: decoder.feed_into(part, area)])
        assert heard == b"hello" + b"x" * 300


def test_a_violation_behind_good_frames_is_raised_after_them() -> None:
    decoder = server_decoder(compression=False)
    data = masked(b"good") + b"\x83\x80\0\0\0\0"
    area = memoryview(bytearray(len(data)))
    assert decoder.feed_into(data, area) == 4
    assert decoder.pending
    with pytest.raises(WebsocketError):
        decoder.feed_into(b"", area)


def test_memory_that_is_too_small_is_refused() -> None:
    decoder = server_decoder(compression=False)
    with pytest.raises(ValueError, match="11 bytes do not fit into 5"):
        decoder.feed_into(masked(b"hello"), bytearray(5))


def test_compressed_peers_are_not_decoded_into_given_memory() -> None:
    with pytest.raises(ValueError, match="larger"):
        server_decoder().feed_into(b"", bytearray(5))
