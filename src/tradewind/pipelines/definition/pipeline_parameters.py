"""Parameters in the file of a pipeline: `${NAME}` and `${NAME:default}`.

Owns the notation, where values come from (the command line, then the environment), and which of
them are not to be shown. Keys never have parameters, and a value is not searched for further ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tradewind.documents import Document, Key
from tradewind.pipelines.definition.spark_settings import HIDDEN, is_secret
from tradewind.pipelines.errors import PipelineError

VALUE_CHARACTERS_MAX: Final = 10_000
# All values of a file together, with their parameters.
FILLED_CHARACTERS_MAX: Final = 4 << 20
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_SIGN: Final = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]{0,99})(?::([^{}]*))?\})?")


class Parameters:
    """The values that a run has. Used ones are noted, so that a typing error is found."""

    def __init__(
        self, given: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._given = dict(given or {})
        self._environment = os.environ if environment is None else environment
        self._used: set[str] = set()

    def value_of(self, name: str) -> str | None:
        """The value of a parameter; None if it is not set."""
        self._used.add(name)
        return self._given[name] if name in self._given else self._environment.get(name)

    def check_used(self) -> None:
        """PipelineError if a value was given that no file has asked for."""
        from tradewind.pipelines.definition.loading import near

        for name in self._given:
            if name not in self._used:
                hint = near(name, self._used) if self._used else "; it has no parameters"
                raise PipelineError(f"--set {name}: no file uses this parameter{hint}")


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """The values of `--set NAME=value`; PipelineError says what would be right."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        # Not the text: it may be a password.
        if not sign or not _NAME.fullmatch(name):
            raise PipelineError("--set: write NAME=value, with letters, digits and _ in the name")
        if name in found:
            raise PipelineError(f"--set {name}: the parameter is given twice")
        found[name] = value
    return found


class ParameterFiller:
    """Puts the values of parameters into one document."""

    def __init__(self, document: Document, parameters: Parameters) -> None:
        self._document = document
        self._parameters = parameters
        self._size = 0
        # The places of values that parameters have made, whose types follow from their keys.
        self.filled: set[tuple[Key, ...]] = set()
        self.secrets: set[str] = set()

    def fill(self, value: Any, keys: tuple[Key, ...] = ()) -> Any:
        """The same value with all parameters replaced; an error names the line."""
        if isinstance(value, dict):
            return {key: self.fill(one, (*keys, key)) for key, one in value.items()}
        if isinstance(value, list):
            return [self.fill(one, (*keys, index)) for index, one in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        filled = _SIGN.sub(lambda found: self._text(found, value, keys), value)
        self._size += len(filled)
        if self._size > FILLED_CHARACTERS_MAX:
            raise self._document.error(
                keys, f"with their parameters, values have more than {FILLED_CHARACTERS_MAX} bytes"
            )
        self.filled.add(keys)
        return filled

    def _text(self, found: re.Match[str], value: str, keys: tuple[Key, ...]) -> str:
        if found[0] == "$${":
            return "${"
        place = self._document.place(keys)
        line = place.at(value.count("\n", 0, found.start()) if place.is_block else 0)
        if found[1] is None:
            text = "'${' must begin ${NAME} or ${NAME:default}; write $${ for the characters ${"
            raise self._document.fail(text, line)
        name, default = found[1], found[2]
        chosen = self._parameters.value_of(name)
        if chosen is None:
            chosen = default
        if chosen is None:
            raise self._document.fail(
                f"parameter {name} is not set: set it in the environment or with --set"
                f" {name}=value, or write a default: ${{{name}:default}}",
                line,
            )
        if len(chosen) > VALUE_CHARACTERS_MAX:
            text = f"parameter {name} has more than {VALUE_CHARACTERS_MAX} characters"
            raise self._document.fail(text, line)
        if chosen and is_secret(name):
            self.secrets.add(chosen)
        return chosen


def hide(text: str, secrets: Iterable[str]) -> str:
    """A text without the values of secret parameters."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    return text
