from collections.abc import Callable

from tradewind.broker.turn import Turn
from tradewind.consumer.done_listener import DoneListener
from tradewind.jetstream.demand import Demand
from tradewind.store.table.message_store import MessageStore
from tradewind.stream.ingest import Ingest

class Retention(DoneListener):
    any_ack: bool
    is_copied: bool
    def __init__(
        self, ingest: Ingest, store: MessageStore, turn: Turn, demand: Demand, any_ack: bool
    ) -> None: ...
    def when_removed(self, told: Callable[[], None]) -> None: ...
    def remove_refused(self) -> None: ...
    def begin_sweep(self, last_seq: int) -> None: ...
    @property
    def is_sweeping(self) -> bool: ...
    def sweep_step(self, budget: int = ...) -> int: ...
