class Flow:
    def __init__(
        self,
        host: bytes,
        port: int,
        *,
        publishers: int,
        subscribers: int,
        payload_size: int,
        inflight_max: int,
        queue: bool = False,
        subscriber_port: int = 0,
        publisher: bytes = b"",
        subscriber: bytes = b"",
    ) -> None: ...
    def subscribe(self, lines: bytes) -> None: ...
    def set_subjects(self, subjects: list[bytes], *, delivered: bool) -> None: ...
    def run(self, count: int) -> None: ...
    def finish(self) -> None: ...
    def close(self) -> None: ...
