from tradewind.store.table.message_core import StoreListener

class RemovalFanOut(StoreListener):
    def purged(self) -> None: ...
