"""Edit a configuration as text, with a preview of the changes.

Owns the three steps. A change is applied only to the version that was previewed: `base` detects
whether it has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import card, form
from tradewind.dashboard.views.call import Answer, Call

MakePage = Callable[..., Answer]


class _Raw(msgspec.Struct):
    """An info of which only the configuration is used."""

    config: dict[str, Any] = {}


def raw_config(answer: bytes) -> dict[str, Any]:
    """The configuration in an answer with all its members, including unknown ones."""
    check_answer(answer)
    return msgspec.json.decode(answer, type=_Raw).config


def editor(call: Call, path: tuple[str, ...], text: str, base: str) -> Markup:
    """A form with the configuration as text."""
    return form(
        call.visit,
        address(*path, "edit"),
        tag("input", type="hidden", name="base", value=base),
        tag(
            "label",
            tag("span", "Configuration; durations are nanoseconds"),
            tag("textarea", text, name="config", spellcheck="false"),
        ),
        tag("div", tag("button", "Show what would change", class_="main"), class_="actions"),
        class_="stack",
    )


def edit_page(call: Call, show: MakePage, path: tuple[str, ...], current: dict[str, Any]) -> Answer:
    """The page on which an edit begins."""
    made = editor(call, path, config_text(current), fingerprint(current))
    return show(call, f"Edit {path[-1]}", card("", made))


def review_page(
    call: Call,
    show: MakePage,
    path: tuple[str, ...],
    current: dict[str, Any],
    wanted: dict[str, Any],
) -> Answer:
    """The page that shows what would change, without applying it."""
    name = path[-1]
    text, base = call.fields.get("config", ""), call.fields.get("base", "")
    check_base(current, base)
    lines = difference(current, wanted)
    if not lines:
        note = tag("p", "Nothing would change.", class_="notice")
        return show(call, f"Edit {name}", note, card("", editor(call, path, text, base)))
    apply = form(
        call.visit,
        address(*path, "apply"),
        tag("input", type="hidden", name="base", value=base),
        tag("input", type="hidden", name="config", value=text),
        tag(
            "div",
            tag("button", "Apply", class_="main"),
            tag("a", "Cancel", href=address(*path), class_="button"),
            class_="actions",
        ),
    )
    again = card("", editor(call, path, text, base))
    return show(
        call,
        f"Change {name}?",
        card("This would change", diff_box(lines)),
        apply,
        tag("details", tag("summary", "Edit again"), again),
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
            "someone else has changed this since the page was opened: open it again"
        )


def with_own_metadata(current: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The configuration to send: with the metadata of the server itself, which is not shown."""
    before, after = current.get("metadata") or {}, wanted.get("metadata") or {}
    kept = {name: value for name, value in before.items() if name.startswith("_nats.")}
    return {**wanted, "metadata": {**kept, **after}} if kept or after else wanted
