from collections.abc import Awaitable, Iterable, Mapping

from tradewind.client.headers import Headers, HeaderValues

_Payload = bytes | bytearray | memoryview[int] | str
_HeaderInput = Headers | Mapping[str, HeaderValues] | Iterable[tuple[str, str]] | bytes

class Publisher:
    out_messages: int
    out_bytes: int
    def publish(
        self,
        subject: str,
        payload: _Payload = b"",
        *,
        reply: str | None = None,
        headers: _HeaderInput | None = None,
    ) -> Awaitable[None]: ...
    @property
    def max_payload(self) -> int: ...
    @property
    def pending_bytes(self) -> int: ...
    def _set_state(self, state: int) -> None: ...
    def _set_limits(self, max_payload: int, pending_bytes_max: int) -> None: ...
    def _send_line(self, line: bytes) -> None: ...
    def _take(self) -> bytes: ...
    def _keep_messages(self) -> None: ...
