from tradewind.store.format.hash import Key

FRAME_BYTES: int
KEY: Key

def record_hash(number: int, offset: int, body: bytes) -> bytes: ...
def frame_record(number: int, offset: int, prefix: bytes, changes: bytes) -> bytes: ...
