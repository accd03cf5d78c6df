"""The disk contract, kept by the real and by the simulated disk, and what each has of its own."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from descriptors import descriptors
from tradewind.errors import StoreError
from tradewind.store.files import disk as disk_module
from tradewind.store.files.disk import (
    Disk,
    DiskError,
    DiskFault,
    DiskFull,
    FolderInUse,
    MissingFile,
    OsDisk,
    OsFile,
)
from tradewind.store.files.file_mapping import FileMapping, mappings_alive
from tradewind.testing.fake_disk import SimulatedDisk

HOLDER = """
import sys, time
from tradewind.store.files.disk import OsDisk
lock = OsDisk(sys.argv[1]).lock(sys.argv[1] + "/tradewind.lock")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["os", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return OsDisk(str(tmp_path)) if request.param == "os" else SimulatedDisk(1)


def put(disk: Disk, name: str, content: bytes = b"") -> str:
    path = f"{disk.root}/{name}"
    with disk.create(path) as file:
        file.write(content, 0)
    return path


def failure(call: Callable[[], object]) -> DiskError:
    with pytest.raises(DiskError) as caught:
        call()
    return caught.value


# --- both disks: files ---------------------------------------------------------------------------


def test_a_new_file_is_empty_and_exists(disk: Disk) -> None:
    with disk.create(f"{disk.root}/a") as file:
        assert (file.size, file.read(0, 10), bytes(file.map())) == (0, b"", b"")
    assert disk.exists(f"{disk.root}/a")
    assert not disk.is_directory(f"{disk.root}/a")


def test_create_refuses_a_name_that_is_taken(disk: Disk) -> None:
    path = put(disk, "a", b"keep")
    error = failure(lambda: disk.create(path))
    assert (error.errno, error.operation, error.path) == (errno.EEXIST, "create", path)
    assert disk.read_file(path) == b"keep"


def test_create_with_replace_empties_what_was_there(disk: Disk) -> None:
    path = put(disk, "a", b"left over")
    disk.create(path, replace=True).close()
    assert disk.read_file(path) == b""


def test_open_of_a_missing_file_is_told_apart_from_other_faults(disk: Disk) -> None:
    with pytest.raises(MissingFile) as caught:
        disk.open(f"{disk.root}/nothing", writes=True)
    path = f"{disk.root}/nothing"
    assert str(caught.value) == f"{path}: open failed: No such file or directory (ENOENT)"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_writes_land_at_their_offset(disk: Disk, kind: Callable[[bytes], bytes]) -> None:
    with disk.create(f"{disk.root}/a") as file:
        file.write(kind(b"0123456789"), 0)
        file.write(kind(b"ab"), 3)
        file.write(kind(b"XYZ"), 9)
        assert file.read(0, 100) == b"012ab5678XYZ"
        assert file.read(3, 2) == b"ab"
        assert file.read(10, 100) == b"YZ"
        assert file.size == 12


def test_a_gap_reads_as_zeros(disk: Disk) -> None:
    with disk.create(f"{disk.root}/a") as file:
        file.write(b"end", 5)
        assert file.read(0, 10) == b"\0\0\0\0\0end"


def test_an_empty_write_does_not_grow_the_file(disk: Disk) -> None:
    with disk.create(f"{disk.root}/a") as file:
        file.write(b"", 100)
        assert file.size == 0


def test_a_read_beyond_the_end_gives_nothing_and_asks_for_no_memory(disk: Disk) -> None:
    with disk.open(put(disk, "a", b"abc"), writes=True) as file:
        assert file.read(3, 1) == b""
        assert file.read(1 << 40, 5) == b""
        assert file.read(1, 1 << 62) == b"bc"
        assert file.read(1, 0) == b""


def test_truncate_cuts_and_grows(disk: Disk) -> None:
    with disk.open(put(disk, "a", b"abcdef"), writes=True) as file:
        file.truncate(2)
        assert file.read(0, 9) == b"ab"
        file.truncate(4)
        assert file.read(0, 9) == b"ab\0\0"


def test_negative_places_are_refused(disk: Disk) -> None:
    with disk.open(put(disk, "a", b"abc"), writes=True) as file:
        for call in (
            lambda: file.write(b"x", -1),
            lambda: file.read(-1, 2),
            lambda: file.truncate(-1),
        ):
            assert failure(call).errno == errno.EINVAL
        assert file.read(0, 9) == b"abc"


def test_a_mapping_outlives_the_file_and_is_read_only(disk: Disk) -> None:
    path = put(disk, "a", b"mapped")
    with disk.open(path, writes=True) as file:
        view = file.map()
    disk.remove(path)
    assert bytes(view) == b"mapped"
    assert view.readonly


def test_cutting_a_file_under_a_mapping_is_our_own_bug(disk: Disk) -> None:
    with disk.open(put(disk, "a", b"mapped"), writes=True) as file:
        part = file.map()[2:4]
        with pytest.raises(AssertionError, match="cut under a mapping"):
            file.truncate(3)
        file.truncate(6)
        part.release()
        file.truncate(3)


def test_a_closed_file_refuses_everything_but_close(disk: Disk) -> None:
    file = disk.open(put(disk, "a", b"abc"), writes=True)
    file.close()
    file.close()
    for call in (
        lambda: file.read(0, 1),
        lambda: file.write(b"x", 0),
        lambda: file.truncate(1),
        lambda: file.size,
        file.map,
        file.sync,
    ):
        assert failure(call).errno == errno.EBADF


def test_an_open_file_follows_its_rename_and_survives_its_removal(disk: Disk) -> None:
    path = put(disk, "a", b"abc")
    with disk.open(path, writes=True) as file:
        disk.rename(path, f"{disk.root}/b")
        file.write(b"X", 0)
        assert disk.read_file(f"{disk.root}/b") == b"Xbc"
        disk.remove(f"{disk.root}/b")
        file.write(b"Y", 1)
        assert file.read(0, 9) == b"XYc"
    assert disk.list_directory(disk.root) == []


def test_syncs_in_a_thread_do_not_disturb_writes(disk: Disk) -> None:
    with disk.create(f"{disk.root}/a") as file:
        stop = threading.Event()
        failures: list[Exception] = []
        started = threading.Event()

        def sync() -> None:
            try:
                while not stop.is_set():
                    file.sync()
                    disk.sync_directory(disk.root)
                    started.set()
            except DiskError as error:
                failures.append(error)

        thread = threading.Thread(target=sync)
        thread.start()
        assert started.wait(30)
        for number in range(500):
            file.write(number.to_bytes(4, "big"), number * 4)
        stop.set()
        thread.join(30)
        assert not failures
        assert file.read(0, 4000) == b"".join(number.to_bytes(4, "big") for number in range(500))


# --- both disks: names ---------------------------------------------------------------------------


def test_make_directory_makes_parents_and_accepts_what_is_there(disk: Disk) -> None:
    disk.make_directory(f"{disk.root}/a/b/c", sync=True)
    disk.make_directory(f"{disk.root}/a/b")
    assert disk.is_directory(f"{disk.root}/a/b/c")
    assert disk.list_directory(f"{disk.root}/a") == ["b"]


def test_make_directory_refuses_a_file_in_its_way(disk: Disk) -> None:
    path = put(disk, "a")
    assert failure(lambda: disk.make_directory(path)).errno == errno.EEXIST
    assert failure(lambda: disk.make_directory(path + "/b")).errno == errno.EEXIST


def test_list_directory_is_sorted(disk: Disk) -> None:
    for name in ("10.blk", "2.blk", ".hidden", "B"):
        put(disk, name)
    assert disk.list_directory(disk.root) == [".hidden", "10.blk", "2.blk", "B"]


def test_exists_is_false_below_a_file(disk: Disk) -> None:
    put(disk, "a")
    assert not disk.exists(f"{disk.root}/a/b")
    assert not disk.is_directory(f"{disk.root}/a/b")
    assert not disk.is_directory(f"{disk.root}/nothing")


def test_rename_replaces_a_file(disk: Disk) -> None:
    source, target = put(disk, "a", b"new"), put(disk, "b", b"old")
    disk.rename(source, target)
    assert disk.list_directory(disk.root) == ["b"]
    assert disk.read_file(target) == b"new"


def test_rename_moves_a_folder_with_its_content(disk: Disk) -> None:
    disk.make_directory(f"{disk.root}/a/b")
    put(disk, "a/b/file", b"x")
    disk.rename(f"{disk.root}/a/b", f"{disk.root}/c")
    assert disk.read_file(f"{disk.root}/c/file") == b"x"
    assert disk.list_directory(f"{disk.root}/a") == []


def test_a_failed_rename_names_both_ends(disk: Disk) -> None:
    source, target = f"{disk.root}/a", f"{disk.root}/b"
    text = f"{source}: rename to {target} failed: No such file or directory (ENOENT)"
    assert str(failure(lambda: disk.rename(source, target))) == text


def test_remove_takes_files_only(disk: Disk) -> None:
    path = put(disk, "a")
    disk.remove(path)
    assert not disk.exists(path)
    assert isinstance(failure(lambda: disk.remove(path)), MissingFile)
    disk.make_directory(path)
    assert failure(lambda: disk.remove(path)).errno == errno.EISDIR


def test_remove_tree_takes_all_below_and_nothing_beside(disk: Disk) -> None:
    disk.make_directory(f"{disk.root}/a/b/c")
    put(disk, "a/one", b"1")
    put(disk, "a/b/two", b"2")
    put(disk, "aside", b"3")
    disk.remove_tree(f"{disk.root}/a")
    disk.remove_tree(f"{disk.root}/a")
    disk.remove_tree(f"{disk.root}/nothing/here")
    assert disk.list_directory(disk.root) == ["aside"]
    disk.remove_tree(f"{disk.root}/aside")
    assert disk.list_directory(disk.root) == []


@pytest.mark.parametrize("path", ["{root}/../other", "{root}-b/x", "/x", "x", "", "{root}/a\0b"])
def test_every_call_refuses_to_leave_the_root(disk: Disk, path: str) -> None:
    outside = path.format(root=disk.root)
    inside = put(disk, "inside")
    calls: list[Callable[[], object]] = [
        lambda: disk.open(outside, writes=True),
        lambda: disk.create(outside),
        lambda: disk.rename(inside, outside),
        lambda: disk.rename(outside, inside),
        lambda: disk.remove(outside),
        lambda: disk.remove_tree(outside),
        lambda: disk.make_directory(outside),
        lambda: disk.list_directory(outside),
        lambda: disk.exists(outside),
        lambda: disk.is_directory(outside),
        lambda: disk.sync_directory(outside),
        lambda: disk.read_file(outside),
        lambda: disk.lock(outside),
        lambda: disk.write_file_atomically(outside, b"x"),
    ]
    for call in calls:
        with pytest.raises(StoreError, match=r"is not inside the store folder"):
            call()
    assert disk.list_directory(disk.root) == ["inside"]


def test_the_root_itself_is_never_moved_or_removed(disk: Disk) -> None:
    put(disk, "a")
    for call in (
        lambda: disk.remove_tree(disk.root),
        lambda: disk.remove_tree(f"{disk.root}/a/.."),
        lambda: disk.rename(disk.root, f"{disk.root}/b"),
        lambda: disk.rename(f"{disk.root}/a", disk.root),
    ):
        with pytest.raises(StoreError, match="never moved or removed"):
            call()
    assert disk.list_directory(disk.root) == ["a"]


def test_an_atomic_write_replaces_and_leaves_nothing_aside(disk: Disk) -> None:
    path = f"{disk.root}/meta.inf"
    put(disk, "meta.inf.tmp", b"left over from a crash, and longer")
    disk.write_file_atomically(path, b"one")
    disk.write_file_atomically(path, memoryview(b"second"), sync=False)
    assert disk.read_file(path) == b"second"
    assert disk.list_directory(disk.root) == ["meta.inf"]


def test_an_atomic_write_that_fails_keeps_the_old_file_and_cleans_up(disk: Disk) -> None:
    disk.make_directory(f"{disk.root}/target/full")
    error = failure(lambda: disk.write_file_atomically(f"{disk.root}/target", b"x"))
    assert error.errno == errno.EISDIR
    assert disk.list_directory(disk.root) == ["target"]


def test_a_folder_is_locked_once_until_released(disk: Disk) -> None:
    path = f"{disk.root}/tradewind.lock"
    lock = disk.lock(path)
    with pytest.raises(FolderInUse) as caught:
        disk.lock(path)
    assert caught.value.folder == disk.root
    assert str(caught.value) == (
        f"{disk.root}: the folder is in use by process {caught.value.pid};"
        " stop that server or use another folder"
    )
    lock.release()
    lock.release()
    disk.lock(path).release()
    assert disk.read_file(path) == b""


def test_calls_on_the_wrong_kind_say_so(disk: Disk) -> None:
    path = put(disk, "file")
    disk.make_directory(f"{disk.root}/folder")
    inner = put(disk, "folder/inner")
    for call, number in (
        (lambda: disk.open(f"{disk.root}/folder", writes=True), errno.EISDIR),
        (lambda: disk.read_file(f"{disk.root}/folder"), errno.EISDIR),
        (lambda: disk.create(f"{disk.root}/folder", replace=True), errno.EISDIR),
        (lambda: disk.list_directory(path), errno.ENOTDIR),
        (lambda: disk.sync_directory(path), errno.ENOTDIR),
        (lambda: disk.create(f"{path}/below"), errno.ENOTDIR),
        (lambda: disk.rename(f"{disk.root}/folder", path), errno.ENOTDIR),
        (lambda: disk.rename(path, f"{disk.root}/folder"), errno.EISDIR),
        (lambda: disk.rename(inner, f"{disk.root}/folder"), errno.ENOTEMPTY),
        (lambda: disk.rename(f"{disk.root}/folder", f"{inner}/x"), errno.ENOTDIR),
        (lambda: disk.rename(f"{disk.root}/folder", f"{disk.root}/folder/x"), errno.EINVAL),
    ):
        assert failure(call).errno == number


# --- the real disk -------------------------------------------------------------------------------


@pytest.fixture
def real(tmp_path: Path) -> OsDisk:
    return OsDisk(str(tmp_path / "store"))


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_only_the_owner_gets_rights(real: OsDisk) -> None:
    real.make_directory(f"{real.root}/a", sync=True)
    real.create(f"{real.root}/a/file").close()
    real.write_file_atomically(f"{real.root}/a/atomic", b"x")
    real.lock(f"{real.root}/lock").release()
    modes = {
        name: stat.S_IMODE(os.stat(f"{real.root}/{name}").st_mode)
        for name in ("", "a", "a/file", "a/atomic", "lock")
    }
    assert modes == {"": 0o700, "a": 0o700, "a/file": 0o600, "a/atomic": 0o600, "lock": 0o600}


def test_a_full_device_gives_disk_full() -> None:
    device = OsDisk("/dev").open("/dev/full", writes=True)
    with device as file, pytest.raises(DiskFull) as caught:
        file.write(b"x", 0)
    text = "/dev/full: write failed: No space left on device (ENOSPC)"
    assert str(caught.value) == text


def test_a_quota_counts_as_full() -> None:
    assert isinstance(disk_module.disk_error("p", "write", errno.EDQUOT), DiskFull)
    assert disk_module.disk_error("p", "remove_tree", None).errno == errno.EIO


def test_a_write_past_the_size_limit_goes_on_after_the_short_part_and_then_fails(
    tmp_path: Path,
) -> None:
    disk = OsDisk(str(tmp_path))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with disk.create(f"{disk.root}/a") as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            error = failure(lambda: file.write(bytes(1500), 100))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        # A limit of the process is a quota: the call can succeed once it is raised.
        assert isinstance(error, DiskFull)
        assert (error.errno, file.size) == (errno.EFBIG, 1000)


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsDisk(str(tmp_path))
    write, sizes = os.pwrite, []

    def at_most_three(descriptor: int, data: memoryview, offset: int) -> int:
        sizes.append(len(data))
        return write(descriptor, data[:3], offset)

    monkeypatch.setattr(os, "pwrite", at_most_three)
    with disk.create(f"{disk.root}/a") as file:
        file.write(b"0123456789", 2)
        assert file.read(0, 20) == b"\0\x000123456789"
    assert sizes == [10, 7, 4, 1]


def test_a_system_that_writes_nothing_is_a_fault_and_no_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk(str(tmp_path))
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with disk.create(f"{disk.root}/a") as file:
        assert failure(lambda: file.write(b"x", 0)).errno == errno.EIO


def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsDisk(str(tmp_path))
    put(disk, "a", b"0123456789")
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: read(fd, min(size, 3), offset))
    assert disk.read_file(f"{disk.root}/a") == b"0123456789"


