"""Files that are replaced as a whole, most of them for their owner alone: keys, logins, journals.

Owns the procedure: a new file beside the old one, synced, renamed over it, and the folder synced. A
reader sees the old content or the new one, even after a crash, and content whose writing was
reported survives one. The module does not interpret contents or report errors: OSError is passed to
the caller.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from tradewind.platform_calls import O_DIRECTORY


def replace_private(path: Path, content: bytes) -> None:
    """Replace a file, mode 0600; the content is on disk when this returns. After a failure
    (OSError), the old content is unchanged, and no other file is left.
    """
    replace_durably(path, content, mode=0o600)


def replace_durably(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """The same for a file that others may read, as far as the umask lets them."""
    aside = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
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


def sync_path(path: Path | str, flags: int = os.O_RDONLY) -> None:
    """Write a file, or the names in a folder, to disk."""
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path | str) -> None:
    """Write the names in a folder to disk. File systems that cannot sync a folder say EINVAL."""
    try:
        sync_path(path, os.O_RDONLY | O_DIRECTORY)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
