"""Finds and reads the modules of packages with less work than Python's own importer does.

Owns a finder for modules whose package is one folder, which is what a start loads hundreds of. It
lists each folder once, and reads compiled code whose source has not changed since. Everything else
is left to Python: top-level modules, sources to compile, archives, packages in several folders.
Only the process of a server uses it.
"""

from __future__ import annotations

import _imp
import marshal
import os
import sys

# The part of importlib that every process has; `importlib.util` takes a millisecond.
from importlib._bootstrap import ModuleSpec
from importlib._bootstrap_external import (
    EXTENSION_SUFFIXES,
    MAGIC_NUMBER,
    ExtensionFileLoader,
    SourceFileLoader,
)

TYPE_CHECKING = False  # as in typing, which is not needed this early
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType

_HEADER_BYTES = 16
# The flags of a file that is compared with its source by time and size.
_BY_TIME = (0).to_bytes(4, "little")
_CACHE = "__pycache__"
_WORD = 0xFFFFFFFF


class QuickLoader(SourceFileLoader):
    """Loads a module from its compiled file if that is up to date, else as Python does."""

    def get_code(self, fullname: str) -> CodeType | None:
        """The code of the module."""
        try:
            data = self.get_data(_compiled_file(self.path))
            source = self.path_stats(self.path)
        except OSError:
            return super().get_code(fullname)
        changed, size = int(source["mtime"]) & _WORD, source["size"] & _WORD
        header = (
            MAGIC_NUMBER + _BY_TIME + changed.to_bytes(4, "little") + size.to_bytes(4, "little")
        )
        if data[:_HEADER_BYTES] != header:
            return super().get_code(fullname)
        code: CodeType = marshal.loads(memoryview(data)[_HEADER_BYTES:])  # noqa: S302
        _imp._fix_co_filename(code, self.path)  # type: ignore[attr-defined]
        return code


class QuickFinder:
    """Finds modules in the folder of their package."""

    def __init__(self) -> None:
        self._names: dict[str, frozenset[str]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The place of a module; None if Python is to look for it."""
        if type(path) is not list or len(path) != 1:
            return None
        folder, tail = path[0], name.rpartition(".")[2]
        names = self._names_in(folder)
        for suffix in EXTENSION_SUFFIXES:
            if tail + suffix in names:
                file = f"{folder}/{tail}{suffix}"
                return _spec(name, ExtensionFileLoader(name, file), file)
        if f"{tail}.py" in names:
            file = f"{folder}/{tail}.py"
            spec = _spec(name, QuickLoader(name, file), file)
        elif tail in names and "__init__.py" in self._names_in(f"{folder}/{tail}"):
            file = f"{folder}/{tail}/__init__.py"
            spec = _spec(name, QuickLoader(name, file), file)
            spec.submodule_search_locations = [f"{folder}/{tail}"]
        else:
            return None
        spec.cached = _compiled_file(file)
        return spec

    def invalidate_caches(self) -> None:
        """Called when modules were added while the process runs."""
        self._names.clear()

    def _names_in(self, folder: str) -> frozenset[str]:
        if (names := self._names.get(folder)) is None:
            try:
                names = frozenset(os.listdir(folder))  # noqa: PTH208 - pathlib is not loaded
            except OSError:
                names = frozenset()
            self._names[folder] = names
        return names


def import_quickly() -> None:
    """Find modules of packages with `QuickFinder` from now on."""
    if sys.implementation.cache_tag and sys.pycache_prefix is None and not sys.flags.optimize:
        sys.meta_path.insert(0, QuickFinder())


def _compiled_file(source: str) -> str:
    folder, _, file = source.rpartition("/")
    return f"{folder}/{_CACHE}/{file[:-3]}.{sys.implementation.cache_tag}.pyc"


def _spec(name: str, loader: SourceFileLoader | ExtensionFileLoader, file: str) -> ModuleSpec:
    spec = ModuleSpec(name, loader, origin=file)
    spec.has_location = True
    return spec
