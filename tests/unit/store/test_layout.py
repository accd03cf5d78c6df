"""Names, folders, record numbers and block sizes."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.errors import StoreError
from tradewind.store.format.layout import (
    BLOCK_NUMBER_MAX,
    CHECKSUM_BYTES,
    ERASED_BIT,
    RECORD_BYTES_MIN,
    SEQUENCE_MAX,
    SUBJECT_OFFSET,
    TOMBSTONE_BIT,
    ZERO_TIME_NS,
    account_folder,
    account_name_problem,
    block_bytes_max,
    block_file_name,
    block_key_text,
    block_number,
    block_numbers,
    consumer_key_text,
    is_encrypted,
    name_problem,
    record_bytes,
    stream_folder,
    stream_key_text,
)

MIB = 1024 * 1024


def test_folders_lie_below_jetstream_and_the_account() -> None:
    assert account_folder("$G") == "jetstream/$G"
    assert stream_folder("ACME", "ORDERS") == "jetstream/ACME/streams/ORDERS"


def test_a_bad_name_never_becomes_a_path() -> None:
    """Names come from backups and requests: an assertion would be gone with `python -O`."""
    for account, stream in (("..", "S"), ("A", "../S"), ("A", "S/T"), ("A", "/S"), ("A", "")):
        with pytest.raises(StoreError, match="name"):
            stream_folder(account, stream)
    for number in (0, -1, BLOCK_NUMBER_MAX + 1):
        with pytest.raises(StoreError, match="block number"):
            block_file_name(number)


@pytest.mark.parametrize("name", ["a", "ORDERS-1", "é", "a:b", "a\x01b", "$G", "x" * 255])
def test_names_that_the_official_server_takes_have_no_problem(name: str) -> None:
    assert name_problem(name) == ""


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "is empty"),
        ("a b", "contains a space"),
        ("a\tb", "contains a tab"),
        ("a.b", "contains '.'"),
        ("..", "contains '.'"),
        ("*", "contains '*'"),
        ("a>", "contains '>'"),
        ("a/b", "contains a path separator"),
        ("a\\b", "contains a path separator"),
        ("a\0", "contains a zero byte"),
        ("x" * 256, "has 256 bytes, at most 255 are allowed"),
        ("é" * 128, "has 256 bytes, at most 255 are allowed"),
        ("\ud800", "is not valid UTF-8"),
    ],
)
def test_the_problem_of_a_name_is_said(name: str, problem: str) -> None:
    assert name_problem(name) == problem


def test_account_names_may_have_dots_but_must_name_a_folder() -> None:
    assert account_name_problem("acme.example") == ""
    assert account_name_problem("two words") == ""
    for name in ("", ".", "..", "a/b", "a\0", "x" * 256, "\udcff"):
        assert account_name_problem(name)


def test_block_file_names_and_numbers_belong_together() -> None:
    for number in (1, 9, 10, 123456, BLOCK_NUMBER_MAX):
        assert block_number(block_file_name(number)) == number


@pytest.mark.parametrize(
    "name",
    [
        *("", ".blk", "0.blk", "01.blk", "x.blk", "-1.blk", "+1.blk", "1 .blk", "1_0.blk"),
        *("1.blk.tmp", "1.new", "1.key", "1.BLK", "4294967296.blk", "9999999999999.blk"),
        *("\u0661.blk", "\u00b2.blk"),
    ],
)
def test_other_file_names_are_no_blocks(name: str) -> None:
    assert block_number(name) == 0


def test_blocks_come_in_the_order_of_their_numbers() -> None:
    names = ["10.blk", "index.db", "9.blk", "2.blk.tmp", "2.blk", "thw.db"]
    assert block_numbers(names) == [2, 9, 10]


def test_a_key_file_means_that_the_folder_is_encrypted() -> None:
    assert is_encrypted(["meta.inf", "meta.sum", "meta.key"])
    assert is_encrypted(["1.blk", "2.blk", "2.key"])
    assert not is_encrypted(["meta.inf", "meta.sum", "msgs", "obs"])
    assert not is_encrypted(["1.blk", "index.db", "other.key", "01.key"])


def test_hash_keys_are_made_from_these_texts() -> None:
    assert block_key_text("TINY", 1) == "TINY-1"
    assert stream_key_text("TINY") == "TINY"
    assert consumer_key_text("PLAIN", "CNONE") == "PLAIN/CNONE"


def test_a_record_counts_header_length_only_with_a_header() -> None:
    assert RECORD_BYTES_MIN == SUBJECT_OFFSET + CHECKSUM_BYTES == record_bytes(0, 0, 0) == 30
    assert record_bytes(6, 0, 3) == 39
    assert record_bytes(6, 18, 3) == 61
    assert SEQUENCE_MAX & (ERASED_BIT | TOMBSTONE_BIT) == 0
    assert ZERO_TIME_NS.to_bytes(8, "little", signed=True).hex() == "00001a3deb03b2a1"


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({}, 8 * MIB),
        ({"retention": "limits", "max_msgs": -1, "max_bytes": -1}, 8 * MIB),
        ({"retention": "workqueue"}, 4 * MIB),
        ({"retention": "interest"}, 4 * MIB),
        ({"max_msgs_per_subject": 1}, 4 * MIB),
        ({"max_bytes": 1}, 32_000),
        # A quarter, plus 1, rounded up to hundreds.
        ({"max_bytes": 127_999}, 32_000),
        ({"max_bytes": 128_000}, 4 * MIB),
        ({"max_bytes": 1 << 20}, 4 * MIB),
        ({"max_bytes": 33_554_000}, 4 * MIB),
        ({"max_bytes": 33_554_432}, 8 * MIB),
        ({"max_bytes": 1 << 40}, 8 * MIB),
        ({"max_bytes": 1, "max_msgs": 1 << 40}, 32_000),
        ({"max_msgs": 1}, 4 * MIB),
        ({"max_msgs": 100}, 8 * MIB),
        # 100 * (30 + 256 + 4 + 900) / 4 is below 32000, one byte more per payload is not.
        ({"max_msgs": 100, "max_msg_size": 980}, 32_000),
        ({"max_msgs": 100, "max_msg_size": 1000}, 4 * MIB),
        # Literal subjects are counted as they are.
        ({"max_msgs": 100, "max_msg_size": 1230, "subjects": ["a.b", "c.>"]}, 32_000),
        ({"max_msgs": 100, "max_msg_size": 1230, "subjects": ["c.>"]}, 4 * MIB),
    ],
)
def test_block_sizes_follow_the_limits(config: dict[str, Any], size: int) -> None:
    assert block_bytes_max(config) == size


def test_the_servers_payload_limit_is_used_when_the_stream_has_none() -> None:
    assert block_bytes_max({"max_msgs": 10}, max_payload_bytes=1000) == 32_000
    assert block_bytes_max({"max_msgs": 10}) == 4 * MIB
