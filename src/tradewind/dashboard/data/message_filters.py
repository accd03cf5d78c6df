"""Conditions on messages: text, headers, and values in JSON payloads.

Owns the small language of conditions and their evaluation. A condition reads each message once, in
time that is linear in its size; it never raises, a message that has no such value is not taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.dashboard.data.message_data import ListedMessage

CONDITION_LENGTH_MAX: Final = 1000
CONDITIONS_MAX: Final = 16
STEPS_MAX: Final = 32
# Values that the wildcards of one path look at in one payload.
VALUES_MAX: Final = 10_000
TEXT_LENGTH_MAX: Final = 200
# Longer ones first, as they begin with the shorter ones.
OPERATORS: Final = ("!=", "==", "<=", ">=", "!~", "=", "~", "<", ">")
_ANY: Final = object()
_BAD: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_JSON_STARTS: Final = frozenset(b'{["-0123456789tfn \t\r\n')


class BadConditionError(TradewindError):
    """A condition that cannot be read; the text says what would be right."""


class MessageCondition(msgspec.Struct, frozen=True):
    """One condition: what to look at, an operator (empty: it must exist), and a value."""

    steps: tuple[Any, ...]
    operator: str
    value: Any = None

    def holds(self, found: Any) -> bool:
        """Whether one value fulfils it."""
        match self.operator:
            case "":
                return True
            case "=" | "==":
                return _equal(found, self.value)
            case "!=":
                return not _equal(found, self.value)
            case "~":
                return _text_of(self.value) in _text_of(found)
            case "!~":
                return _text_of(self.value) not in _text_of(found)
        return _ordered(self.operator, found, self.value)


def _equal(found: Any, wanted: Any) -> bool:
    if isinstance(found, bool) or isinstance(wanted, bool):
        return _text_of(found) == _text_of(wanted)
    if isinstance(found, int | float) and isinstance(wanted, int | float):
        return found == wanted
    return _text_of(found) == _text_of(wanted)


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value.casefold()
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode().casefold()
    return str(value)


def _ordered(operator: str, found: Any, wanted: Any) -> bool:
    numbers = isinstance(found, int | float) and isinstance(wanted, int | float)
    if not numbers and not (isinstance(found, str) and isinstance(wanted, str)):
        return False
    match operator:
        case "<":
            return bool(found < wanted)
        case "<=":
            return bool(found <= wanted)
        case ">":
            return bool(found > wanted)
    return bool(found >= wanted)


# ---------------------------------------------------------------- reading conditions


def parse_json_conditions(text: str) -> tuple[MessageCondition, ...]:
    """Conditions on a payload: `order.total > 100 and order.lines[*].sku = "a 1"`."""
    return tuple(_json_condition(part) for part in _parts(text))


def parse_header_conditions(text: str) -> tuple[MessageCondition, ...]:
    """Conditions on headers: `Trace`, `Trace = t5` or `Content-Type ~ json`, joined by `and`."""
    found = []
    for part in _parts(text):
        name, operator, value = _split(part)
        if not name or any(each in name for each in ' \t"'):
            raise BadConditionError(f"must be Name = value, Name ~ part or Name, not {part[:60]!r}")
        found.append(MessageCondition((name.casefold(),), operator, _plain(value)))
    return tuple(found)


def _parts(text: str) -> list[str]:
    """The conditions of a text, split at `and` outside of quotes."""
    if len(text) > CONDITION_LENGTH_MAX:
        raise BadConditionError(f"must have at most {CONDITION_LENGTH_MAX} characters")
    parts: list[str] = [""]
    for piece in _pieces(text):
        if piece in ("and", "AND", "&&"):
            parts.append("")
        else:
            parts[-1] += piece
    made = [part.strip() for part in parts]
    if made == [""]:
        return []
    if "" in made:
        raise BadConditionError('must have a condition before and after each "and"')
    if len(made) > CONDITIONS_MAX:
        raise BadConditionError(f"must have at most {CONDITIONS_MAX} conditions")
    return made


def _pieces(text: str) -> Iterator[str]:
    """Quoted texts, words and blanks."""
    at = 0
    while at < len(text):
        end = at + 1
        if text[at] == '"':
            while end < len(text) and text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            if end >= len(text):
                raise BadConditionError('must close each "')
            end += 1
        elif not text[at].isspace():
            while end < len(text) and text[end] != '"' and not text[end].isspace():
                end += 1
        yield text[at:end]
        at = end


def _split(part: str) -> tuple[str, str, str]:
    """The name, the operator and the value of a condition."""
    at = 0
    while at < len(part):
        if part[at] == '"':
            at = part.find('"', at + 1)  # a name in brackets
            if at < 0:
                break
        for operator in OPERATORS:
            if part.startswith(operator, at):
                return part[:at].strip(), operator, part[at + len(operator) :].strip()
        at += 1
    return part.strip(), "", ""


def _json_condition(part: str) -> MessageCondition:
    path, operator, text = _split(part)
    value: Any = None
    if operator:
        if not text:
            raise BadConditionError(f"must have a value after {operator}, as in total {operator} 5")
        try:
            value = msgspec.json.decode(text)
        except _BAD:
            value = _plain(text)
        if isinstance(value, float) and not math.isfinite(value):
            value = text
    return MessageCondition(_steps(path), operator, value)


def _plain(text: str) -> str:
    """A value without its quotes."""
    if text.startswith('"'):
        try:
            return msgspec.json.decode(text, type=str)
        except _BAD:
            raise BadConditionError(f"must have one text in quotes, not {text[:60]!r}") from None
    return text


def _steps(path: str) -> tuple[Any, ...]:
    """The steps of `$.order.lines[0]["a b"][*]`: names, indices, and any."""
    steps: list[Any] = []
    at = 1 if path.startswith("$") else 0
    while at < len(path):
        if path[at] == "[":
            at = _index(path, at + 1, steps)
            continue
        if path[at] == ".":
            at += 1
        end = at
        while end < len(path) and path[end] not in ".[ \"'()":
            end += 1
        name = path[at:end]
        if not name or (end < len(path) and path[end] not in ".["):
            raise BadConditionError(
                f"must begin with a path like order.lines[0].sku, not {path[:60]!r}"
            )
        steps.append(_ANY if name == "*" else name)
        at = end
    if len(steps) > STEPS_MAX:
        raise BadConditionError(f"must have paths of at most {STEPS_MAX} steps")
    if not steps and path != "$":
        raise BadConditionError('must begin with a path, as in order.total > 100 or item = "pear"')
    return tuple(steps)


def _index(path: str, at: int, steps: list[Any]) -> int:
    end = path.find("]", at)
    inner = path[at:end].strip() if end > 0 else ""
    if inner == "*":
        steps.append(_ANY)
    elif inner.isascii() and inner.isdigit() and len(inner) <= 9:
        steps.append(int(inner))
    elif len(inner) > 1 and inner[0] == inner[-1] and inner[0] in "\"'":
        steps.append(inner[1:-1])
    else:
        raise BadConditionError(
            f"must have a number, * or a name in quotes in brackets, not {path[at : at + 40]!r}"
        )
    return end + 1


# ---------------------------------------------------------------- whole filters


class MessageFilter(msgspec.Struct, frozen=True):
    """All conditions of a search; a message must fulfil each."""

    text: str = ""
    headers: tuple[MessageCondition, ...] = ()
    values: tuple[MessageCondition, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether each message is taken."""
        return not (self.text or self.headers or self.values)

    def takes(self, message: ListedMessage) -> bool:
        """Whether a message fulfils all conditions."""
        if self.text and not has_text(message, self.text):
            return False
        if self.headers and not all(_header_holds(message, each) for each in self.headers):
            return False
        return not self.values or _values_hold(message.data, self.values)


