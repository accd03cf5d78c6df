from collections.abc import Callable

from tradewind.broker.router import Router
from tradewind.broker.turn import Participant, Turn
from tradewind.consumer.consumer import Consumer
from tradewind.jetstream.hosted import HostedStream
from tradewind.jetstream.timers import Timed, Timers
from tradewind.jetstream.usage import Usage
from tradewind.store.syncer import Syncer

class EngineTurns:
    router: Router
    turn: Turn
    syncer: Syncer
    usage: Usage
    hosts: dict[Participant, HostedStream]
    consumer_hosts: dict[Participant, HostedStream]
    retired: list[tuple[HostedStream, Consumer]]
    timers: Timers[Timed]
    def __init__(
        self,
        router: Router,
        syncer: Syncer,
        timers: Timers[Timed],
        wall_ns: Callable[[], int],
        monotonic_ns: Callable[[], int],
    ) -> None: ...
    def set_time(self) -> None: ...
    def end_turn(self) -> None: ...
    def next_deadline_ns(self) -> int | None: ...
