from collections.abc import Callable

from tradewind.broker.contracts import BrokerLog
from tradewind.clock import Clock

BUDGET_NS: int
REFRESH_NS: int
QUIET_NS: int

class KindOfTurn:
    count: int
    longest_ns: int
    @property
    def unreported(self) -> int: ...

class TurnWatch:
    budget_ns: int
    on_excess: Callable[[str], None] | None
    saw_commits: bool
    @property
    def longest_ns(self) -> int: ...
    @property
    def kinds(self) -> dict[str, KindOfTurn]: ...
    def __init__(self, clock: Clock, log: BrokerLog, budget_ns: int = ...) -> None: ...
    def start(self) -> None: ...
    def begin(self) -> int: ...
    def lap(self, kind: str, detail: object) -> int: ...
    def end_turn(self) -> None: ...
