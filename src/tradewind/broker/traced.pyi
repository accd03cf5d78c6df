from tradewind.broker.message_trace import Tracing
from tradewind.broker.session import Session

def publish_traced(session: Session, handle: int, tracing: Tracing) -> None: ...
