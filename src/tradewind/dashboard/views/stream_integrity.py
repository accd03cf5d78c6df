"""The integrity of a stream: its hash chain, its last checkpoint, and the verification of its last
messages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from tradewind.chain.checkpoints import encode, is_signed
from tradewind.dashboard.data.integrity import ENTRIES_DEFAULT, ENTRIES_MAX, ChainLook
from tradewind.dashboard.data.page_texts import count, many
from tradewind.dashboard.data.problems import MissingError, problem_of
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import badge, card, facts, grid, page, problem_note, table
from tradewind.dashboard.look.time_texts import at
from tradewind.dashboard.views.call import Answer, BadFormError, Call, Download, PageAnswer, number
from tradewind.dashboard.views.stream_views import check_found, stream_heading
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.api.chain import ChainInfo
    from tradewind.chain.checkpoints import Checkpoint
    from tradewind.chain.report import ChainReport

FAULTS_SHOWN: Final = 100


async def show(call: Call) -> Answer:
    """Show the chain, and the result of verifying its end if requested."""
    name = call.parts["stream"]
    workspace = call.workspace
    check_found(await workspace.catalog.stream(name))
    found = await workspace.integrity.look(workspace.jetstream, name)
    content: list[Child] = [_chain(name, found)]
    if found.info is not None and "last" in call.query:
        content.append(await _verified(call, name))
    top = stream_heading(call.visit, name, "integrity")
    return PageAnswer(page(call.visit, "streams", f"{name}: integrity", top, *content))


async def save_checkpoint(call: Call) -> Answer:
    """Send the last checkpoint as the line that was signed."""
    name = call.parts["stream"]
    found = await call.workspace.integrity.look(call.workspace.jetstream, name)
    if found.info is None or found.info.checkpoint is None:
        raise MissingError(f"Stream {name} has no checkpoint.")
    line = encode(found.info.checkpoint) + b"\n"

    async def chunks() -> AsyncIterator[bytes]:
        yield line

    return Download(f"{name}.checkpoint", chunks(), len(line))


def _chain(name: str, found: ChainLook) -> Child:
    if found.info is None:
        absence = card("", tag("p", found.absence)) if found.absence else None
        return [problem_note(found.problem), absence]
    info = found.info
    state: Child = badge("no break found", "good")
    if info.is_broken:
        state = badge(f"broken at entry {info.broken_index or 0}", "bad")
    return [
        grid(
            card(
                "Chain",
                facts(
                    [
                        ("State", state),
                        ("Algorithm", info.algorithm),
                        ("Entries", count(info.size)),
                        ("Last sequence", count(info.last_seq)),
                        ("Head", tag("code", info.link or "none")),
                        ("Signing key", tag("code", info.key or "nobody")),
                    ]
                ),
            ),
            _checkpoint(name, info, info.checkpoint),
        ),
        _form(name),
    ]


def _checkpoint(name: str, info: ChainInfo, head: Checkpoint | None) -> Markup:
    if head is None:
        return card("Last checkpoint", tag("p", "There is none yet."))
    signed: Child = "valid"
    if not is_signed(head):
        signed = badge("forged", "bad")
    elif head.key != info.key:
        signed = badge("by a key other than the current one", "warning")
    behind = info.size - head.size
    return card(
        "Last checkpoint",
        facts(
            [
                ("Time", at(head.time)),
                ("Covers", f"{many(head.size, 'entry', 'entries')}, up to {head.last_seq}"),
                ("Since then", many(behind, "entry", "entries")),
                ("Root", tag("code", head.root)),
                ("Signer", tag("code", head.key)),
                ("Signature", signed),
            ]
        ),
        tag(
            "p",
            tag(
                "a",
                "Save the checkpoint",
                href=address("streams", name, "integrity", "checkpoint"),
                class_="button",
                download=True,
            ),
        ),
    )


def _form(name: str) -> Markup:
    return card(
        "Verify",
        tag(
            "p",
            f"Reads the messages of the last entries, at most {count(ENTRIES_MAX)}, and "
            "computes their hashes. A whole stream is verified by tradewind stream verify.",
        ),
        tag(
            "form",
            tag(
                "input",
                type="number",
                name="last",
                value=str(ENTRIES_DEFAULT),
                min="1",
                max=str(ENTRIES_MAX),
                aria_label="How many of the last entries",
            ),
            tag("button", "Verify the last entries", class_="main"),
            action=address("streams", name, "integrity"),
            method="get",
            class_="row",
        ),
    )


async def _verified(call: Call, name: str) -> Child:
    last = number(call.query, "last", least=1)
    if last > ENTRIES_MAX:
        raise BadFormError(f"last must be from 1 to {ENTRIES_MAX}, not {last}")
    workspace = call.workspace
    try:
        report = await workspace.integrity.verify(workspace.jetstream, name, last)
    except TradewindError as error:
        return problem_note(problem_of(error))
    return _report(report)


def _report(report: ChainReport) -> Markup:
    read = many(report.messages, "message")
    if report.is_intact:
        proved = (
            f"Everything up to sequence {report.proved_sequence} is signed."
            if report.proved_sequence
            else "No checkpoint covers them yet."
        )
        text = tag("p", f"{read} read, all as they were stored. {proved}", class_="notice")
        return card("What was found", text)
    rows: list[list[Child]] = [
        [
            badge(fault.kind, "bad"),
            fault.text,
            str(fault.index) if fault.index >= 0 else "",
        ]
        for fault in report.faults[:FAULTS_SHOWN]
    ]
    more = report.fault_count - len(rows)
    return card(
        "What was found",
        tag("p", f"{many(report.fault_count, 'fault')} in {read}.", class_="notice bad"),
        table(("Kind", "What is wrong", "Entry#"), rows, empty=""),
        tag("p", f"And {count(more)} more.", class_="faint") if more else None,
    )
