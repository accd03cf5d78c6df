"""File transfers: their progress, and a button to cancel them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tradewind.dashboard.data.page_texts import size
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import badge, card, form, live, table
from tradewind.dashboard.views.call import Answer, BadFormError, Call, RedirectAnswer

if TYPE_CHECKING:
    from tradewind.dashboard.data.transfer_data import Transfer

SHOWN: Final = 8
_WORDS: Final = {
    "upload": "Upload",
    "download": "Download",
    "backup": "Backup",
    "restore": "Restore",
}
_STATES: Final = {"done": "good", "failed": "bad", "stopped": "warning"}


def transfers_part(call: Call, place: str) -> Markup:
    """The transfers of a stream or store, kept current by the script."""
    found = call.workspace.transfers.of(place)[:SHOWN]
    if not found:
        return live("transfers")
    rows = [_row(call, each) for each in found]
    return live("transfers", card("File transfers", table(("File", "So far", ""), rows, empty="")))


def _row(call: Call, transfer: Transfer) -> list[Child]:
    what = [f"{_WORDS[transfer.kind]} of ", tag("span", transfer.name, class_="mono")]
    return [what, _progress(transfer), _end(call, transfer)]


def _progress(transfer: Transfer) -> list[Child]:
    done = size(transfer.done)
    if transfer.state != "running":
        return [done]
    seconds = max(time.monotonic() - transfer.began, 0.001)
    text = f"{done}, {size(transfer.done / seconds)}/s"
    if transfer.total:
        part = min(transfer.done / transfer.total, 1.0)
        text = f"{done} of {size(transfer.total)}, {size(transfer.done / seconds)}/s"
        return [tag("progress", value=round(part, 3), max=1), tag("small", text)]
    return [tag("progress"), tag("small", text)]


def _end(call: Call, transfer: Transfer) -> Child:
    if transfer.state != "running":
        return [badge(transfer.state, _STATES[transfer.state]), tag("small", transfer.text)]
    if call.visit.is_read_only:
        return None
    return form(call.visit, address("transfers", transfer.id, "stop"), tag("button", "Stop"))


async def stop(call: Call) -> Answer:
    """Cancel a transfer."""
    found = call.workspace.transfers.find(call.parts["transfer"])
    if found is None:
        raise BadFormError("transfer is no longer known")
    found.stop()
    kind, _, name = found.place.partition(":")
    target = address("objects", name) if kind == "store" else address("streams", name, "backup")
    if found.kind == "restore":
        target = "/restore"
    return RedirectAnswer(target, f"The {found.kind} of {found.name} is stopped.")
