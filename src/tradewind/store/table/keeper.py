"""The storage of the blocks of a `MessageStore`.

Owns the contract, `BlockKeeper`, and its simplest implementation, memory. The other one is
`FileStore`. A store decides about the content of a block, its keeper about that of a file. A keeper
is called while the store changes, so it must never store or remove messages.
"""

from __future__ import annotations

from typing import Protocol

from tradewind.errors import CorruptRecord
from tradewind.store.contract import LostMessages
from tradewind.store.table.block import Block


class BlockKeeper(Protocol):
    """The owner of a store's blocks, which the store calls."""

    @property
    def lost(self) -> LostMessages | None:
        """The unreadable messages that were not removed since."""

    def check_writable(self) -> None:
        """StoreError with the reason if no changes are possible; called while `read_only` is
        set.
        """

    def open_block(self, number: int) -> Block:
        """Create an empty block of that number."""

    def block_opened(self) -> None:
        """Called when the store has a new last block."""

    def block_sealed(self, block: Block) -> None:
        """Called when `block` will no longer be appended to."""

    def block_sparse(self, block: Block) -> None:
        """Called once when most of a sealed block is dead."""

    def blocks_dropped(self, blocks: list[Block]) -> None:
        """Called when blocks without live messages were removed from the store's list."""

    def erase_record(self, block: Block, seq: int, offset: int) -> None:
        """Overwrite a deleted record at an offset of its block."""

    def block_damaged(self, block: Block) -> None:
        """Called when `block` does not have its known content: call `take_salvaged`, or raise."""

    def record_damaged(self, block: Block) -> None:
        """Called when a record of the last block has changed in its file: raise, or it is
        skipped.
        """


class MemoryKeeper:
    """The keeper of blocks that exist only in memory."""

    lost: LostMessages | None = None

    def __init__(self, name: str) -> None:
        self._name = name

    def check_writable(self) -> None:
        """Do nothing: memory is always writable."""

    def open_block(self, number: int) -> Block:
        """Create a block in memory."""
        return Block(self._name, number)

    def block_opened(self) -> None:
        """Do nothing: there is no mark to write."""

    def block_sealed(self, block: Block) -> None:
        """Do nothing: there is nothing to write."""

    def block_sparse(self, block: Block) -> None:
        """Do nothing: dead records use memory until the whole block is dead."""

    def blocks_dropped(self, blocks: list[Block]) -> None:
        """Do nothing: the memory is released with the blocks."""

    def erase_record(self, block: Block, seq: int, offset: int) -> None:
        """Erase the record at once."""
        block.erase_in_tail(seq, offset)

    def block_damaged(self, block: Block) -> None:
        """Raise an error, because blocks in memory cannot be damaged."""
        raise CorruptRecord(block.path, 0, "the records are not those that were stored")

    def record_damaged(self, block: Block) -> None:
        """Raise an error, because records in memory cannot be damaged."""
        raise CorruptRecord(block.path, 0, "a record is not what was stored")
