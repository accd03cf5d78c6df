from typing import Protocol

from tradewind.broker.accounts import InternalMessage
from tradewind.broker.contracts import Engine
from tradewind.broker.deadlines import Deadlines
from tradewind.broker.router import Router
from tradewind.broker.session import Session
from tradewind.broker.turn_watch import TurnWatch

class TurnOwner(Protocol):
    """The owner of the turn: the broker."""

    engine: Engine | None
    def service_failed(self, message: InternalMessage, error: Exception) -> None:
        """Called when a service of the server has failed with an error."""
    def session_failed(self, session: Session, error: Exception) -> None:
        """Called when the work of a session has failed with an error."""
    def close_doomed(self, session: Session) -> None:
        """Called when routing has found a reason to close a session."""

class TurnEnd:
    def __init__(
        self, owner: TurnOwner, router: Router, watch: TurnWatch, deadlines: Deadlines
    ) -> None: ...
    def end_turn(self) -> list[Session]: ...
    def next_deadline_ns(self) -> int | None: ...
