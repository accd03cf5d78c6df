"""The errors of schemas, and the check that their libraries are installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from tradewind.errors import TradewindError
from tradewind.extra_packages import install_command

EXTRA: Final = "schemas"
LIBRARIES: Final = {
    "json": "jsonschema_rs",
    "avro": "fastavro",
    "protobuf": "google.protobuf",
}
REASON_CHARACTERS_MAX: Final = 300


class SchemaError(TradewindError):
    """A schema that cannot be used, or a change of one that is not allowed."""


def missing_libraries() -> list[str]:
    """The libraries of the extra that are not installed."""
    return [library for library in LIBRARIES.values() if not _is_there(library)]


def require_library(format_name: str) -> None:
    """SchemaError if the library of a format is not installed."""
    library = LIBRARIES[format_name]
    if not _is_there(library):
        raise SchemaError(
            f"{format_name} schemas need the library {library}: {install_command(EXTRA)}"
        )


def one_line(error: BaseException | str) -> str:
    """An error of a library as a short line."""
    return shortened(" ".join(str(error).split()))


def shortened(text: str) -> str:
    """A text of a length that fits an error."""
    if len(text) <= REASON_CHARACTERS_MAX:
        return text
    return f"{text[: REASON_CHARACTERS_MAX - 3]}..."


def _is_there(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ImportError:
        return False
