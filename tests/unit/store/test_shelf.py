"""What was removed and can be brought back, in the folder of a stream: also an encrypted one."""

from __future__ import annotations

from itertools import count

import pytest

from tradewind.options import NO_SECRET, EncryptionOptions, Secret
from tradewind.store.contract import MessageCopy
from tradewind.store.files.disk import DiskError
from tradewind.store.files.vault import MainKeyRing
from tradewind.store.folder.shelf import Shelf, ShelfName, put_back, read_shelf, shelf_names
from tradewind.store.folder.stream_folder import StreamFolder
from tradewind.store.format.meta import StreamMeta
from tradewind.testing.fake_disk import SimulatedDisk

ROOT = "/disk"
NOW = 1_800_000_000_000_000_000
META = StreamMeta({"name": "S", "subjects": ["secret.>"], "allow_msg_ttl": True}, NOW)
RING = MainKeyRing(EncryptionOptions(Secret("k"), NO_SECRET, "chacha"))
TTL = b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n"


def folder_on(disk: SimulatedDisk, ring: MainKeyRing | None, path: str = "") -> StreamFolder:
    return StreamFolder(disk, ROOT, "$G", "S", path=path, ring=ring)


def filled(disk: SimulatedDisk, ring: MainKeyRing | None) -> list[MessageCopy]:
    folder = folder_on(disk, ring)
    folder.create(META)
    _, files, _ = folder.open(NOW, block_bytes_max=400)
    for number in range(20):
        ttl = TTL if number == 7 else b""
        files.table.store(b"secret.subject", ttl, b"payload of %d" % number, NOW + number)
    messages = list(files.table.messages())
    for message in messages[5:15]:
        files.table.remove(message.seq)
    files.close()
    return messages


@pytest.mark.parametrize("ring", [None, RING], ids=["plain", "encrypted"])
def test_messages_come_back_as_they_were_and_are_as_secret_as_before(
    ring: MainKeyRing | None,
) -> None:
    disk = SimulatedDisk()
    messages = filled(disk, ring)
    folder, name = folder_on(disk, ring), ShelfName(NOW + 9, 3)
    shelf = Shelf(folder, name, META)
    shelf.add(messages[5:9])
    shelf.add(messages[8:15])  # what is there already is passed over
    shelf.close()
    assert shelf_names(disk, folder.path) == [name]
    kept = read_shelf(folder, name)
    assert kept is not None
    assert list(kept.table.messages()) == messages[5:15]
    kept.close()
    is_readable = any(b"payload of" in data for data in disk.file_contents().values())
    assert is_readable is (ring is None)
    put_back(folder, name, folder_on(disk, ring, f"{ROOT}/staging"), NOW)
    _, files, report = folder_on(disk, ring).open(NOW)
    assert report.is_clean
    assert list(files.table.messages()) == messages
    # The time to live counts again, and only for the message that has one.
    assert files.table.expire(NOW + 2 * 3_600_000_000_000) == 1
    assert files.table.msgs == 19
    files.close()
    after = [path for path in disk.snapshot_tree() if "staging" in path or "new_msgs" in path]
    assert not after


def test_names_that_are_no_shelves_are_passed_over() -> None:
    disk = SimulatedDisk()
    folder = folder_on(disk, None)
    for name in ("5.6", "7.8", "x.1", "1", "1.2.3", "\u0663.1", "9" * 30 + ".1"):
        disk.make_directory(f"{folder.path}/tradewind.purged.{name}")
    assert shelf_names(disk, folder.path) == [ShelfName(5, 6), ShelfName(7, 8)]


def test_a_shelf_whose_making_was_cut_off_holds_nothing() -> None:
    disk = SimulatedDisk()
    messages = filled(disk, None)
    folder, name = folder_on(disk, None), ShelfName(1, 2)
    disk.make_directory(f"{folder.path}/{name.folder}/msgs")
    assert read_shelf(folder, name) is None
    put_back(folder, name, folder_on(disk, None, f"{ROOT}/staging"), NOW)
    _, files, _ = folder_on(disk, None).open(NOW)
    assert list(files.table.messages()) == messages[:5] + messages[15:]


@pytest.mark.slow
def test_undo_that_fails_anywhere_leaves_the_stream_as_it_was() -> None:
    """Whatever fails first: either it is said and nothing has changed, or all is back."""
    start = SimulatedDisk()
    messages = filled(start, None)
    name = ShelfName(NOW + 9, 3)
    shelf = Shelf(folder_on(start, None), name, META)
    shelf.add(messages[5:15])
    shelf.close()
    failures = set()
    for nth in count(1):
        disk = start.crash_keeping_unsynced()
        fault = disk.fail("*", nth=nth)
        expected = messages
        try:
            put_back(folder_on(disk, None), name, folder_on(disk, None, f"{ROOT}/staging"), NOW)
        except DiskError as error:
            failures.add(error.operation)
            expected = messages[:5] + messages[15:]
        disk.clear_faults()
        kept = read_shelf(folder_on(disk, None), name)
        assert kept is not None
        assert list(kept.table.messages()) == messages[5:15]
        kept.close()
        _, files, _ = folder_on(disk, None).open(NOW)
        assert list(files.table.messages()) == expected, f"call {nth}, {failures}"
        files.close()
        assert disk.open_files == 0
        if not fault.hits:
            break
    assert {"open", "create", "write", "sync", "rename", "remove", "sync_directory"} <= failures
