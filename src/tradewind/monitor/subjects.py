"""Which subjects match which, in plain Python, for questions that monitoring asks now and then.

Routing never comes here; its own compiled matcher is `route.sublist`.
"""

from __future__ import annotations

_FORBIDDEN = frozenset(" \t\r\n\f")


def is_literal(subject: str) -> bool:
    """Whether a message can be published on it: no empty token, no wildcard, no white space."""
    tokens = subject.split(".")
    return (
        all(tokens) and not any(t in ("*", ">") for t in tokens) and not _FORBIDDEN & set(subject)
    )


def covers(pattern: str, subject: str) -> bool:
    """Whether every literal that `subject` stands for is matched by `pattern`."""
    wanted = pattern.split(".")
    given = subject.split(".")
    for index, part in enumerate(wanted):
        if index >= len(given):
            return False
        if part == ">" and index == len(wanted) - 1:
            return True
        if given[index] == ">" or part not in ("*", given[index]):
            return False
    return len(wanted) == len(given)
