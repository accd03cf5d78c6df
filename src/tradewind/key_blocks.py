"""The blocks of key files: a word between a begin line and an end line.

Owns finding them, in one pass: a visitor of the dashboard may send megabytes of dashes.

    -----BEGIN NATS USER JWT-----
    eyJ0eXAiOiJKV1Qi...
    ------END NATS USER JWT------
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BEGIN = "---BEGIN "
_NAME = re.compile(r"([A-Z ]{1,64})-{3,}")
_WORD = re.compile(r"\s+(\S+)\s+-{3,}END ")
_DASHES = "---"


def key_blocks(text: str) -> Iterator[tuple[str, str]]:
    """The name and word of each block, such as "NATS USER JWT" and the JWT."""
    start = text.find(_BEGIN)
    while start >= 0:
        name = _NAME.match(text, start + len(_BEGIN))
        word = _WORD.match(text, name.end()) if name is not None else None
        start = text.find(_BEGIN, start + len(_BEGIN))
        if name is None or word is None or not text.startswith(name[1] + _DASHES, word.end()):
            continue
        yield name[1], word[1]
        start = text.find(_BEGIN, word.end())
