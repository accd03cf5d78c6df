"""`nats-bench` as used in articles about the previews: publishers, subscribers and their rates.

Owns the distribution of messages over connections, and the output of results. It publishes without
acknowledgements; when it ends, the server has processed every message.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.settings import current
from tradewind.cli.frame.text_formats import count_text
from tradewind.cli.legacy.program import Arguments, ProgramFlags, run_program, say, si_bytes
from tradewind.cli.legacy.tools import start

if TYPE_CHECKING:
    from tradewind.client.connection import Connection

USAGE: Final = (
    "Usage: nats-bench [-s server] [-creds file] [-np publishers] [-ns subscribers] "
    "[-n messages] [-ms bytes] <subject>"
)
PUBLISHERS: Final = 1
MESSAGES: Final = 100_000
MESSAGE_BYTES: Final = 128
CLIENTS_MAX: Final = 10_000
SECONDS_MIN: Final = 1e-9
# The server lets publishers wait while its disk is busy, so the last ones may take long.
FLUSH_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class LegacyBenchPlan:
    """The numbers of publishers and subscribers, and of messages and their bytes."""

    subject: str
    publishers: int
    subscribers: int
    messages: int
    message_bytes: int

    def share(self, index: int) -> int:
        """How many messages one of the publishers sends; together they send all of them."""
        each, left = divmod(self.messages, self.publishers)
        return each + (index < left)


@dataclass(frozen=True, slots=True)
class BenchResult:
    """The messages that one connection handled, and the time they took."""

    messages: int
    seconds: float


def _plan(flags: ProgramFlags, subject: str) -> LegacyBenchPlan:
    plan = LegacyBenchPlan(
        subject,
        flags.number("np", PUBLISHERS),
        flags.number("ns", 0),
        flags.number("n", MESSAGES),
        flags.number("ms", MESSAGE_BYTES),
    )
    if plan.messages < 1:
        raise CommandError("-n 0: at least one message", exit_code=EXIT_USAGE)
    if not 1 <= plan.publishers <= CLIENTS_MAX or plan.subscribers > CLIENTS_MAX:
        raise CommandError(
            f"-np: 1 to {CLIENTS_MAX}, -ns: 0 to {CLIENTS_MAX}", exit_code=EXIT_USAGE
        )
    return plan


async def _publish(connection: Connection, plan: LegacyBenchPlan, messages: int) -> BenchResult:
    payload = b"x" * plan.message_bytes
    begin = time.perf_counter()
    for _ in range(messages):
        await connection.publish(plan.subject, payload)
    await connection.flush(FLUSH_SECONDS)
    return BenchResult(messages, time.perf_counter() - begin)


async def _receive(
    connection: Connection, plan: LegacyBenchPlan, ready: asyncio.Event
) -> BenchResult:
    subscription = await connection.subscribe(plan.subject, max_msgs=plan.messages)
    await connection.flush()
    ready.set()
    received = 0
    begin = time.perf_counter()
    async for _ in subscription:
        begin = begin if received else time.perf_counter()
        received += 1
    return BenchResult(received, time.perf_counter() - begin)


async def _run(plan: LegacyBenchPlan) -> tuple[list[BenchResult], list[BenchResult]]:
    """The results of publishers and of subscribers."""
    import contextlib

    import tradewind

    settings = current()
    async with contextlib.AsyncExitStack() as stack:

        async def connect() -> Connection:
            connection = await tradewind.connect(
                settings.text("server") or None,
                context=settings.context,
                **settings.connect_settings(),
            )
            return await stack.enter_async_context(connection)

        readies = [asyncio.Event() for _ in range(plan.subscribers)]
        receivers = [
            asyncio.ensure_future(_receive(await connect(), plan, ready)) for ready in readies
        ]
        for ready in readies:
            await ready.wait()
        connections = [await connect() for _ in range(plan.publishers)]
        published = await asyncio.gather(
            *(
                _publish(connection, plan, plan.share(index))
                for index, connection in enumerate(connections)
            )
        )
        return published, [await receiver for receiver in receivers]


def _rate(messages: int, seconds: float, plan: LegacyBenchPlan) -> str:
    per_second = messages / max(seconds, SECONDS_MIN)
    size = si_bytes(int(per_second * plan.message_bytes))
    return f"{count_text(int(per_second))} msgs/sec ~ {size}/sec"


def _report(title: str, results: list[BenchResult], plan: LegacyBenchPlan) -> None:
    if not results:
        return
    messages = sum(result.messages for result in results)
    say(f"{title} stats: {_rate(messages, max(r.seconds for r in results), plan)}")
    if len(results) > 1:
        for number, result in enumerate(results, 1):
            rate = _rate(result.messages, result.seconds, plan)
            say(f" [{number}] {rate} ({count_text(result.messages)} msgs)")


def _bench(arguments: Arguments) -> int:
    flags, words = start(arguments, ("np", "ns", "n", "ms"), USAGE, 1)
    if not words:
        return 0
    plan = _plan(flags, words[0])
    say(
        f"Starting benchmark [msgs={plan.messages}, msgsize={plan.message_bytes}, "
        f"pubs={plan.publishers}, subs={plan.subscribers}]"
    )
    published, received = asyncio.run(_run(plan))
    _report("Pub", published, plan)
    _report("Sub", received, plan)
    return 0


def main() -> int:
    """The executable `nats-bench`."""
    return run_program("nats-bench", _bench)
