from typing import Protocol

from tradewind.broker.accounts import InternalMessage
from tradewind.broker.contracts import Engine
from tradewind.broker.deadlines import Deadlines
from tradewind.broker.router import Router
from tradewind.broker.session import Session
from tradewind.broker.turn_watch import TurnWatch

class TurnOwner(Protocol):
    engine: Engine | None
    def service_failed(self, message: InternalMessage, error: Exception) -> None: ...
    def session_failed(self, session: Session, error: Exception) -> None: ...
    def close_doomed(self, session: Session) -> None: ...

class TurnEnd:
    def __init__(
        self, owner: TurnOwner, router: Router, watch: TurnWatch, deadlines: Deadlines
    ) -> None: ...
    def end_turn(self) -> list[Session]: ...
    def next_deadline_ns(self) -> int | None: ...
