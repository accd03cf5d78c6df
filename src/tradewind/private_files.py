"""Files that only their owner can read, replaced as a whole: keys, logins, plans and journals.

Owns how: a new file beside the old one, synced, renamed over it, and the folder synced. A reader
sees the old content or the new one, also after a crash, and what was told to be written is there
after one. Never decides what a file says, nor how an error is told: OSError is the caller's.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from tradewind.platform_calls import O_DIRECTORY


def replace_private(path: Path, content: bytes) -> None:
    """Put a file in place, mode 0600; it is on disk when this returns. If it fails (OSError), what
    was there is as before, and nothing is left beside it.
    """
    aside = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Have the names in a folder on disk. File systems that know no such thing say EINVAL."""
    descriptor = os.open(path, os.O_RDONLY | O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