def test_a_file_that_shrinks_while_it_is_read_ends_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk(str(tmp_path))
    path = put(disk, "a", b"0123456789")
    read = os.pread

    def read_and_cut(descriptor: int, size: int, offset: int) -> bytes:
        data = read(descriptor, min(size, 4), offset)
        os.truncate(path, 4)
        return data

    monkeypatch.setattr(os, "pread", read_and_cut)
    with disk.open(path, writes=True) as file:
        assert file.read(0, 10) == b"0123"


def test_a_failed_sync_is_never_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk(str(tmp_path))
    calls = []

    def fails_once(descriptor: int, _path: str | None) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(disk_module, "sync_descriptor", fails_once)
    with disk.create(f"{disk.root}/a") as file:
        assert isinstance(failure(file.sync), DiskFull)
        error = failure(file.sync)
    assert isinstance(error, DiskFault)
    assert (error.errno, error.operation, len(calls)) == (errno.EIO, "sync", 1)


def test_a_file_that_cannot_be_synced_says_so() -> None:
    with OsDisk("/dev").open("/dev/full") as file:
        assert failure(file.sync).errno == errno.EINVAL
        assert failure(file.sync).errno == errno.EIO


def test_a_file_system_without_folder_syncs_is_accepted_but_faults_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk(str(tmp_path))
    number = errno.EINVAL

    def fails(_: int) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "fsync", fails)
    disk.sync_directory(disk.root)
    number = errno.EIO
    assert failure(lambda: disk.sync_directory(disk.root)).operation == "sync_directory"


