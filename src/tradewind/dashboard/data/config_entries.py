"""Configurations as the texts of a form, and back.

Owns the conversion of each field and all errors of a form at once. A field whose text did not
change keeps its value, and members that no form knows stay as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tradewind.api.base import ApiStruct
from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.field_shapes import Shape, shapes_of
from tradewind.api.stream_types import StreamConfig
from tradewind.api.times import ZERO_TIME, format_time, parse_time
from tradewind.api.versioning import user_metadata
from tradewind.dashboard.data.config_fields import (
    CONSUMER_GROUPS,
    NO_LIMIT,
    STREAM_GROUPS,
    ConfigField,
    FieldGroup,
    fields_of,
)
from tradewind.dashboard.data.human_values import (
    BadValueError,
    duration_entry,
    list_entry,
    parse_duration_entry,
    parse_list_entry,
    parse_size_entry,
    size_entry,
)
from tradewind.errors import TradewindError
from tradewind.subjects import is_valid_subject

NUMBER_MAX: Final = 2**63 - 1
NUMBER_DIGITS: Final = 20
ON: Final = "1"
OFF: Final = "0"
SUBJECT_LISTS: Final = frozenset(("subjects", "filter_subjects"))


class BadEntriesError(TradewindError):
    """Fields of a form that are not valid: `errors` has the text for each of them."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name} {text}" for name, text in errors.items()))
        self.errors = dict(errors)


class ConfigForm(msgspec.Struct, frozen=True):
    """The form of one kind of configuration."""

    groups: tuple[FieldGroup, ...]
    fields: Mapping[str, ConfigField]
    shapes: Mapping[str, Shape]


def _form(groups: tuple[FieldGroup, ...], struct: type[ApiStruct]) -> ConfigForm:
    fields = fields_of(groups)
    shapes = shapes_of(struct)
    return ConfigForm(groups, fields, {path: _shape(shapes, path) for path in fields})


def _shape(shapes: Mapping[str, Shape], path: str) -> Shape:
    name, dot, rest = path.partition(".")
    shape = shapes[name]
    return _shape(shape.fields or {}, rest) if dot else shape


STREAM_FORM: Final = _form(STREAM_GROUPS, StreamConfig)
CONSUMER_FORM: Final = _form(CONSUMER_GROUPS, ConsumerConfig)


# ---------------------------------------------------------------------- values as texts


def entries_of(form: ConfigForm, config: Mapping[str, Any]) -> dict[str, str]:
    """The text of each field of a form for a configuration as in JSON."""
    return {
        path: entry_text(form.shapes[path], field, _member(config, path))
        for path, field in form.fields.items()
    }


def entry_text(shape: Shape, field: ConfigField, value: Any) -> str:
    """The text of a value in a form; empty if it is not set."""
    if shape.kind == "bool":
        return ON if value else OFF
    if shape.kind == "enum":
        assert shape.enum is not None, "an enum has its values"
        if value is None:
            return field.options[0][0] if field.options else ""
        try:
            return str(shape.enum(value).value)
        except ValueError:
            return str(value)  # of a newer server; it stays as it is
    if value is None:
        return ""
    if shape.kind == "number":
        return _number_text(shape, field, value)
    if shape.kind == "time":
        return "" if value == ZERO_TIME else str(value)
    if shape.kind == "map":
        return _metadata_text(user_metadata(value))
    if shape.kind == "list":
        assert shape.item is not None, "a list has items"
        if shape.item.kind == "string":
            return list_entry(value)
        if shape.item.is_duration:
            return list_entry([duration_entry(each) for each in value])
        return msgspec.json.encode(value).decode() if value else ""
    return str(value)


def _number_text(shape: Shape, field: ConfigField, value: int) -> str:
    if value == 0 or value == field.empty == NO_LIMIT:
        return ""
    if shape.is_duration:
        return duration_entry(value)
    if shape.is_size:
        return size_entry(value)
    return str(value)


def _metadata_text(metadata: Mapping[str, str]) -> str:
    is_plain = all(
        "\n" not in f"{key}{value}"
        and "=" not in key
        and key == key.strip()
        and value == value.strip()
        and key[:1] not in ("", "{")
        for key, value in metadata.items()
    )
    if not is_plain:
        return msgspec.json.encode(dict(metadata)).decode()
    return "\n".join(f"{key} = {value}" for key, value in sorted(metadata.items()))


# ---------------------------------------------------------------------- texts as values


