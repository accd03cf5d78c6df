"""The open files of this process: only those below a folder.

Other tests of the process may have left descriptors, which disappear whenever the collector runs,
so a count of all of them says nothing about the test that counts.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def descriptors(folder: Path) -> int:
    """How many open files lie at or below a folder, removed ones included."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return sum(path.startswith(str(folder)) for path in found)
