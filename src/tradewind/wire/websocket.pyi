from collections.abc import Callable
from typing import Any, Final

from tradewind.errors import ProtocolError

# Any object with the buffer interface; typing has no name for it in Python 3.11.
_Buffer = bytes | bytearray | memoryview[Any]

OPCODE_CONTINUATION: Final[int]
OPCODE_TEXT: Final[int]
OPCODE_BINARY: Final[int]
OPCODE_CLOSE: Final[int]
OPCODE_PING: Final[int]
OPCODE_PONG: Final[int]

CLOSE_NORMAL: Final[int]
CLOSE_GOING_AWAY: Final[int]
CLOSE_PROTOCOL_ERROR: Final[int]
CLOSE_NO_STATUS: Final[int]
CLOSE_INVALID_PAYLOAD: Final[int]
CLOSE_POLICY_VIOLATION: Final[int]
CLOSE_TOO_BIG: Final[int]
CLOSE_INTERNAL_ERROR: Final[int]
CLOSE_TLS_HANDSHAKE: Final[int]

COMPRESS_BYTES_MIN: Final[int]
BROWSER_FRAME_BYTES_MAX: Final[int]
INFLATED_BYTES_PER_FEED: Final[int]
CONTROL_FRAMES_MAX: Final[int]

class WebsocketError(ProtocolError):
    close_code: int
    def __init__(self, text: str, close_code: int) -> None: ...

def close_code_for(reason: str) -> int: ...

class FrameDecoder:
    max_message_bytes: int
    def __init__(self, max_message_bytes: int, require_mask: bool, compression: bool) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def pending(self) -> bool: ...
    @property
    def is_compressed(self) -> bool: ...
    def feed(self, data: _Buffer) -> bytes: ...
    def feed_into(self, data: _Buffer, target: bytearray | memoryview[Any]) -> int: ...
    def take_control(self) -> list[tuple[int, bytes]]: ...

class FrameEncoder:
    def __init__(
        self,
        compression: bool,
        is_browser: bool,
        mask: bool = False,
        mask_source: Callable[[int], bytes] | None = None,
        *,
        fragment_compressed: bool = True,
        window_bits: int = 15,
    ) -> None: ...
    def encode(self, data: _Buffer) -> bytes: ...
    def frame_head(self, size: int) -> bytes | None: ...
    def encode_control(self, opcode: int, payload: bytes = b"") -> bytes: ...
    def encode_close(self, code: int, reason: str = "") -> bytes: ...
