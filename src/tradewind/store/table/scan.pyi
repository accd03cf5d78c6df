from array import array
from dataclasses import dataclass, field

from tradewind.store.format.sequence_set import SequenceSet
from tradewind.store.table.block import Block
from tradewind.store.table.subject_index import SubjectIndex

@dataclass(slots=True)
class Damage:
    offset: int
    size: int
    after_seq: int
    before_seq: int
    torn: bool
    at_start: bool = False
    claimed: list[int] = field(default_factory=list)
    unfinished: bool = False
    out_of_order: bool = False
    missing: int = 0

class Tombstones:
    sequences: array[int]
    timestamps: array[int]
    offsets: array[int]
    def __len__(self) -> int: ...
    def append(self, sequence: int, timestamp: int, offset: int) -> None: ...
    def cut(self, offset: int) -> None: ...

@dataclass(slots=True)
class BlockReport:
    tombstones: Tombstones = field(default_factory=Tombstones)
    marks: list[tuple[int, int, int]] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    newest: tuple[int, int] = ...
    records: int = 0
    ttl_count: int = 0
    schedule_count: int = 0
    good_bytes: int = 0

def record_places(block: Block) -> list[tuple[int, int, int]]: ...
def note_removals(block: Block, held: SequenceSet, told: SequenceSet) -> None: ...
def recover_block(block: Block, index: SubjectIndex, after_seq: int) -> BlockReport: ...
