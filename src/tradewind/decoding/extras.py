"""Libraries that only some formats need.

Owns the check that they are there.
"""

from __future__ import annotations

from importlib.util import find_spec

from tradewind.decoding.decoder_contract import DecodingError
from tradewind.extra_packages import install_command


def require(library: str, extra: str) -> None:
    """Refuse to go on without a library."""
    try:
        is_there = find_spec(library) is not None
    except ImportError:
        is_there = False
    if not is_there:
        raise DecodingError(
            f"payload {extra} needs the library {library}: {install_command(extra)}"
        )
