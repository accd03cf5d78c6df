"""Checked changes of a key: set, delete, delete with history.

Owns conflicts. A key that has changed since its page was opened is never overwritten: a page shows
both values and lets the visitor choose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.api.names import KV_SUBJECTS
from tradewind.client.errors import KeyExistsError, WrongRevisionError
from tradewind.dashboard.data.bucket_data import key_history, value_difference
from tradewind.dashboard.data.message_data import as_json, as_text
from tradewind.dashboard.data.page_texts import count, many, moment, size
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.inputs import (
    action_link,
    danger_zone,
    submit,
    why_off,
)
from tradewind.dashboard.look.page_layout import card, form, grid, heading, page
from tradewind.dashboard.views.call import (
    Answer,
    BadFormError,
    Call,
    PageAnswer,
    RedirectAnswer,
    duration_ns,
    number,
)
from tradewind.dashboard.views.editing import diff_box
from tradewind.dashboard.views.message_views import is_editable
from tradewind.durations import SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tradewind.client.kv.entries import Entry
    from tradewind.client.kv.kv import KeyValue

LABELS = {"key": "Key", "value": "Value", "ttl": "Expires after"}
TTL_HINT = "For example 1h or 7 days. Empty: with the bucket, or never"
REFUSED_STATUS = 409


def _page(call: Call, key: str, title: str, *content: Child, status: int = 200) -> Answer:
    bucket = call.parts["bucket"]
    above: list[Child] = [
        tag("a", "Key-value", href="/kv"),
        " / ",
        tag("a", bucket, href=address("kv", bucket)),
    ]
    if key:
        above += [" / ", tag("a", key, href=address("kv", bucket, key))]
    made = page(call.visit, "kv", title, heading(title, above=above), *content)
    return PageAnswer(made, status)


async def _refusal(call: Call, bucket: str, key: str) -> str:
    rights = await call.workspace.rights()
    return rights.refusal(f"{KV_SUBJECTS}{bucket}.{key}") if key else ""


# ---------------------------------------------------------------------- forms


def put_form(call: Call, bucket: str) -> Markup:
    """The form that sets a key which has no value."""
    inputs = call.inputs()
    return form(
        call.visit,
        address("kv", bucket, "-", "put"),
        inputs.text("Key", "key", required=True),
        inputs.area("Value", "value"),
        inputs.text("Expires after (optional)", "ttl", hint=TTL_HINT),
        tag("div", tag("button", "Set", class_="main"), class_="actions"),
        class_="stack",
    )


async def change_cards(
    call: Call, bucket: str, key: str, entries: Sequence[Entry]
) -> tuple[Markup | None, Markup | None]:
    """The form for a new value, and what deletes the key; None where it cannot be done."""
    if call.visit.is_read_only:
        return None, None
    last = entries[0] if entries else None
    why_not = await _refusal(call, bucket, key)
    value = last.value if last is not None and not last.is_deleted else b""
    note = None
    shown = ""
    if is_editable(value):
        shown = value.decode()
    else:
        text = f"The value, {size(len(value))}, is not text; what is entered here replaces it."
        note = tag("p", text, class_="faint")
    revision = last.revision if last is not None else 0
    zone = danger_zone(
        [
            (
                "Delete the key: it has no value from then on.",
                action_link(
                    "Delete the key", address("buckets", bucket, "delete-key", key=key), why_not
                ),
            ),
            (
                "Delete the key with its history: earlier values are removed for good.",
                action_link(
                    "Delete with history",
                    address("buckets", bucket, "purge-key", key=key),
                    why_not,
                ),
            ),
        ]
    )
    edit = _value_form(call, bucket, key, shown, revision, why_not)
    return card("New value", note, edit), zone if revision else None


def _value_form(
    call: Call, bucket: str, key: str, value: str, revision: int, why_not: str = ""
) -> Markup:
    inputs = call.inputs()
    return form(
        call.visit,
        address("kv", bucket, "-", "put"),
        tag("input", type="hidden", name="key", value=key),
        tag("input", type="hidden", name="revision", value=revision),
        inputs.area("New value", "value", value),
        inputs.text("Expires after (optional)", "ttl", hint=TTL_HINT),
        tag("div", submit("Set", why_not, class_="main"), class_="actions"),
        why_off([why_not]),
        class_="stack",
    )


async def show_refused(call: Call) -> Answer:
    """Show the form again that was not accepted, with what was entered."""
    bucket, key = call.parts["bucket"], call.fields.get("key", "")
    note = call.refusal_note(LABELS)
    if "revision" not in call.fields:
        return _page(call, "", "Set a key", note, card("", put_form(call, bucket)))
    revision = number(call.fields, "revision")
    made = _value_form(call, bucket, key, "", revision)
    return _page(call, key, f"Set {key}", note, card("", made))


# ---------------------------------------------------------------------- set


async def put(call: Call) -> Answer:
    """Set a key, if it has not changed since the page was opened."""
    bucket, key = call.parts["bucket"], call.fields.get("key", "").strip()
    kv = await call.workspace.jetstream.kv.open(bucket)
    value = call.fields.get("value", "").encode()
    ttl = duration_ns(call.fields, "ttl") / SECOND_NS or None
    if ttl is not None:
        await _check_ttl(kv, key)
    try:
        if "revision" in call.fields:
            revision = await kv.update(key, value, number(call.fields, "revision"), ttl=ttl)
        else:
            revision = await kv.create(key, value, ttl=ttl)
    except (WrongRevisionError, KeyExistsError) as error:
        return await _conflict(call, kv, key, str(error))
    return RedirectAnswer(address("kv", bucket, key), f"Key {key} is set, revision {revision}.")


async def _check_ttl(kv: KeyValue, key: str) -> None:
    """Check a value with a time to live: it must be the only one, or the previous one would
    reappear.
    """
    kept = (await kv.status()).history
    if kept != 1 and await kv.get(key) is not None:
        raise BadFormError(
            f"ttl: the bucket keeps {kept} values of a key, so the previous one would reappear; "
            "delete the key first, then set it with a time to live",
            field="ttl",
        )


async def _conflict(call: Call, kv: KeyValue, key: str, text: str) -> Answer:
    """Show the stored value and the entered one, and let the visitor choose."""
    bucket = call.parts["bucket"]
    entered = call.fields.get("value", "")
    history = await key_history(call.workspace.jetstream, kv, key)
    last = history.entries[0] if history.entries else None
    revision = last.revision if last is not None else 0
    stored: Child = tag("p", "The key was deleted meanwhile.", class_="empty")
    lines = None
    if last is not None and not last.is_deleted:
        stored = tag("pre", as_json(last.value) or as_text(last.value), id="stored-value")
        lines = value_difference(last.value, entered.encode())
    when = f"Revision {count(revision)}, {moment(last.created_ns)}" if last is not None else ""
    mine = form(
        call.visit,
        address("kv", bucket, "-", "put"),
        tag("input", type="hidden", name="key", value=key),
        tag("input", type="hidden", name="revision", value=revision),
        tag("input", type="hidden", name="ttl", value=call.fields.get("ttl", "")),
        call.inputs().area("Your value; it can be changed here", "value", entered),
        tag(
            "div",
            tag("button", f"Replace revision {count(revision)} with this", class_="danger"),
            class_="actions",
        ),
        class_="stack",
    )
    keep = tag("a", "Keep the stored value", href=address("kv", bucket, key), class_="button main")
    note = tag(
        "p",
        tag("strong", "Nothing was changed: somebody else was faster. "),
        text,
        class_="notice warning",
        role="alert",
    )
    return _page(
        call,
        key,
        f"Which value of {key}?",
        note,
        grid(
            card("Stored", tag("p", when, class_="faint"), stored, tag("p", keep)),
            card("Yours", mine),
        ),
        card("Yours compared with the stored value", diff_box(lines)) if lines else None,
        status=REFUSED_STATUS,
    )


# ---------------------------------------------------------------------- delete


async def _show_end(call: Call, *, with_history: bool) -> Answer:
    bucket = call.parts["bucket"]
    key = call.query.get("key", "")
    kv = await call.workspace.jetstream.kv.open(bucket)
    status = await kv.status()
    history = await key_history(call.workspace.jetstream, kv, key)
    entries = history.entries
    last = entries[0] if entries else None
    older = max(len(entries) - 1, 0)
    is_only = status.history <= 1
    texts = []
    if last is None:
        texts.append("The key has no value.")
    elif last.is_deleted:
        texts.append(f"The key is deleted already, since revision {count(last.revision)}.")
    else:
        texts.append(
            f"Its value, revision {count(last.revision)} of {moment(last.created_ns)}, has "
            f"{size(len(last.value))}."
        )
    if with_history:
        texts.append(
            f"It is removed with {many(older, 'earlier value')}. A marker stays, so that watchers "
            "learn of it. This cannot be undone."
        )
    elif is_only:
        texts.append(
            "The bucket keeps one value per key: its value is removed for good, and a marker takes "
            "its place. This cannot be undone."
        )
    else:
        texts.append(
            f"A marker is written, and {many(len(entries), 'value')} stay in the history until "
            f"newer ones take their place ({status.history} are kept)."
        )
    why_not = await _refusal(call, bucket, key)
    label = "Delete the key with its history" if with_history else "Delete the key"
    ask = form(
        call.visit,
        address("kv", bucket, "-", "purge" if with_history else "delete"),
        tag("input", type="hidden", name="key", value=key),
        tag("input", type="hidden", name="revision", value=last.revision if last else 0),
        tag(
            "div",
            submit(label, why_not, class_="danger"),
            tag("a", "Cancel", href=address("kv", bucket, key), class_="button"),
            class_="actions",
        ),
        why_off([why_not]),
    )
    value = as_text(last.value) if last is not None and not last.is_deleted else ""
    return _page(
        call,
        key,
        f"Delete {key}?",
        call.refusal_note(LABELS),
        card("", *(tag("p", text) for text in texts), ask),
        card("The value", tag("pre", value)) if value else None,
    )


async def show_delete(call: Call) -> Answer:
    """Ask for confirmation, with what is removed."""
    return await _show_end(call, with_history=False)


async def show_purge(call: Call) -> Answer:
    """Ask for confirmation, with what is removed."""
    return await _show_end(call, with_history=True)


async def delete(call: Call) -> Answer:
    """Delete a key, if it has not changed since the page was opened."""
    bucket, key = call.parts["bucket"], call.fields.get("key", "").strip()
    kv = await call.workspace.jetstream.kv.open(bucket)
    await kv.delete(key, revision=number(call.fields, "revision"))
    return RedirectAnswer(address("kv", bucket), f"Key {key} was deleted; its history stays.")


async def purge(call: Call) -> Answer:
    """Delete a key with its history, if it has not changed since the page was opened."""
    bucket, key = call.parts["bucket"], call.fields.get("key", "").strip()
    kv = await call.workspace.jetstream.kv.open(bucket)
    await kv.purge(key, revision=number(call.fields, "revision"))
    return RedirectAnswer(address("kv", bucket), f"Key {key} was deleted with its history.")
