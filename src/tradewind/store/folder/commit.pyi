from tradewind.errors import StoreError
from tradewind.store.files.disk import Disk, DiskFile
from tradewind.store.files.vault import KeyWrite
from tradewind.store.files.witness import TestimonyWrite
from tradewind.store.folder.rewrite import Rewrite
from tradewind.store.repair.damage_resolution import Evidence

class Commit:
    @property
    def disk(self) -> Disk: ...
    @property
    def last_seq(self) -> int: ...
    @property
    def position(self) -> tuple[int, int]: ...
    marked: tuple[int, int]
    floor: int
    files: list[DiskFile]
    folders: list[str]
    stale_index: str | None
    keys: KeyWrite | None
    removed_keys: list[int]
    witness: TestimonyWrite | None
    evidence: Evidence | None
    rewrites: list[Rewrite]
    error: StoreError | None
    has_chores: bool
    def __init__(
        self,
        disk: Disk,
        last_seq: int,
        position: tuple[int, int],
        files: list[DiskFile] | None = None,
        folders: list[str] | None = None,
    ) -> None: ...
    def run(self) -> None: ...
