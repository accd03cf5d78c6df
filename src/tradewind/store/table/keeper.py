"""The storage of the blocks of a `MessageStore`.

Owns the contract, `BlockKeeper`, and its simplest implementation, memory. The other one is
`FileStore`. A store decides what is in a block, its keeper what is in a file. A keeper is called
while the store changes, so it must never store or remove messages.
"""

from __future__ import annotations

from typing import Protocol

from tradewind.errors import CorruptRecord
from tradewind.store.contract import LostMessages
from tradewind.store.table.block import Block


class BlockKeeper(Protocol):
    """What a store asks, and tells."""

    @property
    def lost(self) -> LostMessages | None:
        """What could not be read, as far as it was not removed since."""

    def check_writable(self) -> None:
        """StoreError with the reason if nothing may change; asked while `read_only` is set."""

    def open_block(self, number: int) -> Block:
        """A new, empty block of that number."""

    def block_opened(self) -> None:
        """The store's last block is that one now."""

    def block_sealed(self, block: Block) -> None:
        """`block` will no longer be appended to."""

    def block_sparse(self, block: Block) -> None:
        """Most of a sealed block is dead; told once."""

    def blocks_dropped(self, blocks: list[Block]) -> None:
        """Nothing in them is live; they are out of the store's list already."""

    def erase_record(self, block: Block, seq: int, offset: int) -> None:
        """Overwrite a deleted record that was at an offset of its block."""

    def block_damaged(self, block: Block) -> None:
        """`block` does not hold what is known of it: `take_salvaged` what it holds, or raise."""

    def record_damaged(self, block: Block) -> None:
        """A record of the last block has changed in its file; it is not given out, or raise."""


class MemoryKeeper:
    """Blocks that are nowhere else: there is little to do."""

    lost: LostMessages | None = None

    def __init__(self, name: str) -> None:
        self._name = name

    def check_writable(self) -> None:
        """Memory always is."""

    def open_block(self, number: int) -> Block:
        """In memory."""
        return Block(self._name, number)

    def block_opened(self) -> None:
        """Nothing has to be said."""

    def block_sealed(self, block: Block) -> None:
        """Nothing has to be written."""

    def block_sparse(self, block: Block) -> None:
        """What is dead takes room until all of a block is."""

    def blocks_dropped(self, blocks: list[Block]) -> None:
        """Their memory goes with them."""

    def erase_record(self, block: Block, seq: int, offset: int) -> None:
        """At once."""
        block.erase_in_tail(seq, offset)

    def block_damaged(self, block: Block) -> None:
        """Nobody can have done that."""
        raise CorruptRecord(block.path, 0, "the records are not those that were stored")

    def record_damaged(self, block: Block) -> None:
        """The same."""
        raise CorruptRecord(block.path, 0, "a record is not what was stored")
