"""The kinds of store that keep one contract, and how a test gets one of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model.store_model import Size, memory_bytes
from tradewind.store.contract import StoreLimits
from tradewind.store.files.disk import Disk, OsDisk
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store
from tradewind.store.format.layout import record_bytes
from tradewind.store.table.message_store import MessageStore
from tradewind.testing.fake_disk import SimulatedDisk

KINDS = ("memory", "file", "file-small-blocks", "simulated", "simulated-rewriting")
# Every few messages fill a block, and only the blocks in use stay in memory.
SMALL: dict[str, Any] = {"block_bytes_max": 300, "index_bytes_max": 1}
REWRITING: dict[str, Any] = {**SMALL, "compresses": True, "compact_bytes_min": 60}
COMPARED_MSGS_MAX = 1000


def subject_list(store: MessageStore) -> list[bytes]:
    """The subjects of all messages, in order."""
    return [message.subject for message in store.messages()]


def sequences(store: MessageStore) -> list[int]:
    """The sequences of all messages, in order."""
    return [message.seq for message in store.messages()]


def put(store: MessageStore, *subjects: bytes, payload: bytes = b"") -> list[int]:
    """A message on each subject; its time is its sequence."""
    return [store.store(name, b"", payload, store.last_seq + 1) for name in subjects]


class StoreMaker:
    """Makes stores of one kind, and at the end looks whether they come back as they were."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.is_file = kind != "memory"
        self.size: Size = record_bytes if self.is_file else memory_bytes
        small = SMALL if kind in ("file-small-blocks", "simulated") else {}
        self._settings = REWRITING if kind == "simulated-rewriting" else small
        # Of the next start: age is counted again then, as it leaves no trace on the disk.
        self.now_ns = 0
        self._kind = kind
        self._folder = folder
        self._made: list[tuple[FileStore, Disk]] = []

    def __call__(self, limits: StoreLimits | None = None, **settings: Any) -> MessageStore:
        """A new, empty store."""
        settings = {**self._settings, **settings}
        if not self.is_file:
            return MessageStore("S", limits, **settings)
        disk: Disk = SimulatedDisk() if self._kind.startswith("simulated") else self._os_disk()
        disk.make_directory(f"{disk.root}/S")
        files, report = open_store(disk, f"{disk.root}/S", "S", limits, now_ns=0, **settings)
        assert report.is_clean
        self._made.append((files, disk))
        return files.table

    def _os_disk(self) -> OsDisk:
        root = self._folder / f"disk{len(self._made)}"
        root.mkdir()
        return OsDisk(str(root))

    def check_that_stores_come_back(self) -> None:
        """Without index.db and with it, a store is what it was, and no file is left open."""
        for files, disk in self._made:
            files.verify()
            expected = content(files.table)
            files.commit()
            found = self._reopened(files.table, disk, has_index=False)
            assert found == expected, f"rebuilt: {found}, not {expected}"
            files.close()
            found = self._reopened(files.table, disk, has_index=True)
            assert found == expected, f"by index.db: {found}, not {expected}"
            if isinstance(disk, SimulatedDisk):
                assert disk.open_files == 0

    def _reopened(self, store: MessageStore, disk: Disk, *, has_index: bool) -> object:
        folder = f"{disk.root}/S"
        assert disk.exists(f"{folder}/msgs/index.db") == has_index
        again, report = open_store(
            disk,
            folder,
            "S",
            store.limits,
            now_ns=self.now_ns,
            block_bytes_max=store.block_bytes_max,
        )
        assert report.is_clean
        again.verify()
        found = content(again.table)
        for block in again.table.blocks:
            block.close()
        return found


def content(store: MessageStore) -> object:
    """All that can be compared of a store."""
    messages = list(store.messages()) if store.msgs <= COMPARED_MSGS_MAX else []
    return store.state, store.subjects(), messages
