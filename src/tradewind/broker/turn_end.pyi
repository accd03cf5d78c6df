from typing import Protocol

from tradewind.broker.accounts import InternalMessage
from tradewind.broker.contracts import Engine
from tradewind.broker.deadlines import Deadlines
from tradewind.broker.router import Router
from tradewind.broker.session import Session
from tradewind.broker.turn_watch import TurnWatch

class TurnOwner(Protocol):
    """Whose turn ends: the broker."""

    engine: Engine | None
    def service_failed(self, message: InternalMessage, error: Exception) -> None:
        """A service of the server has ended by a fault."""
    def session_failed(self, session: Session, error: Exception) -> None:
        """The same for what a session does."""
    def close_doomed(self, session: Session) -> None:
        """Routing has found a reason to close it."""

def end_turn(owner: TurnOwner, router: Router, watch: TurnWatch) -> list[Session]: ...
def next_deadline_ns(owner: TurnOwner, deadlines: Deadlines) -> int | None: ...
