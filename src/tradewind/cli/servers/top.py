"""`tradewind top`: shows the current activity of a server and its connections.

Owns the screen; the figures come from the server through the system account. On a terminal the
screen is redrawn continuously, in a pipe it is printed once.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated, Final

from tradewind.cli.frame.choices import OneOf
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.live import LiveScreen
from tradewind.cli.frame.output import Table, print_json
from tradewind.cli.frame.settings import connect, current
from tradewind.cli.frame.text_formats import (
    count_text,
    parse_duration_ns,
    short_duration_of,
    size_text,
)
from tradewind.cli.servers.system import Document, SystemRequests

app = CommandApp("Live view of a server's load")

_ORDERS: Final = ("cid", "start", "subs", "pending", "msgs_to", "msgs_from", "bytes_to")
_ORDERS_MORE: Final = ("bytes_from", "last", "idle", "uptime", "rtt")
SORTS: Final = _ORDERS + _ORDERS_MORE
CONNECTIONS_MAX: Final = 1024


@app.command()
def top(
    name: Annotated[str, Argument(help="Server name or ID")] = "",
    conns: Annotated[
        int,
        Option("--conns", min=1, max=CONNECTIONS_MAX, help="Number of connections to show"),
    ] = 30,
    delay: Annotated[str, Option("--delay", help="Refresh interval", metavar="DURATION")] = "1s",
    sort: Annotated[str, Option("--sort", help="Sort order", click_type=OneOf(*SORTS))] = "cid",
    count: Annotated[int, Option("--count", min=0, help="Stop after this many refreshes")] = 0,
    account: Annotated[str, Option("--account", help="Only this account")] = "",
    json: JsonFlag = False,
) -> None:
    """Show the load of a server and its connections, until Ctrl-C."""
    pause = parse_duration_ns(delay, "--delay") / 1e9
    options: Document = {"sort": sort, "limit": conns, "auth": True}
    if account:
        options["acc"] = account
    with suppress(KeyboardInterrupt), connect() as connection:
        system = SystemRequests(connection, current().timeout)
        if json:
            varz = system.ask_one(name, "VARZ")["data"]
            print_json({"varz": varz, "connz": system.ask_one(name, "CONNZ", options)["data"]})
            return
        with LiveScreen() as screen:
            rounds = count or (0 if screen.is_live else 1)
            _draw(system, screen, name, options, pause, rounds)


def _draw(
    system: SystemRequests,
    screen: LiveScreen,
    name: str,
    options: Document,
    pause: float,
    rounds: int,
) -> None:
    before: Document = {}
    before_at = drawn = 0.0
    while True:
        varz = system.ask_one(name, "VARZ")["data"]
        connz = system.ask_one(name, "CONNZ", options)["data"]
        now = time.monotonic()
        screen.show(make_screen(varz, connz, before, now - before_at if before else 0.0))
        before, before_at = varz, now
        drawn += 1
        if drawn == rounds:
            return
        time.sleep(pause)


def make_screen(varz: Document, connz: Document, before: Document, seconds: float) -> list[str]:
    """The lines of the screen; `before` are the figures of this many seconds ago."""

    def per_second(key: str) -> float:
        grown = int(varz.get(key, 0)) - int(before.get(key, 0))
        return grown / seconds if seconds > 0 else 0.0

    name, version = varz.get("server_name", ""), varz.get("version", "")
    cpu, memory = float(varz.get("cpu", 0)), size_text(int(varz.get("mem", 0)))
    slow = varz.get("slow_consumers", 0)
    uptime = short_duration_of(varz.get("uptime", ""))
    uptime = short_duration_of(varz.get("uptime", ""))
    lines = [
        f"NATS server {name} version {version} (uptime: {uptime})",
        "",
        f"  Load: CPU: {cpu:.1f}%   Memory: {memory}   Slow Consumers: {slow}",
    ]
    for label, side in (("In: ", "in"), ("Out:", "out")):
        messages, size = int(varz.get(f"{side}_msgs", 0)), int(varz.get(f"{side}_bytes", 0))
        lines.append(
            f"  {label}  Msgs: {count_text(messages)} ({per_second(f'{side}_msgs'):,.1f}/s)   "
            f"Bytes: {size_text(size)} "
            f"({size_text(round(max(per_second(f'{side}_bytes'), 0)))}/s)"
        )
    connections = connz.get("connections") or []
    lines += ["", f"Connections: {connz.get('total', len(connections))}", ""]
    headers = ("Host", "CID", "Name", "Account", "Subs", "Pending", "Msgs To", "Msgs From")
    table = Table(
        "",
        *(*headers, "Bytes To", "Bytes From", "Lang", "Version", "Uptime", "RTT"),
        shorten=("Name",),
        drop=("Version", "Lang", "Account", "RTT", "Bytes To", "Bytes From", "Uptime", "Pending"),
    )
    for each in connections:
        table.row(
            f"{each.get('ip', '')}:{each.get('port', '')}",
            int(each.get("cid", 0)),
            each.get("name", ""),
            each.get("account", ""),
            int(each.get("subscriptions", 0)),
            size_text(int(each.get("pending_bytes", 0))),
            int(each.get("out_msgs", 0)),
            int(each.get("in_msgs", 0)),
            size_text(int(each.get("out_bytes", 0))),
            size_text(int(each.get("in_bytes", 0))),
            each.get("lang", ""),
            each.get("version", ""),
            short_duration_of(each.get("uptime", "")),
            short_duration_of(each.get("rtt", "")),
        )
    lines += table.lines()
    return [*lines, hidden] if (hidden := table.hidden_text()) else lines
