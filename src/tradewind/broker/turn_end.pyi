from tradewind.broker.contracts import Engine
from tradewind.broker.deadlines import Deadlines
from tradewind.broker.identity import Deferred
from tradewind.broker.router import Router
from tradewind.broker.session import Session

class TurnEnd:
    router: Router
    engine: Engine | None
    deadlines: Deadlines
    deferred: list[tuple[Session, Deferred]]
    def __init__(self, router: Router, deadlines: Deadlines) -> None: ...
    def end_turn(self) -> list[Session]: ...
    def next_deadline_ns(self) -> int | None: ...
