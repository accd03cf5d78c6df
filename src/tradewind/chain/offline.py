"""Verifies the chain in a folder, without a server.

Owns the pass over the files and the meaning of damage in them. The caller supplies the messages: a
store, a backup, another copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from tradewind.chain.chain_entries import ChainError, ChainRecord
from tradewind.chain.chain_folder import CHECKPOINTS, IncompleteRecord
from tradewind.chain.checkpoints import LINE_BYTES_MAX
from tradewind.chain.passes import ChainPass
from tradewind.chain.report import ChainReport
from tradewind.chain.signed_heads import SignedHead, signed_heads_in
from tradewind.chain.verifier import ChainedMessage, ChainVerifier
from tradewind.errors import CorruptRecord, StoreError

BATCH: Final = 1000
# Changed messages of which a second copy is asked for.
COPIES_MAX: Final = 100


class ChainSource(Protocol):
    """The source of a chain: a `ChainFolder`, or an equivalent. `path` names it."""

    @property
    def path(self) -> Path:
        """The path of the chain."""

    @property
    def algorithm(self) -> str:
        """The hash algorithm."""

    @property
    def before(self) -> bytes | None:
        """The link before entry 0; None if it is unknown."""

    def records(self) -> Iterator[tuple[int, ChainRecord]]:
        """All entries with their indexes."""

    def checkpoint_lines(self) -> Iterator[tuple[int, bytes]]:
        """All checkpoints with their offsets."""


def verify_folder(
    folder: ChainSource,
    stream: str,
    created: str,
    messages: Iterable[ChainedMessage],
    *,
    kept: Sequence[SignedHead] = (),
    keys: Sequence[str] = (),
    has_all_checkpoints: bool = True,
    is_copy: bool = False,
    complete_to: int = 0,
    second_copy: Callable[[int], ChainedMessage | None] | None = None,
    on_progress: Callable[[int], None] = lambda _done: None,
) -> ChainReport:
    """Verify messages, in order of their sequences, against the chain in a folder.

    `kept` are checkpoints from elsewhere, `keys` the accepted public keys if there are any;
    `is_copy` and `complete_to` as for `ChainVerifier`. `second_copy` returns the originals of
    changed messages. `on_progress` gets the number of entries done. Damage of the chain is in the
    report; that of the messages is raised by them.
    """
    found: list[tuple[bool, str]] = []  # in the file of checkpoints: whether damage, and what
    verifier = ChainVerifier(
        stream,
        created,
        folder.algorithm,
        before=folder.before,
        signed_heads=_own_heads(folder, found),
        has_all_heads=has_all_checkpoints,
        kept=kept,
        keys=keys,
        is_copy=is_copy,
        complete_to=complete_to,
    )
    joined = ChainPass(verifier, covers_all=True)
    records = _records(folder, verifier)
    stored = iter(messages)
    while needs := joined.needs:
        if needs == "entries":
            joined.take_entries(list(islice(records, BATCH)))
        else:
            batch = list(islice(stored, BATCH))
            joined.take_messages(batch, is_last=len(batch) < BATCH)
        on_progress(verifier.size)
    verifier.finish()
    for is_damage, text in found:
        (verifier.damage if is_damage else verifier.note)(text)
    copies: dict[int, ChainedMessage] = {}
    if second_copy is not None:
        for sequence in verifier.suspicious[:COPIES_MAX]:
            if (original := second_copy(sequence)) is not None:
                copies[sequence] = original
    return verifier.conclude(copies)


def _records(folder: ChainSource, verifier: ChainVerifier) -> Iterator[ChainRecord]:
    """Read all entries; they end where a file is damaged."""
    try:
        for _, record in folder.records():
            yield record
    except IncompleteRecord as error:
        # A crash cuts off what was being written. No checkpoint covers that, or one will say so.
        verifier.note(str(error))
    except CorruptRecord as error:
        verifier.damage(str(error))


def _own_heads(folder: ChainSource, found: list[tuple[bool, str]]) -> Iterator[SignedHead]:
    try:
        yield from signed_heads_in(folder.checkpoint_lines(), str(folder.path / CHECKPOINTS))
    except CorruptRecord as error:
        found.append((not isinstance(error, IncompleteRecord), str(error)))


def read_signed_head(path: Path) -> SignedHead:
    """Read a checkpoint that was saved in a file of its own."""
    try:
        with path.open("rb") as file:
            line = file.read(LINE_BYTES_MAX + 1)
    except OSError as error:
        raise StoreError(f"{path}: cannot read the checkpoint: {error.strerror}") from None
    if len(line) > LINE_BYTES_MAX:
        raise ChainError(f"{path}: a checkpoint must have at most {LINE_BYTES_MAX} bytes")
    return SignedHead(f"the checkpoint in {path}", line.rstrip(b"\r\n"))
