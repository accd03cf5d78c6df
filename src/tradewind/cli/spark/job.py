"""`tradewind job`: archive, replay, mirror, audit and compact, on Spark.

Owns the flags and the output; `tradewind.pipelines.jobs` does the work.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.output import line, note, print_json
from tradewind.cli.spark.spark_flags import MasterFlag, spark_address
from tradewind.spark.processes.local_master import LOCAL_MASTER
from tradewind.store.format.layout import name_problem

if TYPE_CHECKING:
    from threading import Event

    from tradewind.pipelines.state.status import PipelineStatus

app = CommandApp("Ready-made jobs on Spark")
StreamName = Annotated[str, Argument(help="Stream name")]
SHOW_SECONDS = 5.0


@app.command("archive")
def archive_stream(
    stream: StreamName,
    lake: Annotated[
        Path, Argument(help="Folder of the lake; each stream gets a Parquet folder in it")
    ],
    by_subject: Annotated[bool, Option("--by-subject", help="Partition by subject")] = False,
    json: JsonFlag = False,
    master: MasterFlag = LOCAL_MASTER,
) -> None:
    """Append new messages of a stream to a Parquet lake and verify that none is missing."""
    from tradewind.pipelines.jobs.archive_job import archive

    with _spark(master) as (session, stop):
        report = archive(
            session, spark_address(), stream, lake, _updates(), stop, by_subject=by_subject
        )
    if json:
        print_json(report)
        return
    line(
        f"{report.added:,} messages added; {report.folder} has {report.rows:,}"
        f" (sequences {report.first_seq:,} to {report.last_seq:,})"
    )
    line("verified: no message of the stream is missing or duplicated")


@app.command("replay")
def replay_lake(
    folder: Annotated[Path, Argument(help="Folder of one stream in a lake")],
    stream: Annotated[str, Argument(help="Target stream")],
    pace: Annotated[str, Option("--pace", help="Pace: instant or original")] = "instant",
    speed: Annotated[
        float,
        Option(
            "--speed", help="Speed relative to the original pace: 2 is twice as fast", min=0.001
        ),
    ] = 1.0,
    subject: Annotated[
        str, Option("--subject", help="Template for new subjects, such as again.{subject}")
    ] = ("{subject}"),
    where: Annotated[
        str, Option("--where", help="SQL condition, such as \"time > '2026-11-16'\"")
    ] = "",
    once: Annotated[
        str,
        Option(
            "--once",
            metavar="NAME",
            help="Name of this replay, so that a restart does not repeat it",
        ),
    ] = "",
    json: JsonFlag = False,
    master: MasterFlag = LOCAL_MASTER,
) -> None:
    """Publish the messages of a lake to a stream, in order."""
    from tradewind.pipelines.jobs.replay_job import ReplaySettings, replay

    if pace not in ("instant", "original"):
        raise CommandError(f"--pace {pace!r}: instant or original")
    if once and pace == "original":
        raise CommandError("--once requires --pace instant")
    settings = ReplaySettings(stream, subject, where, pace == "original", speed, once)
    with _spark(master) as (session, stop):
        report = replay(
            session, spark_address(), folder, settings, _counter("messages published"), stop
        )
    if json:
        print_json(report)
        return
    line(f"{report.stored:,} of {report.rows:,} messages stored in {stream}")


@app.command("mirror")
def mirror_stream(
    stream: StreamName,
    to_server: Annotated[str, Option("--to-server", help="Server of the copy")],
    to_stream: Annotated[str, Option("--to-stream", help="Stream name on the target server")] = "",
    state: Annotated[Path | None, Option("--state", help="Checkpoint folder")] = None,
    once: Annotated[
        bool, Option("--once", help="Stop when everything stored so far is copied")
    ] = False,
    json: JsonFlag = False,
    master: MasterFlag = LOCAL_MASTER,
) -> int:
    """Copy a stream to another server, show the lag and verify the copy."""
    from tradewind.pipelines.jobs.mirror_job import mirror
    from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress

    target = to_stream or stream
    if problem := name_problem(stream):
        raise CommandError(f"stream name {stream!r} {problem}", exit_code=EXIT_USAGE)
    folder = state or Path(f"mirror-{stream}")
    with _spark(master) as (session, stop):
        report = mirror(
            session,
            spark_address(),
            stream,
            PipelineAddress(to_server),
            target,
            folder,
            _updates(),
            stop,
            is_once=once,
        )
    if json:
        print_json(report)
        return 0 if report.is_same else EXIT_FAILED
    line(f"{report.copied:,} messages copied in this run, up to sequence {report.last_seq:,}")
    line(f"{stream} has {report.source_messages:,}, the copy {report.target_messages:,} messages")
    if report.is_same:
        line("verified: both have the same messages (SHA-256 of each)")
        return 0
    line(f"{report.extra:,} messages are in the copy only: they were removed from {stream} since")
    return 0


@app.command("audit")
def audit_store(
    folder: Annotated[Path, Argument(help="Store folder of a server, which may be running")],
    json: JsonFlag = False,
    master: MasterFlag = LOCAL_MASTER,
) -> int:
    """Verify the hash of every record of a store, and its chains, on all cores."""
    from tradewind.pipelines.jobs.audit_job import audit

    with _spark(master) as (session, _stop):
        report = audit(session, folder, _counter("parts verified"))
    if json:
        print_json(report)
    else:
        for each in report.notes:
            line(f"note: {each}")
        for found in report.damaged:
            line(f"damage: {found.path}: {found.problem} ({found.damaged_bytes:,} bytes)")
        line(
            f"{report.streams:,} streams, {report.blocks:,} blocks, {report.records:,} messages,"
            f" {report.bytes:,} bytes: {len(report.damaged):,} blocks are damaged"
        )
        for chain in report.chains:
            for fault in chain.faults:
                line(f"chain of {chain.stream}: {fault.kind}: {fault.text}")
            line(
                f"chain of {chain.stream}: {chain.size:,} entries, {chain.messages:,} messages,"
                f" {chain.fault_count:,} faults, proved up to sequence {chain.proved_sequence}"
            )
    broken = any(not chain.is_intact for chain in report.chains)
    return EXIT_FAILED if report.damaged or report.notes or broken else 0


@app.command("compact")
def compact_stream(
    stream: StreamName,
    to: Annotated[
        Path | None, Option("--to", help="Write a Parquet snapshot to this folder")
    ] = None,
    to_stream: Annotated[
        str, Option("--to-stream", help="Write one message per subject to this stream")
    ] = "",
    subject: Annotated[str, Option("--subject", help="Template for subjects in that stream")] = (
        "latest.{subject}"
    ),
    json: JsonFlag = False,
    master: MasterFlag = LOCAL_MASTER,
) -> None:
    """Write the latest message of each subject to a folder or to another stream."""
    from tradewind.pipelines.jobs.compact_job import compact_to_folder, compact_to_stream

    if (to is None) == (not to_stream):
        raise CommandError("specify either --to FOLDER or --to-stream NAME")
    with _spark(master) as (session, _stop):
        address = spark_address()
        if to is not None:
            report = compact_to_folder(session, address, stream, to)
        else:
            report = compact_to_stream(session, address, stream, to_stream, subject)
    if json:
        print_json(report)
        return
    line(f"{report.messages:,} messages on {report.subjects:,} subjects; the latest of each:")
    line(report.target)


@contextmanager
def _spark(master: str) -> Iterator[tuple[Any, Event]]:
    """A session, and the event that Ctrl-C sets."""
    from tradewind.pipelines.machine.signals import stop_event
    from tradewind.pipelines.sessions.pipeline_session import using_session

    note("starting Spark ...")
    with (
        tempfile.TemporaryDirectory(prefix="tradewind-job-") as scratch,
        using_session(master, Path(scratch) / "spark.log") as session,
        stop_event() as stop,
    ):
        yield session, stop


def _updates() -> Callable[[PipelineStatus], None]:
    from tradewind.pipelines.running.display import status_line

    due = [0.0]

    def show(status: PipelineStatus) -> None:
        if time.monotonic() >= due[0] or status.state != "running":
            due[0] = time.monotonic() + SHOW_SECONDS
            note(status_line(status))

    return show


def _counter(what: str) -> Callable[[int, int], None]:
    due = [0.0]

    def show(done: int, whole: int) -> None:
        if time.monotonic() >= due[0] or done == whole:
            due[0] = time.monotonic() + SHOW_SECONDS
            note(f"{done:,} of {whole:,} {what}")

    return show
