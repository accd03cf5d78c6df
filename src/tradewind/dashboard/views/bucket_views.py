"""Key-value buckets as a whole: create, watch, update, delete."""

from __future__ import annotations

from typing import Any, Final

from tradewind.api.stream_types import StorageType
from tradewind.client.kv.kv_types import KvStatus, check_filter
from tradewind.client.streams.config_settings import choice_of
from tradewind.dashboard.data.page_texts import count, size
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import (
    STORAGES,
    badge,
    card,
    choice,
    field,
    form,
    heading,
    live,
    page,
    problem_note,
    switch,
    table,
)
from tradewind.dashboard.look.time_texts import at
from tradewind.dashboard.views.call import (
    Answer,
    Call,
    PageAnswer,
    RedirectAnswer,
    duration_ns,
    number,
)
from tradewind.dashboard.views.stream_changes import check_typed, typed_form
from tradewind.durations import SECOND_NS, format_duration

COLUMNS: Final = ("Revision", "Time", "Key", "", "Value", "Size#")
_OPERATIONS: Final = {
    "PUT": ("set", "good"),
    "DEL": ("deleted", "warning"),
    "PURGE": ("purged", "warning"),
    "EXPIRED": ("expired", "warning"),
}


def operation_badge(operation: str) -> Markup:
    """The state in which an operation has left a key."""
    return badge(*_OPERATIONS.get(operation, (operation, "")))


def _page(call: Call, title: str, *content: Child) -> Answer:
    bucket = call.parts.get("bucket", "")
    above: list[Child] = [tag("a", "Key-value", href="/kv")]
    if bucket:
        above += [" / ", tag("a", bucket, href=address("kv", bucket))]
    return PageAnswer(page(call.visit, "kv", title, heading(title, above=above), *content))


# ---------------------------------------------------------------------- watch


async def watch(call: Call) -> Answer:
    """Show the newest changes of a bucket or of some of its keys, as they happen."""
    bucket = call.parts["bucket"]
    keys = call.query.get("keys", "").strip() or ">"
    check_filter(keys)
    changes, problem = await call.workspace.watches.see(bucket, keys)
    rows: list[list[Child]] = [
        [
            count(each.revision),
            at(each.time_ns),
            tag("a", each.key, href=address("kv", bucket, each.key), class_="mono"),
            operation_badge(each.operation),
            tag("span", each.text, class_="mono faint"),
            size(each.size),
        ]
        for each in changes
    ]
    choose = tag(
        "form",
        field("Keys", "keys", keys, hint="* stands for one part, > for all that follow"),
        tag("button", "Watch", class_="main"),
        action=address("buckets", bucket, "watch"),
        method="get",
        class_="row",
    )
    body = [problem_note(problem), card("", table(COLUMNS, rows, empty="No change yet."))]
    return _page(call, f"Watch {bucket}", card("", choose), live("watch", body))


# ---------------------------------------------------------------------- a new bucket


def _fields(status: KvStatus | None) -> list[Markup]:
    config = status.info.config if status is not None else None
    kept = config.max_msgs_per_subject if config is not None else 1
    ttl = format_duration(config.max_age) if config is not None and config.max_age > 0 else ""
    most = str(config.max_bytes) if config is not None and config.max_bytes > 0 else ""
    marker = config.subject_delete_marker_ttl if config is not None else 0
    return [
        field("Description", "description", config.description if config is not None else ""),
        field("Values kept per key", "history", str(kept), kind="number", hint="1 to 64"),
        field("Values expire after", "ttl", ttl, hint="Like 24h or 30m. Empty: never"),
        field("Maximum size in bytes", "max_bytes", most, kind="number", hint="Empty: no limit"),
        switch(
            "Keys may have their own time to live",
            "allow_ttl",
            checked=config is None or config.allow_msg_ttl,
        ),
        field(
            "Report expired keys to watchers for",
            "marker_ttl",
            format_duration(marker) if marker > 0 else "",
            hint="Like 1m. Empty: not reported",
        ),
    ]


