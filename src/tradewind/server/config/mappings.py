"""The `mappings` block, of an account or at the top level for `$G`.

Owns its three forms: a destination, a destination with a weight, and a list of those. It never
applies a mapping, which is up to `route.remapping`.
"""

from __future__ import annotations

from typing import Any

from tradewind.route.mapping import MappingError
from tradewind.route.remapping import WEIGHT_MAX, Destination, MappingRule, check_rule
from tradewind.server.config.reader import Reader, expect, fault, text
from tradewind.server.config.tree import ConfigNode
from tradewind.subjects import is_valid_subject


class MappingsReader:
    """Reads a `mappings` block; every wrong entry is reported as an error of its own."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, node: ConfigNode, key: str) -> tuple[MappingRule, ...]:
        """The rules, in the order of the file."""
        rules = []
        block = expect(node, key, dict, 'a block: { "from": "to" }')
        for source, child in block.items():
            if not is_valid_subject(source):
                raise fault(child, f'Subject "{source}" is not a valid subject')
            rule = MappingRule(source, self._destinations(child, source))
            to = f' to "{child.value}"' if isinstance(child.value, str) else ""
            try:
                check_rule(rule)
            except MappingError as error:
                raise fault(child, f'Error adding mapping for "{source}"{to}: {error}') from None
            rules.append(rule)
        return tuple(rules)

    def _destinations(self, node: ConfigNode, source: str) -> tuple[Destination, ...]:
        if isinstance(node.value, str):
            return (Destination(node.value),)
        if isinstance(node.value, list):
            return tuple(self._destination(item, source) for item in node.value)
        return (self._destination(node, source),)

    def _destination(self, node: ConfigNode, source: str) -> Destination:
        subject = ("subject", text)
        fields: dict[str, Any] = self._reader.fields(
            node,
            f'a destination of the mapping "{source}"',
            {
                "destination": subject,
                "dest": subject,
                "weight": ("weight", _weight),
                "cluster": ("cluster", text),
            },
        )
        if not fields.get("subject"):
            raise fault(node, f'a destination of the mapping "{source}" needs a destination')
        if "weight" not in fields:
            raise fault(node, f'Missing weight for mapping destination "{fields["subject"]}"')
        return Destination(**fields)


def _weight(node: ConfigNode, key: str) -> int:
    """A weight from 0 to 100, with or without a percent sign."""
    value = node.value
    if isinstance(value, str) and value.removesuffix("%").isdecimal():
        value = int(value.removesuffix("%")[:9])
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= WEIGHT_MAX:
        shown = f'"{value}"' if isinstance(value, str) else value
        raise fault(
            node,
            f"Invalid {key} {shown} for mapping destination: must be from 0 to {WEIGHT_MAX}",
        )
    return value
