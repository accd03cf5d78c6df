"""The history of the SQL shell.

Owns the file: in the user's state folder, readable only by the user, one JSON text per line, and
limited in size. Two shells may write to it at once. It never fails a shell: a file that cannot be
read or written is treated as empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from prompt_toolkit.history import History

ENTRIES_MAX: Final = 1000
FILE_BYTES_MAX: Final = 4 << 20
ENTRY_BYTES_MAX: Final = 64 << 10


def history_path() -> Path:
    """Where the history is."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local/state") / "tradewind" / "sql_history"


class FileHistory(History):
    """The inputs of this shell and earlier ones, the latest first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__()

    def load_history_strings(self) -> Iterable[str]:
        """For the library: the latest first."""
        entries, is_long = self._read()
        if is_long:
            with suppress(OSError):
                self._rewrite(entries)
        return reversed(entries)

    def store_string(self, string: str) -> None:
        """For the library: one more."""
        line = msgspec.json.encode(string) + b"\n"
        if len(line) > ENTRY_BYTES_MAX:
            return
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.fchmod(file, 0o600)
                os.write(file, line)
            finally:
                os.close(file)
            if self._path.stat().st_size > FILE_BYTES_MAX:
                self._rewrite(self._read()[0])

    def _read(self) -> tuple[list[str], bool]:
        """The latest entries, oldest first, and whether the file holds more than it should."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - FILE_BYTES_MAX, 0))
                data = file.read()
        except OSError:
            return [], False
        lines = data.split(b"\n")
        if size > FILE_BYTES_MAX:
            del lines[0]  # its beginning is not there
        entries = []
        for line in lines:
            with suppress(msgspec.DecodeError):
                entries.append(msgspec.json.decode(line, type=str))
        return entries[-ENTRIES_MAX:], size > FILE_BYTES_MAX or len(entries) > ENTRIES_MAX

    def _rewrite(self, entries: list[str]) -> None:
        aside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "wb") as out:
            kept = entries[-ENTRIES_MAX // 2 :]
            out.writelines(msgspec.json.encode(entry) + b"\n" for entry in kept)
        aside.rename(self._path)
