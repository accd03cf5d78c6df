from typing import Final

MARK_SYNCED_KIND: Final[int]
MARK_FLOOR_KIND: Final[int]
MARK_PREVIOUS_KIND: Final[int]

class StoreListener: ...
