from random import Random

from tradewind.broker.accounts import Account
from tradewind.broker.bridging import Bridges
from tradewind.route.sharing import ServiceExport, ServiceImport
from tradewind.route.translator import Translator

class Dice:
    def __init__(self, chance: Random) -> None: ...

class ResponseDesk:
    start: bytes
    def __init__(self, account: Account, dice: Dice) -> None: ...
    def waiting(self, limit: int) -> dict[str, tuple[str, ServiceBridge]]: ...

class ServiceBridge:
    importer: Account
    exporter: Account
    wanted: ServiceImport
    offered: ServiceExport
    number: int
    pending: int
    def __init__(
        self,
        bridges: Bridges,
        number: int,
        importer: Account,
        exporter: Account,
        wanted: ServiceImport,
        offered: ServiceExport,
        translator: Translator | None,
    ) -> None: ...
    def offer(self, offered: ServiceExport) -> None: ...
    def start(self, local: bytes) -> None: ...
    def close(self) -> None: ...
    def expire(self, now_ns: int) -> None: ...
    def sweep(self, skip: int) -> int | None: ...
