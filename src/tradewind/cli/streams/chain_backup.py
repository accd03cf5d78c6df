"""Saves the chain of a stream beside its backup, so that the backup can be verified on its own.

Owns the folder `chain` of a backup, in the format of a store: the links, and one checkpoint
that was signed before the backup began. So everything that it covers must be in the backup.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.api.chain import CHAIN_KEY, ENTRIES_MAX
from tradewind.chain import chain_folder, checkpoints
from tradewind.chain.chain_entries import read_records
from tradewind.chain.proofs import hash_of
from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.output import note
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.errors import NotTradewindError

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo
    from tradewind.chain.checkpoints import Checkpoint
    from tradewind.sync import JetStream


def sign_before_backup(js: JetStream, info: StreamInfo) -> Checkpoint | None:
    """The checkpoint that a backup begins with; None if the stream has no chain."""
    if CHAIN_KEY not in info.config.metadata:
        return None
    try:
        return js.chains.checkpoint(info.config.name)
    except (NotTradewindError, JetStreamApiError) as error:
        note(f"{info.config.name}: saved without its chain: {error}")
        return None


def save_chain(js: JetStream, head: Checkpoint, target: Path) -> None:
    """Saves all entries that there are now, and the checkpoint."""
    folder = target / chain_folder.FOLDER
    folder.mkdir()
    size = js.chains.info(head.stream).size
    for start in range(0, size, chain_folder.SEGMENT_ENTRIES_MAX):
        end = min(start + chain_folder.SEGMENT_ENTRIES_MAX, size)
        with (folder / chain_folder.segment_name(start)).open("wb") as file:
            for data in _segment(js, head, start, end):
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
    (folder / chain_folder.CHECKPOINTS).write_bytes(checkpoints.encode(head) + b"\n")


def _segment(js: JetStream, head: Checkpoint, start: int, end: int) -> Iterator[bytes]:
    index = start
    while index < end:
        page = js.chains.entries(head.stream, index, min(end - index, ENTRIES_MAX))
        records, size = read_records(page.records)
        if page.first_index != index or not records or size != len(page.records):
            raise CommandError(f"the server sends no entries of {head.stream} from {index} on")
        if index == start:
            before = hash_of(page.before, "before")
            yield chain_folder.encode_header(
                chain_folder.LinksHeader(head.algorithm, start, before)
            )
        yield page.records
        index += len(records)
