"""Token rules of subjects in plain Python, for the control plane.

Owns the comparison of two patterns; matching per message (a literal against the trie) is in
`route.sublist`.
"""

from __future__ import annotations


def is_valid_subject(subject: str) -> bool:
    """Whether it may be subscribed to: no empty token, no blanks, '>' only as the last token."""
    if any(character in subject for character in " \t\r\n\f"):
        return False
    tokens = subject.split(".")
    return all(tokens) and ">" not in tokens[:-1]


def is_literal(subject: str) -> bool:
    """Whether no token is a wildcard (a '*' inside a longer token is an ordinary character)."""
    return not any(token in ("*", ">") for token in subject.split("."))


def is_valid_literal(subject: str) -> bool:
    """Whether a message can be published on it: valid, and no token is a wildcard."""
    return is_valid_subject(subject) and is_literal(subject)


def is_subset(narrow: str, wide: str) -> bool:
    """Whether every literal subject that `narrow` matches is matched by `wide` too."""
    narrow_parts = narrow.split(".")
    wide_parts = wide.split(".")
    for index, wide_part in enumerate(wide_parts):
        if index >= len(narrow_parts):
            return False
        if wide_part == ">":
            return True
        narrow_part = narrow_parts[index]
        if narrow_part == ">":
            return False
        if wide_part != "*" and narrow_part != wide_part:
            return False
    return len(narrow_parts) == len(wide_parts)


def collide(first: str, second: str) -> bool:
    """Whether some literal subject is matched by both patterns."""
    return tokens_collide(first.split("."), second.split("."))


def tokens_collide(first: list[str], second: list[str]) -> bool:
    """The same for the tokens of both, for one that is compared with many."""
    for one, other in zip(first, second, strict=False):
        if ">" in (one, other):
            return True
        if one != other and "*" not in (one, other):
            return False
    return len(first) == len(second)
