"""The objects of a store: one page of descriptions, and the content of an object for download.

Owns the requests. A page is a batch of direct gets, so its cost does not depend on the size of the
store; a search by name examines a limited number of objects and reports where it stopped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tradewind.api.names import OBJECT_STREAM, OBJECT_SUBJECTS
from tradewind.api.times import format_time
from tradewind.client.api_errors import NoMessageFoundError
from tradewind.client.errors import BadAnswerError, DamagedObjectError
from tradewind.client.objects.object_types import ObjectInfo, decode_info
from tradewind.client.streams.direct import read_batch

if TYPE_CHECKING:
    from tradewind.client.jetstream import JetStream
    from tradewind.client.objects.object_download import ObjectReader

ROWS: Final = 50
BATCH: Final = 200
DESCRIPTIONS_MAX: Final = 2000
DESCRIPTIONS_SINGLY_MAX: Final = 200


@dataclass(slots=True)
class ObjectPage:
    """Objects in the order in which they were stored; `next_start` continues after them.

    `is_cut` says that a search stopped there, `unreadable` is the number of invalid descriptions.
    """

    objects: list[ObjectInfo] = field(default_factory=list)
    next_start: int = 0
    looked_at: int = 0
    unreadable: int = 0
    is_cut: bool = False


async def list_objects(
    jetstream: JetStream, store: str, start: int, search: str, *, is_direct: bool = True
) -> ObjectPage:
    """The objects from a sequence on whose name contains a text, ignoring case."""
    page = ObjectPage()
    wanted = search.strip().casefold()
    start = max(start, 1)
    if is_direct:
        # One more than is shown reveals whether there are more.
        found = _batches(jetstream, store, start, BATCH if wanted else ROWS + 1)
    else:
        found = _one_by_one(jetstream, store, start)
    most = DESCRIPTIONS_MAX if is_direct else DESCRIPTIONS_SINGLY_MAX
    async for sequence, data, time in found:
        if len(page.objects) == ROWS or page.looked_at == most:
            page.next_start = sequence
            page.is_cut = len(page.objects) < ROWS
            return page
        page.looked_at += 1
        try:
            info = decode_info(data, time)
        except BadAnswerError:
            page.unreadable += 1
            continue
        if not info.deleted and wanted in info.name.casefold():
            page.objects.append(info)
    return page


async def _batches(
    jetstream: JetStream, store: str, start: int, count: int
) -> AsyncIterator[tuple[int, bytes, str]]:
    """Descriptions with their sequences and times."""
    while True:
        batch = await read_batch(
            jetstream.api,
            OBJECT_STREAM + store,
            f"{OBJECT_SUBJECTS}{store}.M.>",
            start=start,
            messages_max=count,
        )
        for item in batch.messages:
            yield item.sequence, item.message.data, item.time
        if not batch.pending or not batch.messages:
            return
        start = batch.messages[-1].sequence + 1


async def _one_by_one(
    jetstream: JetStream, store: str, start: int
) -> AsyncIterator[tuple[int, bytes, str]]:
    """The descriptions of a store without direct gets."""
    while True:
        try:
            found = await jetstream.manager.streams.get_message(
                OBJECT_STREAM + store, seq=start, next_by_subject=f"{OBJECT_SUBJECTS}{store}.M.>"
            )
        except NoMessageFoundError:
            return
        yield found.seq, found.data, format_time(found.time_ns)
        start = found.seq + 1


async def content(reader: ObjectReader) -> AsyncIterator[bytes]:
    """The bytes of an object, never more than the size in its description."""
    left = reader.info.size
    async for chunk in reader:
        left -= len(chunk)
        if left < 0:
            raise DamagedObjectError(
                f"object {reader.info.name!r} is longer than the {reader.info.size} bytes of "
                "its description"
            )
        yield chunk
