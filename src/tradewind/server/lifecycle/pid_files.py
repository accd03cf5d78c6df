"""Files that describe a running server to other programs: the process id and the bound ports.

Owns their names and contents. The ports file is named after nats-server, because its readers expect
that name.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from tradewind.errors import ServerStartError


def write_pid_file(path: str) -> None:
    """Write the process id, digits only."""
    try:
        Path(path).write_text(str(os.getpid()))
    except OSError as error:
        raise ServerStartError(f"Could not write pidfile: {path}: {error.strerror}") from None


class PortsFile:
    """The file `nats-server_<pid>.ports` in a configured folder; removed when the server ends."""

    def __init__(self, folder: str) -> None:
        self._path = Path(folder) / f"nats-server_{os.getpid()}.ports"

    def write(self, ports: dict[str, list[str]]) -> None:
        """Write the URLs by kind of listener. The file is renamed into place: no reader sees half
        of it.
        """
        aside = self._path.with_suffix(".ports.new")
        aside.write_bytes(msgspec.json.encode({kind: urls for kind, urls in ports.items() if urls}))
        aside.replace(self._path)

    def remove(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self._path.unlink()
