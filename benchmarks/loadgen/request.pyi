class RequestReply:
    def __init__(
        self,
        host: bytes,
        port: int,
        *,
        requesters: int,
        outstanding: int,
        payload_size: int,
        responder: bytes = b"",
        requester: bytes = b"",
    ) -> None: ...
    def run(self, count: int) -> list[int]: ...
    def finish(self) -> None: ...
    def close(self) -> None: ...
