from tradewind.broker.turn import Turn
from tradewind.consumer.settled import Settled
from tradewind.jetstream.demand import Demand
from tradewind.store.messages import MessageStore
from tradewind.stream.ingest import Ingest

class Retention(Settled):
    any_ack: bool
    def __init__(
        self, ingest: Ingest, store: MessageStore, turn: Turn, demand: Demand, any_ack: bool
    ) -> None: ...
    def remove_refused(self) -> None: ...
    def remove_unneeded(self, first_seq: int, last_seq: int) -> int: ...
