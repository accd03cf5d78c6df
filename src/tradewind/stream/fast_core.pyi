class OpenFastBatch:
    @property
    def id(self) -> bytes: ...
    @property
    def flow(self) -> int: ...
    @property
    def takes_gaps(self) -> bool: ...
    last: int
    acked: int
    step: int
    stored_seq: int
    used_ns: int
    def __init__(
        self, name: bytes, flow: int, takes_gaps: bool, step: int, used_ns: int
    ) -> None: ...

def read_reply(reply: bytes) -> tuple[bytes, int, bool, int, int] | None: ...
