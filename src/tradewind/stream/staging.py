"""Atomic batches that are open: messages that wait for the last one of their batch.

Owns which batches a stream has, the order of their messages, their limits and how long they may
rest. Nothing of a batch is stored before it is committed; an open one is gone with the server, as
with nats-server. What a committed batch has to fulfil is in `batch_checks`.

    Nats-Batch-Id: b   Nats-Batch-Sequence: 1                          -> an empty answer
    Nats-Batch-Id: b   Nats-Batch-Sequence: 2
    Nats-Batch-Id: b   Nats-Batch-Sequence: 3   Nats-Batch-Commit: 1   -> {"seq":7,"count":3,...}

With the commit `eob` the last message only ends the batch: it is not stored itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api import errors
from tradewind.api.versioning import is_level_known
from tradewind.stream import headers
from tradewind.stream.publish import Publish, whole_number

if TYPE_CHECKING:
    from tradewind.api.errors import ApiError

ID_BYTES_MAX: Final = 64
# What the open batches of one stream may hold in memory; nats-server has no such limit. A batch is
# stored in one block, and those are read up to 64 MiB.
STAGED_BYTES_MAX: Final = 32 * 1024 * 1024
_COMMIT: Final = b"1"
_COMMIT_WITHOUT: Final = b"eob"


class BatchLimits(msgspec.Struct):
    """What one server allows, and how many batches are open there in all."""

    msgs_max: int = 1000
    per_stream_max: int = 50
    total_max: int = 1000
    rest_ns: int = 10_000_000_000
    open_count: int = 0
    # Of fast batches, which hold no messages.
    fast_per_stream_max: int = 1000
    fast_total_max: int = 50_000
    fast_open_count: int = 0


def batch_limits(given: Mapping[str, int]) -> BatchLimits:
    """Those of a configuration; what is not positive there is as if it were not."""
    names = {
        "batch_max_msgs": "msgs_max",
        "batch_max_inflight_per_stream": "per_stream_max",
        "batch_max_inflight_total": "total_max",
        "batch_timeout_ns": "rest_ns",
    }
    chosen = {field: given.get(name, 0) for name, field in names.items()}
    chosen["fast_per_stream_max"] = chosen["per_stream_max"]
    chosen["fast_total_max"] = chosen["total_max"]
    return BatchLimits(**{field: value for field, value in chosen.items() if value > 0})


class OpenBatch(msgspec.Struct):
    """A batch on its way in. `rests_until_ns` is on the monotonic clock."""

    messages: list[Publish]
    bytes: int
    rests_until_ns: int


class AbandonedError(Exception):
    """A batch is given up: `reason` is for the event, None if there is none."""

    def __init__(self, error: ApiError, reason: str | None) -> None:
        super().__init__(error.description)
        self.error = error
        self.reason = reason


class Staging:
    """The open batches of a stream. `abandoned(id, reason)` is told of those that are given up."""

    def __init__(self, limits: BatchLimits, abandoned: Callable[[bytes, str], None]) -> None:
        self._limits = limits
        self._abandoned = abandoned
        self._open: dict[bytes, OpenBatch] = {}
        self._bytes = 0

    def add(self, message: Publish, now_ns: int) -> list[Publish] | None:
        """Take a message; all of its batch if it commits that, else None. ApiError if refused."""
        batch_id = message.fields[headers.BATCH_ID]
        if len(batch_id) > ID_BYTES_MAX:
            raise errors.ATOMIC_PUBLISH_INVALID_BATCH_ID()
        number = whole_number(message.fields.get(headers.BATCH_SEQUENCE, b""))
        if number is None:
            raise errors.ATOMIC_PUBLISH_MISSING_SEQ()
        commit = message.fields.get(headers.BATCH_COMMIT, b"")
        batch = self._open.get(batch_id)
        if batch is None:
            batch = self._begin(batch_id, number, commit, now_ns)
        try:
            return self._extend(batch_id, batch, message, number, commit, now_ns)
        except AbandonedError as refusal:
            self._drop(batch_id)
            if refusal.reason is not None:
                self._abandoned(batch_id, refusal.reason)
            raise refusal.error from None

    def _begin(self, batch_id: bytes, number: int, commit: bytes, now_ns: int) -> OpenBatch:
        limits = self._limits
        if number != 1:
            if number - (commit == _COMMIT_WITHOUT) > limits.msgs_max:
                raise errors.ATOMIC_PUBLISH_TOO_LARGE_BATCH(size=limits.msgs_max)
            raise errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH()
        if len(self._open) >= limits.per_stream_max or limits.open_count >= limits.total_max:
            raise errors.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT()
        batch = self._open[batch_id] = OpenBatch([], 0, now_ns + limits.rest_ns)
        limits.open_count += 1
        return batch

    def _extend(
        self,
        batch_id: bytes,
        batch: OpenBatch,
        message: Publish,
        number: int,
        commit: bytes,
        now_ns: int,
    ) -> list[Publish] | None:
        if commit not in (b"", _COMMIT, _COMMIT_WITHOUT):
            raise AbandonedError(errors.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT(), None)
        if not is_level_known(message.header):
            raise AbandonedError(errors.REQUIRED_API_LEVEL(), "unsupported")
        is_end = commit == _COMMIT_WITHOUT
        if number != len(batch.messages) + 1 or (is_end and number == 1):
            raise AbandonedError(errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH(), "incomplete")
        if number - is_end > self._limits.msgs_max:
            error = errors.ATOMIC_PUBLISH_TOO_LARGE_BATCH(size=self._limits.msgs_max)
            raise AbandonedError(error, "large")
        size = len(message.subject) + len(message.header) + len(message.payload)
        if self._bytes + size > STAGED_BYTES_MAX:
            raise AbandonedError(errors.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT(), "large")
        if is_end:
            batch.messages[-1] = _with_commit(batch.messages[-1])
        else:
            batch.messages.append(_without_level(message))
            batch.bytes += size
            self._bytes += size
        if commit:
            self._drop(batch_id)
            return batch.messages
        batch.rests_until_ns = now_ns + self._limits.rest_ns
        return None

    def _drop(self, batch_id: bytes) -> None:
        batch = self._open.pop(batch_id)
        self._bytes -= batch.bytes
        self._limits.open_count -= 1

    def clear(self) -> None:
        """Forget all of them, without a word."""
        for batch_id in list(self._open):
            self._drop(batch_id)

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` has something to do (monotonic); 0: never."""
        return min((batch.rests_until_ns for batch in self._open.values()), default=0)

    def tick(self, now_ns: int) -> None:
        """Give up those that have rested for too long."""
        for batch_id, batch in list(self._open.items()):
            if batch.rests_until_ns <= now_ns:
                self._drop(batch_id)
                self._abandoned(batch_id, "timeout")


def _with_commit(message: Publish) -> Publish:
    header = headers.add_fields(message.header, b"%s: 1\r\n" % headers.BATCH_COMMIT)
    return Publish(message.subject, header, message.payload, message.fields)


def _without_level(message: Publish) -> Publish:
    header = headers.remove_field(message.header, headers.REQUIRED_API_LEVEL)
    return Publish(message.subject, header, message.payload, message.fields)
