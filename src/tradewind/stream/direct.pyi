from collections.abc import Callable

from tradewind.broker.accounts import Account
from tradewind.broker.router import Router
from tradewind.broker.session import Session
from tradewind.store.table.subject_index import SubjectFilter
from tradewind.stream.ingest import Ingest

PENDING_MAX: int
UNDER_WAY_MAX: int

class GetOrder:
    @property
    def subject(self) -> str: ...
    @property
    def session(self) -> Session | None: ...

class DirectGet:
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
    def activate(self, prefixes: tuple[str, ...]) -> None: ...
    def deactivate(self) -> None: ...
    def end(self) -> None: ...
    def tick(self) -> None: ...
    @property
    def ingest(self) -> Ingest: ...
    def serve(self, order: GetOrder) -> None: ...
    def filter_of_next(self) -> SubjectFilter | None: ...