def parse_entry(shape: Shape, field: ConfigField, text: str) -> Any:
    """The value of a text, as in JSON; None if it is not set. BadValueError says what is right."""
    plain = text.strip()
    if shape.kind == "bool":
        return plain == ON
    if not plain and shape.kind != "number":
        return None
    match shape.kind:
        case "enum":
            assert shape.enum is not None, "an enum has its values"
            known = [str(each.value) for each in shape.enum]
            if plain not in known:
                raise BadValueError(f"must be one of {', '.join(known)}, not {plain[:40]!r}")
            return plain
        case "number":
            return _number(shape, field, plain)
        case "time":
            return parse_time_entry(plain)
        case "map":
            return _metadata(text)
        case "list":
            return _list(shape, field, plain)
    return plain


def _number(shape: Shape, field: ConfigField, text: str) -> int:
    if shape.is_duration:
        return parse_duration_entry(text)
    if shape.is_size:
        return parse_size_entry(text, empty=field.empty)
    if not text:
        return field.empty
    plain = text.replace(",", "").replace("\u202f", "")
    if plain == "-1" and field.empty == 0:
        return -1
    if not (plain.isascii() and plain.isdigit() and len(plain) <= NUMBER_DIGITS):
        raise BadValueError(f"must be a whole number, not {text[:40]!r}")
    if int(plain) > NUMBER_MAX:
        raise BadValueError(f"must be at most {NUMBER_MAX}, not {text}")
    return int(plain)


def parse_time_entry(text: str) -> str:
    """A time of the API for `2026-01-31 12:00`; without a zone it is UTC."""
    written = text.strip().replace(" UTC", "Z").replace(" ", "T")
    if len(written) == len("2026-01-31"):
        written += "T00:00"
    if len(written) == len("2026-01-31T12:00"):
        written += ":00"
    if not written.endswith("Z") and "+" not in written and written.count("-") < 3:
        written += "Z"
    try:
        return format_time(parse_time(written))
    except ValueError:
        raise BadValueError(
            f"must be a time like 2026-01-31 12:00 (UTC), not {text[:40]!r}"
        ) from None


