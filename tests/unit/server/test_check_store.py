"""`--check-store` finds every kind of damage, says where it is, and changes nothing."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from subject_tables import subject_table
from tradewind.errors import StoreError
from tradewind.options import EncryptionOptions, Secret
from tradewind.server.jetstream.check_store import CANNOT_RUN, CLEAN, DAMAGED, check_store
from tradewind.server.jetstream.unchanged_disk import UnchangedDisk
from tradewind.server.lifecycle.command import run_command
from tradewind.store.files.disk import MissingFile, OsDisk
from tradewind.store.files.vault import MainKeyRing
from tradewind.store.folder.stream_folder import StoreRoot
from tradewind.store.format.consumer_file import ConsumerState, SequencePair
from tradewind.store.format.meta import ConsumerMeta, StreamMeta

NOW = 1_800_000_000_000_000_000


def make_store(path: Path) -> None:
    """Two accounts; stream S has several blocks, some deletions and a consumer."""
    root = StoreRoot(OsDisk(str(path)), str(path))
    for account, name in (("$G", "S"), ("ACME", "T")):
        folder = root.stream(account, name)
        config = {"name": name, "subjects": [f"{name}.>"], "max_bytes": 120_000}
        folder.create(StreamMeta(config, NOW))
        _, store, _ = folder.open(NOW)
        for number in range(100):
            subject = f"{name}.{number % 7}".encode()
            store.table.store(subject, b"", b"%04d" % number + bytes(900), NOW + number)
        for seq in (1, 50, 99):
            store.table.remove(seq)
        store.close()
        at = SequencePair(10, 10)
        folder.create_consumer(
            ConsumerMeta("C", {"durable_name": "C"}, NOW), ConsumerState(at, at), NOW
        )
    root.close()


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pristine") / "store"
    make_store(path)
    return path


@pytest.fixture
def store(pristine: Path, tmp_path: Path) -> Path:
    """A fresh copy to damage."""
    return Path(shutil.copytree(pristine, tmp_path / "store"))


def stream_path(store: Path) -> Path:
    return store / "jetstream/$G/streams/S"


def photograph(path: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(file): (file.stat().st_mtime_ns, file.read_bytes() if file.is_file() else b"")
        for file in sorted(path.rglob("*"))
    }


def run(store: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and output; nothing may have changed."""
    before = photograph(store)
    output = io.StringIO()
    code = check_store([str(store), *arguments], output)
    assert photograph(store) == before
    return code, output.getvalue()


