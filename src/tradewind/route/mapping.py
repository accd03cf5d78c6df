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
from tradewind.route.function_calls import BLANKS, Functions, looks_like_call, split_arguments
from tradewind.route.translator import fnv1a

INT32_MAX: Final = 2**31 - 1
_ONE: Final = "*"
_REST: Final = ">"
# The limits of a new destination, because it is applied to every message.
DESTINATION_LENGTH_MAX: Final = 16 * 1024
USES_MAX: Final = 64
_INTEGER: Final = re.compile(r"[+-]?\d{1,40}", re.ASCII)

_INVALID: Final = "invalid transform"
_UNKNOWN: Final = "unknown function"
_OUT_OF_RANGE: Final = "wildcard index out of range"
_NOT_ENOUGH: Final = "not enough arguments passed to the function"
_TOO_MANY: Final = "too many arguments passed to the function"
_WRONG_ARGUMENT: Final = "function argument is invalid or in the wrong format"
_TOO_LONG: Final = f"more than {DESTINATION_LENGTH_MAX} characters"
_TOO_MANY_USES: Final = f"the subject or a wildcard is used more than {USES_MAX} times"

# Returns a random number below its argument, which is at least 1.
RandomBelow = Callable[[int], int]
# Returns one token of the result from the tokens of the subject.
_Part = Callable[[list[bytes]], bytes]
_Cut = Callable[[bytes, int], bytes]


class MappingError(TradewindError):
    """A mapping that is not valid; the text is that of nats-server."""


class SubjectMapping:
    """A compiled mapping, created by `compile_mapping`."""

    __slots__ = (
        "_is_identity",
        "_parts",
        "_rest_from",
        "_source",
        "destination",
        "is_random",
        "source",
        "use_count",
    )

    def __init__(
        self,
        source: str,
        destination: str,
        parts: list[_Part],
        rest_from: int | None,
        *,
        is_random: bool = False,
        use_count: int = 0,
    ) -> None:
        self.source = source
        self.destination = destination
        self._source = source.encode().split(b".")
        self._parts = parts
        # The index of the first token of the subject that is appended to the parts.
        self._rest_from = rest_from
        self._is_identity = not destination or source == destination == ">"
        # The same subject may be mapped to another one the next time.
        self.is_random = is_random
        # How often the parts copy or hash a token, or all of them: the cost of a result.
        self.use_count = use_count

    @property
    def is_identity(self) -> bool:
        """Whether every subject stays unchanged."""
        return self._is_identity

    def apply(self, subject: str) -> str | None:
        """The result for a literal subject, None if the source does not match it.

        Bytes that are not UTF-8 are expected and returned as with `surrogateescape`.
        """
        result = self.apply_bytes(subject.encode(errors="surrogateescape"))
        return None if result is None else result.decode(errors="surrogateescape")

    def apply_bytes(self, subject: bytes) -> bytes | None:
        """The result of `apply` for bytes, as they are on the wire."""
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
    """MappingError unless a user may have the mapping: `compile_mapping` accepts it, and it is
    small.

    An empty destination changes nothing.
    """
    if destination:
        _check_destination(destination)
        check_compiled(compile_mapping(source, destination, random_below=_zero))


def check_compiled(mapping: SubjectMapping) -> None:
    """MappingError if the work for one message could be a large multiple of its size."""
    if len(mapping.destination) > DESTINATION_LENGTH_MAX:
        raise _refuse(_TOO_LONG)
    if mapping.use_count > USES_MAX:
        raise _refuse(_TOO_MANY_USES)


def compile_mapping(source: str, destination: str, *, random_below: RandomBelow) -> SubjectMapping:
    """Compile a mapping; an empty source means '>'. `random_below` serves the function random."""
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
    return SubjectMapping(
        source,
        destination,
        parts,
        rest_from,
        is_random=compiler.has_met_random,
        use_count=compiler.use_count,
    )


def _is_well_formed(tokens: list[str]) -> bool:
    # Blanks are legal here: they may stand inside functions.
    return all(tokens) and _REST not in tokens[:-1]


def _zero(_below: int) -> int:
    return 0


def _refuse(reason: str, token: str = "") -> MappingError:
    place = f" in {token}" if token else ""
    return MappingError(f"invalid mapping destination: {reason}{place}")


def _check_destination(destination: str) -> None:
    """Run the checks that nats-server makes before compiling."""
    ended = False
    for token in destination.split("."):
        if not token or ended:
            raise _refuse(_INVALID, token)
        if looks_like_call(token):
            if _FUNCTIONS.find(token) is None:
                raise _refuse(_UNKNOWN, token)
            continue
        if token == _REST:
            ended = True
        elif any(blank in token for blank in BLANKS):
            raise _refuse(_INVALID)


_FUNCTIONS: Final = Functions(
    (
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
)


class _Compiler:
    """Creates the parts of one destination."""

    def __init__(
        self, wildcards: list[int], random_below: RandomBelow, *, is_literal: bool
    ) -> None:
        self._wildcards = wildcards
        self._is_literal = is_literal
        self._random_below = random_below
        self.has_met_random = False
        self.use_count = 0

    def part(self, token: str) -> _Part:
        if len(token) > 1 and token.startswith("$") and _INTEGER.fullmatch(token[1:]):
            return self._wildcard(token, [token[1:]])
        if not looks_like_call(token):
            text = token.encode()
            return lambda _tokens: text
        call = _FUNCTIONS.find(token)
        if call is None:
            raise _refuse(_UNKNOWN, token)
        return self._call(call[0], token, split_arguments(call[1]))

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
        self.use_count += not indexes

        def part(tokens: list[bytes]) -> bytes:
            key = b"".join([tokens[index] for index in indexes]) if indexes else b".".join(tokens)
            return str(fnv1a(key) % modulus if modulus else 0).encode()

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
        """The index of the subject's token for the wildcard with this number.

        Numbers below 1 mean the first token, as in nats-server.
        """
        if self._is_literal:
            raise _refuse(_OUT_OF_RANGE, token)
        if number > len(self._wildcards):
            raise _refuse(_OUT_OF_RANGE, f"{token}: [{number}]")
        self.use_count += 1
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


def _split(text: bytes, separator: bytes) -> bytes:
    if not separator:
        return ".".join(text.decode(errors="surrogateescape")).encode(errors="surrogateescape")
    return b".".join(filter(None, text.split(separator)))


def _slice_from_left(text: bytes, size: int) -> bytes:
    """The text with points between slices; one column at a time, because many slices are short."""
    if size > len(text) // size:
        return b".".join(text[start : start + size] for start in range(0, len(text), size))
    result = bytearray(b"." * (len(text) + (len(text) - 1) // size))
    for column in range(size):
        result[column :: size + 1] = text[column::size]
    return bytes(result)


def _slice_from_right(text: bytes, size: int) -> bytes:
    first = len(text) % size
    rest = _slice_from_left(text[first:], size)
    return text[:first] + b"." + rest if first else rest


_CUTS: Final[Mapping[str, _Cut]] = {
    "SplitFromLeft": lambda text, size: text[:size] + b"." + text[size:],
    "SplitFromRight": lambda text, size: text[:-size] + b"." + text[-size:],
    "SliceFromLeft": _slice_from_left,
    "SliceFromRight": _slice_from_right,
    "Left": lambda text, size: text[:size],
    "Right": lambda text, size: text[-size:],
}
