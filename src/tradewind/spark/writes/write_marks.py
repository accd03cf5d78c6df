"""Marks: the state that a sink keeps about its partitions, in a bucket beside the target.

Owns the rule by which an attempt at a partition takes over from the previous one, and when each may
write. There is one mark for each partition of a query; a change names the revision that it
replaces, so that only one of two attempts can continue.

    epoch 7                     an attempt is at it; all it stored is after `after_seq`
    epoch 7, rows and digest    this many rows of epoch 7 are stored, with these hashes in sum

The second form never means that the epoch has no more rows; see `partition_write`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from tradewind.client.errors import BucketNotFoundError, KeyExistsError, WrongRevisionError
from tradewind.spark.connections.patience import PASSING, RETRY_SECONDS, patiently
from tradewind.spark.errors import SupersededError

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo
    from tradewind.client.jetstream import JetStream
    from tradewind.client.kv.kv import KeyValue


class Mark(msgspec.Struct, frozen=True):
    """The progress of one partition. `attempt` wrote it; `rows` are acknowledged."""

    epoch: int
    attempt: str
    created: str
    after_seq: int
    opened_ns: int
    rows: int = 0
    digest: str = ""

    def is_of(self, rows: int, digest: int) -> bool:
        """Whether exactly these rows are acknowledged."""
        return (self.rows, self.digest) == (rows, digest_text(digest))


def digest_text(digest: int) -> str:
    """The sum of the hashes of rows, as marks have it."""
    return f"{digest:016x}"


def query_token(query: str, target: str) -> str:
    """A short name for a query and the stream that it writes to."""
    digest = hashlib.sha256(f"{query}\0{target}".encode()).digest()
    return base64.urlsafe_b64encode(digest[:12]).decode()


class WriteRun(msgspec.Struct, frozen=True):
    """A run of a program that makes a named write; there is one for all partitions.

    Rows of runs before this one are after `after_seq` and not after `until_seq`. Only Spark's
    commit sets `is_done` and `rows`.
    """

    epoch: int
    run: str
    created: str
    after_seq: int
    until_seq: int
    opened_ns: int
    is_done: bool = False
    rows: int = 0


_Kind = TypeVar("_Kind", Mark, WriteRun)


class KeptMark(Generic[_Kind]):
    """One key of the bucket, as one attempt sees it."""

    def __init__(self, bucket: KeyValue, key: str, kind: type[_Kind], seconds: float) -> None:
        self._bucket = bucket
        self._key = key
        self._kind: type[_Kind] = kind
        self._seconds = seconds
        self._revision: int | None = None
        self.current: _Kind | None = None

    async def load(self) -> _Kind | None:
        """The mark that the last attempt left; None if there was none."""
        entry = await patiently(lambda: self._bucket.get(self._key), self._seconds)
        if entry is None:
            self._revision, self.current = None, None
        else:
            self._revision = entry.revision
            self.current = msgspec.json.decode(entry.value, type=self._kind)
        return self.current

    async def store(self, mark: _Kind) -> None:
        """Replace the mark that was loaded or stored last; SupersededError if it is another now."""
        value = msgspec.json.encode(mark)
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                self._revision = await self._write(value)
            except (WrongRevisionError, KeyExistsError):
                if not await self._is_stored(mark):
                    raise SupersededError(
                        f"partition {self._key}: another attempt at epoch {mark.epoch} has taken"
                        " over; this one stops"
                    ) from None
            except PASSING:
                # The mark may be stored or not; the next try will show.
                if time.monotonic() >= deadline:
                    raise
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self.current = mark
            return

    async def _write(self, value: bytes) -> int:
        if self._revision is None:
            return await self._bucket.create(self._key, value)
        return await self._bucket.update(self._key, value, self._revision)

    async def _is_stored(self, mark: _Kind) -> bool:
        """Whether the write whose answer was lost did arrive."""
        entry = await patiently(lambda: self._bucket.get(self._key), self._seconds)
        if entry is None or msgspec.json.decode(entry.value, type=self._kind) != mark:
            return False
        self._revision = entry.revision
        return True


async def open_marks(js: JetStream, name: str, target: StreamInfo, seconds: float) -> KeyValue:
    """The bucket of the marks; it is made if it is not there, as safe as the target is."""

    async def find() -> KeyValue:
        try:
            return await js.kv.open(name)
        except BucketNotFoundError:
            return await js.kv.create(
                name,
                history=1,
                replicas=target.config.num_replicas,
                description="What Spark sinks have written; remove it only with their checkpoints",
            )

    return await patiently(find, seconds)


async def join_run(kept: KeptMark[WriteRun], epoch: int, run: str, target: StreamInfo) -> WriteRun:
    """The run that a task is part of, begun by the first of its tasks that comes.

    The run is another one if there is nothing to do: the version, or a later one, is done.
    """
    while True:
        found = await kept.load()
        begun: WriteRun
        if found is None or found.created != target.created or found.epoch < epoch:
            end = target.state.last_seq
            begun = WriteRun(epoch, run, target.created, end, end, time.time_ns())
        elif found.epoch > epoch or found.is_done or found.run == run:
            return found
        else:
            begun = msgspec.structs.replace(found, run=run, until_seq=target.state.last_seq)
        try:
            await kept.store(begun)
        except SupersededError:
            continue
        return begun
