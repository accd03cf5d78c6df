"""The default memory and disk limits of JetStream.

Owns the two queries to the operating system and the share that is used. It never changes limits
that are configured.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tradewind.options import MIB, JetStreamOptions

MEMORY_BYTES_UNKNOWN = 256 * MIB
STORAGE_BYTES_UNKNOWN = 1024 * 1024 * MIB
_CGROUP_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


class StoreResources(msgspec.Struct, frozen=True):
    """The folder where JetStream stores its files, and the limits on memory and disk."""

    store_dir: str
    memory_bytes_max: int
    storage_bytes_max: int


def store_resources(options: JetStreamOptions) -> StoreResources:
    """The configured limits; a limit that is not configured is three quarters of what is there."""
    folder = options.store_dir or _default_folder()
    memory, storage = options.max_memory_bytes, options.max_file_bytes
    return StoreResources(
        folder,
        memory if memory >= 0 else memory_bytes() // 4 * 3 or MEMORY_BYTES_UNKNOWN,
        storage if storage >= 0 else free_disk_bytes(folder) // 4 * 3 or STORAGE_BYTES_UNKNOWN,
    )


def stored_accounts(options: JetStreamOptions) -> list[str]:
    """Names of the accounts that have streams on disk."""
    folder = Path(options.store_dir or _default_folder()) / "jetstream"
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    except OSError:
        return []


def _default_folder() -> str:
    import tempfile

    return str(Path(tempfile.gettempdir()) / "nats")


def memory_bytes() -> int:
    """The memory available to this process: that of the machine or its container; 0 if unknown."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0
    for path in _CGROUP_LIMITS:
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            total = min(total, int(text))
    return max(total, 0)


def free_disk_bytes(folder: str) -> int:
    """The free space on the disk that holds, or will hold, the folder; 0 if unknown."""
    path = Path(folder)
    for candidate in (path, *path.absolute().parents):
        try:
            status = os.statvfs(candidate)
        except OSError:
            continue
        return status.f_bavail * status.f_frsize
    return 0