def _list(shape: Shape, field: ConfigField, text: str) -> list[Any]:
    assert shape.item is not None, "a list has items"
    if shape.item.kind == "string":
        items = parse_list_entry(text)
        if field.path in SUBJECT_LISTS:
            for each in items:
                if not is_valid_subject(each):
                    raise BadValueError(f"must be subjects joined by commas, not {each[:80]!r}")
        return items
    if shape.item.is_duration:
        return [parse_duration_entry(each) for each in parse_list_entry(text)]
    try:
        return msgspec.json.decode(text, type=list[Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadValueError(f"must be a list as JSON: {error}") from None


def _metadata(text: str) -> dict[str, str]:
    if text.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(text, type=dict[str, str])
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadValueError(f"must be an object of texts as JSON: {error}") from None
    found = {}
    for index, line in enumerate(text.split("\n"), 1):
        key, sign, value = line.partition("=")
        if not line.strip():
            continue
        if not sign or not key.strip():
            raise BadValueError(f"line {index} must be key = value, not {line[:60]!r}")
        found[key.strip()] = value.strip()
    return found


# ---------------------------------------------------------------------- whole configurations


def apply_entries(
    form: ConfigForm, config: Mapping[str, Any], entries: Mapping[str, str], *, is_new: bool
) -> dict[str, Any]:
    """The configuration with what a form changed. BadEntriesError names all fields that are not
    valid. Fields that are fixed keep the value of a configuration that is not new.
    """
    made = copy.deepcopy(dict(config))
    before = entries_of(form, config)
    errors: dict[str, str] = {}
    for path, field in form.fields.items():
        text = entries.get(path)
        if text is None or (field.is_fixed and not is_new):
            continue
        if field.is_required and not text.strip():
            errors[path] = "must not be empty"
            continue
        if _same(text, before[path]):
            continue
        try:
            value = parse_entry(form.shapes[path], field, text)
        except BadValueError as error:
            errors[path] = str(error)
            continue
        _set_member(made, path, value)
    if errors:
        raise BadEntriesError(errors)
    return made


def _same(text: str, before: str) -> bool:
    return text.strip() == before.strip()


def _member(config: Mapping[str, Any], path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _set_member(config: dict[str, Any], path: str, value: Any) -> None:
    name, dot, rest = path.partition(".")
    if not dot:
        if value is None:
            config.pop(name, None)
        else:
            config[name] = value
        return
    inner = config.get(name)
    part = dict(inner) if isinstance(inner, dict) else {}
    _set_member(part, rest, value)
    if any(part.values()):
        config[name] = part
    else:
        config.pop(name, None)


class FieldChange(msgspec.Struct, frozen=True):
    """A field that would change, in the units of the form."""

    label: str
    before: str
    after: str


def field_changes(
    form: ConfigForm, before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[FieldChange]:
    """The fields that differ, and the members that no form has as JSON."""
    old, new = entries_of(form, before), entries_of(form, after)
    found = [
        FieldChange(field.label, _shown(form, path, old[path]), _shown(form, path, new[path]))
        for path, field in form.fields.items()
        if old[path] != new[path]
    ]
    known = {path.partition(".")[0] for path in form.fields}
    for name in sorted({*before, *after} - known - {"durable_name", "filter_subject"}):
        texts = [
            msgspec.json.encode(each[name]).decode() if name in each else ""
            for each in (before, after)
        ]
        if texts[0] != texts[1]:
            found.append(FieldChange(name, *(text or "not set" for text in texts)))
    return found


def _shown(form: ConfigForm, path: str, text: str) -> str:
    if form.shapes[path].kind == "bool":
        return "yes" if text == ON else "no"
    options = dict(form.fields[path].options)
    if text in options:
        return options[text]
    if text:
        return text
    return "no limit" if "no limit" in form.fields[path].hint else "none"


def with_filters(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a consumer with all its filters in `filter_subjects`, as in forms."""
    made = dict(config)
    single = made.pop("filter_subject", "")
    if single:
        made["filter_subjects"] = [single]
    made.setdefault("name", made.get("durable_name", ""))
    return made


def without_filters(config: Mapping[str, Any]) -> dict[str, Any]:
    """The opposite: a single filter is `filter_subject`, as clients of all ages know it."""
    made = dict(config)
    filters = made.get("filter_subjects") or []
    if len(filters) == 1:
        made["filter_subject"] = filters[0]
        made.pop("filter_subjects")
    return made


# ---------------------------------------------------------------------- refusals of a server

# Words in the refusal of a server, in the order of their precedence, with the field they are about.
_STREAM_WORDS: Final = (
    ("name already in use", "name"),
    ("stream name", "name"),
    ("subjects overlap", "subjects"),
    ("duplicates window", "duplicate_window"),
    ("duplicate window", "duplicate_window"),
    ("retention", "retention"),
    ("discard new per subject", "discard_new_per_subject"),
    ("discard", "discard"),
    ("max age", "max_age"),
    ("maximum bytes", "max_bytes"),
    ("max bytes", "max_bytes"),
    ("maximum replicas", "num_replicas"),
    ("replicas", "num_replicas"),
    ("republish", "republish.dest"),
    ("transform", "subject_transform.dest"),
    ("mirror", "mirror.name"),
    ("source", "sources"),
    ("marker", "subject_delete_marker_ttl"),
    ("counter", "allow_msg_counter"),
    ("scheduling", "allow_msg_schedules"),
    ("schedules", "allow_msg_schedules"),
    ("message ttl", "allow_msg_ttl"),
    ("persist mode", "persist_mode"),
    ("deny message deletes", "deny_delete"),
    ("deny purge", "deny_purge"),
    ("roll-up", "allow_rollup_hdrs"),
    ("rollup", "allow_rollup_hdrs"),
    ("compression", "compression"),
    ("placement", "placement.cluster"),
    ("peers for placement", "num_replicas"),
    ("tradewind.", "metadata"),
    ("metadata", "metadata"),
    ("subject", "subjects"),
)
_CONSUMER_WORDS: Final = (
    ("name already in use", "name"),
    ("consumer already exists", "name"),
    ("consumer name", "name"),
    ("durable name", "name"),
    ("filter", "filter_subjects"),
    ("start sequence", "opt_start_seq"),
    ("start time", "opt_start_time"),
    ("deliver policy", "deliver_policy"),
    ("ack policy", "ack_policy"),
    ("ack wait", "ack_wait"),
    ("backoff", "backoff"),
    ("max deliver", "max_deliver"),
    ("max ack pending", "max_ack_pending"),
    ("max waiting", "max_waiting"),
    ("max request batch", "max_batch"),
    ("max request expires", "max_expires"),
    ("heartbeat", "idle_heartbeat"),
    ("heart beat", "idle_heartbeat"),
    ("flow control", "flow_control"),
    ("rate limit", "rate_limit_bps"),
    ("deliver group", "deliver_group"),
    ("deliver subject", "deliver_subject"),
    ("sampling", "sample_freq"),
    ("priority", "priority_policy"),
    ("inactive", "inactive_threshold"),
    ("replicas", "num_replicas"),
    ("tradewind.", "metadata"),
    ("metadata", "metadata"),
)


def blamed_field(form: ConfigForm, text: str) -> str:
    """The field of a form that the refusal of a server is about; empty if it names none."""
    words = _STREAM_WORDS if form is STREAM_FORM else _CONSUMER_WORDS
    found = f" {text.lower()}"
    return next((path for word, path in words if f" {word}" in found), "")
