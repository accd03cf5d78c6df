"""Requests of Tradewind's own API about the hash chain of a stream.

Owns one function per request. Loaded with the first of them. Files are read by workers.
"""

from __future__ import annotations

from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Final, NamedTuple

from tradewind.api import own_errors
from tradewind.api.chain import (
    ENTRIES_BYTES_MAX,
    ENTRIES_MAX,
    ChainCheckpoint,
    ChainEntries,
    ChainEntriesRequest,
    ChainInfo,
    ChainProof,
    ChainProofRequest,
)
from tradewind.errors import StoreError
from tradewind.jetstream.api_request import Answer, ApiRequest
from tradewind.jetstream.chain_keeper import ChainKeeper, keeper_of
from tradewind.jetstream.lanes import Steps

if TYPE_CHECKING:
    from tradewind.store.folder.chain_reading import ChainReader
    from tradewind.store.folder.stream_chain import ChainPoint

# How long a worker waits in one go for a commit or for another checkpoint.
WAIT_SECONDS: Final = 0.005


def _keeper(request: ApiRequest) -> ChainKeeper:
    hosted = request.hosted()
    keeper = keeper_of(hosted)
    if keeper is None:
        raise own_errors.STREAM_NO_CHAIN(stream=hosted.name)
    return keeper


def info(request: ApiRequest) -> Answer:
    """STREAM.CHAIN.INFO."""
    chain = _keeper(request).chain
    point, broken = chain.synced, chain.broken
    try:
        key = request.engine.chain_key().public
    except StoreError as error:
        raise own_errors.CHAIN_FAILED(err=str(error)) from None
    return ChainInfo(
        algorithm=chain.settings.algorithm,
        size=point.size,
        link=point.link.hex(),
        last_seq=point.chained_seq,
        is_broken=broken is not None,
        broken_index=None if broken is None else broken.index,
        broken_reason="" if broken is None else broken.reason,
        checkpoint=chain.checkpoint,
        key=key,
    )


def checkpoint(request: ApiRequest) -> Steps[Answer]:
    """STREAM.CHAIN.CHECKPOINT: sign all entries up to now."""
    keeper = _keeper(request)
    yield from _synced(request, keeper)
    while keeper.is_writing:
        yield partial(Event().wait, WAIT_SECONDS)
    chain = _keeper(request).chain
    if not chain.unchecked:
        return ChainCheckpoint(checkpoint=chain.checkpoint)
    keeper.take()
    try:
        write = keeper.next_write()
        yield write.run
        made = chain.checkpointed(write)
    except StoreError as error:
        raise own_errors.CHAIN_FAILED(err=str(error)) from None
    finally:
        keeper.give_back()
    return ChainCheckpoint(checkpoint=made)


def _synced(request: ApiRequest, keeper: ChainKeeper) -> Steps[None]:
    """Wait until all present entries are synced, whatever durability the stream promises."""
    hosted = request.hosted()
    files, links = hosted.stream.files, keeper.chain.links
    assert files is not None
    links.end_removals()
    wanted = links.size
    while keeper.chain.synced.size < wanted:
        if files.failure is not None:
            raise own_errors.CHAIN_FAILED(err=str(files.failure))
        if not hosted.is_attached:
            raise own_errors.STREAM_NO_CHAIN(stream=hosted.name)
        request.engine.syncer.sync_soon(files, request.engine.turn.monotonic_ns)
        yield partial(Event().wait, WAIT_SECONDS)


class _Read(NamedTuple):
    """The arguments of a read by a worker, which adds the result to `found`."""

    reader: ChainReader
    point: ChainPoint
    found: list[ChainProof | ChainEntries | None]

    def prove(self, content: ChainProofRequest, size: int) -> None:
        """Find a proof; the result is None if the message has no entry."""
        reader, index = self.reader, content.index
        if content.first_size:
            path, root = reader.consistency(content.first_size, size)
            self.found.append(
                ChainProof(
                    size=size,
                    root=root.hex(),
                    path=[node.hex() for node in path],
                    first_size=content.first_size,
                )
            )
            return
        if index is None:
            index = reader.find(content.seq, self.point)
        if index is None or index >= size:
            self.found.append(None)
            return
        path, root = reader.inclusion(index, size)
        self.found.append(
            ChainProof(
                size=size,
                root=root.hex(),
                path=[node.hex() for node in path],
                index=index,
                link=reader.link(index).hex(),
            )
        )

    def page(self, index: int, count: int) -> None:
        """Read a page of entries."""
        size = self.point.size
        before, records = self.reader.entries(index, count, size, ENTRIES_BYTES_MAX)
        self.found.append(
            ChainEntries(first_index=index, before=before.hex(), records=records, size=size)
        )


def proof(request: ApiRequest) -> Steps[Answer]:
    """STREAM.CHAIN.PROOF."""
    content: ChainProofRequest = request.content
    keeper = _keeper(request)
    point, last = keeper.chain.synced, keeper.chain.checkpoint
    wanted = [content.seq > 0, content.index is not None, content.first_size > 0]
    if sum(wanted) != 1:
        raise _invalid("specify exactly one of seq, index and first_size")
    size = content.size or (point.size if last is None else last.size)
    if not 1 <= size <= point.size:
        raise _invalid(f"size must be from 1 to {point.size} entries, not {size}")
    if content.index is not None and content.index >= size:
        raise _invalid(f"index must be from 0 to {size - 1}, not {content.index}")
    if content.first_size > size:
        raise _invalid(f"first_size must be from 1 to {size}, not {content.first_size}")
    read = _Read(keeper.reader, point, [])
    yield from _reading(partial(read.prove, content, size))
    if read.found[0] is None:
        raise _invalid(f"seq: there is no entry of message {content.seq} among the first {size}")
    return read.found[0]


def entries(request: ApiRequest) -> Steps[Answer]:
    """STREAM.CHAIN.ENTRIES."""
    content: ChainEntriesRequest = request.content
    keeper = _keeper(request)
    point = keeper.chain.synced
    if content.count > ENTRIES_MAX:
        raise _invalid(f"count must be at most {ENTRIES_MAX}, not {content.count}")
    if content.index > point.size:
        raise _invalid(f"index must be from 0 to {point.size}, not {content.index}")
    if content.index == point.size:
        return ChainEntries(first_index=point.size, before=point.link.hex(), size=point.size)
    read = _Read(keeper.reader, point, [])
    yield from _reading(partial(read.page, content.index, content.count or ENTRIES_MAX))
    return read.found[0]


def _reading(work: partial[None]) -> Steps[None]:
    try:
        yield work
    except StoreError as error:
        raise own_errors.CHAIN_FAILED(err=str(error)) from None


def _invalid(text: str) -> Exception:
    return own_errors.CHAIN_REQUEST_INVALID(err=text)