def report(store: Path, tmp_path: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and the JSON report of stream S."""
    path = tmp_path / "report.json"
    code, _ = run(store, "--json", str(path))
    streams = json.loads(path.read_bytes())["streams"]
    return code, next(stream for stream in streams if stream["stream"] == "S")


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


# ------------------------------------------------------------------ a store that is well


def test_a_clean_store_gets_one_line_per_stream_and_a_summary(store: Path) -> None:
    code, output = run(store)
    lines = output.splitlines()
    assert code == CLEAN
    assert lines[0].startswith("$G/S: clean, 97 messages, ")
    assert lines[0].endswith(" bytes in 3 blocks, 1 consumers")
    assert lines[1].startswith("ACME/T: clean, 97 messages, ")
    assert lines[2].startswith("2 streams: 2 clean, 0 damaged, 0 not checked; ")
    assert len(lines) == 3


def test_the_jetstream_folder_itself_may_be_named(store: Path) -> None:
    assert run(store)[1].splitlines()[:2] == run(store / "jetstream")[1].splitlines()[:2]


def test_the_report_has_the_totals(store: Path, tmp_path: Path) -> None:
    code, found = report(store, tmp_path)
    assert code == CLEAN
    assert found["result"] == "clean"
    assert (found["messages"], found["first_seq"], found["last_seq"]) == (97, 2, 100)
    assert (found["blocks"], found["consumers"], found["damage"]) == (3, 1, [])
    assert found["records"] >= 103


def test_without_an_index_the_blocks_are_enough(store: Path, tmp_path: Path) -> None:
    (stream_path(store) / "msgs/index.db").unlink()
    code, found = report(store, tmp_path)
    assert (code, found["messages"]) == (CLEAN, 97)
    assert found["notes"] == ["there is no index.db; a start reads all blocks"]


def test_an_outdated_index_is_no_damage(store: Path, tmp_path: Path) -> None:
    saved = (stream_path(store) / "msgs/index.db").read_bytes()
    root = StoreRoot(OsDisk(str(store)), str(store))
    _, opened, _ = root.stream("$G", "S").open(NOW)
    opened.table.store(b"S.new", b"", b"x", NOW + 1000)
    opened.close()
    root.close()
    (stream_path(store) / "msgs/index.db").write_bytes(saved)
    code, found = report(store, tmp_path)
    assert (code, found["messages"]) == (CLEAN, 98)
    assert "index.db is older than the blocks" in found["notes"][0]


def test_an_empty_store_is_clean(tmp_path: Path) -> None:
    (tmp_path / "jetstream").mkdir()
    code, output = run(tmp_path)
    assert code == CLEAN
    assert output.startswith("0 streams")


# ------------------------------------------------------------------ damage


def test_a_flipped_bit_names_the_block_the_byte_and_the_sequence(
    store: Path, tmp_path: Path
) -> None:
    flip(stream_path(store) / "msgs/2.blk", 3 * 940 + 500)
    code, found = report(store, tmp_path)
    assert code == DAMAGED
    assert found["result"] == "damaged"
    damage = [entry for entry in found["damage"] if entry["path"].endswith("2.blk")]
    assert len(damage) == 1
    assert damage[0]["size"] > 900
    assert damage[0]["first_lost"] == damage[0]["last_lost"] == found["lost"][0]
    assert len(found["lost"]) == 1


@pytest.mark.parametrize(
    ("name", "offset", "text"),
    [
        ("meta.inf", 20, "its hash is"),
        ("meta.sum", 3, "its hash is"),
        ("msgs/index.db", 12, "the hash is not that of the bytes before it"),
        ("obs/C/meta.inf", 12, "its hash is"),
        ("obs/C/o.dat", 0, "not with 22 and a version"),
    ],
)
def test_damage_in_other_files_is_found(
    store: Path, tmp_path: Path, name: str, offset: int, text: str
) -> None:
    flip(stream_path(store) / name, offset)
    code, found = report(store, tmp_path)
    assert code == DAMAGED
    assert text in found["damage"][0]["text"]
    assert name.rpartition("/")[2].partition(".")[0] in str(found["damage"][0])


def test_an_index_that_lies_is_found(store: Path, tmp_path: Path) -> None:
    from tradewind.store.format.index_file import decode_index, encode_index

    path = stream_path(store) / "msgs/index.db"
    index = decode_index(path.read_bytes(), "S")
    rows = list(index.subjects.rows())
    name, total, first, last = rows[0]
    index.subjects = subject_table([(name, total + 1, first, last), *rows[1:]])
    path.write_bytes(encode_index(index, "S"))
    code, found = report(store, tmp_path)
    assert code == DAMAGED
    assert "the totals do not match the records" in found["damage"][0]["text"]


def test_a_missing_block_is_found(store: Path, tmp_path: Path) -> None:
    (stream_path(store) / "msgs/2.blk").unlink()
    code, found = report(store, tmp_path)
    assert code == DAMAGED
    assert any(
        entry["path"].endswith("2.blk")
        and entry["text"].startswith("this block is missing; sequences")
        for entry in found["damage"]
    )


def test_a_block_cut_short_is_damage_if_the_index_knows_more(store: Path, tmp_path: Path) -> None:
    path = stream_path(store) / "msgs/3.blk"
    path.write_bytes(path.read_bytes()[:1500])
    code, found = report(store, tmp_path)
    assert code == DAMAGED
    assert [entry["text"] for entry in found["damage"]] == [
        "the file was cut; sequences 70 to 100 were there"
    ]


@pytest.mark.parametrize(
    ("name", "data"),
    [("msgs/thw.db", b"\x09"), ("msgs/sched.db", b"\x01\x00"), ("sources.db", b"\x01" * 30)],
)
def test_a_damaged_side_file_is_found(store: Path, tmp_path: Path, name: str, data: bytes) -> None:
    (stream_path(store) / name).write_bytes(data)
    code, found = report(store, tmp_path)
    assert code == DAMAGED
    assert found["damage"][0]["path"].endswith(name)


def test_a_lost_configuration_is_damage_but_a_creation_cut_off_is_not(
    store: Path, tmp_path: Path
) -> None:
    half = store / "jetstream/$G/streams/HALF"
    (half / "msgs").mkdir(parents=True)
    code, output = run(store)
    assert code == CLEAN
    assert "the creation of this stream was cut off" in output
    (stream_path(store) / "meta.sum").unlink()
    code, found = report(store, tmp_path)
    assert code == DAMAGED
    assert "meta.sum" in found["damage"][0]["text"]


def test_damage_in_one_stream_leaves_the_others_clean(store: Path) -> None:
    flip(stream_path(store) / "meta.inf", 20)
    _, output = run(store)
    assert "$G/S: damaged" in output
    assert "ACME/T: clean" in output
    assert "2 streams: 1 clean, 1 damaged, 0 not checked" in output


# ------------------------------------------------------------------ what cannot be checked


def test_an_encrypted_stream_is_not_called_clean(store: Path) -> None:
    (stream_path(store) / "meta.key").write_bytes(bytes(64))
    code, output = run(store)
    assert code == CANNOT_RUN
    assert "$G/S: not checked" in output
    assert "the stream is encrypted, and no key is configured" in output


def test_an_encrypted_store_is_checked_with_its_key(store: Path, tmp_path: Path) -> None:
    ring = MainKeyRing(EncryptionOptions(Secret("k"), cipher="aes"))
    place = StoreRoot(OsDisk(str(store)), str(store), ring)
    for folder in place.folders("$G"):
        folder.open(0)[1].close()
    place.close()
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    output = io.StringIO()
    assert check_store([str(store)], output, ring) == CLEAN, output.getvalue()
    assert check_store([str(store)], io.StringIO()) == CANNOT_RUN
    wrong = MainKeyRing(EncryptionOptions(Secret("other")))
    output = io.StringIO()
    assert check_store([str(store)], output, wrong) == CANNOT_RUN
    assert "the configured key does not open this key file" in output.getvalue()
    assert before == {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    # By the configuration file, and with damage.
    block = stream_path(store) / "msgs/1.blk"
    content = bytearray(block.read_bytes())
    content[200] ^= 8
    block.write_bytes(content)
    config = tmp_path / "keys.conf"
    config.write_text("jetstream { key: k }")
    assert run_command(["--check-store", str(store), "-c", str(config)]) == DAMAGED
    assert block.read_bytes() == content


def test_a_store_in_use_is_refused(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = StoreRoot(OsDisk(str(store)), str(store))
    try:
        assert run(store) == (CANNOT_RUN, "")
    finally:
        root.close()
    assert "is using the store; stop it first" in capsys.readouterr().err
    assert run(store)[0] == CLEAN


@pytest.mark.parametrize(
    "arguments", [[], ["a", "b"], ["--json"], ["--json", "file"], ["a", "--json"]]
)
def test_a_wrong_command_line_shows_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_store(arguments) == CANNOT_RUN
    assert capsys.readouterr().err.startswith("usage: tradewind-server --check-store DIR")


def test_a_folder_without_a_store_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_store([str(tmp_path)]) == CANNOT_RUN
    assert "not a store" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_said(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(store, "--json", "/nowhere/report.json")[0] == CANNOT_RUN
    assert "/nowhere/report.json: No such file" in capsys.readouterr().err


# ------------------------------------------------------------------ the screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar_and_a_pipe_does_not(store: Path) -> None:
    terminal = Terminal()
    assert check_store([str(store)], terminal) == CLEAN
    shown = terminal.getvalue()
    assert "\r\x1b[K[" in shown
    assert "] " in shown
    assert "$G/S" in shown
    # Each line that stays begins where the bar was wiped away.
    assert "\r\x1b[K$G/S: clean" in shown
    assert "\r" not in run(store)[1]


# ------------------------------------------------------------------ the disk that does not change


@pytest.fixture
def disk(tmp_path: Path) -> UnchangedDisk:
    (tmp_path / "folder/inner").mkdir(parents=True)
    (tmp_path / "folder/file").write_bytes(b"0123456789")
    (tmp_path / "folder/inner/deep").write_bytes(b"deep")
    return UnchangedDisk(str(tmp_path))


Change = Callable[[UnchangedDisk, str], None]


def _write(disk: UnchangedDisk, root: str) -> None:
    with disk.open(f"{root}/folder/file", writes=True) as file:
        file.write(b"xy", 12)
    with disk.open(f"{root}/folder/file", writes=True) as file:
        assert file.read(0, 99) == b"0123456789\0\0xy"
        assert file.size == 14
        file.truncate(3)
        assert bytes(file.map()) == b"012"


def _rename(disk: UnchangedDisk, root: str) -> None:
    disk.rename(f"{root}/folder/file", f"{root}/folder/inner/deep")
    assert disk.list_directory(f"{root}/folder") == ["inner"]
    assert disk.read_file(f"{root}/folder/inner/deep") == b"0123456789"


def _rename_folder(disk: UnchangedDisk, root: str) -> None:
    disk.remove_tree(f"{root}/folder/inner")
    disk.rename(f"{root}/folder", f"{root}/moved")
    assert disk.list_directory(root) == ["moved"]
    assert disk.list_directory(f"{root}/moved") == ["file"]
    assert bytes(disk.open(f"{root}/moved/file").map()) == b"0123456789"


def _remove(disk: UnchangedDisk, root: str) -> None:
    disk.remove(f"{root}/folder/file")
    assert not disk.exists(f"{root}/folder/file")
    with pytest.raises(MissingFile):
        disk.open(f"{root}/folder/file")
    with pytest.raises(MissingFile):
        disk.remove(f"{root}/folder/file")
    disk.write_file_atomically(f"{root}/folder/file", b"new")
    assert disk.read_file(f"{root}/folder/file") == b"new"
    assert disk.list_directory(f"{root}/folder") == ["file", "inner"]


def _make(disk: UnchangedDisk, root: str) -> None:
    disk.make_directory(f"{root}/a/b", sync=True)
    assert disk.is_directory(f"{root}/a")
    disk.create(f"{root}/a/b/c").close()
    assert disk.list_directory(f"{root}/a/b") == ["c"]
    with pytest.raises(StoreError, match="EEXIST"):
        disk.create(f"{root}/a/b/c")
    with pytest.raises(MissingFile):
        disk.create(f"{root}/x/y")
    with pytest.raises(MissingFile):
        disk.list_directory(f"{root}/x")


@pytest.mark.parametrize("change", [_write, _rename, _rename_folder, _remove, _make])
def test_changes_are_seen_only_through_the_disk(
    disk: UnchangedDisk, tmp_path: Path, change: Change
) -> None:
    before = photograph(tmp_path)
    change(disk, disk.root)
    assert photograph(tmp_path) == before


def test_a_path_outside_of_the_folder_is_refused(disk: UnchangedDisk) -> None:
    with pytest.raises(StoreError, match="not inside the store folder"):
        disk.open("/etc/passwd")
