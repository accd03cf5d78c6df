"""Finds the rows that an earlier attempt has stored, in the target itself.

Owns the search through the end of a stream for message ids. The search reads everything after a
sequence, and reports how many messages are no longer there: their ids are unknown.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from tradewind.client.api_errors import NoMessageFoundError
from tradewind.client.errors import OperationTimeoutError
from tradewind.spark.contract.filters import RowFilter
from tradewind.spark.contract.planning import messages_ahead
from tradewind.spark.options.source_options import SourceOptions
from tradewind.spark.providers.network import RangeTask, ReadAddress

if TYPE_CHECKING:
    import pyarrow as pa

    from tradewind.api.stream_types import StreamInfo
    from tradewind.client.connection import Connection
    from tradewind.client.streams.manager import Streams

ID_HEADER: Final = "Nats-Msg-Id"
READABLE_SECONDS: Final = 10.0
READABLE_WAIT_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class StoredRow:
    """The ids that were found, and how many messages could not be looked at."""

    ids: set[bytes]
    missing: int


async def wait_readable(streams: Streams, info: StreamInfo) -> None:
    """Wait until the last message of a stream can be read, which it can when it is synced.

    Before that a reader would not see the last ones, and a power failure could take them back, so
    that others get their sequences.
    """
    name, last_seq = info.config.name, info.state.last_seq
    deadline = time.monotonic() + READABLE_SECONDS
    while last_seq:
        try:
            await streams.get_message(name, seq=last_seq)
        except NoMessageFoundError:
            state = (await streams.info(name, deleted_details=True)).state
            if last_seq < state.first_seq or last_seq in state.deleted:
                return
        else:
            return
        if time.monotonic() >= deadline:
            raise OperationTimeoutError(f"stream {name}: message {last_seq} cannot be read yet")
        await asyncio.sleep(READABLE_WAIT_SECONDS)


def find_stored(
    address: SourceOptions, info: StreamInfo, after_seq: int, last_seq: int, prefix: str
) -> StoredRow:
    """All ids with a prefix of messages after `after_seq`, up to `last_seq`."""
    task = _search_task(address, info, after_seq, last_seq)
    found = _FoundIds(prefix)
    for batch in task.batches(("headers",)) if task is not None else ():
        found.take(batch)
    return StoredRow(found.ids, max(last_seq - after_seq, 0) - found.count)


async def find_stored_on(
    connection: Connection, info: StreamInfo, after_seq: int, last_seq: int, prefix: str
) -> StoredRow:
    """The same over a connection that there is already."""
    task = _search_task(SourceOptions(), info, after_seq, last_seq)
    found = _FoundIds(prefix)
    if task is not None:
        async for batch in task.batches_on(connection, ("headers",)):
            found.take(batch)
    return StoredRow(found.ids, max(last_seq - after_seq, 0) - found.count)


def _search_task(
    address: SourceOptions, info: StreamInfo, after_seq: int, last_seq: int
) -> RangeTask | None:
    """The read of these messages; None if there are none, or if they cannot be looked at."""
    by_direct = info.config.retention != "limits"
    if after_seq >= last_seq or (by_direct and not info.config.allow_direct):
        # To look would take messages away from those who are to get them.
        return None
    rows = RowFilter().between(after_seq + 1, last_seq)
    ahead = messages_ahead(info.state.bytes, info.state.messages)
    return RangeTask(ReadAddress(address), info.config.name, rows, by_direct, ahead)


class _FoundIds:
    """The ids with a prefix among messages, whose number is counted."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.ids: set[bytes] = set()
        self.count = 0

    def take(self, batch: pa.RecordBatch) -> None:
        """Look at the headers of some messages."""
        self.count += batch.num_rows
        headers = batch.column(0)
        values = pc.list_element(headers.items.filter(pc.equal(headers.keys, ID_HEADER)), 0)
        chosen = values.filter(pc.starts_with(values, self._prefix))
        self.ids.update(value.encode() for value in chosen.to_pylist())


def all_ordinals(ids: set[bytes]) -> set[bytes]:
    """The ids of all rows of a key up to those that are stored: a bucket may keep the last only."""
    result: set[bytes] = set()
    for one in ids:
        key, _, ordinal = one.rpartition(b"-")
        result.update(b"%s-%d" % (key, number) for number in range(1, int(ordinal) + 1))
    return result
