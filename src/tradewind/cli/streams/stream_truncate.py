"""`tradewind stream truncate` and `undo`: remove messages by what they are, and bring them back.

Owns the flags and what is said before anything goes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from tradewind.cli.frame.account_catalog import open_catalog
from tradewind.cli.frame.completion import complete_stream
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.output import Table, line, note, print_json
from tradewind.cli.frame.prompts import confirm_or_stop
from tradewind.cli.frame.text_formats import (
    counted,
    parse_duration_ns,
    parse_moment_ns,
    size_text,
    time_text,
)

if TYPE_CHECKING:
    from tradewind.api.truncation_types import RemovedMessages

app = CommandApp("Truncate streams and undo truncations")

StreamName = Annotated[str, Argument(metavar="STREAM", autocompletion=complete_stream)]
YesFlag = Annotated[
    bool, Option("--yes", "-y", "--force", "-f", help="Do not ask for confirmation")
]


@app.command("truncate")
def truncate_stream(
    stream: StreamName = "",
    before: Annotated[
        str, Option("--before", metavar="TIME|AGE", help="Only messages stored before this")
    ] = "",
    after: Annotated[
        str, Option("--after", metavar="TIME|AGE", help="Only messages stored after this")
    ] = "",
    newest: Annotated[int, Option("--newest", min=0, help="Only the N newest messages")] = 0,
    subject: Annotated[
        list[str] | None, Option("--subject", help="Only messages of this subject; may be repeated")
    ] = None,
    header: Annotated[
        str, Option("--header", metavar="NAME[=VALUE]", help="Only messages with this header")
    ] = "",
    keep_for: Annotated[
        str, Option("--keep-for", metavar="DURATION", help="How long the truncation can be undone")
    ] = "",
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be removed")] = False,
    yes: YesFlag = False,
    json: JsonFlag = False,
) -> None:
    """Remove messages by time, number, subject or header."""
    name, equals, value = header.partition("=")
    request: dict[str, Any] = {
        "before": _moment(before, "--before"),
        "after": _moment(after, "--after"),
        "newest": newest,
        "subjects": subject or [],
        "header": ((name, value) if equals else name) or None,
        "keep_for": _duration(keep_for),
    }
    if not any(request[key] for key in ("before", "after", "newest", "subjects", "header")):
        raise CommandError(
            "specify --before, --after, --newest, --subject or --header; `stream purge` "
            "removes all",
            exit_code=EXIT_USAGE,
        )
    with open_catalog() as catalog:
        stream = catalog.stream(stream).config.name
        streams = catalog.manager.streams
        would = streams.truncate(stream, **request, dry_run=True)
        if dry_run or not would.messages:
            _tell(would, f"would be removed from Stream {stream}", json=json)
            return
        note(_text(would, f"would be removed from Stream {stream}"))
        if not keep_for:
            note("This cannot be undone; pass --keep-for to be able to undo it")
        confirm_or_stop(f"Really remove them from Stream {stream}", force=yes)
        done = streams.truncate(stream, **request)
    _tell(done, f"removed from Stream {stream}", json=json)
    if done.undo_id and not json:
        line(f"Until {time_text(done.undo_until)}: tradewind stream undo {stream} {done.undo_id}")


@app.command("undo")
def undo_truncation(
    stream: StreamName = "",
    undo_id: Annotated[
        str, Argument(metavar="ID", help="ID of the truncation; default: the latest")
    ] = "",
    show: Annotated[bool, Option("--list", "-l", help="Only show what can be undone")] = False,
    yes: YesFlag = False,
    json: JsonFlag = False,
) -> None:
    """Restore the messages that a truncation removed."""
    with open_catalog() as catalog:
        stream = catalog.stream(stream).config.name
        streams = catalog.manager.streams
        windows = streams.undo_windows(stream)
        if show:
            if json:
                print_json(windows)
                return
            table = Table(
                f"Truncations of {stream}",
                *("Id", "Messages", "Size", "From", "To", "Until"),
                drop=("Size", "To", "From"),
            )
            for window in windows:
                table.row(
                    window.id,
                    window.messages,
                    size_text(window.bytes),
                    time_text(window.first_time),
                    time_text(window.last_time),
                    time_text(window.until),
                )
            table.print()
            return
        chosen = [window for window in windows if not undo_id or window.id == undo_id]
        if not chosen:
            which = f"truncation {undo_id}" if undo_id else "truncation"
            raise CommandError(f"Stream {stream} has no {which} that can be undone")
        note(_text(chosen[-1], f"can be restored to Stream {stream}"))
        note("The stream accepts no messages in the meantime")
        confirm_or_stop(f"Really restore them to Stream {stream}", force=yes)
        count = streams.undo(stream, chosen[-1].id)
    if json:
        print_json({"messages": count})
    else:
        line(f"{counted(count, 'message')} restored to Stream {stream}")


def _moment(text: str, flag: str) -> datetime | None:
    if not text:
        return None
    time_ns = parse_moment_ns(text, flag, ago=True)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_ns // 1000)


def _duration(text: str) -> timedelta | None:
    return timedelta(microseconds=parse_duration_ns(text, "--keep-for") / 1000) if text else None


def _tell(removed: RemovedMessages, what: str, *, json: bool) -> None:
    if json:
        print_json(removed)
    else:
        line(_text(removed, what))


def _text(removed: RemovedMessages, what: str) -> str:
    text = f"{counted(removed.messages, 'message')} ({size_text(removed.bytes)}) {what}"
    if not removed.messages:
        return text
    first, last = time_text(removed.first_time), time_text(removed.last_time)
    return f"{text}: sequences {removed.first_seq} to {removed.last_seq}, stored {first} to {last}"
