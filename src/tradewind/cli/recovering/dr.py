"""`tradewind dr`: looks after streams with a mirror on another server, and changes over to it.

Owns the commands; `tradewind.recovery` does the work.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, ForceFlag, JsonFlag, Option
from tradewind.cli.frame.named_servers import check_places, connect_place
from tradewind.cli.frame.output import flush, line, note, print_json
from tradewind.cli.frame.progress_bar import ProgressBar
from tradewind.cli.frame.prompts import confirm_or_stop
from tradewind.cli.frame.text_formats import counted, parse_duration_ns
from tradewind.cli.recovering.dr_output import (
    print_comparison,
    print_plan,
    print_result,
    print_status,
    watch_line,
)
from tradewind.client.errors import NoServersError
from tradewind.durations import SECOND_NS
from tradewind.recovery.change import ACK_SECONDS, WAIT_SECONDS
from tradewind.recovery.protection_status import StreamStatus
from tradewind.recovery.recovery import SUFFIX, DisasterRecovery, release_origin
from tradewind.recovery.recovery_errors import AWAY
from tradewind.recovery.recovery_journal import RecoveryJournal, load_recovery, may_begin
from tradewind.recovery.saved import publish_saved
from tradewind.store.format.layout import name_problem

if TYPE_CHECKING:
    from tradewind.sync import Connection

app = CommandApp("Disaster recovery: watch mirrors, fail over to them, and fail back")


StreamsArgument = Annotated[list[str], Argument(metavar="STREAM...")]
OriginFlag = Annotated[str, Option("--origin", help="Context or URL", metavar="SERVER")]
StandbyFlag = Annotated[str, Option("--standby", help="Context or URL", metavar="SERVER")]
RpoFlag = Annotated[
    str, Option("--rpo-max", help="Fail if more than this would be lost", metavar="DURATION")
]
JournalsArgument = Annotated[
    list[Path], Argument(metavar="FILE...", help="Journals of failovers or failbacks")
]
FileFlag = Annotated[
    Path | None, Option("--file", help="Journal [default: STREAM.KIND.json]", metavar="FILE")
]
DryFlag = Annotated[bool, Option("--dry-run", help="Only show what would be done")]
WaitFlag = Annotated[float, Option("--wait", min=0, help="Seconds to wait for a mirror")]
AckFlag = Annotated[float, Option("--ack-wait", min=0, help="Seconds to wait for acknowledgements")]


@app.command("status", aliases=("st", "info"))
def status(
    streams: StreamsArgument,
    origin: OriginFlag,
    standby: StandbyFlag,
    rpo_max: RpoFlag = "",
    json: JsonFlag = False,
) -> int:
    """Show how well streams are protected, and what would be lost now.

    Exits with code 1 if a planned failover is impossible for one of the streams, or if more would
    be lost than --rpo-max allows. An origin that does not answer counts as exceeding it.
    """
    rpo_max_ns = _duration_ns(rpo_max, "--rpo-max")
    with _both(origin, standby) as recovery:
        found = [recovery.status(stream) for stream in streams]
    if json:
        print_json(
            [{**msgspec.to_builtins(each), "can_fail_over": each.can_fail_over} for each in found]
        )
    else:
        print_status(found)
    return 0 if all(_is_well(each, rpo_max_ns) for each in found) else EXIT_FAILED


@app.command("watch", aliases=("record",))
def watch(
    streams: StreamsArgument,
    origin: OriginFlag,
    standby: StandbyFlag,
    every: Annotated[str, Option("--every", help="Recording interval", metavar="DURATION")] = "5s",
    once: Annotated[bool, Option("--once", help="Record once and exit")] = False,
    rpo_max: RpoFlag = "",
) -> int:
    """Record configuration and consumers of the origin at the standby, repeatedly.

    After the loss of the origin, consumers continue from the last record. Prints a line whenever
    the state of a stream changes. With --once, exits like `dr status`.
    """
    check_places("--origin, --standby", origin, standby)
    rpo_max_ns = _duration_ns(rpo_max, "--rpo-max")
    every_ns = _duration_ns(every, "--every")
    if not every_ns:
        raise CommandError("--every: more than 0, for example 5s", exit_code=EXIT_USAGE)
    said: dict[str, object] = {}
    with _WatchedSides(origin, standby) as watched:
        while True:
            results = [watched.say_changes(stream, said, rpo_max_ns) for stream in streams]
            flush()
            if once:
                return 0 if all(results) else EXIT_FAILED
            time.sleep(every_ns / SECOND_NS)


@app.command("verify", aliases=("compare",))
def verify(
    streams: StreamsArgument,
    origin: OriginFlag,
    standby: StandbyFlag,
    strict: Annotated[
        bool, Option("--strict", help="Also fail if the standby has more than the origin")
    ] = False,
    json: JsonFlag = False,
) -> int:
    """Compare streams with their mirrors, message by message.

    Exits with code 1 if the standby lacks a message up to its last sequence, or has a different
    one. A mirror does not follow deletions, so messages that only the standby has are not a failure
    unless --strict is given.
    """
    results = {}
    with _both(origin, standby) as recovery:
        for stream in streams:
            with ProgressBar(f"Comparing {stream}", None, shown=not json) as bar:
                results[stream] = recovery.verify(stream, bar.set)
    if json:
        print_json(
            {
                stream: {
                    **msgspec.to_builtins(found),
                    "is_same": found.is_same,
                    "is_covered": found.is_covered,
                }
                for stream, found in results.items()
            }
        )
    else:
        for stream, found in results.items():
            print_comparison(stream, found)
    fits = [found.is_same if strict else found.is_covered for found in results.values()]
    return 0 if all(fits) else EXIT_FAILED


@app.command("failover")
def failover(
    streams: StreamsArgument,
    standby: StandbyFlag,
    origin: OriginFlag = "",
    origin_lost: Annotated[
        bool,
        Option(
            "--origin-lost", help="Continue without the origin, with the messages of the standby"
        ),
    ] = False,
    subjects: Annotated[
        list[str] | None,
        Option("--subjects", help="Subjects of a lost origin that was never recorded"),
    ] = None,
    file: FileFlag = None,
    wait: WaitFlag = WAIT_SECONDS,
    ack_wait: AckFlag = ACK_SECONDS,
    dry_run: DryFlag = False,
    force: ForceFlag = False,
) -> None:
    """Let the standby take over streams with their consumers.

    The origin is frozen, the mirror receives the rest, both are compared, and the standby takes
    over the subjects and consumers: nothing is lost. With --origin-lost, the standby continues with
    the messages it has, and consumers continue from their last record.
    """
    if not origin and not origin_lost:
        raise CommandError("--origin: needed unless --origin-lost is given", exit_code=EXIT_USAGE)
    with _both(origin, standby, wait, ack_wait, may_be_away=origin_lost) as recovery:
        _change(
            recovery,
            [
                recovery.plan_failover(stream, is_lost=origin_lost, subjects=subjects or ())
                for stream in streams
            ],
            file,
            question="Fail over {} to " + standby,
            dry_run=dry_run,
            force=force,
        )


@app.command("failback")
def failback(
    streams: StreamsArgument,
    origin: OriginFlag,
    standby: StandbyFlag,
    standby_api: Annotated[
        str, Option("--standby-api", help="API prefix for reaching the standby from the origin")
    ],
    file: FileFlag = None,
    wait: WaitFlag = WAIT_SECONDS,
    ack_wait: AckFlag = ACK_SECONDS,
    dry_run: DryFlag = False,
    force: ForceFlag = False,
) -> None:
    """Let the old origin take over again, after a failover.

    Messages that only the old origin has are saved in a file next to the journal. Then the origin
    is recreated as a mirror of the standby, catches up and takes over, and the standby becomes a
    mirror again.
    """
    folder = Path().absolute() if file is None else file.absolute().parent
    with _both(origin, standby, wait, ack_wait) as recovery:
        journals = [
            recovery.plan_failback(stream, standby_api=standby_api, folder=folder)
            for stream in streams
        ]
        for journal in journals:
            extra = recovery.extra_messages(journal)
            line(
                f"{journal.stream}: both share a history up to sequence {journal.shared_seq}; the "
                f"origin has {counted(extra, 'message')} after that"
            )
            if extra:
                line(f"{journal.stream}: they will be saved in {journal.saved_file}")
        _change(
            recovery,
            journals,
            file,
            question="Delete {0} at " + origin + " and recreate it from " + standby,
            dry_run=dry_run,
            force=force,
        )


@app.command("resume")
def resume(
    paths: JournalsArgument, wait: WaitFlag = WAIT_SECONDS, ack_wait: AckFlag = ACK_SECONDS
) -> None:
    """Resume interrupted failovers and failbacks."""
    for path, journal in _load(paths).items():
        with _of(journal, wait, ack_wait) as recovery:
            print_result(recovery.resume(path))


@app.command("rollback")
def rollback(paths: JournalsArgument, force: ForceFlag = False) -> None:
    """Roll back: the side that accepted messages before accepts them again."""
    journals = _load(paths)
    for journal in journals.values():
        confirm_or_stop(f"Roll back the {journal.kind} of {journal.stream}", force=force)
    for path, journal in journals.items():
        try:
            with _of(journal) as recovery:
                recovery.roll_back(path)
        except NoServersError:
            with connect_place(journal.origin) as connection:
                release_origin(connection, path)
        path.unlink()
        line(f"{journal.stream}: rolled back")


@app.command("republish")
def republish(
    path: Annotated[Path, Argument(metavar="FILE", help="File of messages that a failback saved")],
    target: Annotated[str, Option("--to", help="Context or URL", metavar="SERVER")],
    stream: Annotated[str, Option("--stream", help="Store them only in this stream")] = "",
) -> None:
    """Publish the messages that a failback saved again, after those already stored.

    Messages keep their IDs, so a second run within the duplicate window stores nothing twice.
    """
    with connect_place(target) as connection:
        stored = publish_saved(connection, path, stream)
    line(f"{counted(stored, 'message')} of {path} stored")


# ------------------------------------------------------------------ inside


def _change(
    recovery: DisasterRecovery,
    journals: list[RecoveryJournal],
    file: Path | None,
    *,
    question: str,
    dry_run: bool,
    force: bool,
) -> None:
    """All that was planned, one after the other; what is left when one fails has its journal."""
    paths = _new_files(journals, file)
    if dry_run:
        for journal in journals:
            line(f"{journal.stream}:")
            print_plan(journal)
        line("Nothing was changed.")
        return
    for journal in journals:
        confirm_or_stop(question.format(journal.stream), force=force)
    for path, journal in zip(paths, journals, strict=True):
        try:
            print_result(recovery.begin(journal, path))
        except BaseException:
            if path.exists():
                note(f"the next step of {journal.stream} is {journal.step}")
                note(f"continue with: tradewind dr resume {path}")
            raise


def _new_files(journals: list[RecoveryJournal], file: Path | None) -> list[Path]:
    if file is not None and len(journals) > 1:
        raise CommandError(
            "--file: only for one stream; several streams have one journal each",
            exit_code=EXIT_USAGE,
        )
    for each in journals:
        if problem := name_problem(each.stream):
            raise CommandError(f"stream name {each.stream!r} {problem}", exit_code=EXIT_USAGE)
    paths = [(file or Path(each.stream + SUFFIX[each.kind])).absolute() for each in journals]
    for path in paths:
        if not may_begin(path):
            raise CommandError(
                f"{path} already exists and is not finished",
                f"resume it: tradewind dr resume {path}",
                "or use another: --file FILE",
            )
    return paths


def _load(paths: list[Path]) -> dict[Path, RecoveryJournal]:
    """All journals, before anything is done with one of them."""
    return {path: load_recovery(path) for path in (each.absolute() for each in paths)}


@contextmanager
def _of(
    journal: RecoveryJournal, wait: float = WAIT_SECONDS, ack_wait: float = ACK_SECONDS
) -> Iterator[DisasterRecovery]:
    is_lost = journal.kind.value == "lost"
    origin = "" if is_lost else journal.origin
    with _both(origin, journal.standby, wait, ack_wait) as recovery:
        yield recovery


@contextmanager
def _both(
    origin: str,
    standby: str,
    wait: float = WAIT_SECONDS,
    ack_wait: float = ACK_SECONDS,
    *,
    may_be_away: bool = True,
) -> Iterator[DisasterRecovery]:
    """Both sides; without the origin if there is none or it is away."""
    check_places("--origin, --standby", origin, standby)
    with ExitStack() as stack:
        there = stack.enter_context(connect_place(standby))
        here = None
        if origin:
            try:
                here = stack.enter_context(connect_place(origin))
            except NoServersError:
                if not may_be_away:
                    raise
        yield DisasterRecovery(
            here,
            there,
            origin_place=origin,
            standby_place=standby,
            say=note,
            wait_seconds=wait,
            ack_seconds=ack_wait,
        )


class _WatchedSides:
    """Both sides for a long time: the origin may come and go."""

    def __init__(self, origin: str, standby: str) -> None:
        self._origin_place, self._standby_place = origin, standby
        self._stack = ExitStack()
        self._standby: Connection | None = None
        self._recovery: DisasterRecovery | None = None

    def __enter__(self) -> _WatchedSides:
        self._stack.__enter__()
        self._standby = self._stack.enter_context(connect_place(self._standby_place))
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def say_changes(self, stream: str, said: dict[str, object], rpo_max_ns: int | None) -> bool:
        """Record a stream, print a line if something has changed, and say whether all is well."""
        try:
            found = self._record(stream)
        except AWAY as error:
            text, key, is_well = f"{stream}: the standby does not answer: {error}", "away", False
        else:
            is_well = _is_well(found, rpo_max_ns)
            text, key = watch_line(found), f"{found.state} {found.problems} {is_well}"
        if said.get(stream) != key:
            said[stream] = key
            line(text)
        return is_well

    def _record(self, stream: str) -> StreamStatus:
        """The stream's status, after recording the state of the origin if that is reachable."""
        assert self._standby is not None
        if self._recovery is None:
            try:
                here = self._stack.enter_context(connect_place(self._origin_place))
            except NoServersError:
                return DisasterRecovery(None, self._standby).status(stream)
            self._recovery = DisasterRecovery(here, self._standby, origin_place=self._origin_place)
        return self._recovery.record(stream)


def _is_well(status: StreamStatus, rpo_max_ns: int | None) -> bool:
    return status.can_fail_over and (rpo_max_ns is None or status.is_within(rpo_max_ns))


def _duration_ns(text: str, flag: str) -> int | None:
    """None if the flag is not given."""
    return parse_duration_ns(text, flag) if text else None
