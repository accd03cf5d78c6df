"""Integers of varying size, and reading within bounds."""

from __future__ import annotations

import pytest

from tradewind.errors import CorruptRecord
from tradewind.store.format.varint import ByteReader, append_uvarint, append_varint, to_signed

UNSIGNED = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (1 << 32, "8080808010"),
    ((1 << 64) - 1, "ffffffffffffffffff01"),
]
SIGNED = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (-64, "7f"),
    (64, "8001"),
    (1794766065474714839, "aef3ddb8c78ea5e831"),
    (-(1 << 63), "ffffffffffffffffff01"),
    ((1 << 63) - 1, "feffffffffffffffff01"),
]


@pytest.mark.parametrize(("value", "encoded"), UNSIGNED)
def test_unsigned_numbers(value: int, encoded: str) -> None:
    target = bytearray()
    append_uvarint(target, value)
    assert target.hex() == encoded
    reader = ByteReader(bytes(target), "f")
    assert reader.uvarint("x") == value
    reader.expect_end()


@pytest.mark.parametrize(("value", "encoded"), SIGNED)
def test_signed_numbers(value: int, encoded: str) -> None:
    target = bytearray()
    append_varint(target, value)
    assert target.hex() == encoded
    assert ByteReader(bytes(target), "f").varint("x") == value


@pytest.mark.parametrize("value", [-1, 1 << 64])
def test_numbers_beyond_64_bits_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        append_uvarint(bytearray(), value)


@pytest.mark.parametrize("value", [-(1 << 63) - 1, 1 << 63])
def test_signed_numbers_beyond_64_bits_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        append_varint(bytearray(), value)


def test_a_longer_form_than_needed_is_read() -> None:
    assert ByteReader(bytes.fromhex("8000"), "f").uvarint("x") == 0


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        ("", "x: the number is cut off by the end"),
        ("80", "x: the number is cut off by the end"),
        ("ff" * 9, "x: the number is cut off by the end"),
        ("ff" * 9 + "02", "x: the number does not fit in 64 bits"),
        ("ff" * 10, "x: the number does not fit in 64 bits"),
        ("80" * 10 + "00", "x: the number does not fit in 64 bits"),
    ],
)
def test_a_number_that_is_none_names_file_byte_and_field(encoded: str, reason: str) -> None:
    reader = ByteReader(b"\0" + bytes.fromhex(encoded), "some.db", 1)
    with pytest.raises(CorruptRecord) as caught:
        reader.uvarint("x")
    assert (caught.value.path, caught.value.offset, caught.value.reason) == ("some.db", 1, reason)


def test_nothing_behind_the_end_is_read() -> None:
    reader = ByteReader(b"\x80\x01", "f", 0, 1)
    with pytest.raises(CorruptRecord, match="cut off"):
        reader.uvarint("x")
    with pytest.raises(CorruptRecord, match="2 bytes are needed, 1 are left"):
        reader.take(2, "x")


def test_a_count_that_cannot_fit_is_refused_before_anything_is_made_of_it() -> None:
    data = bytearray()
    append_uvarint(data, 1 << 60)
    with pytest.raises(CorruptRecord, match="entries is 1152921504606846976, but only 2 bytes"):
        ByteReader(bytes(data) + b"ab", "f").count("entries", 1)
    assert ByteReader(b"\x02abcd", "f").count("entries", 2) == 2
    with pytest.raises(CorruptRecord):
        ByteReader(b"\x02abc", "f").count("entries", 2)


def test_bytes_and_fixed_numbers_are_read_in_order() -> None:
    reader = ByteReader(b"\x01\x02\x03xyz!", "f")
    assert reader.fixed(2, "number") == 0x0201
    assert reader.take(2, "text") == b"\x03x"
    with pytest.raises(CorruptRecord, match="f: byte 4: 3 bytes follow the last field"):
        reader.expect_end()


def test_sums_wrap_like_64_bit_registers() -> None:
    assert to_signed((1 << 63) + 5) == -(1 << 63) + 5
    assert to_signed(-1) == -1
    assert to_signed((1 << 64) + 3) == 3
