"""Keys of a bucket: one page of names, the history of one key, the change between two revisions.

Owns the questions. A page of keys is a page of the subjects of the stream, so that a bucket with a
million keys costs one request.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tradewind.dashboard.data.changes import DiffLine
from tradewind.dashboard.data.messages import as_json, as_text

if TYPE_CHECKING:
    from tradewind.client.kv.entries import Entry
    from tradewind.client.kv.kv import KeyValue
    from tradewind.dashboard.data.workspace import Workspace

KV_PREFIX: Final = "KV_"
KEYS_SHOWN: Final = 100
HISTORY_SHOWN: Final = 64
LINES_COMPARED_MAX: Final = 2000


@dataclass(frozen=True, slots=True)
class Keys:
    """Some keys, and how many there are, with those that are deleted and leave a marker."""

    keys: list[str]
    total: int


async def list_keys(workspace: Workspace, bucket: str, search: str) -> Keys:
    """Keys that begin with a text, up to its last dot exactly and behind that by its letters."""
    whole, dot, part = search.rpartition(".")
    prefix = f"$KV.{bucket}."
    pattern = f"{prefix}{whole}{dot}>"
    found, total = await workspace.catalog.subject_names(KV_PREFIX + bucket, pattern)
    keys = [name.removeprefix(prefix) for name in found]
    chosen = sorted(key for key in keys if key.startswith(f"{whole}{dot}{part}"))
    return Keys(chosen[:KEYS_SHOWN], total)


async def key_history(bucket: KeyValue, key: str) -> list[Entry]:
    """The entries that are kept of a key, newest first."""
    found = [entry async for entry in bucket.history(key)]
    return found[::-1][:HISTORY_SHOWN]


def value_difference(before: bytes, after: bytes) -> list[DiffLine]:
    """What changed between two values, by lines; JSON is put into lines first."""
    old = (as_json(before) or as_text(before)).splitlines()[:LINES_COMPARED_MAX]
    new = (as_json(after) or as_text(after)).splitlines()[:LINES_COMPARED_MAX]
    lines = list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]
    made = []
    for line in lines:
        if line.startswith("@@"):
            continue
        kind = {"+": "added", "-": "removed"}.get(line[:1], "same")
        made.append(DiffLine(kind, line))  # type: ignore[arg-type]
    return made
