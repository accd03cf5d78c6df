"""Names, texts and durations of streams and consumers.

Owns their limits, the rules for names, and the names of the streams and subjects of buckets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

NAME_BYTES_MAX: Final = 255
DESCRIPTION_BYTES_MAX: Final = 4096
METADATA_BYTES_MAX: Final = 131072
# The stream of a key-value bucket or an object store is called this and its name; its subjects
# begin with this, its name and a dot.
KV_STREAM: Final = "KV_"
KV_SUBJECTS: Final = "$KV."
OBJECT_STREAM: Final = "OBJ_"
OBJECT_SUBJECTS: Final = "$O."
# Settings in metadata, with the keys that begin so.
SCHEMA_KEY: Final = "tradewind.schema"
ORDER_PREFIX: Final = "tradewind.order"
_NAME: Final = re.compile(r"[^ \t\r\n\f.*>\\/]+")


def is_valid_name(name: str) -> bool:
    """Whether a stream or consumer may have this name, apart from its length."""
    return _NAME.fullmatch(name) is not None


def metadata_bytes(metadata: Mapping[str, str]) -> int:
    """The size that counts against METADATA_BYTES_MAX."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items())


def has_setting(metadata: Mapping[str, str] | None, prefix: str) -> bool:
    """Whether metadata has a key that begins so."""
    return bool(metadata) and any(key.startswith(prefix) for key in metadata or ())


def has_schema_rule(metadata: Mapping[str, str] | None) -> bool:
    """Whether a stream checks payloads; its messages need a closer look then."""
    return metadata is not None and SCHEMA_KEY in metadata
