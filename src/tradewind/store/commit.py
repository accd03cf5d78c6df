"""Group commit: what one stream wants to have on disk before it keeps its promises.

Owns the hand-over between the event loop, which writes, and the worker thread, which syncs. The
loop makes a `Commit` of everything written so far, the worker runs it, and the loop finishes it;
whatever is written meanwhile belongs to the next one. So all messages of all turns during one sync
share the next, and the loop never waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tradewind.errors import StoreError

if TYPE_CHECKING:
    from tradewind.store.disk import Disk, DiskFile
    from tradewind.store.rewrite import Rewrite
    from tradewind.store.settle import Evidence


@dataclass(slots=True)
class Commit:
    """One sync of one stream: data first, then the names that lead to it, then what can wait."""

    disk: Disk
    last_seq: int
    position: tuple[int, int]  # block number and offset up to which everything is covered
    marked: tuple[int, int] = (0, 0)  # what the marks in these bytes say is synced
    floor: int = 0  # all sequences below are gone, and these bytes say so
    files: list[DiskFile] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    evidence: Evidence | None = None  # of damage; what is repaired because of it comes later
    rewrites: list[Rewrite] = field(default_factory=list)
    error: StoreError | None = None

    def run(self) -> None:
        """In the worker thread. The first failure ends it and is kept in `error`."""
        try:
            for file in self.files:
                file.sync()
            for folder in self.folders:
                self.disk.sync_directory(folder)
            if self.evidence is not None:
                self.evidence.save()
            for rewrite in self.rewrites:
                rewrite.run()
        except StoreError as error:
            self.error = error
