"""Back up a stream to a file of the browser, and restore it."""

from __future__ import annotations

from tradewind.dashboard.data.archives import UploadedArchive, pack
from tradewind.dashboard.data.backup_data import open_backup
from tradewind.dashboard.data.backup_data import restore as restore_stream
from tradewind.dashboard.data.page_texts import many, size
from tradewind.dashboard.look.elements import address, tag
from tradewind.dashboard.look.page_layout import card, heading, page, switch
from tradewind.dashboard.views.call import (
    Answer,
    Call,
    Download,
    PageAnswer,
    RedirectAnswer,
    number,
)
from tradewind.dashboard.views.object_views import upload_form
from tradewind.dashboard.views.transfer_views import transfers_part

RESTORES = "restore:"


async def show(call: Call) -> Answer:
    """Show the content of a backup, and the button to save it."""
    name = call.parts["stream"]
    state = (await call.workspace.jetstream.manager.streams.info(name)).state
    title = f"Back up {name}"
    text = (
        f"{many(state.messages, 'message')}, {size(state.bytes)}. The file is a zip with "
        "backup.json and stream.tar.s2; unpacked, tradewind stream restore reads it."
    )
    choose = tag(
        "form",
        switch("Include the consumers", "consumers", checked=True),
        switch("Let the server check the stream first", "check"),
        tag("div", tag("button", "Save the backup", class_="main"), class_="actions"),
        action=address("streams", name, "backup", "file"),
        method="get",
        class_="stack",
    )
    above = [
        tag("a", "Streams", href="/streams"),
        " / ",
        tag("a", name, href=address("streams", name)),
    ]
    return PageAnswer(
        page(
            call.visit,
            "streams",
            title,
            heading(title, above=above),
            card("", tag("p", text), choose),
            transfers_part(call, f"stream:{name}"),
        )
    )


async def save(call: Call) -> Answer:
    """Send the backup as a file."""
    name = call.parts["stream"]
    jetstream = call.workspace.jetstream
    state = (await jetstream.manager.streams.info(name)).state
    transfer = call.workspace.transfers.begin("backup", name, f"stream:{name}", state.bytes)
    backup = await transfer.prepare(
        open_backup(
            jetstream,
            name,
            check="check" in call.query,
            consumers="consumers" in call.query,
        )
    )
    chunks = pack(name, backup.document, transfer.counted(backup.chunks))
    return Download(f"{name}.zip", chunks)


async def show_restore(call: Call) -> Answer:
    """Show the form for uploading a backup."""
    title = "Restore a stream"
    text = (
        "From a zip that was saved here, or one of a backup folder with backup.json as its first "
        "entry. The stream must not exist yet."
    )
    above = tag("a", "Streams", href="/streams")
    return PageAnswer(
        page(
            call.visit,
            "streams",
            title,
            heading(title, above=above),
            card("", tag("p", text), upload_form("/restore", button="Restore"))
            if not call.visit.is_read_only
            else None,
            transfers_part(call, RESTORES),
        )
    )


async def restore(call: Call) -> Answer:
    """Restore a stream from an uploaded file."""
    body = call.body
    assert body is not None, "an upload has a body"
    total = number(call.query, "size") or None
    name = call.query.get("name", "")[:200] or "a backup"
    transfer = call.workspace.transfers.begin("restore", name, RESTORES, total)

    async def work() -> tuple[str, int]:
        reader = UploadedArchive(transfer.passing(body))
        document = await reader.document()
        info = await restore_stream(call.workspace.jetstream, document, reader.data())
        return info.config.name, info.state.messages

    stream, messages = await transfer.carry(work())
    call.workspace.catalog.changed(stream)
    return RedirectAnswer(
        address("streams", stream),
        f"Stream {stream} was restored, with {many(messages, 'message')}.",
    )
