"""The folder of a chain: read in pieces, and every damage with its file and byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from chain_kit import ReferenceChain, stored
from tradewind.chain import chain_folder, checkpoints
from tradewind.chain.chain_entries import BLAKE3, MESSAGE_RECORD_BYTES, SHA256
from tradewind.chain.chain_folder import ChainFolder, IncompleteRecord
from tradewind.errors import CorruptRecord, StoreError


def chain_of(count: int, algorithm: str = SHA256) -> ReferenceChain:
    chain = ReferenceChain(algorithm=algorithm)
    for sequence in range(1, count + 1):
        chain.add(stored(sequence))
        if sequence % 5 == 0:
            chain.remove((sequence - 1, sequence - 1))
            chain.checkpoint()
    return chain


def overwrite(path: Path, offset: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)


@pytest.mark.parametrize("algorithm", [SHA256, BLAKE3])
@pytest.mark.parametrize("segment_entries", [1, 3, 1000])
def test_all_records_and_checkpoints_come_back(
    tmp_path: Path, algorithm: str, segment_entries: int
) -> None:
    chain = chain_of(20, algorithm)
    folder = ChainFolder(chain.write(tmp_path / "chain", segment_entries))
    assert (folder.algorithm, folder.before) == (algorithm, chain.before)
    assert list(folder.records()) == list(enumerate(chain.records))
    assert list(folder.records(7)) == list(enumerate(chain.records))[7:]
    assert list(folder.records(1000)) == []
    assert [line for line, _ in folder.checkpoints()] == chain.lines


def test_records_larger_than_a_piece_of_reading_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_folder, "_READ_BYTES", 50)
    chain = chain_of(20)
    folder = ChainFolder(chain.write(tmp_path / "chain"))
    assert list(folder.records()) == list(enumerate(chain.records))


def test_a_chain_without_entries_and_checkpoints_is_one(tmp_path: Path) -> None:
    folder = ChainFolder(ReferenceChain().write(tmp_path / "chain"))
    assert list(folder.records()) == []
    assert list(folder.checkpoints()) == []


def test_the_header_is_the_documented_bytes() -> None:
    header = chain_folder.encode_header(chain_folder.LinksHeader(BLAKE3, 0x1234, b"\x55" * 32))
    assert header[:56] == b"TWCHAIN1\x02" + bytes(7) + b"\x34\x12" + bytes(6) + b"\x55" * 32
    assert len(header) == chain_folder.HEADER_BYTES == 64
    assert chain_folder.segment_name(0x1234) == "0000000000001234.links"


def test_no_folder_and_an_empty_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        ChainFolder(tmp_path / "chain")
    with pytest.raises(StoreError, match=r"0000000000000000\.links is missing"):
        ChainFolder(tmp_path)


@pytest.mark.parametrize(
    ("offset", "data", "byte"),
    [
        (0, b"X", 0),
        (8, b"\x02", 56),
        (20, b"\x01", 56),
        (60, b"\x00\x00\x00\x00", 56),
    ],
)
def test_a_changed_header_is_named(tmp_path: Path, offset: int, data: bytes, byte: int) -> None:
    folder = chain_of(10).write(tmp_path / "chain")
    overwrite(folder / chain_folder.segment_name(0), offset, data)
    with pytest.raises(CorruptRecord) as caught:
        ChainFolder(folder)
    assert (caught.value.path, caught.value.offset) == (
        str(folder / chain_folder.segment_name(0)),
        byte,
    )


def test_a_record_of_an_unknown_kind_is_named_after_those_before_it(tmp_path: Path) -> None:
    chain = chain_of(4)
    path = chain.write(tmp_path / "chain")
    at = chain_folder.HEADER_BYTES + 2 * MESSAGE_RECORD_BYTES
    overwrite(path / chain_folder.segment_name(0), at, b"\x07")
    records = ChainFolder(path).records()
    assert [next(records) for _ in range(2)] == list(enumerate(chain.records[:2]))
    with pytest.raises(CorruptRecord) as caught:
        next(records)
    assert caught.value.offset == at
    assert "not 7" in caught.value.reason


def test_a_missing_file_in_the_middle_is_named(tmp_path: Path) -> None:
    path = chain_of(20).write(tmp_path / "chain", 5)
    (path / chain_folder.segment_name(10)).unlink()
    with pytest.raises(CorruptRecord, match=r"0005\.links.*entries 5 to 9.*begins with 15"):
        list(ChainFolder(path).records())


def test_a_missing_first_file_is_named(tmp_path: Path) -> None:
    path = chain_of(20).write(tmp_path / "chain", 5)
    (path / chain_folder.segment_name(0)).unlink()
    with pytest.raises(CorruptRecord, match="the first file is missing"):
        ChainFolder(path)


@pytest.mark.parametrize(
    ("header", "byte"),
    [
        (chain_folder.LinksHeader(SHA256, 5, b"\x00" * 32), 24),
        (chain_folder.LinksHeader(SHA256, 6, b"\x00" * 32), 16),
        (chain_folder.LinksHeader(BLAKE3, 5, b"\x00" * 32), 8),
    ],
)
def test_a_file_that_does_not_continue_the_one_before_is_named(
    tmp_path: Path, header: chain_folder.LinksHeader, byte: int
) -> None:
    path = chain_of(20).write(tmp_path / "chain", 5)
    overwrite(path / chain_folder.segment_name(5), 0, chain_folder.encode_header(header))
    with pytest.raises(CorruptRecord, match=r"0005\.links") as caught:
        list(ChainFolder(path).records())
    assert caught.value.offset == byte


def test_the_end_of_the_last_file_may_be_cut_and_no_other(tmp_path: Path) -> None:
    chain = chain_of(20)
    path = chain.write(tmp_path / "chain", 5)
    last = sorted(path.glob("*.links"))[-1]
    last.write_bytes(last.read_bytes()[:-1])
    records = ChainFolder(path).records()
    whole = list(enumerate(chain.records))[:-1]
    assert [next(records) for _ in whole] == whole
    with pytest.raises(IncompleteRecord, match="ends within a record"):
        next(records)
    first = path / chain_folder.segment_name(0)
    first.write_bytes(first.read_bytes()[:-1])
    with pytest.raises(CorruptRecord) as caught:
        list(ChainFolder(path).records())
    assert not isinstance(caught.value, IncompleteRecord)


@pytest.mark.parametrize(
    ("data", "error", "byte_of_line"),
    [
        (b"{}\n", CorruptRecord, 2),
        (b"half a li", IncompleteRecord, 2),
        (b"a" * (checkpoints.LINE_BYTES_MAX + 10) + b"\n", CorruptRecord, 2),
    ],
)
def test_a_damaged_checkpoint_is_named_with_its_byte(
    tmp_path: Path, data: bytes, error: type[CorruptRecord], byte_of_line: int
) -> None:
    chain = chain_of(20)
    path = chain.write(tmp_path / "chain")
    lines = [line + b"\n" for line in chain.lines[:byte_of_line]]
    (path / chain_folder.CHECKPOINTS).write_bytes(b"".join(lines) + data)
    with pytest.raises(error, match="checkpoints: byte") as caught:
        list(ChainFolder(path).checkpoints())
    assert type(caught.value) is error
    assert caught.value.offset == sum(map(len, lines))
