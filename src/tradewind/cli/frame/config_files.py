"""Configuration files of streams and consumers, and the difference between two configurations.

Owns reading (`--config FILE.json`, also the output of `info --json`), writing (`--output`) and the
diff that `edit` shows. An unknown field is an error with a hint, and never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.field_shapes import shapes_of
from tradewind.api.legacy_marks import LEGACY_KEY
from tradewind.api.stream_types import StreamConfig
from tradewind.api.versioning import user_metadata
from tradewind.cli.frame.failures import CommandError, near
from tradewind.cli.frame.json_input import read_json
from tradewind.cli.frame.output import json_text, line, styled
from tradewind.durations import format_duration

Config = TypeVar("Config", StreamConfig, ConsumerConfig)
FILE_BYTES_MAX = 16 << 20
# What `tradewind table` writes into the metadata of a stream.
TABLE_KEY = "tradewind.table"
# Lines of equal members that a diff shows before and behind each change.
CONTEXT_LINES = 2


def read_config(path: str, kind: type[Config]) -> Config:
    """The configuration in a JSON file: itself, or as the member `config`."""
    document = read_document(path)
    if isinstance(document.get("config"), dict):
        document = document["config"]
    return config_of(document, kind, path)


def read_document(path: str) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        if Path(path).stat().st_size > FILE_BYTES_MAX:
            raise CommandError(
                f"{path}: more than {FILE_BYTES_MAX >> 20} MiB, too large for a configuration"
            )
        text = Path(path).read_bytes()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    document = read_json(text, path)
    if not isinstance(document, dict):
        raise CommandError(f"{path}: expected a JSON object, not {type(document).__name__}")
    return document


def config_of(document: dict[str, Any], kind: type[Config], source: str) -> Config:
    """A typed configuration; an error names the member."""
    names = kind.__struct_fields__
    for name in document:
        if name not in names:
            hint = near(name, names)
            raise CommandError(f"{source}: a {kind.__name__} has no member {name!r}{hint}")
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise CommandError(f"{source}: {error}") from None


def write_config(path: str, config: Config) -> None:
    """Writes a configuration for `--config`."""
    Path(path).write_text(json_text(config) + "\n")


def diff_lines(old: Config, new: Config) -> list[str]:
    """The members that differ with their neighbours; empty if none does."""
    names = old.__struct_fields__
    before, after = ({name: _member_text(config, name) for name in names} for config in (old, new))
    changed = [index for index, name in enumerate(names) if before[name] != after[name]]
    if not changed:
        return []
    shown = sorted(
        {
            index
            for place in changed
            for index in range(place - CONTEXT_LINES, place + CONTEXT_LINES + 1)
            if 0 <= index < len(names)
        }
    )
    column = max(len(names[index]) for index in shown) + 1
    lines: list[str] = [f"  {type(old).__name__}{{"]
    expected = 0
    for index in shown:
        lines += _identical(index - expected)
        name = names[index]
        label = f"{name}:".ljust(column)
        if index in changed:
            lines += [f"-       {label} {before[name]},", f"+       {label} {after[name]},"]
        else:
            lines.append(f"        {label} {before[name]},")
        expected = index + 1
    lines += _identical(len(names) - expected)
    return [*lines, "  }"]


def print_diff(lines: list[str]) -> None:
    """The difference, in colours on a terminal."""
    line("Differences (-old +new):")
    styles = {"-": "red", "+": "green"}
    for each in lines:
        line(styled(each, styles[each[0]]) if each[0] in styles else each)


def _identical(count: int) -> list[str]:
    if not count:
        return []
    return [f"        ... // {count} identical field{'s' if count > 1 else ''}"]


def changed_members(old: Config, new: Config) -> list[str]:
    """The members that differ, with both values: `max_age: "1h0m0s", not "2h0m0s"`."""
    found = []
    for name in old.__struct_fields__:
        before, after = (_member_text(each, name) for each in (old, new))
        if before != after:
            found.append(f"{name}: is {before}, not {after}")
    return found


def declared_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """The metadata that are settings: without the marks of servers."""
    return {key: text for key, text in user_metadata(metadata).items() if key != LEGACY_KEY}


def kept_marks(wanted: Mapping[str, str], current: Mapping[str, str]) -> dict[str, str]:
    """The metadata to store: those that are wanted, with the marks of servers and tools.

    Marks are no settings: a file or an editor that leaves them out does not remove them.
    """
    marks = {
        key: value
        for key, value in current.items()
        if key in (LEGACY_KEY, TABLE_KEY) or key.startswith("_nats.")
    }
    return {**marks, **wanted}


def _member_text(config: Config, name: str) -> str:
    value = getattr(config, name)
    shape = shapes_of(type(config))[name]
    if shape.is_duration:
        return f'"{format_duration(value)}"'
    if shape.item is not None and shape.item.is_duration:
        return f"[{', '.join(format_duration(each) for each in value)}]"
    if name == "metadata":
        value = declared_metadata(value)
    return msgspec.json.encode(value, order="deterministic").decode()