def settings_of(call: Call) -> dict[str, Any]:
    """The settings in a form; BadFormError names the field."""
    fields = call.fields
    made: dict[str, Any] = {
        "description": fields.get("description", ""),
        "history": number(fields, "history", least=1),
        "ttl": duration_ns(fields, "ttl") / SECOND_NS,
        "max_bytes": number(fields, "max_bytes") or -1,
        "allow_ttl": "allow_ttl" in fields,
    }
    if marker := duration_ns(fields, "marker_ttl"):
        made["marker_ttl"] = marker / SECOND_NS
    return made


async def show_new(call: Call) -> Answer:
    """Show the form for a new bucket."""
    made = form(
        call.visit,
        "/new-bucket",
        field("Name", "name", required=True, hint="Letters, digits, - and _"),
        choice("Storage", "storage", STORAGES),
        *_fields(None),
        tag("div", tag("button", "Create the bucket", class_="main"), class_="actions"),
        class_="stack",
    )
    return _page(call, "New bucket", card("", made))


async def create(call: Call) -> Answer:
    """Create a bucket."""
    bucket = await call.workspace.jetstream.kv.create(
        call.fields.get("name", "").strip(),
        storage=choice_of("storage", call.fields.get("storage", "file"), StorageType),
        **settings_of(call),
    )
    call.workspace.catalog.changed(bucket.stream)
    return RedirectAnswer(address("kv", bucket.bucket), f"Bucket {bucket.bucket} was created.")


# ---------------------------------------------------------------------- changes


async def show_settings(call: Call) -> Answer:
    """Show the settings of a bucket, and what can be removed from it."""
    bucket = call.parts["bucket"]
    kv = await call.workspace.jetstream.kv.open(bucket)
    status = await kv.status()
    change = form(
        call.visit,
        address("buckets", bucket, "settings"),
        *_fields(status),
        tag("div", tag("button", "Change the settings", class_="main"), class_="actions"),
        class_="stack",
    )
    clear = form(
        call.visit,
        address("buckets", bucket, "markers"),
        field("Older than", "older", "30m"),
        tag("button", "Remove markers"),
        class_="row",
    )
    text = "A deleted key leaves a marker, so that watchers learn of it."
    links = [
        tag("a", "Delete the bucket", href=address("buckets", bucket, "delete"), class_="button"),
        tag("a", "All settings", href=address("streams", kv.stream, "edit"), class_="button"),
    ]
    return _page(
        call,
        f"Settings of {bucket}",
        card("", change),
        card("Markers of deleted keys", tag("p", text), clear),
        tag("div", links, class_="actions"),
    )


async def change(call: Call) -> Answer:
    """Change the settings of a bucket."""
    bucket = call.parts["bucket"]
    kv = await call.workspace.jetstream.kv.update(bucket, **settings_of(call))
    call.workspace.catalog.changed(kv.stream)
    return RedirectAnswer(address("kv", bucket), f"The settings of {bucket} were changed.")


async def remove_markers(call: Call) -> Answer:
    """Remove the markers of deleted keys."""
    bucket = call.parts["bucket"]
    kv = await call.workspace.jetstream.kv.open(bucket)
    removed = await kv.purge_deletes(duration_ns(call.fields, "older") / SECOND_NS)
    call.workspace.catalog.changed(kv.stream)
    return RedirectAnswer(address("kv", bucket), f"{count(removed)} markers were removed.")


async def show_delete(call: Call) -> Answer:
    """Ask for confirmation."""
    bucket = call.parts["bucket"]
    status = await (await call.workspace.jetstream.kv.open(bucket)).status()
    text = (
        f"It is deleted with {count(status.info.state.num_subjects)} keys, {size(status.bytes)}. "
        "This cannot be undone."
    )
    ask = typed_form(call, address("buckets", bucket, "delete"), bucket, "Delete the bucket")
    return _page(call, f"Delete {bucket}?", card("", tag("p", text), ask))


async def delete(call: Call) -> Answer:
    """Delete a bucket."""
    bucket = call.parts["bucket"]
    check_typed(call, bucket)
    kv = await call.workspace.jetstream.kv.open(bucket)
    await kv.destroy()
    call.workspace.catalog.changed(kv.stream)
    return RedirectAnswer("/kv", f"Bucket {bucket} was deleted.")
