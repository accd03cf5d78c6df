"""Which rows an earlier attempt has stored, found in the target itself.

Owns the search through the end of a stream for message ids. It reads everything behind a sequence,
and says how many messages are not there any more: of those nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from tradewind.spark.filters import RowFilter
from tradewind.spark.network import Address, RangeTask

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo
    from tradewind.spark.options import SourceOptions

ID_HEADER: Final = "Nats-Msg-Id"


@dataclass(frozen=True, slots=True)
class Stored:
    """The ids that were found, and how many messages could not be looked at."""

    ids: set[bytes]
    missing: int


def find_stored(
    address: SourceOptions, info: StreamInfo, after_seq: int, last_seq: int, prefix: str
) -> Stored:
    """All ids with a prefix of messages behind `after_seq`, up to `last_seq`."""
    if after_seq >= last_seq:
        return Stored(set(), 0)
    by_direct = info.config.retention != "limits"
    if by_direct and not info.config.allow_direct:
        # To look would take messages away from those who are to get them.
        return Stored(set(), last_seq - after_seq)
    rows = RowFilter().between(after_seq + 1, last_seq)
    task = RangeTask(Address(address), info.config.name, rows, by_direct)
    ids: set[bytes] = set()
    count = 0
    for batch in task.batches(("headers",)):
        count += batch.num_rows
        headers = batch.column(0)
        values = pc.list_element(headers.items.filter(pc.equal(headers.keys, ID_HEADER)), 0)
        chosen = values.filter(pc.starts_with(values, prefix))
        ids.update(value.encode() for value in chosen.to_pylist())
    return Stored(ids, last_seq - after_seq - count)


def all_ordinals(ids: set[bytes]) -> set[bytes]:
    """The ids of all rows of a key up to those that are stored: a bucket may keep the last only."""
    result: set[bytes] = set()
    for one in ids:
        key, _, ordinal = one.rpartition(b"-")
        result.update(b"%s-%d" % (key, number) for number in range(1, int(ordinal) + 1))
    return result
