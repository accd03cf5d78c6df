"""Names, texts and durations of streams and consumers.

Owns their limits, and the rules for names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

NAME_BYTES_MAX: Final = 255
DESCRIPTION_BYTES_MAX: Final = 4096
METADATA_BYTES_MAX: Final = 131072
_NAME: Final = re.compile(r"[^ \t\r\n\f.*>\\/]+")


def is_valid_name(name: str) -> bool:
    """Whether a stream or consumer may have this name, apart from its length."""
    return _NAME.fullmatch(name) is not None


def metadata_bytes(metadata: Mapping[str, str]) -> int:
    """The size that counts against METADATA_BYTES_MAX."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items())
