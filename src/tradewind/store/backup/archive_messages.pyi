from tradewind.store.table.message_store import MessageStore
from tradewind.store.table.subject_index import SubjectFilter

def pack_messages(
    store: MessageStore, everything: SubjectFilter, seq: int, last_seq: int, bytes_max: int
) -> tuple[bytes, int]: ...
def store_messages(
    store: MessageStore,
    data: bytearray,
    offset: int,
    bytes_max: int,
    count_max: int,
    bytes_allowed: int,
    leaves_headers: bool,
) -> int: ...
