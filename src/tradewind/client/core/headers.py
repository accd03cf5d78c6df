"""Message headers: names with one or more values, and the header block that carries them.

Owns the order and spelling of names, which are kept as given: names are case-sensitive, as in all
NATS clients. It never interprets a header.

    NATS/1.0[ <status>[ <description>]] CRLF
    name: value CRLF ...
    CRLF
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tradewind.client.errors import BadHeaderError

VERSION = b"NATS/1.0"
STATUS_DIGITS = 3

HeaderValues = str | Iterable[str]
HeaderInput = "Headers | Mapping[str, HeaderValues] | Iterable[tuple[str, str]] | bytes"


class Headers(Mapping[str, str]):
    """A multi dict: `headers["Name"]` is the first value, `get_all("Name")` all of them.

    >>> headers = Headers({"Trace": "7", "Tag": ["a", "b"]})
    >>> headers["Tag"], headers.get_all("Tag"), headers.get("trace")
    ('a', ['a', 'b'], None)
    """

    __slots__ = ("_values",)

    def __init__(
        self, fields: Mapping[str, HeaderValues] | Iterable[tuple[str, str]] | None = None
    ) -> None:
        self._values: dict[str, list[str]] = {}
        if isinstance(fields, Headers):
            self._values = {name: list(values) for name, values in fields._values.items()}
        elif isinstance(fields, Mapping):
            for name, value in fields.items():
                self.set(name, value)
        elif fields is not None:
            for name, text in fields:
                self.add(name, text)

    def add(self, name: str, value: str) -> None:
        """Add a value after those that the name already has."""
        self._values.setdefault(name, []).append(value)

    def set(self, name: str, value: HeaderValues) -> None:
        """Replace the values of a name."""
        if not isinstance(value, Iterable):
            raise BadHeaderError(f"header {name}: a str or several, convert {value!r} first")
        self._values[name] = [value] if isinstance(value, str) else list(value)

    def remove(self, name: str) -> None:
        """Remove a name; nothing happens if it is missing."""
        self._values.pop(name, None)

    def get_all(self, name: str) -> list[str]:
        """All values of a name, in order; empty if there are none."""
        return list(self._values.get(name, ()))

    def fields(self) -> Iterator[tuple[str, str]]:
        """All names and values as they are sent."""
        for name, values in self._values.items():
            for value in values:
                yield name, value

    def __getitem__(self, name: str) -> str:
        values = self._values[name]
        return values[0] if values else ""

    def __setitem__(self, name: str, value: HeaderValues) -> None:
        self.set(name, value)

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Headers):
            return self._values == other._values
        if isinstance(other, Mapping):
            return self._values == Headers(other)._values
        return False

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Headers({self._values!r})"


def encode_headers(
    fields: Headers | Mapping[str, HeaderValues] | Iterable[tuple[str, str]] | bytes,
) -> bytes:
    """The header block of some fields; a finished block (bytes) is taken as it is."""
    if isinstance(fields, bytes):
        return fields
    headers = fields if isinstance(fields, Headers) else Headers(fields)
    lines = [VERSION]
    for name, value in headers.fields():
        _check(name, value)
        lines.append(f"{name}: {value}".encode(errors="surrogateescape"))
    return b"\r\n".join(lines) + b"\r\n\r\n"


def decode_headers(block: bytes) -> Headers:
    """The fields of a header block. Lines without a colon are passed over, as all clients do."""
    headers = Headers()
    for line in block.decode(errors="surrogateescape").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon and name:
            headers.add(name, value.strip(" \t"))
    return headers


def _check(name: str, value: str) -> None:
    if not isinstance(name, str) or not isinstance(value, str):
        raise BadHeaderError(f"header {name!r}: name and value must be str, convert them first")
    if not name or any(character in name for character in ":\r\n \t"):
        raise BadHeaderError(
            f"header name {name!r}: must not be empty or contain a colon, blank or newline"
        )
    if "\r" in value or "\n" in value:
        raise BadHeaderError(f"header {name}: a value must not contain a newline")
