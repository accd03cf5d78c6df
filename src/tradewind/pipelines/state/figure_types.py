"""The figures of a lake table, as status files and pages carry them.

The module needs no extra: the dashboard shows figures where no lake can be read.
"""

from __future__ import annotations

import msgspec


class LakeFigures(msgspec.Struct, frozen=True):
    """A table according to its log; times are nanoseconds since 1970, 0 if nothing is there.

    Unless it `is_exact`, some rows of the files are deleted, and only a reader knows which.
    """

    rows: int = 0
    files: int = 0
    bytes: int = 0
    version: str = ""
    committed_ns: int = 0
    is_exact: bool = True
