"""Object stores: the list, their objects, and streamed uploads and downloads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tradewind.api.names import OBJECT_STREAM
from tradewind.api.stream_types import StorageType
from tradewind.client.api_errors import StreamNotFoundError
from tradewind.client.errors import ObjectNotFoundError
from tradewind.client.streams.config_settings import choice_of
from tradewind.dashboard.data.catalog import ROWS, chosen
from tradewind.dashboard.data.object_data import ObjectPage, content, list_objects
from tradewind.dashboard.data.page_texts import count, many, size, span_ns
from tradewind.dashboard.data.problems import Problem, problem_of
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import (
    STORAGES,
    absence,
    badge,
    card,
    facts,
    field,
    form,
    heading,
    live,
    page,
    pager,
    problem_note,
    table,
)
from tradewind.dashboard.look.time_texts import ago, at
from tradewind.dashboard.views.call import (
    Answer,
    BadFormError,
    Call,
    Download,
    PageAnswer,
    RedirectAnswer,
    duration_ns,
    number,
    size_bytes,
)
from tradewind.dashboard.views.stream_changes import check_typed, typed_form
from tradewind.dashboard.views.transfer_views import transfers_part
from tradewind.durations import SECOND_NS
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo
    from tradewind.client.objects import ObjectStore
    from tradewind.client.objects.object_types import ObjectInfo

NAME_CHARACTERS_MAX: Final = 1024
COLUMNS: Final = ("Object", "Size#", "Chunks#", "Stored", "Description")


async def show_all(call: Call) -> Answer:
    """Show all stores."""
    first = number(call.query, "first")
    names = await call.workspace.catalog.names()
    body: list[Child] = [problem_note(names.problem)]
    if names.value is not None:
        found = chosen(names.value.names, "", (OBJECT_STREAM,))
        seen = await call.workspace.catalog.stream_page(
            found[first : first + ROWS], first, len(found)
        )
        rows = [_store_row(*each) for each in (seen.value.streams if seen.value else [])]
        columns = ("Store", "Size#", "Time to live", "Last change")
        body += [
            problem_note(seen.problem),
            card(
                "",
                table(columns, rows, empty="There are no object stores."),
                pager(("objects",), first, ROWS, len(found)),
            ),
        ]
    new = tag("a", "New store", href="/new-store", class_="button main")
    top = heading("Objects", *([] if call.visit.is_read_only else [new]))
    return PageAnswer(page(call.visit, "objects", "Objects", top, live("stores", body)))


def _store_row(name: str, info: StreamInfo | Problem) -> list[Child]:
    store = name.removeprefix(OBJECT_STREAM)
    link = tag("a", store, href=address("objects", store))
    if isinstance(info, Problem):
        return [link, "", absence(info), ""]
    config = info.config
    return [
        [link, " ", badge("sealed", "warning") if config.sealed else None],
        size(info.state.bytes),
        span_ns(config.max_age) if config.max_age > 0 else "no limit",
        ago(info.state.last_ts),
    ]


# ---------------------------------------------------------------------- one store


async def show(call: Call) -> Answer:
    """Show the objects of a store."""
    store = call.parts["store"]
    seen = await call.workspace.catalog.stream(OBJECT_STREAM + store)
    if seen.problem is not None and seen.problem.kind == "missing":
        raise StreamNotFoundError(404, 10059, f"there is no object store {store!r}")
    start, search = number(call.query, "start"), call.query.get("search", "")[:200]
    problem, found = seen.problem, ObjectPage()
    try:
        is_direct = seen.value is None or seen.value.config.allow_direct
        found = await list_objects(
            call.workspace.jetstream, store, start, search, is_direct=is_direct
        )
    except TradewindError as error:
        problem = problem_of(error)
    sealed = seen.value is not None and seen.value.config.sealed
    return PageAnswer(
        page(
            call.visit,
            "objects",
            store,
            _store_heading(call, store, sealed=sealed),
            _upload_card(store) if not sealed and not call.visit.is_read_only else None,
            transfers_part(call, f"store:{store}"),
            _search(store, search),
            live("objects", problem_note(problem), _object_card(store, search, found, seen.value)),
        )
    )


def _store_heading(call: Call, store: str, *, sealed: bool) -> Markup:
    links = [("Seal", "seal"), ("Delete", "delete")] if not sealed else [("Delete", "delete")]
    actions = [
        tag("a", label, href=address("objects", store, "-", part), class_="button")
        for label, part in links
    ]
    return heading(
        store,
        badge("sealed", "warning") if sealed else None,
        *([] if call.visit.is_read_only else actions),
        above=tag("a", "Objects", href="/objects"),
    )


def _search(store: str, search: str) -> Markup:
    return card(
        "",
        tag(
            "form",
            field("Part of a name", "search", search),
            tag("button", "Search", class_="main"),
            action=address("objects", store),
            method="get",
            class_="row",
        ),
    )


def _object_card(store: str, search: str, found: ObjectPage, info: StreamInfo | None) -> Markup:
    now_ns = time.time_ns()
    rows = [_object_row(store, each, now_ns) for each in found.objects]
    notes: list[Child] = []
    if found.unreadable:
        text = f"{many(found.unreadable, 'description')} cannot be read."
        notes.append(tag("p", text, class_="notice warning"))
    if found.is_cut:
        text = f"{many(found.looked_at, 'object')} searched; there may be more."
        notes.append(tag("p", text, class_="notice warning"))
    if found.next_start:
        target = address("objects", store, start=found.next_start, search=search)
        notes.append(tag("p", tag("a", "More", href=target, rel="next"), class_="pager"))
    used = f"{size(info.state.bytes)} in all" if info is not None else ""
    return card(used, table(COLUMNS, rows, empty="No objects found."), *notes)


def _object_row(store: str, info: ObjectInfo, now_ns: int) -> list[Child]:
    link = tag("a", info.name, href=address("objects", store, "-", "object", name=info.name))
    return [
        [link, " ", badge("link") if info.link is not None else None],
        size(info.size) if info.link is None else "",
        count(info.chunks) if info.link is None else "",
        ago(info.mtime, now_ns),
        info.description or "",
    ]


def upload_form(target: str, *content: Child, button: str) -> Markup:
    """A form whose file is sent by the script, with a progress bar and a button to cancel."""
    return tag(
        "form",
        content,
        tag("label", tag("span", "File"), tag("input", type="file", name="file", required=True)),
        tag("progress", value=0, max=1, hidden=True),
        tag("p", class_="upload-state", role="status"),
        tag(
            "div",
            tag("button", button, class_="main"),
            tag("button", "Stop", type="button", class_="upload-stop", hidden=True),
            class_="actions",
        ),
        data_upload=target,
        class_="stack",
    )


def _upload_card(store: str) -> Markup:
    target = address("objects", store, "-", "upload")
    name = field("Name", "name", hint="Empty: the file name. An object of this name is replaced")
    made = upload_form(target, name, field("Description", "description"), button="Upload")
    return card("", tag("details", tag("summary", "Upload a file"), made))


# ---------------------------------------------------------------------- one object


def _name(call: Call) -> str:
    name = call.query.get("name", "") or call.fields.get("name", "")
    if not name or len(name) > NAME_CHARACTERS_MAX:
        raise BadFormError(f"name must have 1 to {NAME_CHARACTERS_MAX} characters")
    return name


async def _open(call: Call) -> ObjectStore:
    return await call.workspace.jetstream.objects.open(call.parts["store"])


async def _find(call: Call, store: ObjectStore) -> ObjectInfo:
    name = _name(call)
    info = await store.info(name)
    if info is None:
        raise ObjectNotFoundError(f"store {store.bucket!r} has no object {name!r}")
    return info


async def show_one(call: Call) -> Answer:
    """Show the properties of an object."""
    store = await _open(call)
    info = await _find(call, store)
    path = ("objects", store.bucket, "-")
    actions: list[Child] = [
        tag("a", "Download", href=address(*path, "download", name=info.name), class_="button main")
    ]
    if not call.visit.is_read_only:
        target = address(*path, "remove", name=info.name)
        actions.append(tag("a", "Delete", href=target, class_="button"))
    above = [
        tag("a", "Objects", href="/objects"),
        " / ",
        tag("a", store.bucket, href=address("objects", store.bucket)),
    ]
    pairs: list[tuple[str, Child]] = [
        ("Size", f"{size(info.size)} ({count(info.size)} bytes)"),
        ("Chunks", f"{count(info.chunks)}{_chunk_size(info)}"),
        ("Digest", tag("span", info.digest or "none", class_="mono")),
        ("Stored", [ago(info.mtime), ", ", at(info.mtime)]),
        ("Id", tag("span", info.nuid, class_="mono")),
    ]
    if info.description:
        pairs.append(("Description", info.description))
    if (link := info.link) is not None:
        pairs.insert(0, ("Links to", _link(link.bucket, link.name)))
    headers = [(name, ", ".join(values)) for name, values in (info.headers or {}).items()]
    metadata = sorted((info.metadata or {}).items())
    return PageAnswer(
        page(
            call.visit,
            "objects",
            info.name,
            heading(info.name, *actions, above=above),
            card("", facts(pairs)),
            card("Headers", facts(headers)) if headers else None,
            card("Metadata", facts(metadata)) if metadata else None,
            transfers_part(call, f"store:{store.bucket}"),
        )
    )


def _chunk_size(info: ObjectInfo) -> str:
    most = info.options.max_chunk_size if info.options is not None else None
    return f" of at most {size(most)}" if most else ""


def _link(bucket: str, name: str) -> Child:
    store = tag("a", bucket, href=address("objects", bucket))
    if not name:
        return ["the store ", store]
    return [
        tag("a", name, href=address("objects", bucket, "-", "object", name=name)),
        " of ",
        store,
    ]


async def download(call: Call) -> Answer:
    """Send the content of an object as a file; a link yields the object it refers to."""
    store = await _open(call)
    name = _name(call)
    reader = await store.get(name)
    if reader is None:
        raise ObjectNotFoundError(f"store {store.bucket!r} has no object {name!r}")
    total = reader.info.size if reader.info.size >= 0 else 0
    transfer = call.workspace.transfers.begin("download", name, f"store:{store.bucket}", total)
    saved = name.replace("\\", "/").rpartition("/")[2] or "object"
    return Download(saved, transfer.counted(content(reader)), total)


async def upload(call: Call) -> Answer:
    """Store an uploaded file as an object."""
    assert call.body is not None, "an upload has a body"
    store = await _open(call)
    name = _name(call)
    transfer = call.workspace.transfers.begin(
        "upload", name, f"store:{store.bucket}", number(call.query, "size") or None
    )

    def count_up(done: int, _total: int | None) -> None:
        transfer.done = done

    info = await transfer.carry(
        store.put(
            name,
            call.body,
            description=call.query.get("description", "")[:NAME_CHARACTERS_MAX],
            progress=count_up,
        )
    )
    call.workspace.catalog.changed(store.stream)
    return RedirectAnswer(address("objects", store.bucket), f"{name} is stored, {size(info.size)}.")


async def show_remove(call: Call) -> Answer:
    """Ask for confirmation."""
    store = await _open(call)
    info = await _find(call, store)
    target = address("objects", store.bucket, "-", "remove")
    ask = form(
        call.visit,
        target,
        tag("input", type="hidden", name="name", value=info.name),
        tag(
            "div",
            tag("button", "Delete the object", class_="danger"),
            tag("a", "Cancel", href=address("objects", store.bucket), class_="button"),
            class_="actions",
        ),
    )
    text = f"{info.name}, {size(info.size)}. This cannot be undone."
    return _page(call, "Delete this object?", card("", tag("p", text), ask))


async def remove(call: Call) -> Answer:
    """Delete an object."""
    store = await _open(call)
    name = _name(call)
    await store.delete(name)
    call.workspace.catalog.changed(store.stream)
    return RedirectAnswer(address("objects", store.bucket), f"{name} was deleted.")


# ---------------------------------------------------------------------- changes of a store


def _page(call: Call, title: str, *body: Child) -> Answer:
    store = call.parts.get("store", "")
    above: list[Child] = [tag("a", "Objects", href="/objects")]
    if store:
        above += [" / ", tag("a", store, href=address("objects", store))]
    return PageAnswer(page(call.visit, "objects", title, heading(title, above=above), *body))


async def show_new(call: Call) -> Answer:
    """Show the form for a new store."""
    inputs = call.inputs()
    made = form(
        call.visit,
        "/new-store",
        inputs.text("Name", "name", required=True, hint="Letters, digits, - and _"),
        inputs.text("Description", "description"),
        inputs.choice("Storage", "storage", STORAGES, "file"),
        inputs.text("Objects expire after", "ttl", hint="For example 24h or 7 days. Empty: never"),
        inputs.text("Maximum size", "max_bytes", hint="For example 10 GiB. Empty: no limit"),
        tag("div", tag("button", "Create the store", class_="main"), class_="actions"),
        class_="stack",
    )
    labels = {"name": "Name", "ttl": "Objects expire after", "max_bytes": "Maximum size"}
    return _page(call, "New store", call.refusal_note(labels), card("", made))


async def create(call: Call) -> Answer:
    """Create a store."""
    fields = call.fields
    store = await call.workspace.jetstream.objects.create(
        fields.get("name", "").strip(),
        description=fields.get("description", ""),
        storage=choice_of("storage", fields.get("storage", "file"), StorageType),
        ttl=duration_ns(fields, "ttl") / SECOND_NS,
        max_bytes=size_bytes(fields, "max_bytes") or -1,
    )
    call.workspace.catalog.changed(store.stream)
    return RedirectAnswer(address("objects", store.bucket), f"Store {store.bucket} was created.")


async def show_seal(call: Call) -> Answer:
    """Ask for confirmation."""
    store = call.parts["store"]
    text = "A sealed store accepts no objects and loses none. This cannot be undone."
    ask = typed_form(call, address("objects", store, "-", "seal"), store, "Seal the store")
    return _page(call, f"Seal {store}?", card("", tag("p", text), ask))


async def seal(call: Call) -> Answer:
    """Seal a store: nothing in it can change."""
    check_typed(call, call.parts["store"])
    store = await _open(call)
    await store.seal()
    call.workspace.catalog.changed(store.stream)
    return RedirectAnswer(address("objects", store.bucket), f"Store {store.bucket} is sealed.")


async def show_delete(call: Call) -> Answer:
    """Ask for confirmation."""
    status = await (await _open(call)).status()
    ask = typed_form(
        call, address("objects", status.bucket, "-", "delete"), status.bucket, "Delete the store"
    )
    text = f"It is deleted with all its objects, {size(status.size)}. This cannot be undone."
    return _page(call, f"Delete {status.bucket}?", card("", tag("p", text), ask))


async def delete(call: Call) -> Answer:
    """Delete a store."""
    check_typed(call, call.parts["store"])
    store = await _open(call)
    await store.destroy()
    call.workspace.catalog.changed(store.stream)
    return RedirectAnswer("/objects", f"Store {store.bucket} was deleted.")
