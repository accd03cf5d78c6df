"""The S2 codec: every kind of chunk and element, every fault by its byte, and the limits."""

from __future__ import annotations

import random

import pytest
from sweeps import sweep

from s2_frames import (
    S2_IDENTIFIER,
    SNAPPY_IDENTIFIER,
    chunk,
    copy1,
    copy2,
    copy4,
    crc32c,
    literal,
    packed,
    raw,
    repeat,
    slow_decompress,
    uvarint,
)
from tradewind.errors import StoreError
from tradewind.store.format.s2 import (
    BLOCK_BYTES_MAX,
    OUTPUT_BYTES_PER_FEED,
    Compressor,
    Decompressor,
    S2Error,
    compress,
    crc32c_portable,
    decode_block,
    decompress,
    encode_block,
    is_compressed,
    salvage_block,
)

MIB = 1 << 20
TEXT = b"".join(
    b'{"order":%d,"customer":"c%d","state":"created"}' % (n, n * n % 97) for n in range(40000)
)
NOISE = random.Random(5).randbytes(3 * MIB)


def unpacked(elements: bytes, content: bytes) -> bytes:
    return decompress(S2_IDENTIFIER + packed(elements, content), len(content))


# ------------------------------------------------------------------ decoding


def test_a_published_crc_holds() -> None:
    assert crc32c_portable(b"123456789") == crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 64, 1001])
def test_both_crc_forms_agree(size: int) -> None:
    # The stream is decoded with the instruction where there is one.
    data = NOISE[:size]
    assert crc32c_portable(data) == crc32c(data)
    assert decompress(S2_IDENTIFIER + raw(data), size) == data


@pytest.mark.parametrize("identifier", [S2_IDENTIFIER, SNAPPY_IDENTIFIER])
def test_both_identifiers_are_accepted(identifier: bytes) -> None:
    assert decompress(identifier + raw(b"hello"), 5) == b"hello"


def test_an_empty_stream_is_empty() -> None:
    assert decompress(b"", 0) == b""
    assert decompress(S2_IDENTIFIER, 0) == b""


def test_joined_streams_padding_and_skippable_chunks_are_read_over() -> None:
    stream = S2_IDENTIFIER + raw(b"one ") + chunk(0xFE, bytes(100)) + chunk(0x80, b"")
    stream += chunk(0xFD, b"index") + SNAPPY_IDENTIFIER + raw(b"two")
    assert decompress(stream, 7) == b"one two"


@pytest.mark.parametrize("length_bytes", [0, 1, 2, 3, 4])
def test_literals_of_every_length_form(length_bytes: int) -> None:
    data = NOISE[: (60, 256, 65536, 70000, 70000)[length_bytes]]
    assert unpacked(literal(data, length_bytes), data) == data


@sweep("offset", [*range(1, 40), 2047])
@sweep("length", [4, 5, 8, 11])
def test_copies_with_a_short_offset_repeat_what_overlaps(offset: int, length: int) -> None:
    start = NOISE[:offset]
    content = start + (start * length)[:length]
    assert unpacked(literal(start, 2) + copy1(offset, length), content) == content


@sweep("offset", [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 100])
@sweep("length", [1, 2, 16, 17, 63, 64])
def test_copies_with_longer_offsets_repeat_what_overlaps(offset: int, length: int) -> None:
    start = NOISE[:offset]
    content = start + (start * length)[:length]
    assert unpacked(literal(start, 1) + copy2(offset, length), content) == content
    assert unpacked(literal(start, 1) + copy4(offset, length), content) == content


@pytest.mark.slow
def test_copies_reach_back_over_the_whole_chunk() -> None:
    start = NOISE[: 3 * MIB]
    content = start + start[:64]
    assert unpacked(literal(start, 3) + copy4(len(start), 64), content) == content


@pytest.mark.parametrize("length", [4, 8, 9, 263, 264, 65795, 65796, 200_000])
def test_a_repeat_uses_the_offset_of_the_copy_before_it(length: int) -> None:
    content = bytearray(b"abcdefg" + b"efge")
    elements = literal(b"abcdefg") + copy2(3, 4) + literal(b"!") + repeat(length)
    content += b"!"
    for _ in range(length):
        content.append(content[-3])
    assert unpacked(elements, bytes(content)) == content


