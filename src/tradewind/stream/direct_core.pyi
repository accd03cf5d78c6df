from collections.abc import Callable

from tradewind.broker.accounts import Account
from tradewind.broker.router import Router
from tradewind.stream.ingest import Ingest

PENDING_MAX: int
UNDER_WAY_MAX: int

class DirectCore:
    next_deadline_ns: int

    def __init__(
        self,
        name: str,
        ingest: Ingest,
        account: Account,
        router: Router,
        bytes_max: int,
        on_deadline: Callable[[], None],
    ) -> None: ...
    @property
    def under_way(self) -> int: ...
    def attach(self, prefix: str) -> list[int]: ...
    def tick(self) -> None: ...
    def end(self) -> None: ...
