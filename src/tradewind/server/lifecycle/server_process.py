"""The process of a server: one event loop, from the first step to the exit code.

Owns what is set for the whole process: the loop, the limit of open files, the behaviour of memory,
threads and garbage, the delivery of signals to the server, and the messages to the service manager.
The server itself is `app`; an embedded server lives in another program's process.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from tradewind.options import ServerOptions
from tradewind.server.lifecycle.app import ServerApp
from tradewind.server.lifecycle.process_signals import ProcessSignals
from tradewind.server.lifecycle.service_manager import READY, STOPPING, tell_service_manager
from tradewind.server.monitoring.logs import Log

# The longest time that a thread running Python may block the event loop.
SWITCH_SECONDS = 0.0005
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)


def run_server(
    options: ServerOptions,
    log: Log,
    reload_options: Callable[[], ServerOptions],
    signals: ProcessSignals,
) -> int:
    """Run until a signal ends the server; returns the exit code of the process."""
    import uvloop

    from tradewind.server.lifecycle.garbage import (
        Collector,
        collect_only_what_is_new,
        name_collections,
    )
    from tradewind.server.lifecycle.heap import join_freed_memory_at_once

    async def serve() -> None:
        server = ServerApp(options, log, reload_options)
        asyncio.get_running_loop().set_exception_handler(server.loop_failed)
        name_collections(server.broker.watch)
        collector = Collector(asyncio.get_running_loop(), server.broker.watch)
        server.broker.let_go = collector.let_go

        def trapped(number: signal.Signals) -> None:
            if number in ENDING_SIGNALS:
                tell_service_manager(STOPPING)
            server.trapped(number)

        await server.start(lambda: signals.run(asyncio.get_running_loop(), trapped))
        collect_only_what_is_new()
        server.broker.watch.start()
        tell_service_manager(READY)
        await server.stopped.wait()
        collector.stop()
        signals.end()

    # A thread that reads a configuration releases the interpreter after this time, not after 5 ms.
    sys.setswitchinterval(SWITCH_SECONDS)
    raise_file_limit()
    join_freed_memory_at_once()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
    return 0


def raise_file_limit() -> None:
    """Raise the limit of open files to what the system permits."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