def test_output_right_up_to_the_end_is_written_exactly() -> None:
    # Wide moves must stop short of the end, wherever the last elements lie.
    for tail in range(40):
        content = b"0123456789abcdefXYZ" * 2 + NOISE[:tail]
        elements = literal(b"0123456789abcdefXYZ") + copy1(19, 11) + repeat(8)
        elements += literal(NOISE[:tail]) if tail else b""
        assert unpacked(elements, content) == content


def test_real_server_output_with_a_first_copy_of_four_bytes_decodes() -> None:
    content = b"abcdabcdabcdabcd"
    assert unpacked(literal(b"abcd") + copy1(4, 4) + repeat(8), content) == content


# ------------------------------------------------------------------ faults

CHUNK = len(S2_IDENTIFIER)
BODY = CHUNK + 9
"""Where elements start in a stream of one packed chunk with less than 128 bytes."""


def stream_of(elements: bytes, content: bytes = b"x" * 20) -> bytes:
    return S2_IDENTIFIER + packed(elements, content)


FAULTS = [
    (raw(b"x"), 0, "does not start with an S2 identifier"),
    (b"\xff\x06\x00", 0, "ends inside this chunk"),
    (chunk(0xFF, b"S2sTwo"), 4, "neither S2sTwO nor sNaPpY"),
    (chunk(0xFF, b"S2sTwO!"), 4, "neither S2sTwO nor sNaPpY"),
    (S2_IDENTIFIER + chunk(0x02, b""), CHUNK, "reserved"),
    (S2_IDENTIFIER + chunk(0x7F, b"xyz"), CHUNK, "reserved"),
    (S2_IDENTIFIER + chunk(0x00, b"crc"), CHUNK + 1, "impossible length"),
    (S2_IDENTIFIER + b"\x00\xff\xff\xff", CHUNK + 1, "impossible length"),
    (S2_IDENTIFIER + chunk(0x01, bytes(4 * MIB + 5)), CHUNK + 1, "impossible length"),
    (S2_IDENTIFIER + raw(b"hello")[:-1], CHUNK, "ends inside this chunk"),
    (S2_IDENTIFIER + raw(b"hello")[:6], CHUNK, "ends inside this chunk"),
    (S2_IDENTIFIER + chunk(0xFE, b"...")[:-1], CHUNK, "ends inside this chunk"),
    (S2_IDENTIFIER + chunk(0x00, b"crc4"), CHUNK + 8, "decoded length"),
    (S2_IDENTIFIER + chunk(0x00, b"crc4" + b"\x80" * 20), CHUNK + 8, "decoded length"),
    (S2_IDENTIFIER + chunk(0x00, b"crc4" + uvarint(4 * MIB + 1)), CHUNK + 8, "decoded length"),
    (stream_of(literal(b"x" * 20)[:-1]), BODY, "ends inside this element"),
    (stream_of(literal(b"x" * 8) + bytes([61 << 2, 1])), BODY + 9, "ends inside this element"),
    (stream_of(bytes([63 << 2]) + b"\xff" * 4), BODY, "ends inside this element"),
    (stream_of(literal(b"x" * 4) + b"\x01"), BODY + 5, "ends inside this element"),
    (stream_of(literal(b"x" * 4) + b"\x02\x01"), BODY + 5, "ends inside this element"),
    (stream_of(literal(b"x" * 4) + b"\x03\x01\x00\x00"), BODY + 5, "ends inside this element"),
    (stream_of(literal(b"x") + copy1(1, 4) + repeat(9)[:2]), BODY + 4, "inside this element"),
    (stream_of(literal(b"x") + copy1(1, 4) + repeat(300)[:3]), BODY + 4, "inside this element"),
    (stream_of(literal(b"x") + copy1(1, 4) + repeat(70000)[:4]), BODY + 4, "inside this element"),
    (stream_of(literal(b"xx") + copy1(3, 4)), BODY + 3, "beyond the start of its chunk"),
    (stream_of(literal(b"xx") + copy2(0, 4)), BODY + 3, "beyond the start of its chunk"),
    (stream_of(copy4(1, 4)), BODY, "beyond the start of its chunk"),
    (stream_of(literal(b"xx") + copy4(0xFFFFFFFF, 4)), BODY + 3, "beyond the start"),
    (stream_of(literal(b"x" * 4) + repeat(16)), BODY + 5, "repeats an offset"),
    (stream_of(literal(b"x" * 21)), BODY, "more than the decoded length"),
    (stream_of(literal(b"x" * 10) + copy2(1, 11)), BODY + 11, "more than the decoded length"),
    (stream_of(literal(b"x" * 4) + copy1(1, 4) + repeat(4 * MIB)), BODY + 7, "more than the"),
    (stream_of(literal(b"x" * 19)), BODY + 20, "less than the decoded length"),
    (stream_of(b""), BODY, "less than the decoded length"),
    (stream_of(literal(b"y" * 20)), BODY, "does not have its checksum"),
    (S2_IDENTIFIER + raw(b"hello")[:-1] + b"O", CHUNK + 8, "does not have its checksum"),
]


