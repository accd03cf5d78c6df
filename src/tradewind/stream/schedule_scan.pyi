from array import array
from collections.abc import Iterable

from tradewind.store.table.message_store import MessageStore

def read_time(text: bytes) -> int | None: ...
def adopt_known(
    store: MessageStore, sequences: array[int], times_ns: array[int], stamp: int
) -> list[tuple[int, int]]: ...
def adopt_stored(store: MessageStore, sequences: Iterable[int]) -> array[int]: ...
