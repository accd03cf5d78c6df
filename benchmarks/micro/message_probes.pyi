from array import array
from collections.abc import Sequence

from tradewind.store.folder.filestore import FileStore
from tradewind.store.table.message_store import MessageStore
from tradewind.store.table.subject_index import SubjectFilter

def append(
    store: MessageStore,
    subjects: list[bytes],
    payload: bytes,
    count: int,
    flush_every: int,
    timestamp: int,
    files: FileStore | None = None,
) -> None: ...
def read_random(store: MessageStore, count: int, seed: int) -> int: ...
def read_all(store: MessageStore, chosen: SubjectFilter) -> int: ...
def shuffled(first: int, count: int, seed: int) -> array[int]: ...
def remove(
    store: MessageStore,
    sequences: Sequence[int] | memoryview,
    flush_every: int,
    files: FileStore,
) -> None: ...