@pytest.mark.parametrize(("stream", "offset", "reason"), FAULTS, ids=range(len(FAULTS)))
def test_faults_name_the_byte(stream: bytes, offset: int, reason: str) -> None:
    with pytest.raises(S2Error, match=f"byte {offset}: .*{reason}") as caught:
        decompress(stream, BLOCK_BYTES_MAX)
    assert caught.value.offset == offset
    assert isinstance(caught.value, StoreError)


@pytest.mark.parametrize(("stream", "offset", "reason"), FAULTS, ids=range(len(FAULTS)))
def test_faults_in_a_stream_in_pieces_name_the_same_byte(
    stream: bytes, offset: int, reason: str
) -> None:
    decoder = Decompressor(BLOCK_BYTES_MAX)

    def feed_all() -> None:
        for start in range(0, len(stream), 1 + len(stream) // 50):
            decoder.feed(stream[start : start + 1 + len(stream) // 50])
        decoder.finish()

    with pytest.raises(S2Error, match=f"byte {offset}: .*{reason}"):
        feed_all()


def test_a_fault_after_good_chunks_counts_from_the_start_of_the_stream() -> None:
    good = S2_IDENTIFIER + raw(b"a" * 50) + chunk(0xFE, bytes(30))
    decoder = Decompressor(1000)
    assert decoder.feed(good) == b"a" * 50
    with pytest.raises(S2Error) as caught:
        decoder.feed(chunk(0x55, b""))
    assert caught.value.offset == len(good)
    with pytest.raises(S2Error, match="reserved"):
        decoder.feed(b"")
    with pytest.raises(S2Error, match="reserved"):
        decoder.finish()


# ------------------------------------------------------------------ limits


def test_content_up_to_the_limit_passes_and_one_byte_more_does_not() -> None:
    stream = S2_IDENTIFIER + raw(b"a" * 50) + raw(b"b" * 51)
    assert len(decompress(stream, 101)) == 101
    with pytest.raises(S2Error, match="larger than allowed") as caught:
        decompress(stream, 100)
    assert caught.value.offset == CHUNK + 58


def bomb(count: int) -> bytes:
    """`count` chunks of a few bytes that decode to 4 MiB each."""
    body = literal(b"\x00") + copy1(1, 4) + repeat(4 * MIB - 5)
    crc = crc32c_portable(bytes(4 * MIB))
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    one = chunk(0x00, masked.to_bytes(4, "little") + uvarint(4 * MIB) + body)
    return S2_IDENTIFIER + one * count


def test_a_bomb_is_refused_before_anything_is_decoded() -> None:
    with pytest.raises(S2Error, match="larger than allowed"):
        decompress(bomb(100_000), 64 * MIB)


def test_a_bomb_in_pieces_makes_no_more_than_allowed() -> None:
    decoder = Decompressor(20 * MIB)
    produced = len(decoder.feed(bomb(100)))
    while produced < 20 * MIB:
        assert decoder.pending
        piece = decoder.feed(b"")
        assert len(piece) <= OUTPUT_BYTES_PER_FEED
        produced += len(piece)
    assert decoder.pending
    assert produced == decoder.decoded_bytes == 20 * MIB
    with pytest.raises(S2Error, match="larger than allowed"):
        decoder.feed(b"")
    assert not decoder.pending


def test_content_before_a_fault_is_handed_out_before_the_error() -> None:
    decoder = Decompressor(100)
    assert (
        decoder.feed(S2_IDENTIFIER + raw(b"one") + raw(b"two") + b"\x55\x00\x00\x00") == b"onetwo"
    )
    assert decoder.pending
    with pytest.raises(S2Error, match="reserved"):
        decoder.finish()
    with pytest.raises(S2Error, match="reserved"):
        decoder.feed(b"")


def test_a_long_skippable_chunk_is_not_held() -> None:
    decoder = Decompressor(10)
    decoder.feed(S2_IDENTIFIER + b"\x99\xff\xff\xff")
    for _ in range(255):
        assert decoder.feed(bytes(1 << 16)) == b""
    with pytest.raises(S2Error, match="ends inside this chunk"):
        decoder.finish()
    assert decoder.feed(bytes((1 << 16) - 1) + raw(b"after")) == b"after"
    decoder.finish()


def test_an_end_inside_a_chunk_is_an_error_and_between_chunks_is_not() -> None:
    stream = S2_IDENTIFIER + raw(b"hello")
    for end in range(len(stream) + 1):
        decoder = Decompressor(100)
        decoder.feed(stream[:end])
        if end in (0, CHUNK, len(stream)):
            decoder.finish()
        else:
            with pytest.raises(S2Error, match="ends inside this chunk"):
                decoder.finish()


# ------------------------------------------------------------------ encoding


@sweep("size", [*range(70), 255, 256, 257, 65535, 65536, 65537])
def test_small_contents_survive(size: int) -> None:
    for content in (TEXT[:size], NOISE[:size], bytes(size), (b"abc" * size)[:size]):
        stream = compress(content)
        assert decompress(stream, size) == content
        if size < 300:
            assert slow_decompress(stream, size) == content


@pytest.mark.parametrize("size", [MIB - 1, MIB, MIB + 1, 2 * MIB + 12345])
def test_contents_of_several_chunks_survive(size: int) -> None:
    for content in ((TEXT * 2)[:size], NOISE[:size], bytes(size)):
        assert decompress(compress(content), size) == content


def test_text_shrinks_and_noise_hardly_grows() -> None:
    assert len(compress(TEXT)) < len(TEXT) * 0.3
    assert len(compress(bytes(8 * MIB))) < 1000
    chunks = len(NOISE) // MIB
    assert compress(NOISE) == S2_IDENTIFIER + b"".join(
        b"\x01" + (MIB + 4).to_bytes(3, "little") + fast_masked_crc(part) + part
        for part in (NOISE[n * MIB : (n + 1) * MIB] for n in range(chunks))
    )


def fast_masked_crc(data: bytes) -> bytes:
    crc = crc32c_portable(data)
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def test_matches_at_every_distance_and_length_survive() -> None:
    source = random.Random(11)
    for distance in (1, 5, 2047, 2048, 65535, 65536, 900_000):
        for length in (4, 8, 11, 12, 64, 65, 68, 263, 264, 65800, 140_000):
            start = source.randbytes(max(distance, 64))
            content = bytearray(start)
            piece = (start[-distance:] * (length // distance + 1))[:length]
            content += piece + source.randbytes(40)
            assert decompress(compress(content), len(content)) == content


def test_buffers_of_any_kind_are_taken() -> None:
    stream = compress(memoryview(TEXT)[:5000])
    assert stream == compress(bytearray(TEXT[:5000]))
    assert decompress(bytearray(stream), 5000) == decompress(memoryview(stream), 5000)


def test_a_written_stream_is_the_same_however_it_was_cut() -> None:
    content = (TEXT + NOISE[:MIB] + TEXT)[: 3 * MIB + 777]
    for step in (777, 128 * 1024, MIB, 5 * MIB):
        encoder = Compressor()
        stream = b"".join(
            encoder.write(content[start : start + step]) for start in range(0, len(content), step)
        )
        assert stream + encoder.flush() == compress(content)


def test_a_compressor_that_got_nothing_writes_nothing() -> None:
    encoder = Compressor()
    assert encoder.write(b"") + encoder.flush() == b""


def test_what_was_flushed_can_be_read_at_once() -> None:
    encoder, decoder = Compressor(), Decompressor(100)
    for piece in (b"first", b"second", b"third"):
        assert decoder.feed(encoder.write(piece) + encoder.flush()) == piece
    decoder.finish()
    assert decoder.decoded_bytes == 16


# ------------------------------------------------------------------ block files


@pytest.mark.parametrize("size", [8, 9, 30, 127, 128, 20_000, 3 * MIB])
def test_a_block_file_has_its_size_in_front_and_its_last_checksum_behind(size: int) -> None:
    plain = (TEXT * 2)[:size]
    data = encode_block(plain)
    head = b"cmp\x01" + uvarint(size)
    assert data.startswith(head + S2_IDENTIFIER)
    assert data[-8:] == plain[-8:]
    assert decompress(data[len(head) : -8], size) == plain[:-8]
    assert decode_block(data) == plain
    assert salvage_block(data) == (plain, None)
    assert is_compressed(data[:24])


def test_a_plain_record_that_starts_like_a_compressed_block_is_told_apart() -> None:
    for high in (0x00, 0x01, 0x81):
        record = b"cmp" + bytes([high]) + (458_497).to_bytes(8, "little") + bytes(12)
        assert not is_compressed(record)
    assert not is_compressed(b"")
    assert not is_compressed(b"cmp\x01")
    assert not is_compressed(b"\x1e\x00\x00\x00" + bytes(20))


def test_a_damaged_identifier_still_tells_a_compressed_block() -> None:
    head = encode_block(TEXT)[:24]
    for index in range(7, 17):
        damaged = bytearray(head)
        damaged[index] ^= 0x20
        assert is_compressed(bytes(damaged))


BLOCK = encode_block(TEXT)
BLOCK_FAULTS = [
    (b"", 0, 'starts with "cmp"'),
    (TEXT[:100], 0, 'starts with "cmp"'),
    (b"cmp", 3, "is not 1"),
    (b"cmp\x02" + BLOCK[4:], 3, "is not 1"),
    (b"cmp\x01", 4, "not a number"),
    (b"cmp\x01" + b"\xff" * 20, 4, "not a number"),
    (b"cmp\x01\x10" + S2_IDENTIFIER[:7], 5, "too short for the checksum"),
    (b"cmp\x01\x07" + S2_IDENTIFIER + bytes(8), 5, "too short for the checksum"),
    (b"cmp\x01" + uvarint(len(TEXT) + 1) + BLOCK[7:], 4, "announces"),
    (b"cmp\x01" + uvarint(len(TEXT) - 1) + BLOCK[7:], None, "larger than allowed"),
    (b"cmp\x01" + uvarint(BLOCK_BYTES_MAX + 1) + BLOCK[7:], 4, "allowed"),
    (BLOCK[:-1], None, "ends inside this chunk"),
]


@pytest.mark.parametrize(("data", "offset", "reason"), BLOCK_FAULTS, ids=range(len(BLOCK_FAULTS)))
def test_faults_of_block_files_name_the_byte(data: bytes, offset: int | None, reason: str) -> None:
    with pytest.raises(S2Error, match=reason) as caught:
        decode_block(data)
    assert offset is None or caught.value.offset == offset


def test_a_fault_inside_the_stream_counts_from_the_start_of_the_file() -> None:
    head = b"cmp\x01" + uvarint(28)
    with pytest.raises(S2Error) as caught:
        decode_block(head + stream_of(literal(b"xx") + copy1(3, 4)) + bytes(8))
    assert caught.value.offset == len(head) + BODY + 3


def test_a_block_too_short_for_a_checksum_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="at least 8 bytes, not 7"):
        encode_block(bytes(7))


# ------------------------------------------------------------------ damaged blocks

PARTS = [b"a" * 1000, b"b" * 1000, b"c" * 1000]


def three_chunks() -> tuple[bytes, list[int]]:
    """A block file of three chunks, and where they start."""
    data, places = b"cmp\x01" + uvarint(3008) + S2_IDENTIFIER, []
    for part in PARTS:
        places.append(len(data))
        data += packed(literal(part[:500], 2) + literal(part[500:], 2), part)
    return data + b"checksum", places


def test_a_wrong_byte_costs_only_itself() -> None:
    data, places = three_chunks()
    damaged = bytearray(data)
    damaged[places[1] + 20] ^= 1
    plain, error = salvage_block(bytes(damaged))
    assert error is not None
    assert "checksum" in error.reason
    assert plain == b"a" * 1000 + b"b" * 7 + b"c" + b"b" * 992 + PARTS[2] + b"checksum"


def test_a_broken_element_costs_the_rest_of_its_chunk() -> None:
    data, places = three_chunks()
    damaged = bytearray(data)
    damaged[places[1] + 4 + 4 + 2 + 503] = 0xFF
    plain, error = salvage_block(bytes(damaged))
    assert error is not None
    assert error.offset == places[1] + 513
    assert plain == PARTS[0] + b"b" * 500 + bytes(500) + PARTS[2] + b"checksum"


def test_a_cut_file_keeps_all_before_the_cut() -> None:
    data, places = three_chunks()
    plain, error = salvage_block(data[: places[2] + 10 + 503 + 8])
    assert error is not None
    assert "ends inside" in error.reason
    assert plain == PARTS[0] + PARTS[1] + b"c" * 500


def test_every_cut_keeps_a_prefix_and_says_so() -> None:
    head, whole = b"cmp\x01" + uvarint(308), b"x" * 100 + b"yz" * 50 + NOISE[:100]
    stream = S2_IDENTIFIER + packed(literal(b"x" * 50) + copy2(50, 50), whole[:100])
    stream += packed(literal(b"yz") + copy2(2, 64) + repeat(34), whole[100:200]) + raw(whole[200:])
    assert salvage_block(head + stream + b"checksum") == (whole + b"checksum", None)
    sizes = []
    for end in range(len(stream)):
        plain, error = salvage_block(head + stream[:end] + b"checksum", 300)
        assert error is not None
        assert whole.startswith(plain)
        sizes.append(len(plain))
    assert sizes == sorted(sizes)
    assert sizes[-1] == 299


def test_a_damaged_identifier_costs_nothing() -> None:
    data, _ = three_chunks()
    for index in range(6, 16):
        damaged = bytearray(data)
        damaged[index] ^= 0x40
        plain, error = salvage_block(bytes(damaged))
        assert error is not None
        assert plain == b"".join(PARTS) + b"checksum"


def test_a_reserved_chunk_ends_what_can_be_read() -> None:
    data, places = three_chunks()
    damaged = bytearray(data)
    damaged[places[1]] = 0x22
    plain, error = salvage_block(bytes(damaged))
    assert error is not None
    assert error.offset == places[1]
    assert plain == PARTS[0]


def test_a_wrong_announced_size_is_reported() -> None:
    data, _ = three_chunks()
    plain, error = salvage_block(b"cmp\x01" + uvarint(3009) + data[6:])
    assert error is not None
    assert "announces 3009" in error.reason
    assert plain == b"".join(PARTS)


def test_salvage_respects_the_limit() -> None:
    data, places = three_chunks()
    plain, error = salvage_block(data, 2500)
    assert error is not None
    assert error.offset == places[2]
    assert plain == PARTS[0] + PARTS[1]
