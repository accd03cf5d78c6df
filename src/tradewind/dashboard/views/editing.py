"""One form for creating and changing a configuration, with a preview of changes.

Owns the three steps of a change and the two ways to enter it: fields with units, or JSON. A change
is applied only to the version that was previewed: `base` detects whether it has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from tradewind.client.streams.api_requests import check_answer
from tradewind.dashboard.data.changes import (
    DiffLine,
    StaleConfigError,
    config_text,
    difference,
    fingerprint,
)
from tradewind.dashboard.data.config_entries import (
    BadEntriesError,
    ConfigForm,
    apply_entries,
    blamed_field,
    entries_of,
    field_changes,
)
from tradewind.dashboard.data.config_fields import ConfigField
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.inputs import Inputs, comparison, refusal_note, submit
from tradewind.dashboard.look.page_layout import card, form, tabs
from tradewind.dashboard.views.call import Answer, BadFormError, Call, FormRefusal

MakePage = Callable[..., Answer]
# The field with the whole configuration as JSON.
AS_JSON = "config"
# Whether a preview was made by the form or by JSON.
WAY = "way"


class _Raw(msgspec.Struct):
    """An info of which only the configuration is used."""

    config: dict[str, Any] = {}


def raw_config(answer: bytes) -> dict[str, Any]:
    """The configuration in an answer with all its members, including unknown ones."""
    check_answer(answer)
    return msgspec.json.decode(answer, type=_Raw).config


# ---------------------------------------------------------------------- the form


def config_editor(
    call: Call,
    fields: ConfigForm,
    config: Mapping[str, Any],
    *,
    path: tuple[str, ...],
    action: str,
    button: str,
    base: str = "",
    why_not: str = "",
) -> list[Child]:
    """A form for a configuration, as fields or as JSON. Without `base` it creates something."""
    is_json = call.query.get("as") == "json" or AS_JSON in call.fields
    inputs = call.inputs()
    refusal = call.refusal
    note = None
    if refusal is not None:
        labels = {path: field.label for path, field in fields.fields.items()}
        note = refusal_note(refusal.text, refusal.errors, labels)
    body: list[Child]
    if is_json:
        hint = "Durations are nanoseconds, sizes are bytes"
        body = [inputs.area("Configuration", AS_JSON, config_text(config), hint=hint)]
    else:
        body = _groups(fields, inputs, entries_of(fields, config), is_new=not base)
    made = form(
        call.visit,
        action,
        tag("input", type="hidden", name="base", value=base) if base else None,
        body,
        tag(
            "div",
            submit(button, why_not, class_="main"),
            tag("a", "Cancel", href=address(*path), class_="button"),
            class_="actions",
        ),
        tag("p", why_not, class_="faint") if why_not else None,
        class_="stack sections",
    )
    ways = tabs(
        [("Form", f"{action}?as=form", not is_json), ("JSON", f"{action}?as=json", is_json)]
    )
    return [note, card("", ways, made)]


def _groups(
    fields: ConfigForm, inputs: Inputs, entries: Mapping[str, str], *, is_new: bool
) -> list[Child]:
    made: list[Child] = []
    for group in fields.groups:
        rows = [
            _input(fields, inputs, field, entries[field.path], is_new=is_new)
            for field in group.fields
        ]
        is_used = any(
            inputs.value(field.path, entries[field.path]) not in ("", "0", *_firsts(field))
            or inputs.is_bad(field.path)
            for field in group.fields
        )
        made.append(
            tag(
                "details",
                tag("summary", group.title),
                tag("div", rows, class_="entries"),
                class_="fields",
                open=group.is_open or is_used,
            )
        )
    return made


def _firsts(field: ConfigField) -> tuple[str, ...]:
    return (field.options[0][0],) if field.options else (field.start,)


def _input(
    fields: ConfigForm, inputs: Inputs, field: ConfigField, text: str, *, is_new: bool
) -> Markup:
    shape = fields.shapes[field.path]
    is_off = field.is_fixed and not is_new
    default = field.start if is_new and field.start else text
    hint = "It cannot be changed later." if is_off else field.hint
    if shape.kind == "bool":
        return inputs.switch(
            field.label, field.path, default=default == "1", hint=hint, disabled=is_off
        )
    if field.options:
        return inputs.choice(
            field.label, field.path, field.options, default, hint=hint, disabled=is_off
        )
    is_list = shape.kind == "list" and shape.item is not None
    if shape.kind == "map" or (is_list and shape.item is not None and shape.item.kind == "struct"):
        return inputs.area(field.label, field.path, default, hint=hint)
    is_plain = shape.kind == "number" and not (shape.is_duration or shape.is_size)
    return inputs.text(
        field.label,
        field.path,
        default,
        hint=hint,
        required=field.is_required and not is_off,
        disabled=is_off,
        numeric=is_plain,
    )


# ---------------------------------------------------------------------- what was entered


def entered_config(
    call: Call,
    fields: ConfigForm,
    current: Mapping[str, Any],
    parse: Callable[[str], dict[str, Any]],
) -> dict[str, Any]:
    """The configuration in a form. BadFormError names all fields that are not valid."""
    if AS_JSON in call.fields:
        return parse(call.fields[AS_JSON])
    try:
        is_new = "base" not in call.fields
        return apply_entries(fields, current, call.fields, is_new=is_new)
    except BadEntriesError as error:
        texts = [
            f"{fields.fields[path].label} ({path}) {text}" for path, text in error.errors.items()
        ]
        raise BadFormError("; ".join(texts), errors=error.errors) from None


def blamed(fields: ConfigForm, refusal: FormRefusal, *, is_json: bool) -> FormRefusal:
    """The refusal with the field that the words of a server are about."""
    if refusal.errors:
        return refusal
    path = AS_JSON if is_json else blamed_field(fields, refusal.text)
    return FormRefusal(refusal.text, {path: refusal.text} if path else {})


# ---------------------------------------------------------------------- changes


def edit_page(
    call: Call,
    show: MakePage,
    path: tuple[str, ...],
    fields: ConfigForm,
    current: Mapping[str, Any],
    *,
    why_not: str = "",
) -> Answer:
    """The page on which an edit begins, or begins again after a refusal."""
    if call.refusal is not None:
        if call.fields.get(WAY) == "form":
            # It was applied from its preview, which holds what was entered as JSON.
            call = replace(call, fields=entries_of(fields, _decoded(call.fields.get(AS_JSON, ""))))
        refusal = blamed(fields, call.refusal or FormRefusal(""), is_json=AS_JSON in call.fields)
        call = replace(call, refusal=refusal)
    # What was entered stays, and is compared with the newest version from now on.
    made = config_editor(
        call,
        fields,
        current,
        path=path,
        action=address(*path, "edit"),
        button="Show what would change",
        base=fingerprint(current),
        why_not=why_not,
    )
    return show(call, f"Edit {path[-1]}", *made)


def _decoded(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}


def review_page(
    call: Call,
    show: MakePage,
    path: tuple[str, ...],
    fields: ConfigForm,
    current: dict[str, Any],
    wanted: dict[str, Any],
) -> Answer:
    """The page that shows what would change, without applying it."""
    name = path[-1]
    base = call.fields.get("base", "")
    check_base(current, base)
    changes = field_changes(fields, current, wanted)
    lines = difference(current, wanted)
    if not lines:
        note = tag("p", "Nothing would change.", class_="notice")
        return show(call, f"Edit {name}", note, *_again(call, path, fields, current, base))
    apply = form(
        call.visit,
        address(*path, "apply"),
        tag("input", type="hidden", name="base", value=base),
        tag("input", type="hidden", name=AS_JSON, value=config_text(wanted)),
        tag("input", type="hidden", name=WAY, value="json" if AS_JSON in call.fields else "form"),
        tag(
            "div",
            tag("button", "Apply", class_="main"),
            tag("a", "Cancel", href=address(*path), class_="button"),
            class_="actions",
        ),
    )
    rows = [(each.label, each.before, each.after) for each in changes]
    as_json = tag("details", tag("summary", "As JSON"), diff_box(lines))
    return show(
        call,
        f"Change {name}?",
        card("This would change", comparison(rows, "Now", "Then") if rows else None, as_json),
        apply,
        tag("details", tag("summary", "Edit again"), *_again(call, path, fields, wanted, base)),
    )


def _again(
    call: Call, path: tuple[str, ...], fields: ConfigForm, config: dict[str, Any], base: str
) -> list[Child]:
    return config_editor(
        call,
        fields,
        config,
        path=path,
        action=address(*path, "edit"),
        button="Show what would change",
        base=base,
    )


def diff_box(lines: list[DiffLine]) -> Child:
    """A difference, line by line."""
    return tag(
        "div", [tag("div", line.text, class_=line.kind) for line in lines], class_="diff mono"
    )


def check_base(current: Mapping[str, Any], base: str) -> None:
    """Raise StaleConfigError if the configuration is not the reviewed version."""
    if fingerprint(current) != base:
        raise StaleConfigError(
            "someone else has changed this since the page was opened: look at the newest "
            "configuration, and try again"
        )


def with_own_metadata(current: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The configuration to send: with the metadata of the server itself, which is not shown."""
    before, after = current.get("metadata") or {}, wanted.get("metadata") or {}
    kept = {name: value for name, value in before.items() if name.startswith("_nats.")}
    return {**wanted, "metadata": {**kept, **after}} if kept or after else wanted
