"""`tradewind worker`: runs a worker of the user in several processes.

Owns the flags, and what one process does: load, connect, run, say what happened. Restarts are up to
`worker/supervisor.py`, messages to `consumer.run`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Annotated, Any

from tradewind.cli.frame.command_loop import connect_async, stamp
from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, Option
from tradewind.cli.frame.reporting import report
from tradewind.cli.frame.text_formats import parse_duration_ns
from tradewind.client.errors import OptionsError
from tradewind.durations import SECOND_NS
from tradewind.worker.supervisor import PROCESSES_MAX, Supervisor
from tradewind.worker.worker_app import Worker, load_worker

if TYPE_CHECKING:
    from tradewind.client.events import Event
    from tradewind.client.running.consumer_run import ConsumerRun
    from tradewind.client.running.run_settings import RunSettings

app = CommandApp("Run a worker")


@app.command()
def worker(
    place: Annotated[
        str, Argument(help="Module and name of a tradewind.Worker", metavar="MODULE:APP")
    ],
    processes: Annotated[
        int,
        Option("--processes", "-n", min=1, max=PROCESSES_MAX, help="Number of processes"),
    ] = 1,
    concurrency: Annotated[
        int | None,
        Option("--concurrency", min=1, help="Handlers at a time per process", show_default=False),
    ] = None,
    grace: Annotated[
        str,
        Option("--grace", help="How long handlers may run after a signal", metavar="DURATION"),
    ] = "30s",
) -> int:
    """Run a worker: a handler for the messages of a consumer.

    MODULE is found in the current folder or on the Python path. A process that ends is started
    again after a delay that grows from 0.5 s to 30 s. SIGINT and SIGTERM stop all processes: no
    more messages are pulled, handlers finish, the rest goes back to the consumer. A second signal
    ends them at once. The exit code is 0 after a clean stop, 1 if a process failed to stop, 2 if
    the worker cannot be loaded.
    """
    grace_seconds = parse_duration_ns(grace, "--grace") / SECOND_NS
    settings: RunSettings = {"grace": grace_seconds}
    if concurrency is not None:
        settings["concurrency"] = concurrency

    def work(number: int, lifeline: int) -> int:
        return work_in_process(place, settings, number, lifeline)

    return Supervisor(work, processes, grace_seconds, stamp).run()


def work_in_process(place: str, settings: RunSettings, number: int, lifeline: int) -> int:
    """Run the worker as one of the processes; its exit code."""
    # Until there is a run to stop, nothing is in hand.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        declared = load_worker(place)
        asyncio.run(_work(declared, settings, number, lifeline))
    except OptionsError as error:
        report("tradewind worker", error)
        return EXIT_USAGE
    except Exception as error:
        if isinstance(error, ImportError | SyntaxError):
            report("tradewind worker", CommandError(f"{place}: {type(error).__name__}: {error}"))
            return EXIT_USAGE
        report("tradewind worker", error)
        return EXIT_FAILED
    return 0


async def _work(declared: Worker, settings: RunSettings, number: int, lifeline: int) -> None:
    def tell(event: object) -> None:
        stamp(f"process {number}: {event}")

    def on_event(event: Event) -> None:
        tell(event)

    loop = asyncio.get_running_loop()
    async with await connect_async(on_event=on_event) as connection, declared.entered(connection):
        if "on_event" not in declared.settings:
            settings["on_event"] = tell
        run = await declared.runner(connection, **settings)
        for number_of_signal in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number_of_signal, run.stop)
        # Readable once the supervisor has gone; without it, nothing would ever end this process.
        loop.add_reader(lifeline, _lost, loop, lifeline, run)
        tell(f"handles the messages of {declared.consumer!r} of {declared.stream!r}")
        stats = await run.run()
        loop.remove_reader(lifeline)
        tell(f"stopped: {summary(stats)}")


def _lost(loop: asyncio.AbstractEventLoop, lifeline: int, run: ConsumerRun) -> None:
    loop.remove_reader(lifeline)
    run.stop()


def summary(stats: Any) -> str:
    """The numbers of a run in one line."""
    names = ("succeeded", "skipped", "retried", "given_up", "undecodable", "given_back")
    parts = [f"{getattr(stats, name)} {name.replace('_', ' ')}" for name in names]
    return ", ".join(part for part in parts if not part.startswith("0 ")) or "no messages"
