from typing import Any

from tradewind.errors import StoreError
from tradewind.store.files.open_files import BlockFile
from tradewind.store.folder.commit import Commit
from tradewind.store.table.block import Block
from tradewind.store.table.messages import MessageStore

class RewriteQueues:
    _to_repair: dict[int, Block]
    _to_compress: dict[int, Block]
    _to_erase: dict[int, tuple[Block, set[int]]]
    _sparse: dict[int, Block]
    _pause: int
    def note_commit(self) -> bool: ...
    @property
    def has_work(self) -> bool: ...

class FileCore(MessageStore):
    failure: StoreError | None
    rewriter: Any
    _settlement: Any
    index_file_present: bool
    reserved_seq: int
    synced_seq: int
    _unsynced: dict[str, BlockFile]
    _names_changed: bool
    _trash: list[tuple[tuple[int, int], list[Block]]]
    _synced_position: tuple[int, int]
    _marked_position: tuple[int, int]
    _durable_mark: tuple[int, int]
    _clean: tuple[int, int]
    _is_unmarked: bool
    unsafe_files: list[str]
    @property
    def _committing(self) -> Commit | None: ...
    @property
    def wants_commit(self) -> bool: ...
    @property
    def is_dirty(self) -> bool: ...
    def write(self, block: Block) -> None: ...
    def flush(self) -> None: ...
    def begin_commit(self) -> Commit | None: ...
    def finish_commit(self, commit: Commit) -> None: ...
    def drop_commit(self, commit: Commit) -> None: ...
    def mark_synced(self) -> None: ...
