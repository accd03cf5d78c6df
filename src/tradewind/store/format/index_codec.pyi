from array import array

def decode_subjects(
    data: bytes, offset: int, end: int, count: int, version: int, path: str
) -> tuple[bytes, array[int], array[int], array[int], array[int], int]: ...
def encode_subjects(
    names: bytes,
    ends: array[int],
    totals: array[int],
    first_blocks: array[int],
    last_blocks: array[int],
) -> bytes: ...
