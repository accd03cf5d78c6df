from tradewind.store.table.store_listener import StoreListener

class RemovalFanOut(StoreListener):
    def purged(self) -> None: ...