def make_filter(text: str, headers: str, values: str) -> MessageFilter:
    """The filter for the fields of a form; BadConditionError says what is wrong."""
    return MessageFilter(
        text[:TEXT_LENGTH_MAX], parse_header_conditions(headers), parse_json_conditions(values)
    )


def has_text(message: ListedMessage, text: str) -> bool:
    """Whether a text is in the payload, the subject or a header; case is ignored."""
    wanted = text.casefold()
    if wanted in message.data.decode(errors="replace").casefold():
        return True
    if wanted in message.subject.casefold():
        return True
    return any(wanted in f"{name}: {value}".casefold() for name, value in message.headers)


def _header_holds(message: ListedMessage, condition: MessageCondition) -> bool:
    values = [value for name, value in message.headers if name.casefold() == condition.steps[0]]
    if condition.operator in ("!=", "!~"):
        return all(condition.holds(value) for value in values)
    return any(condition.holds(value) for value in values)


def _values_hold(data: bytes, conditions: tuple[MessageCondition, ...]) -> bool:
    if not data or data[0] not in _JSON_STARTS:
        return False
    try:
        document = msgspec.json.decode(data)
    except _BAD:
        return False
    return all(_path_holds(document, each) for each in conditions)


def _path_holds(document: Any, condition: MessageCondition) -> bool:
    values = _found(document, condition.steps)
    if condition.operator in ("!=", "!~"):
        return bool(values) and all(condition.holds(value) for value in values)
    return any(condition.holds(value) for value in values)


def _found(document: Any, steps: tuple[Any, ...]) -> list[Any]:
    values = [document]
    for step in steps:
        reached: list[Any] = []
        for value in values:
            if step is _ANY:
                inner = value.values() if isinstance(value, dict) else value
                if isinstance(value, dict | list):
                    reached.extend(inner)
            elif isinstance(step, int) and isinstance(value, list):
                if step < len(value):
                    reached.append(value[step])
            elif isinstance(value, dict) and str(step) in value:
                reached.append(value[str(step)])
            if len(reached) > VALUES_MAX:
                break
        values = reached[:VALUES_MAX]
    return values
