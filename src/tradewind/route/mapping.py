"""Subject mappings: a pattern, and the destination of matching subjects.

Owns the syntax of destinations and the texts of its errors, both as in nats-server, and applying a
mapping to a subject. It never routes. Positions count bytes, as in nats-server, so a multi-byte
character can be cut.

    orders.*.*   ->  sharded.{{partition(3,1)}}.$2
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from tradewind.errors import TradewindError

INT32_MAX: Final = 2**31 - 1
_ONE: Final = "*"
_REST: Final = ">"
_FNV_OFFSET: Final = 2166136261
_FNV_PRIME: Final = 16777619
_BLANKS: Final = re.compile(r"[\t\n\f\r ]")
_INTEGER: Final = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_COMMA: Final = re.compile(r",\s*", re.ASCII)

_INVALID: Final = "invalid transform"
_UNKNOWN: Final = "unknown function"
_OUT_OF_RANGE: Final = "wildcard index out of range"
_NOT_ENOUGH: Final = "not enough arguments passed to the function"
_TOO_MANY: Final = "too many arguments passed to the function"
_WRONG_ARGUMENT: Final = "function argument is invalid or in the wrong format"

# A number below the given one, which is at least 1.
RandomBelow = Callable[[int], int]
# Gives one token of the result from the tokens of the subject.
_Part = Callable[[list[bytes]], bytes]
_Cut = Callable[[bytes, int], bytes]


class MappingError(TradewindError):
    """A mapping that cannot be made; the text is that of nats-server."""


class SubjectMapping:
    """A compiled mapping. Made by `compile_mapping`."""

    __slots__ = (
        "_is_identity",
        "_parts",
        "_rest_from",
        "_source",
        "destination",
        "is_random",
        "source",
    )

    def __init__(
        self,
        source: str,
        destination: str,
        parts: list[_Part],
        rest_from: int | None,
        *,
        is_random: bool = False,
    ) -> None:
        self.source = source
        self.destination = destination
        self._source = source.encode().split(b".")
        self._parts = parts
        # The index of the first token of the subject that is appended to the parts.
        self._rest_from = rest_from
        self._is_identity = not destination or source == destination == ">"
        # The same subject may become another one the next time.
        self.is_random = is_random

    @property
    def is_identity(self) -> bool:
        """Whether every subject stays as it is."""
        return self._is_identity

    def apply(self, subject: str) -> str | None:
        """What a literal subject becomes, None if the source does not match it.

        Bytes that are not UTF-8 are expected and given as with `surrogateescape`.
        """
        result = self.apply_bytes(subject.encode(errors="surrogateescape"))
        return None if result is None else result.decode(errors="surrogateescape")

    def apply_bytes(self, subject: bytes) -> bytes | None:
        """As `apply`, for the bytes of the wire."""
        tokens = subject.split(b".")
        if not self._matches(tokens):
            return None
        if self._is_identity:
            return subject
        result = [part(tokens) for part in self._parts]
        if self._rest_from is not None:
            result += tokens[self._rest_from :]
        return b".".join(result)

    def _matches(self, tokens: list[bytes]) -> bool:
        if not all(tokens):
            return False
        for index, wanted in enumerate(self._source):
            if wanted == b">":
                return index < len(tokens)
            if index >= len(tokens) or wanted not in (b"*", tokens[index]):
                return False
        return len(tokens) == len(self._source)


def check_mapping(source: str, destination: str) -> None:
    """MappingError unless `compile_mapping` can make it. An empty destination changes nothing."""
    if destination:
        _check_destination(destination)
        compile_mapping(source, destination, random_below=_zero)


def compile_mapping(source: str, destination: str, *, random_below: RandomBelow) -> SubjectMapping:
    """The mapping; an empty source means '>'. `random_below` serves the function random."""
    source = source or _REST
    if not destination:
        return SubjectMapping(source, destination, [], None)
    tokens = destination.split(".")
    source_tokens = source.split(".")
    has_rest = source_tokens[-1] == _REST
    if (
        not _is_well_formed(source_tokens)
        or not _is_well_formed(tokens)
        or _ONE in tokens
        or has_rest != (tokens[-1] == _REST)
    ):
        raise MappingError("invalid subject")
    wildcards = [index for index, token in enumerate(source_tokens) if token == _ONE]
    compiler = _Compiler(wildcards, random_below, is_literal=not wildcards and not has_rest)
    parts = [compiler.part(token) for token in tokens if token != _REST]
    rest_from = len(source_tokens) - 1 if has_rest else None
    return SubjectMapping(source, destination, parts, rest_from, is_random=compiler.has_met_random)


def _is_well_formed(tokens: list[str]) -> bool:
    # Blanks are legal here: they may stand inside functions.
    return all(tokens) and _REST not in tokens[:-1]


def _zero(_below: int) -> int:
    return 0


def _refuse(reason: str, token: str = "") -> MappingError:
    place = f" in {token}" if token else ""
    return MappingError(f"invalid mapping destination: {reason}{place}")


def _check_destination(destination: str) -> None:
    """What nats-server looks for before it compiles."""
    ended = False
    for token in destination.split("."):
        if not token or ended:
            raise _refuse(_INVALID, token)
        if _looks_like_function(token):
            if not any(pattern.search(token) for pattern in _FUNCTIONS.values()):
                raise _refuse(_UNKNOWN, token)
            continue
        if token == _REST:
            ended = True
        elif _BLANKS.search(token):
            raise _refuse(_INVALID)


def _looks_like_function(token: str) -> bool:
    return len(token) > 4 and token.startswith("{{") and token.endswith("}}")


def _function(name: str) -> re.Pattern[str]:
    # Each word may begin with a capital letter or a small one.
    words = re.sub(r"[A-Z]", lambda match: f"[{match[0]}{match[0].lower()}]", name)
    return re.compile(rf"{{{{\s*{words}\s*\((.*)\)\s*}}}}", re.ASCII)


_FUNCTIONS: Final[Mapping[str, re.Pattern[str]]] = {
    name: _function(name)
    for name in (
        "Wildcard",
        "Partition",
        "SplitFromLeft",
        "SplitFromRight",
        "SliceFromLeft",
        "SliceFromRight",
        "Split",
        "Left",
        "Right",
        "Random",
    )
}


class _Compiler:
    """Makes the parts of one destination."""

    def __init__(
        self, wildcards: list[int], random_below: RandomBelow, *, is_literal: bool
    ) -> None:
        self._wildcards = wildcards
        self._is_literal = is_literal
        self._random_below = random_below
        self.has_met_random = False

    def part(self, token: str) -> _Part:
        if len(token) > 1 and token.startswith("$") and _INTEGER.fullmatch(token[1:]):
            return self._wildcard(token, [token[1:]])
        if not _looks_like_function(token):
            text = token.encode()
            return lambda _tokens: text
        for name, pattern in _FUNCTIONS.items():
            if match := pattern.search(token):
                return self._call(name, token, _COMMA.split(match[1]))
        raise _refuse(_UNKNOWN, token)

    def _call(self, name: str, token: str, arguments: list[str]) -> _Part:
        if name == "Wildcard":
            return self._wildcard(token, arguments)
        if name == "Partition":
            return self._partition(token, arguments)
        if name == "Random":
            return self._random(token, arguments)
        if name == "Split":
            return self._split(token, arguments)
        return self._cut(token, arguments, _CUTS[name])

    def _wildcard(self, token: str, arguments: list[str]) -> _Part:
        if arguments == [""]:
            raise _refuse(_NOT_ENOUGH, token)
        if len(arguments) > 1:
            raise _refuse(_TOO_MANY, token)
        index = self._token_index(token, _integer(token, arguments[0]))
        return lambda tokens: tokens[index]

    def _partition(self, token: str, arguments: list[str]) -> _Part:
        count = _int32(token, arguments[0])
        numbers = [_integer(token, argument) for argument in arguments[1:]]
        indexes = [self._token_index(token, number) for number in numbers]
        modulus = count % 2**32

        def part(tokens: list[bytes]) -> bytes:
            key = b"".join([tokens[index] for index in indexes]) if indexes else b".".join(tokens)
            return str(_fnv1a(key) % modulus if modulus else 0).encode()

        return part

    def _random(self, token: str, arguments: list[str]) -> _Part:
        if len(arguments) != 1:
            raise _refuse(_NOT_ENOUGH, token)
        count = _int32(token, arguments[0])
        self.has_met_random = True
        return lambda _tokens: str(self._random_below(count) if count > 0 else 0).encode()

    def _split(self, token: str, arguments: list[str]) -> _Part:
        if len(arguments) < 2:
            raise _refuse(_NOT_ENOUGH, token)
        if len(arguments) > 2:
            raise _refuse(_TOO_MANY, token)
        number = _integer(token, arguments[0])
        if " " in arguments[1]:
            raise _refuse(_WRONG_ARGUMENT, token)
        index = self._token_index(token, number)
        separator = arguments[1].encode()
        return lambda tokens: _split(tokens[index], separator)

    def _cut(self, token: str, arguments: list[str], cut: _Cut) -> _Part:
        if len(arguments) < 2:
            raise _refuse(_NOT_ENOUGH, token)
        if len(arguments) > 2:
            raise _refuse(_TOO_MANY, token)
        number = _integer(token, arguments[0])
        size = _int32(token, arguments[1])
        index = self._token_index(token, number)

        def part(tokens: list[bytes]) -> bytes:
            text = tokens[index]
            return cut(text, size) if 0 < size < len(text) else text

        return part

    def _token_index(self, token: str, number: int) -> int:
        """Which token of the subject the wildcard with this number is.

        Numbers below 1 mean the first token, as in nats-server.
        """
        if self._is_literal:
            raise _refuse(_OUT_OF_RANGE, token)
        if number > len(self._wildcards):
            raise _refuse(_OUT_OF_RANGE, f"{token}: [{number}]")
        return self._wildcards[number - 1] if number > 0 else 0


def _integer(token: str, argument: str) -> int:
    text = argument.strip(" ")
    if not _INTEGER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise _refuse(_WRONG_ARGUMENT, token)
    return int(text)


def _int32(token: str, argument: str) -> int:
    number = _integer(token, argument)
    if number > INT32_MAX:
        raise _refuse(_WRONG_ARGUMENT, token)
    return number


def _fnv1a(key: bytes) -> int:
    """The 32 bit hash by Fowler, Noll and Vo."""
    value = _FNV_OFFSET
    for byte in key:
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return value


def _split(text: bytes, separator: bytes) -> bytes:
    if not separator:
        characters = text.decode(errors="surrogateescape")
        return b".".join(character.encode(errors="surrogateescape") for character in characters)
    return b".".join(piece for piece in text.split(separator) if piece)


def _slice_from_left(text: bytes, size: int) -> bytes:
    return b".".join(text[start : start + size] for start in range(0, len(text), size))


def _slice_from_right(text: bytes, size: int) -> bytes:
    first = len(text) % size
    pieces = [text[:first]] if first else []
    pieces += [text[start : start + size] for start in range(first, len(text), size)]
    return b".".join(pieces)


_CUTS: Final[Mapping[str, _Cut]] = {
    "SplitFromLeft": lambda text, size: text[:size] + b"." + text[size:],
    "SplitFromRight": lambda text, size: text[:-size] + b"." + text[-size:],
    "SliceFromLeft": _slice_from_left,
    "SliceFromRight": _slice_from_right,
    "Left": lambda text, size: text[:size],
    "Right": lambda text, size: text[-size:],
}
