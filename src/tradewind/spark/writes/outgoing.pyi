from typing import Any, final

from tradewind.client.streams.row_inbox import RowInbox

@final
class OutgoingRows:
    @property
    def count(self) -> int: ...
    @property
    def row_count(self) -> int: ...
    @property
    def digest(self) -> int: ...
    def __init__(self, scope: bytes, *, by_key: bool) -> None: ...
    def load(
        self,
        subjects: Any,
        payloads: Any,
        headers: Any = None,
        ids: Any = None,
        operations: Any = None,
    ) -> None: ...
    def ids(self) -> list[bytes]: ...
    def send(
        self,
        inbox: RowInbox,
        row: int,
        bytes_max: int,
        deadline: float,
        stored: set[bytes] | None,
        chosen: list[bool] | None,
    ) -> int: ...
