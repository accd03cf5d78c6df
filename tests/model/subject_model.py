"""The meaning of subjects, written for reading."""

from __future__ import annotations

from itertools import product


def matches(pattern: str, subject: str) -> bool:
    """Whether a subscription to `pattern` gets a message on `subject`."""
    wanted, given = pattern.split("."), subject.split(".")
    if "" in given:
        return False
    if wanted[-1] == ">":
        return len(given) >= len(wanted) and same(wanted[:-1], given[: len(wanted) - 1])
    return len(given) == len(wanted) and same(wanted, given)


def same(wanted: list[str], given: list[str]) -> bool:
    return all(token in ("*", other) for token, other in zip(wanted, given, strict=True))


def all_subjects(alphabet: str, tokens_max: int) -> list[str]:
    """Every subject of at most so many one-letter tokens."""
    return [
        ".".join(tokens)
        for count in range(1, tokens_max + 1)
        for tokens in product(alphabet, repeat=count)
    ]


def all_patterns(alphabet: str, tokens_max: int) -> list[str]:
    """Every valid pattern of at most so many tokens: '>' only at the end."""
    return [
        pattern
        for pattern in all_subjects(alphabet + "*>", tokens_max)
        if ">" not in pattern.split(".")[:-1]
    ]
