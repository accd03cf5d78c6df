from array import array
from typing import Any

_Buffer = bytes | bytearray | memoryview[Any]

def scan_entries(
    data: _Buffer, offset: int, bytes_max: int, after: int
) -> tuple[int, int, int, int, int, int]: ...

class EntrySelection:
    @property
    def count(self) -> int: ...
    @property
    def last_seq(self) -> int: ...
    def __init__(
        self,
        removed: array[int],
        patterns: tuple[bytes, ...],
        since_ns: int,
        until_ns: int,
        old_prefix: bytes = b"",
        new_prefix: bytes = b"",
    ) -> None: ...
    def select(self, data: _Buffer) -> bytes: ...
