"""Keys of a bucket: one page of names, the history of a key, the difference of two revisions.

Owns the requests. A page of keys is a page of the subjects of the stream, so that a bucket with a
million keys costs one request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tradewind.api.names import KV_STREAM, KV_SUBJECTS
from tradewind.api.times import parse_time
from tradewind.client.kv.entries import Entry, check_key
from tradewind.client.kv.kv_types import operation_of
from tradewind.client.streams.bucket_settings import HISTORY_MAX
from tradewind.client.streams.direct import DirectMessage, read_batch, read_last
from tradewind.dashboard.data.changes import LINES_COMPARED_MAX, DiffLine, line_differences
from tradewind.dashboard.data.message_data import as_json, as_text
from tradewind.dashboard.data.samplers import Question
from tradewind.durations import SECOND_NS, parse_duration_ns

if TYPE_CHECKING:
    from tradewind.client.jetstream import JetStream
    from tradewind.client.kv.kv import KeyValue
    from tradewind.dashboard.data.workspace import Workspace

KEYS_SHOWN: Final = 100
HISTORY_SHOWN: Final = 64
# The values of a page of keys are read at once, at most so many bytes of them.
VALUES_BYTES_MAX: Final = 1 << 20
VALUES_SECONDS: Final = 3.0
TTL_HEADER: Final = "Nats-TTL"


@dataclass(frozen=True, slots=True)
class Keys:
    """Some keys, and the number of all, including deleted ones that leave a marker."""

    keys: list[str]
    total: int


async def list_keys(workspace: Workspace, bucket: str, search: str) -> Keys:
    """Keys that begin with a text: exactly up to its last dot, and by prefix after that."""
    whole, dot, part = search.rpartition(".")
    prefix = f"{KV_SUBJECTS}{bucket}."
    pattern = f"{prefix}{whole}{dot}>"
    found, total = await workspace.catalog.subject_names(KV_STREAM + bucket, pattern)
    keys = [name.removeprefix(prefix) for name in found]
    chosen = sorted(key for key in keys if key.startswith(f"{whole}{dot}{part}"))
    return Keys(chosen[:KEYS_SHOWN], total)


async def newest_entries(
    workspace: Workspace, bucket: str, keys: Sequence[str]
) -> dict[str, Entry]:
    """The newest entry of each key, as far as they fit into one batch; none if the bucket allows no
    direct gets.
    """
    name = KV_STREAM + bucket
    prefix = f"{KV_SUBJECTS}{bucket}."
    shown = tuple(keys[:KEYS_SHOWN])

    async def ask() -> dict[str, Entry]:
        jetstream = workspace.jetstream
        if not (await jetstream.manager.streams.info(name)).config.allow_direct:
            return {}
        subjects = [prefix + key for key in shown]
        batch = await read_last(jetstream.api, name, subjects, bytes_max=VALUES_BYTES_MAX)
        found = {}
        for item in batch.messages:
            key = item.subject.removeprefix(prefix)
            found[key] = _entry(bucket, key, item)
        return found

    seen = await workspace.samplers.see(Question(("kv values", bucket, shown), ask, VALUES_SECONDS))
    return seen.value or {}


@dataclass(frozen=True, slots=True)
class History:
    """The stored entries of a key, newest first, and when the newest one expires."""

    entries: list[Entry]
    expires_ns: int | None = None


async def key_history(jetstream: JetStream, bucket: KeyValue, key: str) -> History:
    """The stored entries of a key; without a consumer, so that an open page leaves no trace."""
    check_key(key)
    if not (await bucket.status()).info.config.allow_direct:
        found = [entry async for entry in bucket.history(key)]
        return History(found[::-1][:HISTORY_SHOWN])
    subject = f"{KV_SUBJECTS}{bucket.bucket}.{key}"
    batch = await read_batch(
        jetstream.api, bucket.stream, subject, start=1, messages_max=HISTORY_MAX
    )
    newest = batch.messages[::-1][:HISTORY_SHOWN]
    entries = [_entry(bucket.bucket, key, item) for item in newest]
    return History(entries, _expires(newest[0]) if newest else None)


def _entry(bucket: str, key: str, item: DirectMessage) -> Entry:
    message = item.message
    operation = operation_of(message.headers)
    return Entry(bucket, key, message.data, item.sequence, parse_time(item.time), operation)


def _expires(item: DirectMessage) -> int | None:
    text = item.message.headers.get(TTL_HEADER, "")
    is_number = text.isascii() and text.isdecimal() and len(text) < 19
    left = int(text) * SECOND_NS if is_number else parse_duration_ns(text)
    return parse_time(item.time) + left if left and left > 0 else None


def value_difference(before: bytes, after: bytes) -> list[DiffLine]:
    """The changes between two values, by lines; JSON is indented first."""
    old = (as_json(before) or as_text(before)).splitlines()[:LINES_COMPARED_MAX]
    new = (as_json(after) or as_text(after)).splitlines()[:LINES_COMPARED_MAX]
    return line_differences(old, new, 2)
