from typing import final

from tradewind.store.format.hash import Key
from tradewind.store.format.sequence_set import SequenceSet

@final
class BlockSurvey:
    first_seq: int
    last_seq: int
    first_time_ns: int
    last_time_ns: int
    messages: int
    bytes: int
    spoken_seq: int
    floor: int
    is_ours: bool
    good_bytes: int
    tombstones: SequenceSet

@final
class LimitReplay:
    floor: int
    removed: SequenceSet
    live: int
    live_bytes: int
    def __init__(
        self,
        msgs_max: int,
        bytes_max: int,
        subject_msgs_max: int,
        removed: SequenceSet,
        floor: int,
        *,
        follows_tombstones: bool,
    ) -> None: ...
    def feed(self, data: bytes, key: Key, first_seq: int) -> None: ...

def survey_block(data: bytes, key: Key, *, verifies: bool) -> BlockSurvey: ...
def first_message(data: bytes) -> tuple[int, int]: ...
def advance(
    data: bytes,
    after_seq: int,
    msgs_max: int,
    bytes_max: int,
    removed: SequenceSet,
    may_exceed: bool,
) -> tuple[int, int, int, bool]: ...
def first_at_time(data: bytes, time_ns: int) -> int: ...
def members_between(source: SequenceSet, first: int, last: int) -> SequenceSet: ...
def add_members(target: SequenceSet, source: SequenceSet) -> None: ...
