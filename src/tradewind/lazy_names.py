"""Names of a package that are imported when they are first used, so that the package costs nothing.

Owns the two functions that Python looks for in such a package. The package imports the names for
type checkers under `TYPE_CHECKING`; a test compares both.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which takes longer to import than everything here
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package; `homes` has the module of each name, which is the
    package itself for its own modules.
    """

    def get(name: str) -> Any:
        import importlib
        import sys

        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == package:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        import sys

        return sorted({*vars(sys.modules[package]), *homes})

    return get, names
