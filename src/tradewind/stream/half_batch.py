"""A batch whose commit a crash has cut in two: what is stored of it goes.

Owns how the parts of a batch are recognised. Nobody was promised any of it: the acknowledgement of
a batch leaves when all of it is synced. A batch is in one block, so the recovery of the store finds
those that are not whole, wherever a power failure has left them, and takes them out before anything
else counts them (`BATCHES`). In a folder of nats-server, which says nowhere what is synced, only
the beginning of a batch at the very end of the stream is one; nats-server itself keeps a copy of
open batches and stores the rest instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tradewind.store.contract import NotFoundError
from tradewind.store.repair.units import UnitPart, UnitRule
from tradewind.stream import headers
from tradewind.stream.publish import whole_number

if TYPE_CHECKING:
    from tradewind.store.table.messages import MessageStore


def part_of(header: bytes) -> UnitPart | None:
    """What a stored message says of the batch that it came with."""
    fields = headers.special_fields(header)
    batch_id = fields.get(headers.BATCH_ID)
    number = whole_number(fields.get(headers.BATCH_SEQUENCE, b""))
    if not batch_id or not number:
        return None
    return UnitPart(batch_id, number, is_last=bool(fields.get(headers.BATCH_COMMIT)))


BATCHES: Final = UnitRule(part_of, headers.BATCH_ID + b":")


def remove_half_batch(store: MessageStore) -> int:
    """Remove the beginning of a batch at the end of a store; gives how many messages that were."""
    batch_id = b""
    found: list[int] = []
    for seq in range(store.last_seq, 0, -1):
        try:
            part = part_of(store.get(seq).header)
        except NotFoundError:
            break  # that was deleted, so it was complete
        if part is None or part.is_last or part.unit != (batch_id or part.unit):
            break
        batch_id = part.unit
        found.append(seq)
        if part.number == 1:
            break
    for seq in found:
        store.remove(seq)
    return len(found)
