"""JSON that users write: files, flags and answers.

Owns reading it; an error says in which line and column it is.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar, overload

import msgspec

from tradewind.cli.frame.failures import EXIT_FAILED, CommandError

Value = TypeVar("Value")
_PLACE: Final = re.compile(r"^(?:JSON is malformed: )?(.*) \(byte ([0-9]+)\)$")


@overload
def read_json(text: bytes, source: str) -> Any: ...
@overload
def read_json(
    text: bytes, source: str, kind: type[Value], *, exit_code: int = EXIT_FAILED
) -> Value: ...
def read_json(text: bytes, source: str, kind: Any = Any, *, exit_code: int = EXIT_FAILED) -> Any:
    """The value of a JSON text; an error names the source, such as a file or a flag."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise CommandError(f"{source}: {error}", exit_code=exit_code) from None
    except msgspec.DecodeError as error:
        raise CommandError(f"{source}: {json_problem(text, error)}", exit_code=exit_code) from None


def json_problem(text: bytes, error: msgspec.DecodeError) -> str:
    """A description of the fault in a JSON text, with its line and column."""
    found = _PLACE.match(str(error))
    if found is None:
        # The library names no place only if the text ends too early.
        problem, place = "the text ends too early", len(text)
    else:
        problem, place = found[1], int(found[2])
    before = text[:place].decode(errors="replace")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return f"not JSON: line {line}, column {column}: {problem}"
