"""`tradewind move`: moves streams with their consumers to another server, and back.

Owns the commands and their output; the steps are in `mover`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from tradewind.cli.frame.choices import OneOf
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, ForceFlag, JsonFlag, Option
from tradewind.cli.frame.named_servers import check_places, connect_place
from tradewind.cli.frame.output import Columns, line, note, print_json
from tradewind.cli.frame.prompts import confirm_or_stop
from tradewind.cli.frame.text_formats import count_text, duration_text, size_text
from tradewind.cli.moving import move_journal as journals
from tradewind.cli.moving.move_journal import Journal, Method
from tradewind.cli.moving.mover import Mover, check
from tradewind.store.format.layout import name_problem

if TYPE_CHECKING:
    from tradewind.sync import Connection

app = CommandApp("Move streams with their consumers to another server")

_METHODS: Final = ("auto", *Method)
JournalArgument = Annotated[Path, Argument(metavar="FILE", help="Journal of the move")]
JournalsArgument = Annotated[list[Path], Argument(metavar="FILE...", help="Journals of moves")]


@app.command("start")
def start(
    streams: Annotated[list[str], Argument(metavar="STREAM...")],
    origin: Annotated[str, Option("--from", help="Context or URL", metavar="SERVER")],
    target: Annotated[str, Option("--to", help="Context or URL", metavar="SERVER")],
    via: Annotated[
        str, Option("--via", help="Way to transfer messages", click_type=OneOf(*_METHODS))
    ] = "auto",
    origin_api: Annotated[
        str,
        Option("--origin-api", help="API prefix for reaching the origin from the target"),
    ] = "",
    replicas: Annotated[int, Option("--replicas", min=0, help="Replicas at the target")] = 0,
    file: Annotated[
        Path | None, Option("--file", help="Journal [default: STREAM.move.json]", metavar="FILE")
    ] = None,
    wait: Annotated[float, Option("--wait", min=0, help="Seconds to wait for a mirror")] = 600.0,
    ack_wait: Annotated[
        float, Option("--ack-wait", min=0, help="Seconds to wait for acknowledgements")
    ] = 30.0,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be done")] = False,
) -> None:
    """Move streams with their consumers while publishers and consumers run.

    With --origin-api, the target mirrors the stream, and the pause at the end is short. Without it,
    the stream is copied as a backup, and the pause lasts as long as the copy. During the pause,
    publishes are rejected and should be retried. The old copy stays, frozen, until `move finish`.
    Several streams are moved one after the other, each with its own journal and pause.
    """
    method = _method(via, origin_api)
    check_places("--from, --to", origin, target)
    moves = {
        path: Journal(
            id=secrets.token_hex(8),
            stream=stream,
            origin=origin,
            target=target,
            method=method,
            origin_api=origin_api,
            replicas=replicas,
        )
        for stream, path in _new_files(streams, file).items()
    }
    with _both(next(iter(moves.values()))) as (old, new):
        for journal in moves.values():
            state = check(old, new, journal).state
            size, messages = size_text(state.bytes), count_text(state.messages)
            line(f"{journal.stream}: {messages} messages, {size}, {state.consumer_count} consumers")
        line(f"from {origin} to {target} by a {method}")
        if dry_run:
            _say_plan(method)
            return
        for path, journal in moves.items():
            journals.save(path, journal)
        mover = partial(Mover, say=note, wait_seconds=wait, ack_seconds=ack_wait)
        _run_all([mover(journal, path, old, new) for path, journal in moves.items()])


@app.command("resume")
def resume(paths: JournalsArgument) -> None:
    """Resume interrupted moves."""
    moves = _load(paths)
    with ExitStack() as stack:
        movers = []
        for path, journal in moves.items():
            old, new = stack.enter_context(_both(journal))
            movers.append(Mover(journal, path, old, new, say=note))
        _run_all(movers)


@app.command("rollback")
def rollback(paths: JournalsArgument, force: ForceFlag = False) -> None:
    """Roll back: delete the new copies and let the origin accept messages again."""
    moves = _load(paths)
    for journal in moves.values():
        confirm_or_stop(f"Delete {journal.stream} at {journal.target}", force=force)
    for path, journal in moves.items():
        with _both(journal) as (old, new):
            Mover(journal, path, old, new, say=line).roll_back()
        path.unlink()


@app.command("finish")
def finish(paths: JournalsArgument, force: ForceFlag = False) -> None:
    """Delete the old copies of moved streams."""
    moves = _load(paths)
    for journal in moves.values():
        confirm_or_stop(f"Delete {journal.stream} at {journal.origin}", force=force)
    for path, journal in moves.items():
        with _both(journal) as (old, new):
            Mover(journal, path, old, new, say=line).finish()
        path.unlink()


@app.command("status", aliases=("info",))
def status(path: JournalArgument, json: JsonFlag = False) -> None:
    """Show the progress of a move."""
    journal = journals.load(path.absolute())
    if json:
        print_json(journal)
        return
    columns = Columns(f"Move of {journal.stream}")
    columns.row("From", journal.origin)
    columns.row("To", journal.target)
    columns.row("By", journal.method.value)
    columns.row("Next step", journal.step.value)
    columns.row_if("Last sequence", journal.last_seq)
    columns.row_if("Pause", duration_text(journal.pause_ns) if journal.pause_ns else "")
    columns.print()


# ------------------------------------------------------------------ inside


def _method(via: str, origin_api: str) -> Method:
    """The method that `--via` selects; usage error if other flags do not permit it."""
    method = Method(via) if via != "auto" else Method.MIRROR if origin_api else Method.BACKUP
    if method is Method.MIRROR and not origin_api:
        raise CommandError(
            "--via mirror: needs --origin-api, the API of the origin as the target sees it",
            "for example '$JS.hub.API'",
            exit_code=EXIT_USAGE,
        )
    return method


def _new_files(streams: list[str], file: Path | None) -> dict[str, Path]:
    """Where the journals of these streams will be; CommandError if there are some already."""
    if file is not None and len(streams) > 1:
        raise CommandError(
            "--file: only for one stream; several streams use STREAM.move.json each",
            exit_code=EXIT_USAGE,
        )
    for stream in streams:
        if problem := name_problem(stream):
            raise CommandError(f"stream name {stream!r} {problem}", exit_code=EXIT_USAGE)
    paths = {stream: (file or Path(f"{stream}{journals.SUFFIX}")).absolute() for stream in streams}
    for path in paths.values():
        if path.exists():
            raise CommandError(
                f"{path} already exists",
                f"resume it: tradewind move resume {path}",
                "or use another: --file FILE",
            )
    return paths


def _load(paths: list[Path]) -> dict[Path, Journal]:
    """All journals, before anything is done with one of them."""
    return {path: journals.load(path) for path in (each.absolute() for each in paths)}


def _run_all(movers: list[Mover]) -> None:
    """One after the other; what is left when one fails has its journal."""
    for index, mover in enumerate(movers):
        journal = mover.journal
        try:
            mover.run()
        except BaseException:
            left = " ".join(str(each.path) for each in movers[index:])
            note(f"the next step of {journal.stream} is {journal.step}")
            note(f"continue with: tradewind move resume {left}")
            raise
        pause = duration_text(journal.pause_ns)
        line(f"Moved {journal.stream} to {journal.target}; publishers paused for {pause}")
    paths = " ".join(str(each.path) for each in movers)
    line(f"delete the old copy: tradewind move finish {paths}")
    line(f"or roll it back:     tradewind move rollback {paths}")


def _say_plan(method: Method) -> None:
    steps = [
        "The origin is frozen: publishes are rejected, consumers are paused.",
        "Both are compared, message by message.",
        "The target takes over the subjects and consumers. The old copy stays until `move finish`.",
    ]
    if method is Method.MIRROR:
        steps.insert(0, "The target mirrors the stream while clients keep working.")
    else:
        steps.insert(1, "The stream is copied with its consumers, which takes as long as a backup.")
    for number, step in enumerate(steps, 1):
        line(f"{number}. {step}")
    line("Nothing was changed.")


@contextmanager
def _both(journal: Journal) -> Iterator[tuple[Connection, Connection]]:
    with connect_place(journal.origin) as origin, connect_place(journal.target) as target:
        yield origin, target
