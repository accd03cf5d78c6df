"""Key-value buckets as a whole: create, watch, update, delete."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tradewind.api.names import KV_STREAM
from tradewind.api.stream_types import Compression, StorageType, StreamConfig
from tradewind.client.kv.kv_types import KvStatus, check_filter
from tradewind.client.streams.config_settings import choice_of
from tradewind.dashboard.data.human_values import duration_entry, size_entry
from tradewind.dashboard.data.page_texts import count, many, size
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.inputs import action_link, danger_zone, submit, why_off
from tradewind.dashboard.look.page_layout import (
    STORAGES,
    badge,
    card,
    field,
    form,
    heading,
    live,
    page,
    problem_note,
    table,
)
from tradewind.dashboard.look.time_texts import at
from tradewind.dashboard.views.call import (
    Answer,
    Call,
    FormRefusal,
    PageAnswer,
    RedirectAnswer,
    duration_ns,
    number,
    size_bytes,
)
from tradewind.dashboard.views.stream_changes import check_typed, typed_form
from tradewind.durations import SECOND_NS

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


LABELS: Final = {
    "name": "Name",
    "storage": "Storage",
    "description": "Description",
    "history": "Values kept per key",
    "ttl": "Values expire after",
    "max_bytes": "Maximum size",
    "max_value_size": "Maximum size of a value",
    "replicas": "Replicas",
    "compression": "Compressed on disk",
    "allow_ttl": "Keys may have their own time to live",
    "marker_ttl": "Report expired keys to watchers for",
    "older": "Older than",
}
# Words in a refusal, with the field they are about.
_WORDS: Final = (
    ("bucket name", "name"),
    ("already exists", "name"),
    ("name already in use", "name"),
    ("history", "history"),
    ("marker", "marker_ttl"),
    ("message ttl", "allow_ttl"),
    ("replicas", "replicas"),
    ("ttl", "ttl"),
)


def _fields(call: Call, status: KvStatus | None) -> list[Markup]:
    config = status.info.config if status is not None else StreamConfig()
    inputs = _blamed(call).inputs()
    is_new = status is None

    def text(name: str, default: str, hint: str, *, numeric: bool = False) -> Markup:
        return inputs.text(LABELS[name], name, default, hint=hint, numeric=numeric)

    return [
        text("description", config.description, ""),
        text("history", str(max(config.max_msgs_per_subject, 1)), "1 to 64", numeric=True),
        text("ttl", duration_entry(config.max_age), "For example 24h or 7 days. Empty: never"),
        text("max_bytes", size_entry(config.max_bytes), "For example 512 MiB. Empty: no limit"),
        text(
            "max_value_size",
            size_entry(config.max_msg_size),
            "For example 64 KiB. Empty: no limit",
        ),
        text("replicas", str(max(config.num_replicas, 1)), "3 in a cluster", numeric=True),
        inputs.switch(
            LABELS["compression"], "compression", default=config.compression is Compression.S2
        ),
        inputs.switch(LABELS["allow_ttl"], "allow_ttl", default=is_new or config.allow_msg_ttl),
        text(
            "marker_ttl",
            duration_entry(config.subject_delete_marker_ttl),
            "For example 1m. Empty: not reported",
        ),
    ]


def _blamed(call: Call) -> Call:
    """The call with the field that the words of a refusal are about."""
    if call.refusal is None or call.refusal.errors:
        return call
    text = call.refusal.text
    name = next((name for word, name in _WORDS if word in text.lower()), "")
    return replace(call, refusal=FormRefusal(text, {name: text} if name else {}))


def settings_of(call: Call) -> dict[str, Any]:
    """The settings in a form; BadFormError names the field."""
    fields = call.fields
    made: dict[str, Any] = {
        "description": fields.get("description", ""),
        "history": number(fields, "history", least=1),
        "ttl": duration_ns(fields, "ttl") / SECOND_NS,
        "max_bytes": size_bytes(fields, "max_bytes") or -1,
        "allow_ttl": fields.get("allow_ttl", "0") == "1",
    }
    # Fields that a form may leave out.
    if "max_value_size" in fields:
        made["max_value_size"] = size_bytes(fields, "max_value_size") or -1
    if "replicas" in fields:
        made["replicas"] = number(fields, "replicas", least=1)
    if "compression" in fields:
        made["compression"] = fields["compression"] == "1"
    if marker := duration_ns(fields, "marker_ttl"):
        made["marker_ttl"] = marker / SECOND_NS
    return made


async def show_new(call: Call) -> Answer:
    """Show the form for a new bucket."""
    inputs = _blamed(call).inputs()
    made = form(
        call.visit,
        "/new-bucket",
        inputs.text("Name", "name", required=True, hint="Letters, digits, - and _"),
        inputs.choice("Storage", "storage", STORAGES, "file"),
        *_fields(call, None),
        tag("div", tag("button", "Create the bucket", class_="main"), class_="actions"),
        class_="stack",
    )
    return _page(call, "New bucket", _blamed(call).refusal_note(LABELS), card("", made))


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
    update = await call.refusal_of("stream_update", kv.stream)
    delete = await call.refusal_of("stream_delete", kv.stream)
    change = form(
        call.visit,
        address("buckets", bucket, "settings"),
        *_fields(call, status),
        tag("div", submit("Change the settings", update, class_="main"), class_="actions"),
        why_off([update]),
        class_="stack",
    )
    links = [tag("a", "All settings", href=address("streams", kv.stream, "edit"), class_="button")]
    zone = danger_zone(
        [
            (
                "Remove the markers of deleted keys, with what is left of their history.",
                action_link("Remove markers", address("buckets", bucket, "markers")),
            ),
            (
                "Delete the bucket with all its keys.",
                action_link("Delete the bucket", address("buckets", bucket, "delete"), delete),
            ),
        ]
    )
    return _page(
        call,
        f"Settings of {bucket}",
        _blamed(call).refusal_note(LABELS),
        card("", change, tag("p", links)),
        zone,
        why_off([delete]),
    )


async def show_markers(call: Call) -> Answer:
    """Ask for confirmation, with what is removed."""
    bucket = call.parts["bucket"]
    status = await (await call.workspace.jetstream.kv.open(bucket)).status()
    texts = [
        (
            "A deleted key leaves a marker, so that watchers learn of it. Removing markers removes "
            "what is left of the history of these keys, too. This cannot be undone."
        ),
        (
            f"The bucket has {many(status.info.state.num_subjects, 'key')}, deleted ones that "
            "leave a marker included. Keys with a value are not touched."
        ),
    ]
    ask = form(
        call.visit,
        address("buckets", bucket, "markers"),
        call.inputs().text(
            "Older than", "older", "30m", hint="Newer markers stay. Empty: all are removed"
        ),
        tag(
            "div",
            tag("button", "Remove markers", class_="danger"),
            tag("a", "Cancel", href=address("buckets", bucket, "settings"), class_="button"),
            class_="actions",
        ),
        class_="stack",
    )
    note = call.refusal_note(LABELS)
    return _page(
        call,
        f"Remove markers of {bucket}?",
        note,
        card("", *(tag("p", text) for text in texts), ask),
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
    why_not = await call.refusal_of("stream_delete", f"{KV_STREAM}{bucket}")
    ask = typed_form(
        call, address("buckets", bucket, "delete"), bucket, "Delete the bucket", why_not
    )
    return _page(call, f"Delete {bucket}?", card("", tag("p", text), ask))


async def delete(call: Call) -> Answer:
    """Delete a bucket."""
    bucket = call.parts["bucket"]
    check_typed(call, bucket)
    kv = await call.workspace.jetstream.kv.open(bucket)
    await kv.destroy()
    call.workspace.catalog.changed(kv.stream)
    return RedirectAnswer("/kv", f"Bucket {bucket} was deleted.")
