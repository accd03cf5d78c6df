"""Key-value buckets: the list, their keys, and the history of a key."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tradewind.api.names import KV_STREAM
from tradewind.dashboard.data.bucket_data import (
    KEYS_SHOWN,
    key_history,
    list_keys,
    newest_entries,
    value_difference,
)
from tradewind.dashboard.data.catalog import ROWS, chosen
from tradewind.dashboard.data.message_data import as_json, as_text, excerpt
from tradewind.dashboard.data.page_texts import count, many, size, span_ns
from tradewind.dashboard.data.problems import Problem
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import (
    absence,
    badge,
    card,
    heading,
    live,
    page,
    pager,
    problem_note,
    table,
)
from tradewind.dashboard.look.time_texts import ago, at
from tradewind.dashboard.views.bucket_views import operation_badge
from tradewind.dashboard.views.call import (
    Answer,
    Call,
    PageAnswer,
    number,
)
from tradewind.dashboard.views.editing import diff_box
from tradewind.dashboard.views.kv_changes import change_cards, put_form

if TYPE_CHECKING:
    from tradewind.client.kv.entries import Entry

# A server lists all keys at once, so those of a large bucket are requested only when a page is
# loaded.
KEYS_FOLLOWED_MAX: Final = 1000


KEY_COLUMNS: Final = ("Key", "Value", "Revision#", "Size#", "Changed", "State")


async def show_all(call: Call) -> Answer:
    """Show all buckets."""
    first = number(call.query, "first")
    names = await call.workspace.catalog.names()
    content: list[Child] = [problem_note(names.problem)]
    if names.value is not None:
        found = chosen(names.value.names, "", (KV_STREAM,))
        seen = await call.workspace.catalog.stream_page(
            found[first : first + ROWS], first, len(found)
        )
        rows: list[list[Child]] = []
        for name, info in seen.value.streams if seen.value is not None else []:
            bucket = name.removeprefix(KV_STREAM)
            link = tag("a", bucket, href=address("kv", bucket))
            if isinstance(info, Problem):
                rows.append([link, "", "", "", absence(info)])
                continue
            config = info.config
            rows.append(
                [
                    link,
                    count(info.state.num_subjects),
                    size(info.state.bytes),
                    count(max(config.max_msgs_per_subject, 1)),
                    span_ns(config.max_age) if config.max_age > 0 else "no limit",
                ]
            )
        columns = ("Bucket", "Keys#", "Size#", "Values kept#", "Time to live")
        content.append(
            card(
                "",
                table(columns, rows, empty="There are no buckets."),
                pager(("kv",), first, ROWS, len(found)),
            )
        )
    new = tag("a", "New bucket", href="/new-bucket", class_="button main")
    top = heading("Key-value", *([] if call.visit.is_read_only else [new]))
    return PageAnswer(page(call.visit, "kv", "Key-value", top, live("kv", content)))


async def show(call: Call) -> Answer:
    """Show the keys of a bucket."""
    bucket = call.parts["bucket"]
    search = call.query.get("search", "").strip()
    found = await list_keys(call.workspace, bucket, search)
    entries = await newest_entries(call.workspace, bucket, found.keys)
    rows = [_key_row(bucket, key, entries.get(key)) for key in found.keys]
    find = tag(
        "form",
        tag(
            "input",
            type="search",
            name="search",
            value=search,
            placeholder="Beginning of a key",
            aria_label="Beginning of a key",
        ),
        tag("button", "Show"),
        action=address("kv", bucket),
        method="get",
        class_="row",
    )
    note = f"{many(len(found.keys), 'key')} shown, at most {KEYS_SHOWN}, of {count(found.total)}."
    put = None
    if not call.visit.is_read_only:
        put = card("Set a key", put_form(call, bucket))
    above = tag("a", "Key-value", href="/kv")
    links = [tag("a", "Watch", href=address("buckets", bucket, "watch"), class_="button")]
    if not call.visit.is_read_only:
        target = address("buckets", bucket, "settings")
        links.append(tag("a", "Settings", href=target, class_="button"))
    keys = table(KEY_COLUMNS, rows, empty="No key starts with this.")
    listed = card("", keys, tag("p", note, class_="faint"))
    return PageAnswer(
        page(
            call.visit,
            "kv",
            bucket,
            heading(bucket, find, *links, above=above),
            live("keys", listed) if found.total <= KEYS_FOLLOWED_MAX else listed,
            put,
        )
    )


def _key_row(bucket: str, key: str, entry: Entry | None) -> list[Child]:
    """A key with its newest value; without an entry, nothing is known but its name."""
    link = tag("a", key, href=address("kv", bucket, key), class_="mono")
    if entry is None:
        return [link, tag("span", "open the key to see it", class_="faint"), "", "", "", ""]
    value: Child = tag("span", excerpt(entry.value), class_="mono faint")
    if entry.is_deleted:
        value = tag("span", "none", class_="faint")
    return [
        link,
        value,
        count(entry.revision),
        "" if entry.is_deleted else size(len(entry.value)),
        ago(entry.created_ns),
        operation_badge(entry.operation),
    ]


async def show_key(call: Call) -> Answer:
    """Show a key with its history."""
    bucket, key = call.parts["bucket"], call.parts["key"]
    kv = await call.workspace.jetstream.kv.open(bucket)
    history = await key_history(call.workspace.jetstream, kv, key)
    entries = history.entries
    above = [tag("a", "Key-value", href="/kv"), " / ", tag("a", bucket, href=address("kv", bucket))]
    last = entries[0] if entries else None
    rows = [_revision(entry, entries[index + 1 : index + 2]) for index, entry in enumerate(entries)]
    value: Child = tag("p", "It has no value.", class_="empty")
    if last is not None and not last.is_deleted:
        value = [
            tag("pre", as_json(last.value) or as_text(last.value), id="value"),
            _expiry(history.expires_ns),
        ]
    target = address("buckets", bucket, "watch", keys=key)
    watch = tag("a", "Watch", href=target, class_="button")
    edit, zone = await change_cards(call, bucket, key, entries)
    kept = card("History", [*rows] or tag("p", "No values are kept.", class_="empty"))
    return PageAnswer(
        page(
            call.visit,
            "kv",
            f"{key} of {bucket}",
            heading(key, watch, above=above),
            live("key", card("Value", value)),
            edit,
            live("history", kept),
            zone,
        )
    )


def _expiry(expires_ns: int | None) -> Markup | None:
    """The time at which the value expires, if it has its own time to live."""
    if expires_ns is None:
        return None
    left = expires_ns - time.time_ns()
    text = f"It expires in {span_ns(left)}." if left > 0 else "It expires now."
    return tag("p", text, class_="faint", id="expiry")


def _revision(entry: Entry, before: list[Entry]) -> Markup:
    what: Child = tag("span", excerpt(entry.value), class_="mono faint")
    if entry.is_deleted:
        what = badge("deleted", "warning")
    elif before and not before[0].is_deleted:
        lines = value_difference(before[0].value, entry.value)
        what = diff_box(lines) if lines else tag("span", "the same value", class_="faint")
    title = [f"Revision {count(entry.revision)}, ", at(entry.created_ns)]
    return tag("div", tag("p", tag("strong", title)), what)
