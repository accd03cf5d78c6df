"""Reads typed values from a tree, and collects all errors instead of stopping at the first.

Owns the conversions (text, truth, integer, size, duration, address) and the texts of their errors.
It never knows keys by name: the modules of the blocks supply tables of key -> (field, conversion).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from tradewind.durations import SECOND_NS, parse_duration_ns
from tradewind.errors import ConfigError
from tradewind.options import Secret
from tradewind.server.config.tree import INT64_MAX, ConfigNode, parse_size_text

INT32_MAX = 2**31 - 1

Conversion = Callable[[ConfigNode, str], object]
Table = Mapping[str, tuple[str, Conversion]]  # an empty field name: the value is dropped
_Type = TypeVar("_Type", str, bool, int, list[ConfigNode], dict[str, ConfigNode])


class CombinedConfigError(ConfigError):
    """All errors of a configuration, one line each."""

    def __init__(self, errors: Iterable[ConfigError]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(map(str, self.errors)))


def fault(node: ConfigNode, text: str) -> ConfigError:
    """An error at the location of a value."""
    return ConfigError(text, node.path, node.line)


def expect(node: ConfigNode, key: str, kind: type[_Type], wanted: str) -> _Type:
    """The value if it is of `kind`, else an error, which never shows the value: it may be a
    password.
    """
    value = node.value
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise fault(node, f"{key} must be {wanted}, not {node.type_name}")
    return value


def text(node: ConfigNode, key: str) -> str:
    """The value as a string."""
    return expect(node, key, str, 'a string (quote it: "...")')


def secret(node: ConfigNode, key: str) -> Secret:
    """The value as a string that is never shown."""
    return Secret(text(node, key))


def truth(node: ConfigNode, key: str) -> bool:
    """The value as a boolean."""
    return expect(node, key, bool, "true or false")


def integer(node: ConfigNode, key: str) -> int:
    """The value as an integer, with or without a unit."""
    return expect(node, key, int, "an integer")


def integer_from(minimum: int, maximum: int = INT32_MAX) -> Conversion:
    """A conversion that accepts integers in a range."""

    def convert(node: ConfigNode, key: str) -> int:
        value = integer(node, key)
        if not minimum <= value <= maximum:
            raise fault(node, f"{key} must be from {minimum} to {maximum}, not {value}")
        return value

    return convert


def port(node: ConfigNode, key: str) -> int:
    """The value as a TCP port; -1 asks for any free port, 0 means not set."""
    value = integer(node, key)
    if not -1 <= value <= 65535:
        raise fault(node, f"{key} must be a port up to 65535, or -1 for any free one, not {value}")
    return value


def size(node: ConfigNode, key: str) -> int:
    """The value in bytes, from a number with or without unit, or a string such as "10G"."""
    if isinstance(node.value, str):
        parsed = parse_size_text(node.value)
        if parsed is None:
            raise fault(node, f'{key} must be a size such as 10gb, or "10G" with K, M, G or T')
        return parsed
    return expect(node, key, int, "a size such as 10gb")


def duration(node: ConfigNode, key: str) -> int:
    """The value in nanoseconds, only from a string such as "2s"."""
    parsed = parse_duration_ns(expect(node, key, str, 'a duration such as "2s" or "1h30m"'))
    if parsed is None:
        raise fault(node, f'{key} must be a duration such as "2s", "500ms" or "1h30m"')
    return parsed


def seconds(node: ConfigNode, key: str) -> int:
    """The value in nanoseconds, from a number of seconds (with decimals) or a text such as "2s"."""
    if isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return _not_negative(node, key, round(node.value * SECOND_NS))
    return _not_negative(node, key, duration(node, key))


def _not_negative(node: ConfigNode, key: str, duration_ns: int) -> int:
    if duration_ns < 0:
        raise fault(node, f"{key} must not be negative")
    if duration_ns > INT64_MAX:
        raise fault(node, f"{key} is longer than 290 years")
    return duration_ns


def address(node: ConfigNode, key: str) -> tuple[str, int]:
    """The host and port of "host:port", ":port" or a bare port; the host is empty if not given."""
    if isinstance(node.value, int) and not isinstance(node.value, bool):
        return "", port(node, key)
    host_and_port = expect(node, key, str, 'a port or "host:port"')
    host, colon, digits = host_and_port.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not digits.removeprefix("-").isdecimal() or len(digits) > 6:
        raise fault(node, f'{key} must be a port or "host:port", not {host_and_port!r}')
    return host, port(ConfigNode(int(digits), node.path, node.line), key)


def spread_address(fields: dict[str, Any], name: str, host: str, port: str) -> None:
    """Replace an address field by its host and port fields, unless those come later in the file."""
    if name in fields:
        later = list(fields)[list(fields).index(name) :]
        values = dict(zip((host, port), fields.pop(name), strict=True))
        fields.update({field: value for field, value in values.items() if field not in later})


def texts(node: ConfigNode, key: str) -> tuple[str, ...]:
    """The strings of one string or a list of strings."""
    if isinstance(node.value, str):
        return (node.value,)
    items = expect(node, key, list, "a string or a list of strings")
    return tuple(text(item, f"each entry of {key}") for item in items)


def text_map(node: ConfigNode, key: str) -> dict[str, str]:
    """The entries of a block whose values are strings."""
    items = expect(node, key, dict, "a block of strings")
    return {name: text(item, f"{key}.{name}") for name, item in items.items()}


def ignored(_node: ConfigNode, _key: str) -> None:
    """Accept a key that has no meaning for this server, without looking at its value."""


class Reader:
    """Collects errors, warnings and notices while a configuration is read.

    `errors` stop the start. `warnings` do not, but fail a `-t`, as in nats-server. `notices` are
    facts for the log.
    """

    def __init__(self) -> None:
        self.errors: list[ConfigError] = []
        self.warnings: list[ConfigError] = []
        self.notices: list[str] = []

    def fields(self, node: ConfigNode, what: str, table: Table) -> dict[str, Any]:
        """The block as field -> value. Keys are case-insensitive, and the last of several equal
        keys wins.
        """
        block = expect(node, what, dict, "a block: { ... }")
        found: dict[str, Any] = {}
        for key, child in block.items():
            entry = table.get(key.lower())
            if entry is None:
                if not child.used:
                    # Keys that are refused or ignored make no helpful suggestion, nor do the other
                    # names of a setting.
                    known = {
                        field: name for name, (field, _) in reversed(list(table.items())) if field
                    }
                    self.errors.append(unknown_key(child, key, what, list(known.values())))
                continue
            field, convert = entry
            try:
                value = convert(child, key)
            except CombinedConfigError as errors:
                self.errors.extend(errors.errors)
            except ConfigError as error:
                self.errors.append(error)
            else:
                if field:
                    found[field] = value
        return found

    def duration_or_seconds(self, node: ConfigNode, key: str) -> int:
        """The value in nanoseconds; a bare number still counts as seconds but earns a warning."""
        if not isinstance(node.value, int) or isinstance(node.value, bool):
            return _not_negative(node, key, duration(node, key))
        self.warnings.append(
            fault(node, f'{key} is a bare number, taken as seconds: write "{node.value}s"')
        )
        return _not_negative(node, key, node.value * SECOND_NS)

    def finish(self) -> None:
        """Raise the collected errors, if there are any."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise CombinedConfigError(self.errors)


def unknown_key(node: ConfigNode, key: str, what: str, known: list[str]) -> ConfigError:
    """The error for a key that has no meaning here, with the most similar known keys."""
    import difflib  # here, because only mistakes should pay for it

    place = f" in {what}" if what else ""
    near = difflib.get_close_matches(key.lower(), known, n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    if not near and len(known) <= 12:
        hint = f"; valid keys: {', '.join(sorted(known))}"
    return fault(node, f"unknown key {key!r}{place}{hint}")
