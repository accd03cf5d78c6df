class Usage:
    memory: int
    storage: int
    reserved_memory: int
    reserved_storage: int
    def __init__(
        self,
        memory: int = 0,
        storage: int = 0,
        reserved_memory: int = 0,
        reserved_storage: int = 0,
    ) -> None: ...
    def replace(self, old: Usage, new: Usage) -> None: ...
