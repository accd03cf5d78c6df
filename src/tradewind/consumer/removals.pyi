from tradewind.store.message_core import StoreListener

class RemovalFanOut(StoreListener):
    def purged(self) -> None: ...
