from collections.abc import Iterable
from typing import Final, final

from tradewind.client.streams.packed import PackedMessages
from tradewind.spark.columnar.memory import Memory, Piece
from tradewind.store.format.hash import Key
from tradewind.store.format.sequence_set import SequenceSet

SEQUENCE_MAX: Final[int]
TIME_NS_MIN: Final[int]
TIME_NS_MAX: Final[int]

@final
class RowDecoder:
    @property
    def memory(self) -> Memory: ...
    @property
    def row_count(self) -> int: ...
    @property
    def damaged_bytes(self) -> int: ...
    def __init__(
        self,
        *,
        first_seq: int = 1,
        last_seq: int = ...,
        first_time_ns: int = ...,
        last_time_ns: int = ...,
        age_floor_ns: int = ...,
        ttl_now_ns: int = 0,
        patterns: Iterable[Iterable[bytes]] = (),
        prefixes: Iterable[bytes] = (),
        removed: SequenceSet | None = None,
    ) -> None: ...
    def clear(self) -> None: ...
    def take_block(
        self,
        data: bytes | Piece,
        key: Key,
        path: str,
        *,
        first_seq: int,
        last_seq: int,
        ends_torn: bool,
        skips_damage: bool,
    ) -> None: ...
    def take_row(
        self, seq: int, timestamp: int, subject: bytes, header: bytes | None, data: bytes
    ) -> None: ...
    def take_archive(self, data: bytes) -> tuple[int, bool]: ...
    def take_packed(self, packed: PackedMessages) -> None: ...
    def gaps_in(
        self, packed: PackedMessages, after_seq: int
    ) -> tuple[list[tuple[int, int]], int]: ...
    def gaps_in_archive(
        self, data: bytes, after_seq: int
    ) -> tuple[list[tuple[int, int]], int, int]: ...
    def batch_end(self, start: int, rows_max: int, bytes_max: int) -> int: ...
    def seqs(self, start: int, end: int) -> Piece: ...
    def times(self, start: int, end: int) -> Piece: ...
    def subjects(self, start: int, end: int) -> tuple[Piece | bytes, Piece | bytes]: ...
    def payloads(self, start: int, end: int) -> tuple[Piece, Piece]: ...
    def headers(
        self, start: int, end: int
    ) -> tuple[int, Piece, Piece, bytes, bytes, bytes, bytes, bytes]: ...
