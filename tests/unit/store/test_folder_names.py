"""A disk that remembers the names of folders while a stream is opened answers as one that asks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tradewind.store.files.disk import DiskFault, MissingFile, OsDisk

# What changes names, given a disk and the folder that the disk remembers.
CHANGES: dict[str, Callable[[OsDisk, str], object]] = {
    "create": lambda disk, folder: disk.create(f"{folder}/new").close(),
    "replace": lambda disk, folder: disk.create(f"{folder}/other", replace=True).close(),
    "rename": lambda disk, folder: disk.rename(f"{folder}/file", f"{folder}/new"),
    "link": lambda disk, folder: disk.link(f"{folder}/file", f"{folder}/new"),
    "remove": lambda disk, folder: disk.remove(f"{folder}/file"),
    "remove_tree": lambda disk, folder: disk.remove_tree(f"{folder}/inner"),
    "make_directory": lambda disk, folder: disk.make_directory(f"{folder}/new/inner"),
    "write": lambda disk, folder: disk.write_file_atomically(f"{folder}/new", b"x"),
    "lock": lambda disk, folder: disk.lock(f"{folder}/new"),
}
PATHS = ("file", "inner", "inner/leaf", "new", "other", "link", "dangling", "missing", "file/x")


@pytest.fixture
def disk(tmp_path: Path) -> OsDisk:
    folder = tmp_path / "stream"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "leaf").touch()
    (folder / "file").touch()
    (folder / "link").symlink_to(folder / "inner")
    (folder / "dangling").symlink_to(folder / "nothing")
    return OsDisk(str(tmp_path))


def answers(disk: OsDisk) -> list[object]:
    """Everything that the disk says about the folder."""
    folder = f"{disk.root}/stream"
    listed: list[object] = [disk.list_directory(folder)]
    if disk.exists(f"{folder}/inner"):
        listed.append(disk.list_directory(f"{folder}/link"))
    for path in PATHS:
        listed += [disk.exists(f"{folder}/{path}"), disk.is_directory(f"{folder}/{path}")]
    return listed


def test_answers_are_the_same(disk: OsDisk) -> None:
    expected = answers(disk)
    with disk.remembering():
        assert answers(disk) == expected
        assert answers(disk) == expected


@pytest.mark.parametrize("change", CHANGES)
def test_change_is_seen(disk: OsDisk, change: str) -> None:
    with disk.remembering():
        before = answers(disk)
        CHANGES[change](disk, f"{disk.root}/stream")
        remembered = answers(disk)
    assert remembered == answers(disk)
    assert remembered != before


def test_folder_is_listed_once(disk: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    scan, look = os.scandir, os.stat

    def scandir(path: str) -> object:
        asked.append(path)
        return scan(path)

    def stat(path: str, *args: object, **named: object) -> object:
        asked.append(path)
        return look(path, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(os, "stat", stat)
    folder = f"{disk.root}/stream"
    with disk.remembering():
        for _ in range(3):
            disk.list_directory(folder)
            assert disk.exists(f"{folder}/file")
            assert not disk.is_directory(f"{folder}/file")
            assert not disk.exists(f"{folder}/missing")
    assert asked == [folder]
    disk.exists(f"{folder}/file")
    assert asked == [folder, f"{folder}/file"]


def test_nothing_is_remembered_afterwards(disk: OsDisk) -> None:
    folder = f"{disk.root}/stream"
    with disk.remembering():
        disk.list_directory(folder)
    Path(folder, "new").touch()
    with disk.remembering():
        assert "new" in disk.list_directory(folder)
    assert disk.exists(f"{folder}/new")


def test_errors_are_those_of_the_disk(disk: OsDisk) -> None:
    with disk.remembering():
        with pytest.raises(MissingFile):
            disk.list_directory(f"{disk.root}/missing")
        with pytest.raises(DiskFault):
            disk.list_directory(f"{disk.root}/stream/file")
        disk.make_directory(f"{disk.root}/missing")
        assert disk.list_directory(f"{disk.root}/missing") == []