def test_a_late_error_of_close_is_told(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    os.close(descriptor)
    file = OsFile("gone", descriptor)
    assert failure(file.close).errno == errno.EBADF
    file.close()


def test_size_sees_what_was_written_through_the_descriptor(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    with disk.create(f"{disk.root}/a") as file:
        os.pwrite(file.fileno(), b"from C", 4)
        assert (file.size, file.read(4, 9)) == (10, b"from C")


def test_a_mapping_holds_no_descriptor_and_goes_when_nobody_looks_at_it(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    gc.collect()  # mappings that other tests have left
    mappings = mappings_alive()
    with disk.open(put(disk, "a", bytes(mmap.PAGESIZE + 1))) as file:
        view = file.map()
    assert descriptors(tmp_path) == 0
    assert mappings_alive() == mappings + 1
    assert bytes(view) == bytes(mmap.PAGESIZE + 1)
    del view
    assert mappings_alive() == mappings


def test_where_no_more_mappings_are_allowed_the_bytes_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, size: int) -> None:
        raise OSError(errno.ENOMEM, "no more")

    monkeypatch.setattr("tradewind.store.files.disk.FileMapping", refuse)
    disk = OsDisk(str(tmp_path))
    with disk.open(put(disk, "a", b"content"), writes=True) as file:
        assert bytes(file.map()) == b"content"


def test_the_root_is_made_with_its_parents(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path / "x" / "jetstream"))
    assert not disk.exists(disk.root)
    disk.remove_tree(f"{disk.root}/a")
    disk.make_directory(disk.root, sync=True)
    assert disk.list_directory(disk.root) == []


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is synced and renamed, in order, by the name of the file."""
    seen: list[tuple[str, str]] = []
    real_rename = os.rename

    def note(operation: str) -> Callable[..., None]:
        def noted(descriptor: int, *_: object) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            seen.append((operation, os.path.basename(path)))

        return noted

    def rename(source: str, target: str) -> None:
        seen.append(("rename", os.path.basename(source)))
        real_rename(source, target)

    monkeypatch.setattr(os, "fsync", note("fsync"))
    monkeypatch.setattr(disk_module, "sync_descriptor", note("fdatasync"))
    monkeypatch.setattr(os, "rename", rename)
    return seen


def test_an_atomic_write_syncs_the_data_before_and_the_folder_after_the_rename(
    tmp_path: Path, journal: list[tuple[str, str]]
) -> None:
    disk = OsDisk(str(tmp_path))
    disk.write_file_atomically(f"{disk.root}/o.dat", b"x")
    assert journal == [
        ("fdatasync", "o.dat.tmp"),
        ("rename", "o.dat.tmp"),
        ("fsync", tmp_path.name),
    ]
    journal.clear()
    disk.write_file_atomically(f"{disk.root}/o.dat", b"x", sync=False)
    assert journal == [("rename", "o.dat.tmp")]


def test_make_directory_syncs_the_parents_of_what_it_makes(
    tmp_path: Path, journal: list[tuple[str, str]]
) -> None:
    disk = OsDisk(str(tmp_path / "root"))
    disk.make_directory(f"{disk.root}/a", sync=True)
    disk.make_directory(f"{disk.root}/a", sync=True)
    disk.make_directory(f"{disk.root}/b")
    assert journal == [("fsync", tmp_path.name), ("fsync", "root")]


def test_absence_is_not_guessed_when_it_cannot_be_known(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    os.symlink("ring", tmp_path / "ring")
    assert failure(lambda: disk.exists(f"{disk.root}/ring")).errno == errno.ELOOP
    too_long = f"{disk.root}/{'x' * 300}"
    assert failure(lambda: disk.exists(too_long)).errno == errno.ENAMETOOLONG
    assert failure(lambda: disk.make_directory(too_long)).errno == errno.ENAMETOOLONG
    assert failure(lambda: disk.lock(too_long)).errno == errno.ENAMETOOLONG


def test_remove_tree_never_follows_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"1")
    (outside / "folder").mkdir()
    disk = OsDisk(str(tmp_path / "store"))
    disk.make_directory(f"{disk.root}/stream/msgs")
    os.symlink(outside, f"{disk.root}/stream/msgs/link")
    os.symlink(outside / "precious", f"{disk.root}/stream/file-link")
    os.symlink(outside, f"{disk.root}/moved")
    disk.remove_tree(f"{disk.root}/stream")
    with pytest.raises(StoreError, match="'moved' is a symbolic link; nothing is removed through"):
        disk.remove_tree(f"{disk.root}/moved/folder")
    disk.remove_tree(f"{disk.root}/moved")
    assert disk.list_directory(disk.root) == []
    assert sorted(os.listdir(outside)) == ["folder", "precious"]


def test_remove_tree_leaks_no_descriptor(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    disk.make_directory(f"{disk.root}/a/b/c")
    put(disk, "file")
    assert descriptors(tmp_path) == 0
    disk.remove_tree(f"{disk.root}/a/nothing/c")
    assert failure(lambda: disk.remove_tree(f"{disk.root}/file/c")).errno == errno.ENOTDIR
    disk.remove_tree(f"{disk.root}/a/b/c")
    assert descriptors(tmp_path) == 0


def test_a_lock_is_seen_by_other_processes_and_dies_with_its_holder(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    path = f"{disk.root}/tradewind.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, disk.root], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(FolderInUse) as caught:
            disk.lock(path)
        holder.kill()
    assert caught.value.pid == holder.pid
    lock = disk.lock(path)
    assert disk.read_file(path) == b"%d\n" % os.getpid()
    lock.release()


def test_a_lock_whose_holder_is_unknown_is_still_a_lock(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    path = put(disk, "tradewind.lock", b"99999999999999999999 and more of a stale note")
    lock = disk.lock(path)
    assert disk.read_file(path) == b"%d\n" % os.getpid()
    os.truncate(path, 0)
    with pytest.raises(FolderInUse, match="in use by another process;") as caught:
        disk.lock(path)
    assert caught.value.pid == 0
    lock.release()


def test_a_lock_that_cannot_note_its_holder_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk(str(tmp_path))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", full)
    assert descriptors(tmp_path) == 0
    assert isinstance(failure(lambda: disk.lock(f"{disk.root}/lock")), DiskFull)
    assert descriptors(tmp_path) == 0


def test_forgotten_pages_of_a_mapping_are_read_again(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    with disk.create(f"{tmp_path}/file") as file:
        file.write(b"x" * 100_000, 0)
        view = file.map()
        assert bytes(view) == b"x" * 100_000
        mapping = view.obj
        assert isinstance(mapping, FileMapping)
        mapping.forget_pages()
        assert bytes(view) == b"x" * 100_000
