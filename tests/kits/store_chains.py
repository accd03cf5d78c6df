"""A chain of a store compared with the messages, entry by entry, by the reference alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chain_kit import root_of
from tradewind.chain import checkpoints
from tradewind.chain.chain_entries import (
    MESSAGE,
    RETURN,
    ChainRecord,
    decode_removal,
    digest_of,
    first_link,
    link_of,
    message_body,
    read_records,
)
from tradewind.chain.chain_folder import CHECKPOINTS, HEADER_BYTES, decode_header, segment_name
from tradewind.chain.checkpoints import Checkpoint
from tradewind.nkeys import SERVER, KeyPair
from tradewind.store.files.disk import Disk
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import RecoveryReport, open_store
from tradewind.store.folder.stream_chain import ChainSettings, StreamChain

PAIR = KeyPair(SERVER, bytes(range(32)))
FOLDER = "/disk/S"
CREATED = "2026-01-02T03:04:05.678Z"


class ChainClock:
    """Goes on by itself."""

    def __init__(self) -> None:
        self.now_ns = 1_700_000_000_000_000_000

    def __call__(self) -> int:
        """The next nanosecond."""
        self.now_ns += 1
        return self.now_ns


def chained(
    disk: Disk, *, algorithm: str = "sha256", segment_entries: int = 1 << 20, **settings: Any
) -> tuple[FileStore, RecoveryReport]:
    """A store with a chain, opened or made."""
    chain = ChainSettings("S", CREATED, algorithm, ChainClock(), segment_entries)
    store, report = open_store(disk, FOLDER, "S", now_ns=0, chain=chain, **settings)
    store.commit()
    return store, report


def chain_of(store: FileStore) -> StreamChain:
    """The chain of a store, which must have one."""
    assert store.chain is not None
    return store.chain


def checkpoint(store: FileStore) -> Checkpoint:
    """Write a checkpoint of everything synced."""
    chain = chain_of(store)
    write = chain.next_checkpoint(PAIR, "2026-01-02T03:04:06Z")
    write.run()
    return chain.checkpointed(write)


def stored_records(disk: Disk, segment_entries: int = 1 << 20) -> Iterator[ChainRecord]:
    """All that the files hold, which must fit together."""
    index, before = 0, b""
    while disk.exists(path := f"{FOLDER}/chain/{segment_name(index)}"):
        data = disk.read_file(path)
        header = decode_header(data, path)
        assert header.first_index == index
        if index:
            assert header.before == before
        records, end = read_records(data, HEADER_BYTES)
        assert end == len(data), "a record is cut off"
        assert len(records) <= segment_entries
        yield from records
        index += len(records)
        if not records:
            return
        before = records[-1].link


def verify_chain(store: FileStore, *, segment_entries: int = 1 << 20) -> list[bytes]:
    """Assert that the files explain exactly the messages that are there; gives all links."""
    chain, table = chain_of(store), store.table
    assert chain.broken is None, chain.broken
    digest = digest_of(chain.settings.algorithm)
    link, links = first_link(digest, "S", CREATED), []
    live: set[int] = set()
    last = 0
    for record in stored_records(store.disk, segment_entries):
        body = record.body
        if record.kind == MESSAGE:
            assert record.sequence > last, "messages are in their order"
            last = record.sequence
            live.add(last)
            body = b""
            if table.is_live(last):
                copy = table.get(last)
                body = message_body(
                    last, copy.timestamp_ns, copy.subject, copy.header, copy.payload
                )
        else:
            for first, end in decode_removal(body).ranges:
                within = set(range(first, min(end, last) + 1))
                live = live | within if record.kind == RETURN else live - within
        if body:
            assert link_of(digest, link, record.kind, body) == record.link
        link = record.link
        links.append(link)
    assert live == {message.seq for message in table.messages()}
    assert chain.links.size == len(links)
    assert chain.links.link == link
    _verify_checkpoints(store, links)
    return links


def _verify_checkpoints(store: FileStore, links: list[bytes]) -> None:
    path = f"{FOLDER}/chain/{CHECKPOINTS}"
    digest = digest_of(chain_of(store).settings.algorithm)
    previous = ""
    lines = store.disk.read_file(path).splitlines() if store.disk.exists(path) else []
    for line in lines:
        point = checkpoints.decode(line)
        assert checkpoints.is_signed(point)
        assert point.previous == previous
        assert point.link == links[point.size - 1].hex()
        assert point.root == root_of(digest, links[: point.size]).hex()
        previous = checkpoints.digest(line)
