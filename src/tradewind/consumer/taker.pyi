from tradewind.broker.turn import Participant

class Taker(Participant):
    @property
    def limit_seq(self) -> int: ...
    @property
    def has_demand(self) -> bool: ...
