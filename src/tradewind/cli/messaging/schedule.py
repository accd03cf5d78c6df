"""`tradewind schedule`: messages that a stream publishes later.

Owns the commands and what they print; `tradewind pub --schedule-at` makes a schedule.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from tradewind.api.times import format_time
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, ForceFlag, JsonFlag, Option
from tradewind.cli.frame.output import Table, line, print_json
from tradewind.cli.frame.prompts import confirm_or_stop
from tradewind.cli.frame.settings import connect, jetstream
from tradewind.cli.frame.text_formats import duration_text, time_text
from tradewind.cli.messaging.publish import schedule_rule
from tradewind.durations import SECOND_NS

if TYPE_CHECKING:
    from tradewind.client.stream_schedules import StoredSchedule

app = CommandApp("Messages that a stream publishes later")

StreamName = Annotated[str, Argument(metavar="STREAM")]
Subject = Annotated[str, Argument(metavar="SUBJECT")]


@app.command("ls", aliases=("list",))
def list_schedules(
    stream: Annotated[str, Argument(metavar="STREAM")] = "",
    filters: Annotated[
        list[str] | None, Option("--filter", metavar="SUBJECT", help="Subjects, as plans.>")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """List the schedules of a stream, or of all streams, with the time of the next run."""
    if filters and not stream:
        raise CommandError("--filter requires a STREAM", exit_code=EXIT_USAGE)
    now_ns = time.time_ns()
    with connect() as connection:
        found = list(jetstream(connection).schedules.list(stream, *(filters or ())))
    if json:
        print_json([_document(one, now_ns) for one in found])
        return
    if not found:
        line("No Schedules found")
        return
    table = Table(
        "Schedules",
        *("Stream", "Subject", "Rule", "Target", "Next", "In", "Sequence"),
        drop=("Sequence", "In", "Stream"),
    )
    for one in found:
        next_ns = one.next_ns(now_ns)
        table.row(
            one.stream,
            one.subject,
            f"{one.rule} {one.time_zone}".rstrip(),
            one.target,
            "never" if next_ns is None else time_text(format_time(next_ns)),
            _wait(next_ns, now_ns),
            one.sequence,
        )
    table.print()


@app.command("rm", aliases=("cancel", "delete"))
def cancel_schedule(stream: StreamName, subject: Subject, force: ForceFlag = False) -> None:
    """Cancel the schedule that is stored under a subject."""
    with connect() as connection:
        schedules = jetstream(connection).schedules
        one = schedules.get(stream, subject)
        confirm_or_stop(f"Really cancel {one.rule} of {subject} to {one.target}", force=force)
        schedules.cancel(stream, subject)
    line(f"Schedule {subject} of Stream {stream} was cancelled")


@app.command("mv", aliases=("move", "edit"))
def move_schedule(
    stream: StreamName,
    subject: Subject,
    *,
    at: Annotated[str, Option("--at", metavar="TIME", help="Publish at this time")] = "",
    after: Annotated[
        str, Option("--after", metavar="DURATION", help="Publish after this delay")
    ] = "",
    every: Annotated[
        str, Option("--every", metavar="DURATION", help="Publish at this interval")
    ] = "",
    cron: Annotated[
        str, Option("--cron", metavar="PATTERN", help="Publish at times as 0 30 9 * * mon-fri")
    ] = "",
    time_zone: Annotated[
        str | None, Option("--time-zone", metavar="ZONE", help="The zone of a cron pattern")
    ] = None,
) -> None:
    """Give a schedule another time; everything else stays as it is."""
    flags = {"at": at, "after": after, "every": every, "cron": cron}
    given = [(name, text) for name, text in flags.items() if text]
    if len(given) != 1:
        raise CommandError("use one of --at, --after, --every and --cron", exit_code=EXIT_USAGE)
    ((name, text),) = given
    rule = schedule_rule(name, text, f"--{name}")
    with connect() as connection:
        schedules = jetstream(connection).schedules
        sequence = schedules.move(stream, subject, rule, time_zone=time_zone)
    line(f"Schedule {subject} of Stream {stream} is {rule} now, Sequence: {sequence}")


def _wait(next_ns: int | None, now_ns: int) -> str:
    if next_ns is None:
        return ""
    left_ns = next_ns - now_ns
    return "due" if left_ns < SECOND_NS else duration_text(left_ns // SECOND_NS * SECOND_NS)


def _document(one: StoredSchedule, now_ns: int) -> dict[str, object]:
    next_ns = one.next_ns(now_ns)
    return {
        "stream": one.stream,
        "subject": one.subject,
        "seq": one.sequence,
        "schedule": one.rule,
        "time_zone": one.time_zone,
        "target": one.target,
        "source": one.source,
        "ttl": one.ttl,
        "next": None if next_ns is None else format_time(next_ns),
    }
