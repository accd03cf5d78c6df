from tradewind.broker.checks import CheckQueue
from tradewind.broker.contracts import Engine
from tradewind.broker.deadlines import Deadlines
from tradewind.broker.router import Router
from tradewind.broker.session import Session
from tradewind.broker.turn_watch import TurnWatch

class TurnEnd:
    router: Router
    engine: Engine | None
    deadlines: Deadlines
    deferred: CheckQueue
    watch: TurnWatch
    def __init__(
        self, router: Router, deadlines: Deadlines, deferred: CheckQueue, watch: TurnWatch
    ) -> None: ...
    def end_turn(self) -> list[Session]: ...
    def next_deadline_ns(self) -> int | None: ...
