"""`tradewind apply`: changes a server to match files, after showing the changes.

Owns the output, the confirmation and the order of changes. A refused change does not stop the
others. It is retried when another one has succeeded, because streams may depend on each other, and
the command fails if it never succeeds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tradewind.cli.declared.apply_plan import Action, Plan, PlannedChange
from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.output import line, note, print_json, styled
from tradewind.cli.frame.prompts import confirm_or_stop
from tradewind.cli.frame.settings import connect, manager
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.documents import Document
    from tradewind.sync import JetStreamManager

app = CommandApp("Apply a declarative configuration file")
SIGNS = {Action.ADD: ("+", "green"), Action.CHANGE: ("~", "yellow"), Action.REMOVE: ("-", "red")}
DONE = {Action.ADD: "added", Action.CHANGE: "changed", Action.REMOVE: "removed"}
STDIN = "-"


@app.command()
def apply(
    paths: Annotated[list[str] | None, Argument(metavar="[FILE]...", show_default=False)] = None,
    files: Annotated[
        list[str] | None, Option("--file", "-f", help="YAML or JSON file; - for standard input")
    ] = None,
    prune: Annotated[
        bool, Option("--prune", help="Remove what the sections of the file do not list")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would change")] = False,
    force: Annotated[bool, Option("--force", help="Do not ask for confirmation")] = False,
    json: JsonFlag = False,
) -> int:
    """Create, update and remove streams, consumers and buckets as a file declares."""
    from tradewind.cli.declared.apply_plan import make_plan
    from tradewind.cli.declared.declaration_files import STREAMS, TEMPLATES, read_declaration
    from tradewind.cli.declared.live_objects import read_server, read_templates

    named = [*(paths or ()), *(files or ())]
    if not named:
        raise CommandError(
            "no file given",
            "for example:  tradewind apply -f streams.yaml",
            "write one:    tradewind export > streams.yaml",
            exit_code=EXIT_USAGE,
        )
    declaration = read_declaration([_read(path) for path in named])
    streams = {thing.name for thing in declaration.things if thing.section == STREAMS}
    with connect() as connection:
        streams_and_consumers = manager(connection)
        found = read_server(streams_and_consumers, streams)
        if TEMPLATES in declaration.complete:
            if not connection.info.tradewind:
                raise CommandError("section 'templates': only a Tradewind server has templates")
            found |= read_templates(streams_and_consumers)
        plan = make_plan(declaration, found, prune=prune)
        if json:
            print_json(_as_json(plan))
        else:
            _show(plan)
        if dry_run or not plan.changes:
            return 0
        confirm_or_stop(_question(plan), force=force)
        failed = _run(streams_and_consumers, plan.changes)
        _report(plan, failed)
        return EXIT_FAILED if failed else 0


def _read(path: str) -> Document:
    from tradewind.documents import FILE_BYTES_MAX, Document

    document = Document(Path("input" if path == STDIN else path))
    if path == STDIN:
        document.parse(sys.stdin.buffer.read(FILE_BYTES_MAX + 1))
    else:
        document.read()
    return document


# ---------------------------------------------------------------- the screen


def _show(plan: Plan) -> None:
    for change in plan.changes:
        _show_change(change)
    if plan.changes:
        line()
    counts = [
        f"{sum(change.action is action for change in plan.changes)} to {action}"
        for action in (Action.ADD, Action.CHANGE, Action.REMOVE)
    ]
    line(f"{', '.join(counts)}, {len(plan.same)} as declared")
    for thing in plan.unmentioned:
        note(f"{thing} is not in the file and is kept; --prune removes it")


def _show_change(change: PlannedChange) -> None:
    from tradewind.cli.declared.declaration_files import value_line

    sign, colour = SIGNS[change.action]
    lost = f" with {change.note}" if change.note else ""
    line(styled(f"{sign} {change.thing}{lost}", colour))
    if change.action is Action.REMOVE:
        return
    for name in change.members:
        if name in change.before:
            line(styled(f"    - {name}: {value_line(change.before[name])}", "red"))
        if name in change.after:
            line(styled(f"    + {name}: {value_line(change.after[name])}", "green"))


def _as_json(plan: Plan) -> dict[str, Any]:
    return {
        "changes": [
            {
                "action": change.action,
                "section": change.thing.section,
                "name": change.thing.name,
                "consumer": change.thing.consumer,
                "before": change.before,
                "after": change.after,
            }
            for change in plan.changes
        ],
        "same": [str(thing) for thing in plan.same],
        "unmentioned": [str(thing) for thing in plan.unmentioned],
    }


def _question(plan: Plan) -> str:
    removed = [change for change in plan.changes if change.action is Action.REMOVE]
    if not removed:
        return f"Really make {_changes(len(plan.changes))}"
    names = ", ".join(str(change.thing) for change in removed)
    return f"Really make {_changes(len(plan.changes))} and lose {names}"


def _changes(count: int) -> str:
    return "1 change" if count == 1 else f"{count} changes"


# ---------------------------------------------------------------- the work


def _run(
    streams: JetStreamManager, changes: Sequence[PlannedChange]
) -> list[tuple[PlannedChange, TradewindError]]:
    """Make the changes; those that were refused to the end, with the reason."""
    from tradewind.cli.declared.live_objects import make_change
    from tradewind.client.api_errors import JetStreamApiError

    left = list(changes)
    while True:
        failed: list[tuple[PlannedChange, TradewindError]] = []
        for change in left:
            try:
                make_change(streams, change)
            except JetStreamApiError as error:
                failed.append((change, error))
            else:
                note(f"{DONE[change.action]} {change.thing}")
        if not failed or len(failed) == len(left):
            return failed
        left = [change for change, _ in failed]


def _report(plan: Plan, failed: list[tuple[PlannedChange, TradewindError]]) -> None:
    for change, error in failed:
        place = f"{change.declared.place}: " if change.declared else ""
        note(f"{place}{change.thing}: {styled('refused', 'red', sys.stderr)}: {error}")
    if failed:
        done = len(plan.changes) - len(failed)
        note(f"{_changes(done)} made, {len(failed)} refused; repeat the command to continue")
