"""A local folder that only processes of the same user can access.

Owns its location and permissions: it contains the socket of the SQL service and the notes of
running pipelines. Nothing in it needs to survive a restart of the machine.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from tempfile import gettempdir

from tradewind.pipelines.errors import PipelineError


def private_path() -> Path:
    """Where the folder is, whether it is there or not."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "tradewind" if base else Path(gettempdir()) / f"tradewind-{os.getuid()}"


def private_folder(*, create: bool = False) -> Path | None:
    """The private folder of this user; None if it does not exist.

    PipelineError if it is not private, as a process of another user could answer in it.
    """
    folder = private_path()
    if create:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PipelineError(
            f"{folder}: must be a folder of this user that nobody else may enter (mode 0700)"
        )
    return folder
