"""`tradewind template`: subjects whose first publish makes a stream.

Owns the commands and what they print.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from tradewind.api.stream_types import StreamConfig
from tradewind.api.template_types import STREAMS_DEFAULT
from tradewind.cli.frame.failures import EXIT_FAILED, CommandError
from tradewind.cli.frame.frame import (
    Argument,
    CommandApp,
    ForceFlag,
    JsonFlag,
    Option,
    with_flags,
)
from tradewind.cli.frame.output import Table, line, print_json
from tradewind.cli.frame.prompts import confirm_or_stop
from tradewind.cli.frame.settings import connect, jetstream
from tradewind.cli.frame.text_formats import duration_text, parse_duration_ns
from tradewind.cli.streams.stream_flags import StreamFlags, apply_flags
from tradewind.durations import MICROSECOND_NS

app = CommandApp("Streams created by their first publish")

TemplateName = Annotated[str, Argument(metavar="TEMPLATE")]


@app.command("add", aliases=("edit", "put"))
@with_flags(StreamFlags)
def add_template(
    name: TemplateName,
    *,
    match: Annotated[str, Option("--match", metavar="PATTERN", help="Subjects, as k8s.*.>")],
    stream: Annotated[str, Option("--stream", metavar="NAME", help="Stream name, such as k8s_{1}")],
    max_streams: Annotated[
        int, Option("--max-streams", min=1, help="Maximum number of streams")
    ] = STREAMS_DEFAULT,
    idle: Annotated[
        str, Option("--idle", metavar="DURATION", help="Remove streams unused for this long")
    ] = "",
    dry_run: Annotated[bool, Option("--dry-run", help="Only validate the template")] = False,
    flags: StreamFlags,
) -> None:
    """Create or change a template."""
    config = apply_flags(StreamConfig(), flags)
    with connect() as connection:
        jetstream(connection).manager.templates.put(
            name,
            match=match,
            stream=stream,
            max_streams=max_streams,
            idle=_idle(idle),
            config=config,
            dry_run=dry_run,
        )
    line(f"Template {name} {'is valid' if dry_run else 'was stored'}")


def _idle(text: str) -> timedelta | None:
    if not text:
        return None
    return timedelta(microseconds=parse_duration_ns(text, "--idle") // MICROSECOND_NS)


@app.command("ls", aliases=("list",))
def list_templates(json: JsonFlag = False) -> None:
    """List the templates."""
    with connect() as connection:
        found = jetstream(connection).manager.templates.list()
    if json:
        print_json(list(found))
        return
    if not found:
        line("No Templates defined")
        return
    table = Table(
        "Templates",
        *("Name", "Subjects", "Stream", "Streams", "Maximum", "Idle"),
        drop=("Idle", "Maximum"),
    )
    for each in found:
        template = each.template
        idle = duration_text(template.idle) if template.idle else "never"
        table.row(
            template.name, template.match, template.stream, each.streams, template.max_streams, idle
        )
    table.print()


@app.command("rm", aliases=("delete",))
def remove_template(name: TemplateName, force: ForceFlag = False) -> None:
    """Remove a template; the streams it created are kept."""
    with connect() as connection:
        confirm_or_stop(f"Really remove Template {name}", force=force)
        jetstream(connection).manager.templates.delete(name)


@app.command("try")
def try_subject(
    subject: Annotated[str, Argument(metavar="SUBJECT")], json: JsonFlag = False
) -> None:
    """Show what a first publish to a subject would create."""
    with connect() as connection:
        found = jetstream(connection).manager.templates.try_subject(subject)
    if json:
        print_json(found)
        return
    if not found.would_create:
        raise CommandError(f"no stream would be created: {found.reason}", exit_code=EXIT_FAILED)
    subjects = ", ".join(found.subjects)
    line(f"Template {found.template} would create Stream {found.stream} for {subjects}")
