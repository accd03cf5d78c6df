from tradewind.store.table.message_store import MessageStore
from tradewind.store.table.subject_index import SubjectFilter

def look_for(
    store: MessageStore, chosen: SubjectFilter, seq: int, work: int
) -> tuple[int, int, int]: ...
