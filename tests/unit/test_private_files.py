"""Files that are replaced as a whole."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from tradewind.private_files import replace_durably, replace_private, sync_folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("before", [None, b"old and longer than the new one"])
def test_a_file_is_replaced_for_its_owner_only(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "key"
    if before is not None:
        path.write_bytes(before)
        path.chmod(0o644)
    replace_private(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(tmp_path) == ["key"]


def test_others_may_read_a_file_that_is_not_private(tmp_path: Path) -> None:
    path = tmp_path / "list"
    before = os.umask(0o022)
    try:
        replace_durably(path, b"new")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert names(tmp_path) == ["list"]


def test_the_file_is_synced_before_it_is_renamed_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"old")
    seen = []

    def fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        seen.append(("folder" if is_folder else "file", path.read_bytes()))

    monkeypatch.setattr(os, "fsync", fsync)
    replace_private(path, b"new")
    assert seen == [("file", b"old"), ("folder", b"new")]


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_failure_leaves_what_was_there_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fails(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "key"
    path.write_bytes(b"old")
    if call == "fsync":
        monkeypatch.setattr(os, "fsync", fails)
    else:
        monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError, match="No space left"):
        replace_private(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["key"]


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_private(tmp_path / "none" / "key", b"new")


def test_a_file_system_without_folder_syncs_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_with(number: int) -> None:
        def fails(_descriptor: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", fails)

    fails_with(errno.EINVAL)
    sync_folder(tmp_path)
    fails_with(errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        sync_folder(tmp_path)
