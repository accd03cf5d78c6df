"""Removes batches whose commit was interrupted by a crash.

Owns recognising the parts of a batch. Such parts were never acknowledged: the acknowledgement of a
batch is sent when all of it is synced. A batch is in one block, after a mark, so the recovery of
the store finds incomplete ones, wherever a power failure has left them, and removes them before
anything counts them (`BATCHES`). A message may look like a part without being one, because fast
batches and schedules may store any header. In a folder of nats-server, which writes no marks, only
the beginning of a batch at the very end of the stream is recognised, and only if nats-server's copy
of the batch still exists; nats-server itself would store the rest of it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from tradewind.store.contract import NotFoundError
from tradewind.store.format.layout import short_hash
from tradewind.store.repair.units import UnitPart, UnitRule
from tradewind.stream import header_fields
from tradewind.stream.publish_checks import whole_number

if TYPE_CHECKING:
    from tradewind.store.table.message_store import MessageStore


def part_of(header: bytes) -> UnitPart | None:
    """The place of a stored message in its batch, from its header."""
    fields = header_fields.special_fields(header)
    batch_id = fields.get(header_fields.BATCH_ID)
    number = whole_number(fields.get(header_fields.BATCH_SEQUENCE, b""))
    if not batch_id or not number:
        return None
    return UnitPart(batch_id, number, is_last=bool(fields.get(header_fields.BATCH_COMMIT)))


BATCHES: Final = UnitRule(part_of, header_fields.BATCH_ID + b":")


def remove_half_batch(store: MessageStore, copies: Collection[str]) -> int:
    """Remove the beginning of a batch at the end of a store; returns the number of messages
    removed.

    `copies` are the names of the batches that nats-server had not finished.
    """
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
    if short_hash(batch_id.decode("utf-8", "surrogateescape")) not in copies:
        return 0
    for seq in found:
        store.remove(seq)
    return len(found)
