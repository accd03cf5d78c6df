"""Translate subjects between accounts: wildcards are rearranged, the rest is fixed.

Owns the syntax of import destinations (`$1`, `{{wildcard(1)}}`, and `*` for the next one), with the
error texts of nats-server, and their application in plain Python. The broker applies the same parts
to bytes for each message.

    orders.*.>   ->  y.$1.>
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tradewind.route.function_calls import looks_like_call
from tradewind.route.mapping import MappingError, compile_mapping

_NUMBER: Final = re.compile(r"\$(\d{1,9})", re.ASCII)
_WILDCARD: Final = re.compile(r"\{\{\s*[Ww]ildcard\s*\(\s*(\d{1,9})\s*\)\s*\}\}", re.ASCII)


class SubjectTemplate(msgspec.Struct, frozen=True):
    """A compiled destination: for each token of the result, a text or the index of a token of the
    subject. `rest_from`: all tokens from that index on follow.
    """

    source: str
    parts: tuple[bytes | int, ...]
    rest_from: int | None

    def apply(self, subject: str) -> str:
        """The translation of a subject that the source covers; its wildcards are tokens like
        others.
        """
        tokens = subject.split(".")
        result = [part.decode() if isinstance(part, bytes) else tokens[part] for part in self.parts]
        if self.rest_from is not None:
            result += tokens[self.rest_from :]
        return ".".join(result)

    def reversed(self) -> SubjectTemplate:
        """The reverse template, for a template that uses all wildcards of its source."""
        where: dict[int, int] = {}
        for index, part in enumerate(self.parts):
            if isinstance(part, int):
                where.setdefault(part, index)
        tokens = self.source.split(".")
        rest = tokens[-1] == ">"
        parts = tuple(
            where[index] if word == "*" else word.encode()
            for index, word in enumerate(tokens[:-1] if rest else tokens)
        )
        source = ["*" if isinstance(part, int) else part.decode() for part in self.parts]
        return SubjectTemplate(
            ".".join([*source, ">"] if rest else source), parts, len(self.parts) if rest else None
        )


def untokenized(destination: str) -> str:
    """A pattern of all results of a destination."""
    return ".".join("*" if _place(word) is not None else word for word in destination.split("."))


def template(source: str, destination: str) -> SubjectTemplate:
    """Compile a destination; MappingError unless it uses every wildcard of the source, and nothing
    else.
    """
    destination = _numbered(destination)
    compile_mapping(source, destination, random_below=_zero)
    source_tokens = source.split(".")
    wildcards = [index for index, word in enumerate(source_tokens) if word == "*"]
    parts: list[bytes | int] = []
    for word in destination.split("."):
        number = _place(word)
        if number is not None:
            parts.append(wildcards[number - 1] if number else 0)
        elif looks_like_call(word):
            raise MappingError(
                "invalid mapping destination: the only mapping function allowed for import "
                f"transforms is {{{{Wildcard()}}}} in {word}"
            )
        elif word != ">":
            parts.append(word.encode())
    if not set(wildcards) <= {part for part in parts if isinstance(part, int)}:
        raise MappingError(
            f"invalid mapping destination: not using all of the token wildcard(s) in {destination}"
        )
    has_rest = source_tokens[-1] == ">"
    return SubjectTemplate(source, tuple(parts), len(source_tokens) - 1 if has_rest else None)


def _numbered(destination: str) -> str:
    """The destination with each `*` replaced by the next numbered wildcard of the source."""
    tokens = destination.split(".")
    number = 0
    for index, word in enumerate(tokens):
        if word == "*":
            number += 1
            tokens[index] = f"${number}"
    return ".".join(tokens)


def _place(word: str) -> int | None:
    match = _NUMBER.fullmatch(word) or _WILDCARD.fullmatch(word)
    return int(match[1]) if match else None


def _zero(_below: int) -> int:
    return 0


def intersection(first: str, second: str) -> str | None:
    """The pattern of all subjects that both patterns match; None if there are none."""
    result: list[str] = []
    one, other = first.split("."), second.split(".")
    for index in range(max(len(one), len(other))):
        if index >= len(one) or index >= len(other):
            return None
        a, b = one[index], other[index]
        if a == ">":
            return ".".join(result + other[index:])
        if b == ">":
            return ".".join(result + one[index:])
        if a != b and "*" not in (a, b):
            return None
        result.append(b if a == "*" else a)
    return ".".join(result)
