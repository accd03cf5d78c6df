"""JSON payloads against a JSON Schema.

Owns the way from a payload to the first thing that is wrong with it. jsonschema-rs checks, with
regular expressions that take linear time, and without fetching anything.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tradewind.errors import JSON_ERRORS
from tradewind.schemas.json_cost import JsonCost
from tradewind.schemas.json_tree import JsonTree
from tradewind.schemas.schema_errors import SchemaError, one_line, require_library, shortened

# The size of a compiled regular expression: a long count of a large class, but no bomb.
PATTERN_BYTES_MAX: Final = 65_536
_decode: Final = msgspec.json.Decoder().decode


class JsonCheck:
    """The check against one JSON Schema."""

    def __init__(self, schema: Any) -> None:
        self.cost = JsonCost(JsonTree(schema)).most()
        self._validator = open_validator(schema)
        self._is_valid = self._validator.is_valid

    def problem(self, payload: bytes) -> str:
        """The fault of a payload with its place; empty if it obeys the schema."""
        try:
            value = _decode(payload)
            if self._is_valid(value):
                return ""
        except JSON_ERRORS as error:
            return f"not JSON: {one_line(error)}" if payload else "an empty payload is not JSON"
        return value_problem(self._validator, value)


def open_validator(schema: Any) -> Any:
    """The validator of a JSON Schema; SchemaError if it is none."""
    require_library("json")
    from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError, validator_for

    make = validator_for if isinstance(schema, dict) and "$schema" in schema else None
    try:
        return (make or Draft202012Validator)(
            schema,
            validate_formats=False,
            offline=True,
            pattern_options=RegexOptions(
                size_limit=PATTERN_BYTES_MAX, dfa_size_limit=PATTERN_BYTES_MAX
            ),
        )
    except ValidationError as error:
        place = "/".join(map(str, error.instance_path))
        raise SchemaError(f"not a JSON Schema: #/{place}: {one_line(error.message)}") from None
    except Exception as error:  # of a schema that is none, it raises whatever that leads to
        raise SchemaError(f"not a JSON Schema: {one_line(error)}") from None


def value_problem(validator: Any, value: Any) -> str:
    """The first thing that is wrong with a value, with its place; empty if it is valid."""
    from jsonschema_rs import ValidationError

    try:
        validator.validate(value)
    except ValidationError as error:
        place = "".join(f"/{_escaped(token)}" for token in error.instance_path) or "/"
        return f"{shortened(place)}: {one_line(error.message)}"
    except ValueError as error:  # nested too deeply for the library
        return one_line(error)
    return ""


def _escaped(token: str | int) -> str:
    return str(token).replace("~", "~0").replace("/", "~1")
