from collections.abc import Callable

from tradewind.broker.broker import Broker
from tradewind.broker.session import Session

Taker = Callable[[Session, bytes, bytes, bytes, bytes], bool]

def add_taker(broker: Broker, taker: Taker) -> None: ...
def remove_taker(broker: Broker) -> None: ...
