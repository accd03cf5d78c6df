from typing import Any, Final, final

LEAF_KIND_NAMES: Final[dict[int, str]]

@final
class LeafParser:
    def __init__(self, control_line_max: int = 65536, payload_max: int = 1048576) -> None: ...
    def feed(self, data: bytes) -> list[tuple[Any, ...]]: ...
