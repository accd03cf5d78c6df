"""Token rules of subjects in plain Python, for the control plane.

Owns the comparison of two patterns; matching per message (a literal against the trie) is in
`route.sublist`.
"""

from __future__ import annotations

from collections.abc import Iterable


def is_valid_subject(subject: str) -> bool:
    """Whether a subject may be subscribed to: no empty token, no blanks, '>' only as the last
    token.
    """
    if any(character in subject for character in " \t\r\n\f"):
        return False
    tokens = subject.split(".")
    return all(tokens) and ">" not in tokens[:-1]


def is_literal(subject: str) -> bool:
    """Whether no token is a wildcard (a '*' inside a longer token is an ordinary character)."""
    return not any(token in ("*", ">") for token in subject.split("."))


def is_valid_literal(subject: str) -> bool:
    """Whether a message can be published on a subject: valid, and no token is a wildcard."""
    return is_valid_subject(subject) and is_literal(subject)


def is_subset(narrow: str, wide: str) -> bool:
    """Whether `wide` matches every literal subject that `narrow` matches."""
    return _is_subset(narrow.split("."), wide.split("."))


def is_subset_of_any(narrow: str, wides: Iterable[str]) -> bool:
    """Whether one of the patterns matches every subject that `narrow` matches.

    `narrow` is split only once for all patterns.
    """
    tokens = narrow.split(".")
    return any(_is_subset(tokens, wide.split(".")) for wide in wides)


def collide(first: str, second: str) -> bool:
    """Whether both patterns match some literal subject."""
    return tokens_collide(first.split("."), second.split("."))


def collides_with_any(subject: str, others: Iterable[str]) -> bool:
    """Whether one of the other patterns matches a literal subject that this one matches.

    `subject` is split only once for all patterns.
    """
    tokens = subject.split(".")
    return any(tokens_collide(tokens, other.split(".")) for other in others)


def _is_subset(narrow: list[str], wide: list[str]) -> bool:
    for index, wide_part in enumerate(wide):
        if index >= len(narrow):
            return False
        if wide_part == ">":
            return True
        narrow_part = narrow[index]
        if narrow_part == ">":
            return False
        if wide_part != "*" and narrow_part != wide_part:
            return False
    return len(narrow) == len(wide)


def tokens_collide(first: list[str], second: list[str]) -> bool:
    """`collide` for the tokens of both patterns, for one that is compared with many."""
    for one, other in zip(first, second, strict=False):
        if ">" in (one, other):
            return True
        if one != other and "*" not in (one, other):
            return False
    return len(first) == len(second)
