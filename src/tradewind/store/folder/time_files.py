"""The files with the times when messages expire, and when schedules are due.

Owns writing them when a store is closed, and reading them at its next start. Both may be old,
missing or damaged: then the times are taken from the messages.
"""

from __future__ import annotations

from array import array
from contextlib import suppress
from typing import TYPE_CHECKING

from tradewind.errors import CorruptRecord
from tradewind.store.contract import NotFoundError
from tradewind.store.files.disk import DiskFault
from tradewind.store.format.layout import SCHEDULES_FILE, TIMERS_FILE
from tradewind.store.format.side_files import Schedule, encode_schedules
from tradewind.store.format.timing_wheel import TimingWheel

if TYPE_CHECKING:
    from tradewind.store.folder.filestore import FileStore

# nats-server's file holds subjects, and is plain even in an encrypted stream.
SEALED_SCHEDULES_FILE = "tradewind.sched"


def time_files(store: FileStore) -> dict[str, bytes]:
    """The files that a closed store leaves, by name."""
    table, vault = store.table, store.vault
    files: dict[str, bytes] = {}
    if table.limits.message_ttl:
        files[TIMERS_FILE] = table.timers.encode(table.last_seq + 1)
    if store.keeps_schedules:
        content = encode_schedules(_all_schedules(store), table.last_seq + 1)
        if vault is None:
            files[SCHEDULES_FILE] = content
        else:
            files[SEALED_SCHEDULES_FILE] = vault.seal(content)
    return files


def recover_timers(store: FileStore) -> None:
    """Restore when messages with a time to live expire. An old file is still valid for the
    sequences that it covers.
    """
    if not store.table.limits.message_ttl:
        return
    path = f"{store.folder}/{TIMERS_FILE}"
    found, stamp = TimingWheel(), 0
    if store.disk.exists(path):
        with suppress(CorruptRecord, DiskFault):
            found, stamp = TimingWheel.decode(store.disk.read_file(path), path)
    store.table.adopt_timers(found, stamp)


def _all_schedules(store: FileStore) -> list[Schedule]:
    found = []
    for seq, due_ns in sorted(store.table.schedules.pending()):
        with suppress(NotFoundError):
            found.append(Schedule(store.table.get(seq).subject, due_ns, seq))
    return found


def read_schedule_times(store: FileStore) -> tuple[array[int], array[int], int]:
    """Read the sequences and times of the written schedules, complete for all sequences below the
    stamp.
    """
    name = SCHEDULES_FILE if store.vault is None else SEALED_SCHEDULES_FILE
    path = f"{store.folder}/{name}"
    if store.disk.exists(path):
        with suppress(CorruptRecord, DiskFault):
            data = store.disk.read_file(path)
            if store.vault is not None:
                data = store.vault.unseal(data, path)
            from tradewind.store.format.schedule_codec import decode_times  # for few streams

            return decode_times(data, path)
    return array("Q"), array("q"), 0
