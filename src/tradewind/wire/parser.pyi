from typing import Final

# (verb, arguments ...): bytes, and for UNSUB the maximum as an int.
_Operation = tuple[str | bytes | int, ...]

FAULT_NAMES: Final[dict[int, str]]
KIND_NAMES: Final[dict[int, str]]

class Parser:
    @property
    def fault(self) -> str | None: ...
    @property
    def before_fault(self) -> list[_Operation]: ...
    @property
    def position(self) -> int: ...
    @property
    def pending_bytes(self) -> int: ...
    def __init__(
        self, control_line_max: int = 4096, payload_max: int = 1048576, headers: bool = True
    ) -> None: ...
    def feed(self, data: bytes) -> list[_Operation]: ...
