from dataclasses import dataclass, field

from tradewind.store.block import Block
from tradewind.store.subject_index import SubjectIndex

@dataclass(slots=True)
class Damage:
    offset: int
    size: int
    after_seq: int
    before_seq: int
    torn: bool
    record_seq: int
    data: bytes
    out_of_order: bool = False

@dataclass(slots=True)
class BlockReport:
    tombstones: list[tuple[int, int, int]] = field(default_factory=list)
    marks: list[tuple[int, int, int]] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    newest: tuple[int, int] = ...
    records: int = 0
    ttl_count: int = 0
    schedule_count: int = 0
    good_bytes: int = 0

def recover_block(block: Block, index: SubjectIndex, after_seq: int) -> BlockReport: ...
