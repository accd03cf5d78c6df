from collections.abc import Callable

from tradewind.stream.ingest import Ingest

class Usage:
    memory: int
    storage: int
    reserved_memory: int
    reserved_storage: int
    def __init__(
        self,
        memory: int = 0,
        storage: int = 0,
        reserved_memory: int = 0,
        reserved_storage: int = 0,
    ) -> None: ...
    def replace(self, old: Usage, new: Usage) -> None: ...

class UsageShare:
    kept_bytes: int
    def __init__(
        self,
        ingest: Ingest,
        of_account: Usage,
        of_server: Usage,
        room_share: Callable[[], int],
    ) -> None: ...
    def grant_credit(self) -> None: ...
    def count(self, usage: Usage) -> None: ...
