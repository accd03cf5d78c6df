from collections.abc import Callable

from tradewind.store.table.message_store import MessageStore

def look_back(
    store: MessageStore, seq: int, stamp: int, budget: int, take: Callable[[bytes], bool]
) -> int: ...
