"""The grammar of a client's bytes, written for reading: it looks at everything sent so far, at
once, and starts over each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Operation = tuple[str | bytes | int, ...]

VERBS = (b"pub", b"hpub", b"ping", b"pong", b"sub", b"unsub", b"connect", b"info", b"+ok", b"-err")
LINE_IGNORED = (b"ping", b"pong", b"+ok")
NO_BLANK_NEEDED = (b"connect", b"info")
BLANKS_MAX = 16384


@dataclass
class Parsed:
    """`position`: how many bytes belong to finished operations, or to lines that are ignored."""

    operations: list[Operation] = field(default_factory=list)
    fault: str | None = None
    position: int = 0


class FaultError(Exception):
    """The peer broke the grammar."""


class MoreError(Exception):
    """The operation is not complete; `ignored` bytes of it need not be kept."""

    def __init__(self, ignored: int = 0) -> None:
        self.ignored = ignored


@dataclass(frozen=True)
class Grammar:
    """The limits, and `headers`: whether HPUB is allowed."""

    control_line_max: int = 4096
    payload_max: int = 1048576
    headers: bool = True

    def parse(self, data: bytes) -> Parsed:
        """Everything that can be said after these bytes."""
        result = Parsed()
        try:
            while result.position < len(data):
                operation, size = self._operation(data[result.position :])
                result.operations.append(operation)
                result.position += size
        except FaultError as error:
            result.fault = str(error)
        except MoreError as more:
            result.position += more.ignored
        return result

    def _operation(self, data: bytes) -> tuple[Operation, int]:
        """The operation at the beginning, and how many bytes it has."""
        possible = [verb for verb in VERBS if verb.startswith(data[: len(verb)].lower())]
        if not possible:
            raise FaultError("unknown")
        verb = possible[0]
        if len(possible) > 1 or len(data) < len(verb):
            raise MoreError
        name = verb.decode().upper()
        rest = data[len(verb) :]
        if verb in LINE_IGNORED:
            if b"\n" not in rest:
                raise MoreError(ignored=len(data))
            return (name,), data.index(b"\n") + 1
        if not rest:
            raise MoreError
        if verb not in NO_BLANK_NEEDED and rest[:1] not in (b" ", b"\t"):
            raise FaultError("unknown")
        line, size = self._line(data, len(data) - len(rest.lstrip(b" \t")))
        if verb in (b"pub", b"hpub"):
            return self._publish(name, line, data, size)
        return (name, *self._arguments(name, line)), size

    def _line(self, data: bytes, start: int) -> tuple[bytes, int]:
        """The arguments of a bounded line, and the size of the line with its end."""
        if start > self.control_line_max + BLANKS_MAX:
            raise FaultError("control line")
        line, end, _ = data[start:].partition(b"\n")
        argument = line.removesuffix(b"\r")
        if len(argument) > self.control_line_max:
            raise FaultError("control line")
        if not end:
            raise MoreError
        return argument, start + len(line) + 1

    def _publish(self, name: str, line: bytes, data: bytes, start: int) -> tuple[Operation, int]:
        tokens = split(line, b" \t")
        numbers = 1 if name == "PUB" else 2
        if len(tokens) - numbers not in (1, 2) or (numbers == 2 and not self.headers):
            raise FaultError("arguments")
        sizes = [number(token) for token in tokens[-numbers:]]
        total = sizes[-1]
        header = sizes[0] if numbers == 2 else 0
        if total is None or header is None or header > total:
            raise FaultError("arguments")
        if total > self.payload_max:
            raise FaultError("payload")
        end = data[start + total : start + total + 2]
        if not b"\r\n".startswith(end):
            raise FaultError("unknown")
        if len(end) < 2:
            raise MoreError
        reply = tokens[1] if len(tokens) - numbers == 2 else b""
        body = data[start : start + total]
        return (name, tokens[0], reply, body[:header], body[header:]), start + total + 2

    def _arguments(self, name: str, line: bytes) -> Operation:
        if name not in ("SUB", "UNSUB"):
            return (line,)
        tokens = split(line, b" \t\r")
        if name == "SUB":
            if len(tokens) not in (2, 3):
                raise FaultError("arguments")
            return tokens[0], tokens[1] if len(tokens) == 3 else b"", tokens[-1]
        if len(tokens) not in (1, 2):
            raise FaultError("arguments")
        return tokens[0], (number(tokens[1]) or 0) if len(tokens) == 2 else 0


def split(line: bytes, separators: bytes) -> list[bytes]:
    """The tokens of a line."""
    for separator in separators:
        line = line.replace(bytes([separator]), b" ")
    return [token for token in line.split(b" ") if token]


def number(token: bytes) -> int | None:
    """At most nine decimal digits."""
    return int(token) if len(token) <= 9 and token.isdigit() else None
