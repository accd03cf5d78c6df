"""`tradewind rtt` and `tradewind latency`: measure the round-trip time to servers.

Owns the measurement and its output.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from tradewind.cli.frame.command_loop import connect_async, run_async
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.histogram import Histogram
from tradewind.cli.frame.output import Columns, line, note, print_json
from tradewind.cli.frame.progress_bar import ProgressBar
from tradewind.cli.frame.settings import current
from tradewind.cli.frame.text_formats import (
    parse_duration_ns,
    parse_size,
    short_duration,
    size_text,
)
from tradewind.client.core.addresses import parse_servers
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.client.core.contexts import load_context
from tradewind.errors import TradewindError
from tradewind.own_addresses import address_text

if TYPE_CHECKING:
    from tradewind.client.connection import Connection
    from tradewind.client.core.message import Msg

rtt_app = CommandApp("Measure round-trip times to servers")
latency_app = CommandApp("Measure message latency between two connections")

ITERATIONS_MAX: Final = 100_000
TIME_BYTES: Final = 8
_MEASURES_MAX: Final = 10_000_000


# ------------------------------------------------------------------ rtt


@dataclass(slots=True)
class Target:
    """A server of the list, and what each of its addresses takes; None where it failed."""

    url: str
    results: list[tuple[str, int | None, str]] = field(default_factory=list)


@rtt_app.command()
def rtt(
    iterations: Annotated[int, Argument(min=1, help="Round trips per server")] = 5,
    json: JsonFlag = False,
) -> int:
    """Measure round-trip times to all servers; exit code 1 if one fails."""
    if not 1 <= iterations <= ITERATIONS_MAX:
        raise CommandError(f"iterations: 1 to {ITERATIONS_MAX:,}", exit_code=EXIT_USAGE)
    targets = run_async(_measure_all(iterations))
    if json:
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        print_json([_document(target, at) for target in targets])
    else:
        width = max(len(address) for target in targets for address, _, _ in target.results) + 3
        for target in targets:
            line(f"{target.url}:\n")
            for address, took_ns, problem in target.results:
                shown = f"failed: {problem}" if took_ns is None else short_duration(took_ns)
                line(f"{address:>{width}}: {shown}")
            line()
    failed = any(took is None for target in targets for _, took, _ in target.results)
    return 1 if failed else 0


def _document(target: Target, at: str) -> dict[str, Any]:
    results = [
        {"time": at, "address": address, "rtt": took or 0, **({"error": why} if why else {})}
        for address, took, why in target.results
    ]
    return {"url": target.url, "results": results}


def _servers() -> str:
    """The urls of the servers that a connection would be made to."""
    shared = current()
    if given := shared.servers:
        return given
    options = ConnectOptions() if shared.context is None else load_context(shared.context)
    return options.servers if isinstance(options.servers, str) else ",".join(options.servers)


async def _measure_all(iterations: int) -> list[Target]:
    targets = []
    for address in parse_servers(_servers()):
        target = Target(f"{address.scheme}://{address_text(address.host, address.port)}")
        login = f"{address.user}:{address.password}@" if address.password else ""
        login = login or (f"{address.user}@" if address.user else "")
        for host in await _resolve(address.host, address.port):
            shown = f"{address.scheme}://{address_text(host, address.port)}"
            url = shown.replace("://", f"://{login}", 1)
            name = "" if host == address.host else address.host
            took, why = await _measure(url, name, iterations)
            target.results.append((shown, took, why))
        targets.append(target)
    return targets


async def _resolve(host: str, port: int) -> list[str]:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return [host]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return [host]
    return list(dict.fromkeys(str(each[4][0]) for each in found))


async def _measure(url: str, tls_name: str, iterations: int) -> tuple[int | None, str]:
    """The mean of some round trips in nanoseconds; None and the reason if it fails."""
    try:
        async with await connect_async(url, tls_hostname=tls_name, reconnect=False) as connection:
            total = 0.0
            for _ in range(iterations):
                total += await connection.rtt()
    except TradewindError as error:
        return None, str(error)
    return round(total / iterations * 1e9), ""


# ------------------------------------------------------------------ latency


@latency_app.command()
def latency(
    server_b: Annotated[
        str,
        Option(
            "--server-b", help="Receive on this server; default: the same server", metavar="URL"
        ),
    ] = "",
    size: Annotated[str, Option("--size", help="Message size", metavar="BYTES")] = "8",
    rate: Annotated[int, Option("--rate", min=0, help="Messages per second")] = 1000,
    duration: Annotated[
        str, Option("--duration", help="Duration of the measurement", metavar="DURATION")
    ] = "5s",
    histogram: Annotated[
        str, Option("--histogram", help="Write all measurements to this file", metavar="FILE")
    ] = "",
    json: JsonFlag = False,
) -> None:
    """Measure message latency between two connections."""
    size_bytes = parse_size(size, "--size")
    seconds = parse_duration_ns(duration, "--duration") / 1e9
    if size_bytes < TIME_BYTES:
        raise CommandError(f"--size: at least {TIME_BYTES} bytes", exit_code=EXIT_USAGE)
    if rate < 1 or seconds <= 0 or rate * seconds > _MEASURES_MAX:
        raise CommandError(
            f"--rate and --duration: 1 to {_MEASURES_MAX:,} messages in all", exit_code=EXIT_USAGE
        )
    run_async(_latency(server_b, size_bytes, rate, seconds, histogram, as_json=json))


@dataclass(slots=True)
class Transit:
    """Messages on their way: when each was sent is in its first bytes."""

    size_bytes: int
    count: int
    times: Histogram = field(default_factory=Histogram)
    raw: list[int] = field(default_factory=list)
    all_here: asyncio.Event = field(default_factory=asyncio.Event)

    def receive(self, message: Msg) -> None:
        """A message has come."""
        took_ns = time.perf_counter_ns() - int.from_bytes(message.data[:TIME_BYTES], "little")
        self.times.add(took_ns)
        self.raw.append(took_ns)
        if self.times.count == self.count:
            self.all_here.set()

    async def send(self, connection: Connection, subject: str, rate: int, bar: ProgressBar) -> None:
        """Send all messages at a pace."""
        rest = bytes(self.size_bytes - TIME_BYTES)
        began = time.perf_counter()
        for number in range(self.count):
            wait = began + number / rate - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            now = time.perf_counter_ns().to_bytes(TIME_BYTES, "little")
            await connection.publish(subject, now + rest)
            bar.set(number)
        await connection.flush()


async def _latency(
    server_b: str, size_bytes: int, rate: int, seconds: float, file: str, *, as_json: bool
) -> None:
    transit = Transit(size_bytes, max(round(rate * seconds), 1))
    async with await connect_async() as sender, await connect_async(server_b) as receiver:
        rtts = [round(await each.rtt() * 1e9) for each in (sender, receiver)]
        subject = receiver.new_inbox()
        await receiver.subscribe(subject, callback=transit.receive)
        await receiver.flush()
        if sender.info.server_id != receiver.info.server_id:
            await _wait_for_route(sender, receiver)
        note(f"Sending {transit.count:,} messages of {size_bytes} bytes, {rate:,} a second")
        began = time.perf_counter()
        with ProgressBar("Measuring", transit.count, shown=not as_json) as bar:
            await transit.send(sender, subject, rate, bar)
            await _wait_for_all(transit)
        took = time.perf_counter() - began
    if file:
        text = "".join(f"{each / 1e6:f}\n" for each in transit.raw)
        await asyncio.to_thread(Path(file).write_text, text)
    _show_latency(transit, rtts, took, as_json=as_json)


async def _wait_for_all(transit: Transit) -> None:
    try:
        async with asyncio.timeout(current().timeout):
            await transit.all_here.wait()
    except TimeoutError:
        lost = transit.count - transit.times.count
        raise CommandError(
            f"{lost:,} of {transit.count:,} messages did not arrive", "try a lower --rate"
        ) from None


async def _wait_for_route(sender: Connection, receiver: Connection) -> None:
    """Two servers need a moment until one knows who listens at the other."""
    probe = await receiver.subscribe(receiver.new_inbox())
    await receiver.flush()
    for _ in range(100):
        await sender.publish(probe.subject)
        await sender.flush()
        try:
            await probe.next(timeout=0.1)
        except TimeoutError:
            continue
        return
    raise CommandError("--server-b: messages sent to the first server do not arrive there")


def _show_latency(transit: Transit, rtts: list[int], took: float, *, as_json: bool) -> None:
    times = transit.times
    per_second = transit.count / took
    if as_json:
        document = {"messages": transit.count, "messages_per_second": round(per_second, 1)}
        sides = {"publisher_rtt_ns": rtts[0], "subscriber_rtt_ns": rtts[1]}
        print_json({**document, **sides, "latency": times.as_dict()})
        return
    columns = Columns()
    columns.row("Pub Server RTT", short_duration(rtts[0]))
    columns.row("Sub Server RTT", short_duration(rtts[1]))
    columns.row("Message Payload", size_text(transit.size_bytes))
    columns.row("Actual Msgs/Sec", round(per_second))
    columns.row("Actual Band/Sec", size_text(round(per_second * transit.size_bytes * 2)))
    columns.section("Percentiles")
    for percent in (10, 50, 75, 90, 99, 99.9, 99.99, 100):
        columns.row(f"{percent:g}", short_duration(times.percentile_ns(percent)))
    columns.print()
    for text in times.lines():
        line(text)
