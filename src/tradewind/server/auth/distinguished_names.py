"""Distinguished names: compares user names such as "CN=example.com,OU=NATS.io" with certificate
subjects.

Owns parsing the RFC 4514 text and comparing names. It never looks at users, or at other parts of
certificates.

A name is a tuple of its relative names, leaf first as in the text; a relative name is the sorted
tuple of its (TYPE, value) pairs. Two names are equal if the tuples are equal, and equal in any
order if the sorted tuples are equal. No part is counted twice or left over (the fault of NATS
advisory 2026-13).
"""

from __future__ import annotations

import re

RelativeName = tuple[tuple[str, bytes], ...]
DistinguishedName = tuple[RelativeName, ...]

_SPECIAL = b' "#+,;<=>\\'
_HEX_PAIR = re.compile(rb"[0-9A-Fa-f]{2}")


def relative_name(pairs: list[tuple[str, bytes]]) -> RelativeName:
    """The comparable form of one relative name; types are compared case-insensitively."""
    return tuple(sorted((kind.upper(), value) for kind, value in pairs))


def reordered(name: DistinguishedName) -> DistinguishedName:
    """A form that is equal for names that differ only in the order of their parts."""
    return tuple(sorted(name))


def parse_name(text: str) -> DistinguishedName | None:
    """The name that `text` spells; None for an ordinary user name or any other text."""
    relative_names: list[RelativeName] = []
    pairs: list[tuple[str, bytes]] = []
    for kind, value, separator in _pairs(text.encode("utf-8", "surrogatepass")):
        if kind is None:
            return None
        pairs.append((kind, value))
        if separator != b"+":
            relative_names.append(relative_name(pairs))
            pairs = []
    # An empty name would equal the empty subject of some certificate, so it must not match.
    return tuple(relative_names) or None


def _pairs(data: bytes) -> list[tuple[str | None, bytes, bytes]]:
    """Each type and value with the separator after it; a type of None marks an invalid name."""
    broken: list[tuple[str | None, bytes, bytes]] = [(None, b"", b"")]
    found: list[tuple[str | None, bytes, bytes]] = []
    kind: str | None = None
    word = bytearray()
    spaces = 0  # unescaped spaces at the end of `word`, which do not count
    index = 0
    while index < len(data):
        char = data[index : index + 1]
        index += 1
        if char == b"\\":
            octet, index = _unescape(data, index)
            if octet is None:
                return broken
            word += octet
            spaces = 0
        elif char == b"=":
            if data[index : index + 1] == b"#":
                return broken  # a value in BER, which nats-server does not read either
            kind, spaces = bytes(word[: len(word) - spaces]).decode("utf-8", "replace"), 0
            word.clear()
        elif char in (b",", b"+"):
            if not kind:
                return broken
            found.append((kind, bytes(word[: len(word) - spaces]), char))
            kind, spaces = None, 0
            word.clear()
        elif char != b" " or word:
            word += char
            spaces = spaces + 1 if char == b" " else 0
    if word:
        if not kind:
            return broken
        found.append((kind, bytes(word[: len(word) - spaces]), b""))
    elif kind or (found and found[-1][2] == b"+"):
        return broken
    return found


def _unescape(data: bytes, index: int) -> tuple[bytes | None, int]:
    """The byte that a backslash before `index` stands for, and the index to continue at."""
    char = data[index : index + 1]
    if char and char in _SPECIAL:
        return char, index + 1
    if _HEX_PAIR.match(data, index):
        return bytes.fromhex(data[index : index + 2].decode()), index + 2
    return None, index
