"""Where backups are kept: a folder, or whatever fsspec can reach (S3, GCS, SFTP, memory).

Owns reading, writing and listing files by their name below the place. A file appears as a whole or
not at all, and is durable when `write` returns. It never interprets the content of a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

from tradewind.backups.backup_errors import BackupError
from tradewind.private_files import replace_private, sync_folder, sync_path

# A name that `replace_private` gives to a file that it has not finished.
_UNFINISHED: Final = re.compile(r"\..+\.[0-9a-f]{8}")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://.*|[a-z][a-z0-9+.-]+::.*", re.IGNORECASE)


SYNCS_AT_ONCE: Final = 8


class BackupPlace(Protocol):
    """Files by name, with "/" between folders. Every method raises BackupError if the place
    cannot be reached.
    """

    @property
    def text(self) -> str:
        """The place as its user named it, without a login."""
        ...

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file as a whole."""
        ...

    def write_later(self, name: str, content: bytes) -> None:
        """Create a file as a whole; it is durable after `settle`."""
        ...

    def keep(self, name: str) -> None:
        """Make a file durable with the next `settle`, also one that another process wrote."""
        ...

    def settle(self) -> None:
        """Make durable what was written and kept."""
        ...

    def size(self, name: str) -> int | None:
        """The bytes of a file; None if there is none."""
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """The files in a folder and below, by name, with their bytes."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        ...

    def remove_unfinished(self) -> None:
        """Remove what writers have left that were killed."""
        ...


def open_backup_place(text: str) -> BackupPlace:
    """The place of a folder or URL; BackupError if there can be none."""
    if not text:
        raise BackupError(
            "the place of the backups must be a folder or a URL like s3://bucket/path"
        )
    if text.startswith("file://"):
        return FolderPlace(Path(text.removeprefix("file://")))
    if _SCHEME.fullmatch(text):
        return FsspecPlace(text)
    return FolderPlace(Path(text).expanduser())


class FolderPlace:
    """A folder of this machine; it is made with the first file."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._unsettled: set[Path] = set()

    @property
    def text(self) -> str:
        """See `BackupPlace`."""
        return str(self._root)

    def read(self, name: str) -> bytes | None:
        """See `BackupPlace`."""
        with self._explained():
            try:
                return (self._root / name).read_bytes()
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        """See `BackupPlace`."""
        path = self._root / name
        with self._explained():
            self._make_folder(path.parent)
            replace_private(path, content)

    def write_later(self, name: str, content: bytes) -> None:
        """See `BackupPlace`."""
        path = self._root / name
        aside = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
        with self._explained():
            self._make_folder(path.parent)
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                aside.replace(path)
            except BaseException:
                aside.unlink(missing_ok=True)
                raise
        self._unsettled.add(path)

    def keep(self, name: str) -> None:
        """See `BackupPlace`."""
        self._unsettled.add(self._root / name)

    def settle(self) -> None:
        """See `BackupPlace`. Many syncs at a time share the work of the disk."""
        paths = sorted(self._unsettled)
        with self._explained(), ThreadPoolExecutor(SYNCS_AT_ONCE) as threads:
            for step, wanted in (
                (sync_path, paths),
                (sync_folder, sorted({path.parent for path in paths})),
            ):
                for _ in threads.map(step, wanted):
                    pass
        self._unsettled.clear()

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        sync_folder(folder.parent)

    def size(self, name: str) -> int | None:
        """See `BackupPlace`."""
        with self._explained():
            try:
                return (self._root / name).stat().st_size
            except FileNotFoundError:
                return None

    def sizes(self, folder: str) -> dict[str, int]:
        """See `BackupPlace`."""
        with self._explained():
            return {
                str(path.relative_to(self._root)): size
                for path, size in _files_below(self._root / folder)
                if not _UNFINISHED.fullmatch(path.name)
            }

    def remove(self, name: str) -> None:
        """See `BackupPlace`."""
        with self._explained():
            (self._root / name).unlink(missing_ok=True)

    def remove_unfinished(self) -> None:
        """See `BackupPlace`."""
        with self._explained():
            for path, _ in _files_below(self._root):
                if _UNFINISHED.fullmatch(path.name):
                    path.unlink(missing_ok=True)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BackupError(f"{error.filename or self._root}: {error.strerror}") from None


def _files_below(folder: Path) -> Iterator[tuple[Path, int]]:
    """All files with their sizes; those that are removed meanwhile are left out."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from _files_below(Path(entry.path))
        else:
            with suppress(FileNotFoundError):
                yield Path(entry.path), entry.stat().st_size


class FsspecPlace:
    """A URL of fsspec. Object stores show a file when its upload is complete."""

    def __init__(self, url: str) -> None:
        self._files: Any
        self._text = re.sub(r"//[^/@]*@", "//", url)
        with self._explained():
            # It has no types.
            self._files, root = import_module("fsspec.core").url_to_fs(url)
        self._root = root.rstrip("/")

    @property
    def text(self) -> str:
        """See `BackupPlace`."""
        return self._text

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def read(self, name: str) -> bytes | None:
        """See `BackupPlace`."""
        with self._explained():
            try:
                content: bytes = self._files.cat_file(self._path(name))
            except FileNotFoundError:
                return None
            return content

    def write(self, name: str, content: bytes) -> None:
        """See `BackupPlace`."""
        with self._explained():
            path = self._path(name)
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._files.pipe_file(path, content)

    def write_later(self, name: str, content: bytes) -> None:
        """See `BackupPlace`: whatever these stores have taken is durable."""
        self.write(name, content)

    def keep(self, name: str) -> None:
        """See `BackupPlace`."""

    def settle(self) -> None:
        """See `BackupPlace`."""

    def size(self, name: str) -> int | None:
        """See `BackupPlace`."""
        with self._explained():
            try:
                return int(self._files.info(self._path(name)).get("size") or 0)
            except FileNotFoundError:
                return None

    def sizes(self, folder: str) -> dict[str, int]:
        """See `BackupPlace`."""
        with self._explained():
            # Without this, a listing of before may be answered.
            self._files.invalidate_cache()
            try:
                found = self._files.find(self._path(folder), detail=True)
            except FileNotFoundError:
                return {}
            return {
                self._relative(path): int(entry.get("size") or 0) for path, entry in found.items()
            }

    def _relative(self, path: str) -> str:
        return path[path.rindex(self._root) + len(self._root) + 1 :] if self._root else path

    def remove(self, name: str) -> None:
        """See `BackupPlace`."""
        with self._explained(), suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def remove_unfinished(self) -> None:
        """See `BackupPlace`: an upload that was not finished is no file."""

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (BackupError, ModuleNotFoundError):
            raise
        except ImportError as error:  # fsspec says which package a scheme needs
            raise BackupError(f"{self._text}: {error}") from None
        # Every implementation has errors of its own.
        except Exception as error:
            text = str(error).replace("\n", " ") or type(error).__name__
            raise BackupError(f"{self._text}: {text}") from None
