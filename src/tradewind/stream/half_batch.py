"""A batch whose commit a crash has cut in two: what is stored of it goes.

Owns how such a batch is recognised. Nobody was promised any of it: the acknowledgement of a batch
leaves when all of it is synced. A batch is in one block and written in one go, so what a killed
server leaves of it is its beginning, at the very end of the stream. nats-server keeps a copy of
open batches and stores the rest of it instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.store.contract import NotFoundError
from tradewind.stream import headers

if TYPE_CHECKING:
    from tradewind.store.table.messages import MessageStore


def remove_half_batch(store: MessageStore) -> int:
    """Remove the beginning of a batch at the end of a store; gives how many messages that were."""
    batch_id = b""
    found: list[int] = []
    for seq in range(store.last_seq, 0, -1):
        try:
            fields = headers.special_fields(store.get(seq).header)
        except NotFoundError:
            break  # that was deleted, so it was complete
        if not fields.get(headers.BATCH_ID) or fields.get(headers.BATCH_COMMIT):
            break
        batch_id = batch_id or fields[headers.BATCH_ID]
        if fields[headers.BATCH_ID] != batch_id:
            break
        found.append(seq)
        if fields.get(headers.BATCH_SEQUENCE) == b"1":
            break
    for seq in found:
        store.remove(seq)
    return len(found)
