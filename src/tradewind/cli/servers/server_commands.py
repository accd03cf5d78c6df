"""`tradewind server`: shows the servers of a system, through the system account.

Owns the overview commands; reports, requests, checks and running a server are in other modules.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

from tradewind.api.times import parse_time
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.histogram import Histogram
from tradewind.cli.frame.output import Columns, Table, line, print_json
from tradewind.cli.frame.settings import connect, current
from tradewind.cli.frame.text_formats import count_text, short_duration, size_text, time_text
from tradewind.cli.servers.server_check import app as check_app
from tradewind.cli.servers.server_generate import generate as generate_configuration
from tradewind.cli.servers.server_report import app as report_app
from tradewind.cli.servers.server_request import app as request_app
from tradewind.cli.servers.server_run import run as run_server
from tradewind.cli.servers.system import Document, Statistics, SystemRequests
from tradewind.durations import format_duration

if TYPE_CHECKING:
    from tradewind.sync import Connection

app = CommandApp("Run, monitor and check servers")
app.add("check", check_app)
app.add("report", report_app, aliases=("rep",))
app.add("request", request_app, aliases=("req",))
app.command("run")(run_server)
app.command("generate", aliases=("gen",))(generate_configuration)

ExpectArgument = Annotated[int, Argument(min=0, help="Number of servers expected to reply")]

_ORDERS: Final[dict[str, Callable[[Statistics], Any]]] = {
    "rtt": lambda each: each.rtt_ns,
    "name": lambda each: each.name,
    "cluster": lambda each: (each.server.get("cluster", ""), each.name),
    "conns": lambda each: -int(each.stats.get("connections", 0)),
    "subs": lambda each: -int(each.stats.get("subscriptions", 0)),
    "routes": lambda each: (-len(each.stats.get("routes") or ()), each.name),
    "gws": lambda each: (-len(each.stats.get("gateways") or ()), each.name),
    "mem": lambda each: -int(each.stats.get("mem", 0)),
    "cpu": lambda each: -float(each.stats.get("cpu", 0)),
    "slow": lambda each: -int(each.stats.get("slow_consumers", 0)),
    "uptime": lambda each: str(each.stats.get("start", "")),
}


def system(connection: Connection) -> SystemRequests:
    """Questions by the system account, as patient as the flags say."""
    return SystemRequests(connection, current().timeout)


@app.command("list", aliases=("ls",))
def list_servers(
    expect: ExpectArgument = 0,
    sort: Annotated[str, Option("--sort", help=f"By {', '.join(_ORDERS)}")] = "rtt",
    reverse: Annotated[bool, Option("--reverse", "-R", help="Reverse the order")] = False,
    json: JsonFlag = False,
) -> int:
    """List servers with their load; exit code 1 if fewer than expected reply."""
    if sort not in _ORDERS:
        raise CommandError(
            f"--sort: one of {', '.join(_ORDERS)}, not {sort!r}", exit_code=EXIT_USAGE
        )
    with connect() as connection:
        found = system(connection).ping(expect)
    found.sort(key=_ORDERS[sort], reverse=reverse)
    if json:
        print_json([{"server": each.server, "statsz": each.stats} for each in found])
    else:
        show_servers(found)
    return _missing(expect, len(found))


@app.command("ping")
def ping(
    expect: ExpectArgument = 0,
    show_id: Annotated[bool, Option("--id", help="Show server IDs")] = False,
    graph: Annotated[bool, Option("--graph", help="Show a histogram of the times")] = False,
    json: JsonFlag = False,
) -> int:
    """Ping all servers; exit code 1 if fewer than expected reply."""
    with connect() as connection:
        found = system(connection).ping(expect)
    times = Histogram()
    for each in found:
        times.add(each.rtt_ns)
    if json:
        servers = [{"name": e.name, "id": e.id, "rtt_ns": e.rtt_ns} for e in found]
        print_json({"servers": servers, "rtt": times.as_dict()})
        return _missing(expect, len(found))
    for each in found:
        mark = f"{each.id} " if show_id else ""
        line(f"{mark}{each.name:<60} rtt={format_duration(each.rtt_ns // 1000 * 1000)}")
    line("\n---- ping statistics ----")
    line(
        f"{len(found)} replies max: {short_duration(times.max_ns)} "
        f"min: {short_duration(times.min_ns)} avg: {short_duration(round(times.mean_ns))}"
    )
    if graph:
        line()
        for text in times.lines():
            line(text)
    return _missing(expect, len(found))


@app.command("info", aliases=("i",))
def info(
    server: Annotated[str, Argument(help="Server name or ID; default: the connected one")] = "",
    json: JsonFlag = False,
) -> None:
    """Show everything about one server."""
    with connect() as connection:
        answer = system(connection).ask_one(server, "VARZ")
    if json:
        print_json(answer["data"])
    else:
        _show_info(answer["data"])


# ------------------------------------------------------------------ inside


def _missing(expect: int, count: int) -> int:
    if count >= expect:
        return 0
    line(f"\nMissing {expect - count} server(s)")
    return 1


def show_servers(found: list[Statistics]) -> None:
    """The servers as a table, with their sums."""
    first = ("Name", "Cluster", "Host", "Version", "JS", "Conns", "Subs", "Routes", "GWs")
    more = ("Mem", "CPU %", "Cores", "Slow", "Uptime", "RTT")
    drop = ("GWs", "Routes", "Cores", "Cluster", "Slow", "Host", "RTT", "Subs", "Version", "Uptime")
    table = Table("Server Overview", *first, *more, drop=drop)
    totals = dict.fromkeys(("connections", "subscriptions", "mem", "slow_consumers"), 0)
    for each in found:
        server, stats = each.server, each.stats
        for key in totals:
            totals[key] += int(stats.get(key, 0))
        table.row(
            each.name,
            server.get("cluster", ""),
            server.get("host", ""),
            server.get("ver", ""),
            (server.get("domain") or "yes") if server.get("jetstream") else "no",
            int(stats.get("connections", 0)),
            int(stats.get("subscriptions", 0)),
            len(stats.get("routes") or ()),
            len(stats.get("gateways") or ()),
            size_text(int(stats.get("mem", 0))),
            f"{float(stats.get('cpu', 0)):.0f}",
            int(stats.get("cores", 0)),
            int(stats.get("slow_consumers", 0)),
            _uptime(stats.get("start")),
            short_duration(each.rtt_ns),
        )
    clusters = {each.server.get("cluster") for each in found} - {None, ""}
    table.footer = (
        *("", len(clusters), len(found), ""),
        sum(bool(each.server.get("jetstream")) for each in found),
        *(totals["connections"], totals["subscriptions"], "", "", size_text(totals["mem"])),
        *("", "", totals["slow_consumers"], "", ""),
    )
    table.print()


def _uptime(start: str | None) -> str:
    return short_duration(max(time.time_ns() - parse_time(start), 0)) if start else ""


def _show_info(varz: Document) -> None:
    name, server_id = varz.get("server_name", ""), varz.get("server_id", "")
    title = server_id if name == server_id else f"{name} ({server_id})"
    columns = Columns(f"Server information for {title}")
    columns.section("Process Details")
    columns.row("Version", varz.get("version", ""))
    columns.row_if("Tradewind Version", varz.get("tradewind_version"))
    columns.row_if("Git Commit", varz.get("git_commit"))
    columns.row("Runtime", varz.get("go", ""))
    columns.row("Start Time", time_text(varz.get("start")))
    columns.row("Uptime", varz.get("uptime", ""))
    columns.section("Connection Details")
    columns.row("Auth Required", bool(varz.get("auth_required")))
    columns.row("TLS Required", bool(varz.get("tls_required")))
    columns.row("Host", f"{varz.get('host', '')}:{varz.get('port', '')}")
    columns.row_if("Client URLs", "\n".join(varz.get("connect_urls") or ()))
    columns.row_if("WebSocket URLs", "\n".join(varz.get("ws_connect_urls") or ()))
    _show_jetstream(columns, varz.get("jetstream") or {})
    columns.section("Limits")
    columns.row("Max Conn", int(varz.get("max_connections", 0)))
    columns.row("Max Subs", int(varz.get("max_subscriptions", 0)))
    columns.row("Max Payload", size_text(int(varz.get("max_payload", 0))))
    columns.row("TLS Timeout", f"{varz.get('tls_timeout', 0)}s")
    columns.row("Write Deadline", format_duration(int(varz.get("write_deadline", 0))))
    columns.section("Statistics")
    columns.row("CPU Cores", f"{varz.get('cores', 0)} {float(varz.get('cpu', 0)):.2f}%")
    columns.row("Memory", size_text(int(varz.get("mem", 0))))
    columns.row("Connections", int(varz.get("connections", 0)))
    columns.row("Subscriptions", int(varz.get("subscriptions", 0)))
    columns.row("Messages", _in_out(varz, "msgs", count_text))
    columns.row("Bytes", _in_out(varz, "bytes", size_text))
    columns.row("Slow Consumers", int(varz.get("slow_consumers", 0)))
    cluster = varz.get("cluster") or {}
    if cluster.get("urls"):
        columns.section("Cluster")
        columns.row("Name", cluster.get("name", ""))
        columns.row_if("Tags", varz.get("tags"))
        columns.row("Host", f"{cluster.get('addr', '')}:{cluster.get('cluster_port', '')}")
        columns.row("URLs", "\n".join(cluster["urls"]))
    columns.print()


def _show_jetstream(columns: Columns, jetstream: Document) -> None:
    config, stats = jetstream.get("config") or {}, jetstream.get("stats") or {}
    if not config.get("store_dir"):
        return
    api = stats.get("api") or {}
    columns.section("JetStream")
    columns.row_if("Domain", config.get("domain"))
    columns.row("Storage Directory", config["store_dir"])
    columns.row("Max Memory", size_text(int(config.get("max_memory", 0))))
    columns.row("Max File", size_text(int(config.get("max_storage", 0))))
    columns.row("Active Accounts", int(stats.get("accounts", 0)))
    columns.row("Memory In Use", size_text(int(stats.get("memory", 0))))
    columns.row("File In Use", size_text(int(stats.get("storage", 0))))
    columns.row("API Requests", int(api.get("total", 0)))
    columns.row("API Errors", int(api.get("errors", 0)))


def _in_out(varz: Document, what: str, text: Callable[[int], str]) -> str:
    return f"{text(int(varz.get(f'in_{what}', 0)))} in {text(int(varz.get(f'out_{what}', 0)))} out"
