"""Modules that other modules import and hardly ever use: a start does without them.

Owns the stand-ins that are in their place while the event loop and the decoder are imported: the
module itself is loaded when something first uses it. `inspect` alone, which asyncio imports for a
question that a server never asks, takes as long as a tenth of a start. Only the process of a server
does this, before anything else is imported; it never changes what another program imports.
"""

from __future__ import annotations

import sys
from types import ModuleType

TYPE_CHECKING = False  # as in typing, which this module must not import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# The functions that uvloop takes out of a module when it is imported.
_TAKEN = {"inspect": ("isgenerator", "iscoroutinefunction")}
# Used by functions of asyncio, traceback and subprocess that report errors or start processes.
LATE = ("inspect", "locale", "textwrap", "tokenize")


class LateModule(ModuleType):
    """A module that is imported when one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        if name in _TAKEN.get(self.__name__, ()):
            return _late_function(self, name)
        return getattr(_loaded(self), name)


class Late:
    """`with Late(names):` what is imported inside gets stand-ins for these modules."""

    def __init__(self, names: tuple[str, ...] = LATE) -> None:
        self._names = names

    def __enter__(self) -> None:
        for name in self._names:
            if name not in sys.modules:
                sys.modules[name] = LateModule(name)

    def __exit__(self, *exc: object) -> None:
        for name in self._names:
            _withdraw(name)


class Absent:
    """`with Absent(name):` what is imported inside cannot import this module; nothing happens if
    it is loaded already.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        # Python's own mark for a module that is not to be imported.
        sys.modules.setdefault(self._name, None)  # type: ignore[arg-type]

    def __exit__(self, *exc: object) -> None:
        if sys.modules[self._name] is None:
            del sys.modules[self._name]


def import_decoder() -> None:
    """Import msgspec without the package that it prefers to `typing` on an older Python."""
    with Late(), Absent("typing_extensions"):
        import msgspec  # noqa: F401


def import_event_loop() -> None:
    """Import asyncio and uvloop."""
    with Late():
        import uvloop  # noqa: F401


def _withdraw(name: str) -> None:
    if isinstance(sys.modules.get(name), LateModule):
        del sys.modules[name]


def _loaded(late: ModuleType) -> ModuleType:
    import importlib

    _withdraw(late.__name__)
    return importlib.import_module(late.__name__)


def _late_function(late: ModuleType, name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(_loaded(late), name)(*args, **kwargs)

    return call
