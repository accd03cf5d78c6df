"""Files that only their owner can read, replaced as a whole: keys, logins, plans and journals.

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


def replace_private(path: Path, content: bytes) -> None:
    """Replace a file, mode 0600; the content is on disk when this returns. After a failure
    (OSError), the old content is unchanged, and no other file is left.
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
    """Sync the names in a folder to disk. File systems without that operation report EINVAL."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
