from typing import Protocol

from tradewind.broker.broker import Broker
from tradewind.broker.router import Router
from tradewind.broker.turn import Participant
from tradewind.broker.turn_end import EngineTurns
from tradewind.consumer.consumer import ServerConsumer
from tradewind.jetstream.hosted import HostedStream
from tradewind.jetstream.timers import Timers
from tradewind.store.commits.syncer import Syncer

class TurnWorkOwner(Protocol):
    broker: Broker
    router: Router
    syncer: Syncer
    timers: Timers
    hosts: dict[Participant, HostedStream]
    consumer_hosts: dict[Participant, HostedStream]
    retired: list[tuple[HostedStream, ServerConsumer]]
    def delete_retired(self) -> None: ...
    def stream_failed(self, hosted: HostedStream, error: Exception) -> None: ...
    def consumer_failed(
        self, hosted: HostedStream, consumer: ServerConsumer, error: Exception
    ) -> None: ...

class TurnWork(EngineTurns):
    def __init__(self, owner: TurnWorkOwner) -> None: ...
    def set_time(self) -> None: ...
