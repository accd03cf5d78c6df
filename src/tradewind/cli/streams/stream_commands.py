"""`tradewind stream`: shows streams, and removes messages and streams.

Owns the read commands and the destructive ones; `stream_change` creates and edits streams,
`stream_messages` shows messages, `stream_backup` saves and restores them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tradewind.api.times import parse_time
from tradewind.cli.frame.account_catalog import AccountCatalog, is_system_stream, open_catalog
from tradewind.cli.frame.choices import OneOf
from tradewind.cli.frame.completion import complete_stream
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, ForceFlag, JsonFlag, Option, with_flags
from tradewind.cli.frame.output import Table, line, note, print_json
from tradewind.cli.frame.prompts import confirm_or_stop
from tradewind.cli.frame.text_formats import (
    counted,
    parse_duration_ns,
    short_duration,
    size_text,
    time_text,
)
from tradewind.cli.streams.stream_details import last_message, show_state, show_stream

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo

app = CommandApp("Manage streams")
app.include_later(
    "tradewind.cli.streams.stream_change:app",
    "tradewind.cli.streams.stream_messages:app",
    "tradewind.cli.streams.stream_backup:app",
    "tradewind.cli.streams.stream_truncate:app",
    "tradewind.cli.streams.stream_verify:app",
    "tradewind.cli.streams.stream_why:app",
)

StreamName = Annotated[str, Argument(metavar="STREAM", autocompletion=complete_stream)]
AllFlag = Annotated[bool, Option("--all", "-a", help="Include streams of buckets")]
NamesFlag = Annotated[bool, Option("--names", "-n", help="Show only names")]
NoSelectFlag = Annotated[bool, Option("--no-select", help="Never prompt for a choice", hidden=True)]


@app.command("ls", aliases=("list", "l"))
def list_streams(
    names: NamesFlag = False,
    json: JsonFlag = False,
    all_streams: AllFlag = False,
    subject: Annotated[str, Option("--subject", help="Only streams that store this subject")] = "",
) -> None:
    """List the streams."""
    with open_catalog() as catalog:
        pages = catalog.manager.streams.list(subject)
        found = pages.all()
    if pages.missing:
        note(f"No leader at the moment, so not shown: {', '.join(pages.missing)}")
    shown = [info for info in found if all_streams or not is_system_stream(info.config.name)]
    hint = ", pass -a to include those of buckets" if len(found) > len(shown) else ""
    show_stream_list(shown, names=names, json=json, none_text=f"No Streams defined{hint}")


def show_stream_list(shown: list[StreamInfo], *, names: bool, json: bool, none_text: str) -> None:
    """The streams as a table, as names, or as JSON."""
    shown.sort(key=lambda info: info.config.name)
    if json:
        print_json([info.config.name for info in shown] if names else shown)
    elif names:
        for info in shown:
            line(info.config.name)
    elif not shown:
        line(none_text)
    else:
        table = Table(
            "Streams",
            *("Name", "Description", "Created", "Messages", "Size", "Last Message"),
            shorten=("Description",),
            drop=("Created", "Description", "Last Message"),
        )
        for info in shown:
            table.row(
                info.config.name,
                info.config.description,
                time_text(info.created),
                info.state.messages,
                size_text(info.state.bytes),
                last_message(info.state),
            )
        table.print()


@app.command("info", aliases=("nfo", "i"))
def show_info(
    stream: StreamName = "",
    json: JsonFlag = False,
    state: Annotated[bool, Option("--state", help="Show only the state")] = False,
    no_select: NoSelectFlag = False,  # noqa: ARG001 - for scripts written for nats
) -> None:
    """Show the configuration and state of a stream."""
    with open_catalog() as catalog:
        info = catalog.stream(stream)
    if json:
        print_json(info.state if state else info)
    elif state:
        show_state(info)
    else:
        show_stream(info)


@app.command("state")
def show_state_of(
    stream: StreamName = "",
    json: JsonFlag = False,
    no_select: NoSelectFlag = False,  # noqa: ARG001 - for scripts written for nats
) -> None:
    """Show the state of a stream."""
    show_info(stream, json=json, state=True)


@app.command("report")
def report(
    subject: Annotated[str, Option("--subject", help="Only streams that store this subject")] = "",
    by_consumers: Annotated[bool, Option("--consumers", "-o", help="Sort by consumers")] = False,
    by_messages: Annotated[bool, Option("--messages", "-m", help="Sort by messages")] = False,
    by_name: Annotated[bool, Option("--name", "-n", help="Sort by name")] = False,
    by_storage: Annotated[bool, Option("--storage", "-t", help="Sort by storage")] = False,
    raw: Annotated[bool, Option("--raw", "-r", help="Show bytes as plain numbers")] = False,
    json: JsonFlag = False,
    all_streams: AllFlag = False,
) -> None:
    """Report on all streams, with the lag of mirrors and sources."""
    with open_catalog() as catalog:
        found = catalog.manager.streams.list(subject).all()
    shown = [info for info in found if all_streams or not is_system_stream(info.config.name)]
    if by_consumers:
        shown.sort(key=lambda info: info.state.consumer_count)
    elif by_messages:
        shown.sort(key=lambda info: info.state.messages)
    elif by_name:
        shown.sort(key=lambda info: info.config.name)
    elif by_storage:
        shown.sort(key=lambda info: info.config.storage)
    else:
        shown.sort(key=lambda info: info.state.bytes)
    if json:
        print_json(shown)
    elif not shown:
        line("No Streams defined")
    else:
        report_streams(shown, raw=raw)
        report_replication(shown)


def report_streams(shown: list[StreamInfo], *, raw: bool) -> None:
    """How much each stream holds."""
    table = Table(
        "Stream Report",
        *("Stream", "Storage", "Placement", "Consumers", "Messages"),
        *("Bytes", "Lost", "Deleted", "Replicas"),
        drop=("Placement", "Storage", "Replicas", "Lost", "Deleted", "Consumers"),
    )
    for info in shown:
        config, state = info.config, info.state
        placement = config.placement
        table.row(
            config.name,
            config.storage.capitalize(),
            ", ".join([placement.cluster, *placement.tags]) if placement else "",
            state.consumer_count,
            state.messages,
            str(state.bytes) if raw else size_text(state.bytes),
            len(state.lost.msgs or ()) if state.lost else 0,
            state.num_deleted,
            info.cluster.leader if info.cluster and info.cluster.leader else "",
        )
    table.print()


def report_replication(shown: list[StreamInfo]) -> None:
    """How far mirrors and sources are behind; nothing if there are none."""
    table = Table(
        "Replication Report",
        *("Stream", "Kind", "Source Stream", "Active", "Lag", "Error"),
        shorten=("Error",),
        drop=("Kind",),
    )
    for info in shown:
        mirrors = [("Mirror", info.mirror)] if info.mirror else []
        for kind, source in [*mirrors, *(("Source", each) for each in info.sources)]:
            table.row(
                info.config.name,
                kind,
                source.name,
                "never" if source.active < 0 else short_duration(source.active),
                source.lag,
                source.error.description if source.error else "",
            )
    if table.rows:
        line()
        table.print()


@app.command("subjects", aliases=("subj",))
def show_subjects(
    stream: StreamName = "",
    subject_filter: Annotated[
        str, Argument(metavar="FILTER", help="Filter, such as orders.>")
    ] = ">",
    json: JsonFlag = False,
    sort: Annotated[
        str,
        Option(
            "--sort",
            click_type=OneOf("messages", "name", also={"count": "messages", "subjects": "name"}),
            help="Sort order",
        ),
    ] = "messages",
    reverse: Annotated[bool, Option("--reverse", "-R", help="Reverse the order")] = False,
    names: Annotated[bool, Option("--names", help="Show only subjects")] = False,
) -> None:
    """Show the subjects of a stream with their message counts."""
    with open_catalog() as catalog:
        name = catalog.pick_stream(stream)
        info = catalog.manager.streams.info(name, subjects_filter=subject_filter)
    counts = sorted(info.state.subjects.items())
    if sort in ("messages", "count"):
        counts.sort(key=lambda item: item[1])
    if reverse:
        counts.reverse()
    if json:
        print_json([each for each, _ in counts] if names else dict(counts))
    elif not counts:
        line(f"No subjects found matching {subject_filter}")
    elif names:
        for each, _ in counts:
            line(each)
    else:
        table = Table(f"{counted(len(counts), 'Subject')} in stream {name}", "Subject", "Count")
        for each, count in counts:
            table.row(each, count)
        table.print()


@app.command("gaps")
def show_gaps(stream: StreamName = "", json: JsonFlag = False) -> None:
    """Show gaps in the sequences of a stream, where messages were deleted."""
    with open_catalog() as catalog:
        name = catalog.pick_stream(stream)
        state = catalog.manager.streams.info(name, deleted_details=True).state
    gaps: list[tuple[int, int]] = []
    for sequence in sorted(state.deleted):
        if gaps and gaps[-1][1] + 1 == sequence:
            gaps[-1] = (gaps[-1][0], sequence)
        else:
            gaps.append((sequence, sequence))
    if json:
        print_json(gaps)
    elif not gaps:
        line(f"No deleted messages in {name}")
    else:
        title = f"{counted(len(gaps), 'gap')} in Stream {name}"
        table = Table(title, "First Message", "Last Message", "Messages")
        for first, last in gaps:
            table.row(first, last, last - first + 1)
        table.print()


@dataclass(frozen=True)
class StreamFindFlags:
    """The criteria of a search for streams; one that is not given matches any stream."""

    empty: Annotated[bool, Option("--empty", help="Streams without messages")] = False
    idle: Annotated[
        str, Option("--idle", metavar="DURATION", help="No new messages for this long")
    ] = ""
    created: Annotated[str, Option("--created", metavar="DURATION", help="Older than this")] = ""
    consumers: Annotated[int, Option("--consumers", min=-1, help="Fewer consumers than this")] = -1
    subject: Annotated[str, Option("--subject", help="Streams that store this subject")] = ""
    replicas: Annotated[int, Option("--replicas", min=0, help="This many replicas at most")] = 0
    sourced: Annotated[bool, Option("--sourced", help="Streams with sources")] = False
    mirrored: Annotated[bool, Option("--mirrored", help="Streams that are mirrors")] = False
    leader: Annotated[
        str, Option("--leader", metavar="SERVER", help="Leader is on this server")
    ] = ""
    api_level: Annotated[
        int, Option("--api-level", min=0, help="Streams that require at least this API level")
    ] = 0
    invert: Annotated[bool, Option("--invert", help="Invert the match")] = False

    def matches(self, info: StreamInfo, now_ns: int) -> bool:
        """Whether a stream is one of these."""
        config, state = info.config, info.state
        checks = []
        if self.empty:
            checks.append(state.messages == 0)
        if self.idle:
            last_ns = parse_time(state.last_ts if state.last_seq else info.created)
            checks.append(now_ns - last_ns > parse_duration_ns(self.idle, "--idle"))
        if self.created:
            age_ns = now_ns - parse_time(info.created)
            checks.append(age_ns > parse_duration_ns(self.created, "--created"))
        if self.consumers >= 0:
            checks.append(state.consumer_count < self.consumers)
        if self.replicas:
            checks.append(config.num_replicas <= self.replicas)
        if self.sourced:
            checks.append(bool(config.sources))
        if self.mirrored:
            checks.append(config.mirror is not None)
        if self.leader:
            checks.append(info.cluster is not None and info.cluster.leader == self.leader)
        if self.api_level:
            level = config.metadata.get("_nats.req.level", "0")
            checks.append(int(level) >= self.api_level)
        return all(checks) is not self.invert


@app.command("find", aliases=("query",))
@with_flags(StreamFindFlags)
def find_streams(
    names: NamesFlag = False,
    json: JsonFlag = False,
    all_streams: AllFlag = False,
    *,
    flags: StreamFindFlags,
) -> None:
    """Find streams by their properties, content or inactivity."""
    with open_catalog() as catalog:
        infos: Iterable[StreamInfo] = catalog.manager.streams.list(flags.subject).all()
    now_ns = time.time_ns()
    found = [
        info
        for info in infos
        if (all_streams or not is_system_stream(info.config.name)) and flags.matches(info, now_ns)
    ]
    show_stream_list(found, names=names, json=json, none_text="No Streams match")


@app.command("rm", aliases=("delete", "del"))
def remove_stream(stream: StreamName = "", force: ForceFlag = False) -> None:
    """Remove a stream with its messages and consumers."""
    with open_catalog() as catalog:
        name = catalog.stream(stream).config.name
        confirm_or_stop(f"Really delete Stream {name}", force=force)
        catalog.manager.streams.delete(name)


@app.command("purge")
def purge_stream(
    stream: StreamName = "",
    force: ForceFlag = False,
    json: JsonFlag = False,
    subject: Annotated[str, Option("--subject", help="Only messages of this subject")] = "",
    seq: Annotated[int, Option("--seq", min=0, help="Only messages below this sequence")] = 0,
    keep: Annotated[int, Option("--keep", min=0, help="Keep this many of the newest messages")] = 0,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only show how many messages would be removed")
    ] = False,
) -> None:
    """Purge messages of a stream."""
    if seq and keep:
        raise CommandError("--seq and --keep: use only one of them", exit_code=EXIT_USAGE)
    with open_catalog() as catalog:
        name = catalog.stream(stream).config.name
        if dry_run:
            count = _would_purge(catalog, name, subject, seq, keep)
            line(f"{counted(count, 'message')} would be removed from Stream {name}")
            return
        confirm_or_stop(f"Really purge Stream {name}", force=force)
        purged = catalog.manager.streams.purge(name, filter=subject, seq=seq, keep=keep)
        info = catalog.stream(name)
    if json:
        print_json(info.state)
        return
    was = "was" if purged == 1 else "were"
    line(f"{counted(purged, 'message')} {was} removed from Stream {name}")
    line()
    show_state(info)


def _would_purge(catalog: AccountCatalog, stream: str, subject: str, seq: int, keep: int) -> int:
    """How many messages a purge would remove."""
    state = catalog.manager.streams.info(stream, subjects_filter=subject).state
    total = sum(state.subjects.values()) if subject else state.messages
    if not seq:
        return max(total - keep, 0)
    # The pending messages of a new consumer from `seq` on are the ones that stay.
    counting = catalog.manager.consumers.add(
        stream,
        deliver_policy="by_start_sequence",
        opt_start_seq=seq,
        filter_subject=subject,
        ack_policy="explicit",
        mem_storage=True,
    )
    catalog.manager.consumers.delete(stream, counting.name)
    return total - counting.num_pending


@app.command("seal")
def seal_stream(stream: StreamName, force: ForceFlag = False) -> None:
    """Seal a stream: it can never be changed again."""
    with open_catalog() as catalog:
        name = catalog.stream(stream).config.name
        confirm_or_stop(
            f"Really seal Stream {name}, sealed streams can not be unsealed or modified",
            force=force,
        )
        info = catalog.manager.streams.update(name, sealed=True)
    show_stream(info)
