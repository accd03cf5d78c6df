from collections.abc import Sequence

class ScheduleIntake:
    def __init__(self, subjects: Sequence[str]) -> None: ...

def read_schedule(
    subjects: Sequence[str], subject: bytes, header: bytes, now_ns: int
) -> tuple[bytes, int] | None: ...
