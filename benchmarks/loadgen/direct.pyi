class Getter:
    def __init__(
        self,
        host: bytes,
        port: int,
        *,
        stream: bytes,
        prefix: bytes,
        payload_size: int,
        subject_count: int,
        total: int,
    ) -> None: ...
    def get(self, kind: str, requests: int, *, outstanding: int = 1, batch: int = 1) -> int: ...
    def latencies_ns(self) -> list[int]: ...
    def close(self) -> None: ...
