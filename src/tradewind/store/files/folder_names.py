"""Remembers the names in folders while a stream is opened.

Owns the lists of names, because an opening asks a dozen times for something in the same three
folders, and no other process changes these meanwhile. It lists folders and never changes them; the
disk has it drop everything before each change of its own.
"""

from __future__ import annotations

import os


class FolderNames:
    """Lists each folder once."""

    def __init__(self) -> None:
        # By folder, the names in it: whether each is a folder; None for a symbolic link.
        self._listed: dict[str, dict[str, bool | None]] = {}

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; OSError if it cannot be listed."""
        if (names := self._listed.get(folder)) is None:
            with os.scandir(folder) as entries:
                found = {entry.name: _is_folder(entry) for entry in entries}
            names = self._listed[folder] = dict(sorted(found.items()))
        return list(names)

    def is_there(self, path: str) -> bool | None:
        """Whether a path exists; None: unknown."""
        folder, _, name = path.rpartition("/")
        if (names := self._listed.get(folder)) is None:
            return None
        if name not in names:
            return False
        return None if names[name] is None else True

    def is_folder(self, path: str) -> bool | None:
        """Whether a path is a folder; None: unknown."""
        folder, _, name = path.rpartition("/")
        if (names := self._listed.get(folder)) is None:
            return None
        return names.get(name, False)

    def drop(self) -> None:
        """Forget everything, because something is about to change."""
        self._listed.clear()


def _is_folder(entry: os.DirEntry[str]) -> bool | None:
    return None if entry.is_symlink() else entry.is_dir()
