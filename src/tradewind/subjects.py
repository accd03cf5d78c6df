"""Token rules of subjects in plain Python, for the control plane: configuration, permissions, monitoring.

Owns the questions about two patterns; the per-message ones (a literal against the trie) are in `route.sublist`.
"""

from __future__ import annotations


def is_valid_subject(subject: str) -> bool:
    """Whether it may be subscribed to: no empty token, no white space, '>' only as the last token."""
    if any(character in subject for character in " \t\r\n\f"):
        return False
    tokens = subject.split(".")
    return all(tokens) and ">" not in tokens[:-1]


def is_literal(subject: str) -> bool:
    """Whether no token is a wildcard (a '*' inside a longer token is an ordinary character)."""
    return not any(token in ("*", ">") for token in subject.split("."))


def is_subset(narrow: str, wide: str) -> bool:
    """Whether every literal subject that `narrow` matches is matched by `wide` too."""
    narrow_tokens = narrow.split(".")
    wide_tokens = wide.split(".")
    for index, wide_token in enumerate(wide_tokens):
        if index >= len(narrow_tokens):
            return False
        if wide_token == ">":
            return True
        narrow_token = narrow_tokens[index]
        if narrow_token == ">":
            return False
        if wide_token != "*" and narrow_token != wide_token:
            return False
    return len(narrow_tokens) == len(wide_tokens)


def collide(first: str, second: str) -> bool:
    """Whether some literal subject is matched by both patterns."""
    first_tokens = first.split(".")
    second_tokens = second.split(".")
    for one, other in zip(first_tokens, second_tokens, strict=False):
        if ">" in (one, other):
            return True
        if one != other and "*" not in (one, other):
            return False
    return len(first_tokens) == len(second_tokens)
