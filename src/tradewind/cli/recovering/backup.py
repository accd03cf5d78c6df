"""`tradewind backup`: points in time of a whole account.

Owns the commands and what they print; `tradewind.backups` does the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, ForceFlag, JsonFlag, Option
from tradewind.cli.frame.output import Table, line, note, print_json
from tradewind.cli.frame.progress_bar import ProgressBar
from tradewind.cli.frame.prompts import confirm_or_stop
from tradewind.cli.frame.settings import connect
from tradewind.cli.frame.text_formats import (
    count_text,
    counted,
    parse_moment_ns,
    size_text,
    time_text,
)

if TYPE_CHECKING:
    from tradewind.backups.backup_documents import BackupRecord
    from tradewind.backups.restore_choice import RestoreChoice

app = CommandApp("Back up all streams of an account, and restore any point in time")

PlaceArgument = Annotated[
    str, Argument(metavar="PLACE", help="A folder, or a URL such as s3://bucket/nats")
]
BackupArgument = Annotated[str, Argument(metavar="[BACKUP]", help="Its id, or the first letters")]
AtFlag = Annotated[
    str, Option("--at", metavar="TIME", help="The last backup before a time, or 2h ago")
]
ProgressFlag = Annotated[bool, Option("--progress/--no-progress", help="Show a progress bar")]


@app.command("create", aliases=("add",))
def create_backup(
    place: PlaceArgument,
    comment: Annotated[str, Option("--comment", help="A text to keep with the backup")] = "",
    full: Annotated[bool, Option("--full", help="Read everything again")] = False,
    check: Annotated[bool, Option("--check/--no-check", help="Read back what was written")] = True,
    progress: ProgressFlag = True,
    json: JsonFlag = False,
) -> int:
    """Back up all streams, consumers, buckets and templates while the server runs.

    Only what the last backup does not have is read and stored. Exits with code 1 if a stream could
    not be read; all others are in the backup.
    """
    from tradewind.backups.account_backups import AccountBackups

    backups = AccountBackups(place)
    with connect() as connection, ProgressBar("Backup", None, unit="bytes", shown=progress) as bar:
        record = backups.create(
            connection,
            comment=comment,
            full=full,
            checks=check,
            progress=lambda _stream, done, total: bar.set(done, max(done, total)),
        )
    if json:
        print_json(record)
    else:
        line(f"Backup {record.id}: {_contents_text(record)}, {size_text(record.added_bytes)} added")
        _note_missing(record)
    for stream, reason in record.failed.items():
        note(f"{stream}: not in the backup: {reason}")
    return EXIT_FAILED if record.failed else 0


def _contents_text(record: BackupRecord) -> str:
    messages = sum(link.messages for link in record.streams)
    text = f"{counted(len(record.streams), 'stream')} with {counted(messages, 'message')}"
    if record.template_count:
        text += f", {counted(record.template_count, 'template')}"
    return text


def _note_missing(record: BackupRecord) -> None:
    for link in record.streams:
        if link.missing:
            messages = counted(link.missing, "message")
            note(f"{link.name}: {messages} not in the backup, removed while it was made")


@app.command("ls", aliases=("list",))
def list_backups(place: PlaceArgument, json: JsonFlag = False) -> int:
    """List the backups of a place, oldest first."""
    from tradewind.backups.account_backups import AccountBackups

    records, problems = AccountBackups(place).list()
    if json:
        print_json({"backups": records, "problems": problems})
    elif records:
        table = Table(
            "Backups",
            *("Backup", "Time", "Streams", "Messages", "Size", "Added", "Comment"),
            drop=("Comment", "Size"),
        )
        for each in records:
            table.row(
                each.id,
                time_text(each.cut_at),
                len(each.streams),
                count_text(sum(link.messages for link in each.streams)),
                size_text(sum(link.bytes for link in each.streams)),
                size_text(each.added_bytes),
                each.comment,
            )
        table.print()
    elif not problems:
        line("No backups")
    for problem in problems:
        note(problem)
    return EXIT_FAILED if problems else 0


@app.command("info", aliases=("show",))
def show_backup(
    place: PlaceArgument, backup: BackupArgument = "", at: AtFlag = "", json: JsonFlag = False
) -> None:
    """Show the streams of a backup; without an id, of the newest."""
    record = _find(place, backup, at)
    if json:
        print_json(record)
        return
    table = Table(
        f"Backup {record.id}",
        *("Stream", "Messages", "Size", "Last Sequence", "Missing"),
        drop=("Missing",),
    )
    for link in record.streams:
        table.row(
            link.name, count_text(link.messages), size_text(link.bytes), link.last_seq, link.missing
        )
    table.print()
    line(f"Made at {record.server}; {_cut_text(record)}")
    for stream, reason in record.failed.items():
        note(f"{stream}: not in the backup: {reason}")


def _cut_text(record: BackupRecord) -> str:
    if record.cut == "account":
        return f"all streams as they were at {time_text(record.cut_at)}"
    return (
        f"each stream as it was between {time_text(record.started)} and"
        f" {time_text(record.finished)}"
    )


def _find(place: str, backup: str, at: str) -> BackupRecord:
    from tradewind.backups.account_backups import AccountBackups

    if backup and at:
        raise CommandError("BACKUP and --at: use only one", exit_code=EXIT_USAGE)
    at_ns = parse_moment_ns(at, "--at", ago=True) if at else None
    return AccountBackups(place).find(backup, at_ns=at_ns)


@app.command("verify", aliases=("check",))
def verify_backups(
    place: PlaceArgument,
    backup: BackupArgument = "",
    progress: ProgressFlag = True,
    json: JsonFlag = False,
) -> int:
    """Check all backups, or one: read every object, its digest and every message.

    Exits with code 1 if anything is damaged or missing, and names it.
    """
    from tradewind.backups.account_backups import AccountBackups

    with ProgressBar("Verification", None, unit="bytes", shown=progress) as bar:
        report = AccountBackups(place).verify(backup, progress=lambda _stream, done: bar.set(done))
    if json:
        print_json(report)
    else:
        line(
            f"{counted(report.backups, 'backup')}, {counted(report.messages, 'message')} in"
            f" {counted(report.objects, 'object')} ({size_text(report.bytes)}):"
            f" {counted(len(report.problems), 'problem')}"
        )
        for problem in report.problems:
            note(problem)
    return EXIT_FAILED if report.problems else 0


@app.command("restore")
def restore_backup(
    place: PlaceArgument,
    backup: BackupArgument = "",
    at: AtFlag = "",
    stream: Annotated[
        list[str] | None, Option("--stream", metavar="NAME", help="Only these; * stands for any")
    ] = None,
    rename: Annotated[
        list[str] | None, Option("--rename", metavar="OLD=NEW", help="Under another name")
    ] = None,
    subject: Annotated[
        list[str] | None, Option("--subject", metavar="SUBJECT", help="Only these messages")
    ] = None,
    since: Annotated[
        str, Option("--since", metavar="TIME", help="Only messages stored from a time on")
    ] = "",
    until: Annotated[
        str, Option("--until", metavar="TIME", help="Only messages stored before a time")
    ] = "",
    skip_existing: Annotated[
        bool, Option("--skip-existing", help="Leave streams alone that exist")
    ] = False,
    consumers: Annotated[
        bool, Option("--consumers/--no-consumers", help="Include consumers")
    ] = True,
    progress: ProgressFlag = True,
    json: JsonFlag = False,
) -> int:
    """Restore streams from a backup: the newest, one by its id, or the last one before a time.

    Existing streams are never changed. A stream that gets another name is a copy: it stores no new
    messages of the original's subjects. Exits with code 1 if a stream was not restored.
    """
    from tradewind.backups.account_backups import AccountBackups

    choice = _choice(stream, rename, subject, since, until, skip_existing, consumers)
    record = _find(place, backup, at)
    with (
        connect() as connection,
        ProgressBar("Restore", None, shown=progress) as bar,
    ):
        report = AccountBackups(place).restore(
            connection,
            record,
            choice,
            progress=lambda _stream, done, total: bar.set(done, total),
        )
    if json:
        print_json(report)
        return EXIT_FAILED if report.failed else 0
    line(f"Backup {record.id}: {_cut_text(record)}")
    for each in report.streams:
        name = each.name if each.name == each.restored_as else f"{each.name} as {each.restored_as}"
        messages = counted(each.messages, "message")
        line(f"{name}: {messages}, {counted(each.consumers, 'consumer')}")
    if report.templates:
        line(counted(report.templates, "template"))
    for name in report.skipped:
        line(f"{name}: exists, left alone")
    for name, reason in report.failed.items():
        note(f"{name}: not restored: {reason}")
    return EXIT_FAILED if report.failed else 0


def _choice(
    streams: list[str] | None,
    renames: list[str] | None,
    subjects: list[str] | None,
    since: str,
    until: str,
    skips_existing: bool,
    has_consumers: bool,
) -> RestoreChoice:
    from tradewind.backups.message_ranges import TIME_NS_MAX, TIME_NS_MIN
    from tradewind.backups.restore_choice import RestoreChoice

    changes: dict[str, str] = {}
    for each in renames or []:
        old, equals, new = each.partition("=")
        if not old or not equals or not new or old in changes:
            raise CommandError(
                f"--rename must be OLD=NEW, once for each stream, not {each!r}",
                exit_code=EXIT_USAGE,
            )
        changes[old] = new
    return RestoreChoice(
        streams=tuple(streams or ()),
        renames=changes,
        subjects=tuple(subjects or ()),
        since_ns=parse_moment_ns(since, "--since", ago=True) if since else TIME_NS_MIN,
        until_ns=parse_moment_ns(until, "--until", ago=True) if until else TIME_NS_MAX,
        skips_existing=skips_existing,
        has_consumers=has_consumers,
    )


@app.command("prune")
def prune_backups(
    place: PlaceArgument,
    keep_last: Annotated[int, Option("--keep-last", min=0, help="The newest so many")] = 0,
    keep_hourly: Annotated[int, Option("--keep-hourly", min=0, help="One per hour")] = 0,
    keep_daily: Annotated[int, Option("--keep-daily", min=0, help="One per day")] = 0,
    keep_weekly: Annotated[int, Option("--keep-weekly", min=0, help="One per week")] = 0,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be removed")] = False,
    force: ForceFlag = False,
    progress: ProgressFlag = True,
    json: JsonFlag = False,
) -> None:
    """Remove backups that no rule keeps, and what only they need.

    Each rule keeps the newest backup of so many hours, days or weeks (in UTC) that have one.
    """
    from tradewind.backups.account_backups import AccountBackups
    from tradewind.backups.keep_rules import KeepRules

    rules = KeepRules(last=keep_last, hourly=keep_hourly, daily=keep_daily, weekly=keep_weekly)
    backups = AccountBackups(place)
    plan = backups.prune(rules, dry_run=True)
    if not dry_run:
        if plan.removed:
            confirm_or_stop(
                f"Really remove {len(plan.removed)} of"
                f" {counted(len(plan.removed) + len(plan.kept), 'backup')}",
                force=force,
            )
        with ProgressBar("Prune", None, unit="objects", shown=progress) as bar:
            plan = backups.prune(rules, progress=bar.set)
    if json:
        print_json({**msgspec.to_builtins(plan), "dry_run": dry_run})
        return
    for backup_id in plan.removed:
        line(f"{'would remove' if dry_run else 'removed'} {backup_id}")
    line(
        f"{counted(len(plan.kept), 'backup')} kept; {counted(plan.objects, 'object')}"
        f" ({size_text(plan.bytes)}) {'would be ' if dry_run else ''}removed,"
        f" {size_text(plan.kept_bytes)} kept"
    )
