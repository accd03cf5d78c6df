"""`tradewind server report`: tables over all servers.

Owns the totals and the sorting; the figures come from the servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.output import Table, line, print_json, styled
from tradewind.cli.frame.settings import connect, current
from tradewind.cli.frame.text_formats import short_duration_of, size_text
from tradewind.cli.servers.system import Document, SystemRequests

app = CommandApp("Reports over all servers")

PAGE: Final = 1024
CONNECTIONS_MAX: Final = 100_000
_BAR_WIDTH: Final = 40

LimitArgument = Annotated[int, Argument(min=0, help="Number of rows; 0 for all")]
AccountFlag = Annotated[str, Option("--account", help="Only this account")]
ReverseFlag = Annotated[bool, Option("--reverse", "-R", help="Reverse the order")]

_CONNECTION_ORDERS: Final = {
    "in-bytes": "in_bytes",
    "out-bytes": "out_bytes",
    "in-msgs": "in_msgs",
    "out-msgs": "out_msgs",
    "subs": "subscriptions",
    "cid": "cid",
    "uptime": "start",
}
_ACCOUNT_ORDERS: Final = {
    "in-bytes": "in_bytes",
    "out-bytes": "out_bytes",
    "in-msgs": "in_msgs",
    "out-msgs": "out_msgs",
    "subs": "subscriptions",
    "conns": "connections",
}


def _order(orders: dict[str, str], name: str) -> str:
    if name not in orders:
        raise CommandError(
            f"--sort: one of {', '.join(orders)}, not {name!r}", exit_code=EXIT_USAGE
        )
    return orders[name]


def _connections(system: SystemRequests, account: str) -> Iterator[Document]:
    """All connections of all servers, each with the name and cluster of its server."""
    found = 0
    for each in system.ping():
        offset, total = 0, 1
        while offset < total and found < CONNECTIONS_MAX:
            options: Document = {"auth": True, "limit": PAGE, "offset": offset}
            if account:
                options["acc"] = account
            data = system.ask_one(each.id, "CONNZ", options)["data"]
            page = data.get("connections") or []
            total = int(data.get("total", 0))
            offset += PAGE
            found += len(page)
            for connection in page:
                yield {
                    **connection,
                    "server": each.name,
                    "cluster": each.server.get("cluster", ""),
                }


def _system(connection: Any) -> SystemRequests:
    return SystemRequests(connection, current().timeout)


@app.command("connections", aliases=("conn", "connz", "conns"))
def connections(
    limit: LimitArgument = 0,
    account: AccountFlag = "",
    sort: Annotated[str, Option("--sort", help=f"By {', '.join(_CONNECTION_ORDERS)}")] = "subs",
    reverse: ReverseFlag = False,
    json: JsonFlag = False,
) -> None:
    """Show the busiest connections."""
    key = _order(_CONNECTION_ORDERS, sort)
    with connect() as connection:
        found = list(_connections(_system(connection), account))
    found.sort(key=lambda each: (each.get(key, 0), each.get("cid", 0)), reverse=not reverse)
    shown = found[:limit] if limit else found
    if json:
        print_json(shown)
        return
    first = ("CID", "Name", "Server", "Cluster", "IP", "Account", "Uptime")
    more = ("In Msgs", "Out Msgs", "In Bytes", "Out Bytes", "Subs")
    title = f"Top {len(shown)} Connections out of {len(found)} by {sort}"
    drop = ("Cluster", "Server", "In Bytes", "Out Bytes", "Uptime", "Account", "IP")
    table = Table(title, *first, *more, shorten=("Name",), drop=drop)
    for each in shown:
        table.row(
            int(each.get("cid", 0)),
            each.get("name", ""),
            each["server"],
            each["cluster"],
            f"{each.get('ip', '')}:{each.get('port', '')}",
            each.get("account", ""),
            short_duration_of(each.get("uptime", "")),
            int(each.get("in_msgs", 0)),
            int(each.get("out_msgs", 0)),
            size_text(int(each.get("in_bytes", 0))),
            size_text(int(each.get("out_bytes", 0))),
            int(each.get("subscriptions", 0)),
        )
    table.print()


@app.command("accounts", aliases=("acct", "account"))
def accounts(
    limit: LimitArgument = 0,
    account: AccountFlag = "",
    sort: Annotated[str, Option("--sort", help=f"By {', '.join(_ACCOUNT_ORDERS)}")] = "conns",
    reverse: ReverseFlag = False,
    json: JsonFlag = False,
) -> None:
    """Show accounts with their connections and traffic."""
    key = _order(_ACCOUNT_ORDERS, sort)
    with connect() as connection:
        found = list(_connections(_system(connection), account))
    sums: dict[str, Document] = {}
    for each in found:
        name = each.get("account", "")
        entry = sums.setdefault(name, {"account": name, "connections": 0})
        entry["connections"] += 1
        for counter in ("in_msgs", "out_msgs", "in_bytes", "out_bytes", "subscriptions"):
            entry[counter] = entry.get(counter, 0) + int(each.get(counter, 0))
    rows = sorted(sums.values(), key=lambda e: (e[key], e["account"]), reverse=not reverse)
    rows = rows[:limit] if limit else rows
    if json:
        print_json(rows)
        return
    headers = ("Account", "Connections", "In Msgs", "Out Msgs", "In Bytes", "Out Bytes", "Subs")
    drop = ("Subs", "In Bytes", "Out Bytes")
    table = Table(f"{len(rows)} Accounts Overview", *headers, drop=drop)
    for each in rows:
        table.row(
            *(each["account"], each["connections"], each["in_msgs"], each["out_msgs"]),
            *(size_text(each["in_bytes"]), size_text(each["out_bytes"]), each["subscriptions"]),
        )
    table.print()


@app.command("jetstream", aliases=("js", "jsz"))
def jetstream(account: AccountFlag = "", json: JsonFlag = False) -> None:
    """Show the JetStream usage of each server."""
    with connect() as connection:
        answers = _system(connection).ask("JSZ", {"account": account} if account else {})
    answers.sort(key=lambda each: str(each["server"].get("name", "")))
    if json:
        print_json(answers)
        return
    first = ("Server", "Cluster", "Streams", "Consumers", "Messages", "Bytes")
    more = ("Memory", "File", "API Req", "API Err")
    drop = ("Cluster", "Memory", "API Req", "File", "API Err", "Consumers")
    table = Table("JetStream Summary", *first, *more, drop=drop)
    for each in answers:
        data, server = each.get("data") or {}, each["server"]
        api = data.get("api") or {}
        table.row(
            server.get("name", ""),
            server.get("cluster", ""),
            int(data.get("streams", 0)),
            int(data.get("consumers", 0)),
            int(data.get("messages", 0)),
            size_text(int(data.get("bytes", 0))),
            size_text(int(data.get("memory", 0))),
            size_text(int(data.get("storage", 0))),
            int(api.get("total", 0)),
            int(api.get("errors", 0)),
        )
    table.print()


@app.command("cpu")
def cpu(json: JsonFlag = False) -> None:
    """Show the CPU usage of servers."""
    _bars("CPU Usage per server", "cpu", lambda value: f"{value:.1f}%", as_json=json)


@app.command("mem")
def memory(json: JsonFlag = False) -> None:
    """Show the memory usage of servers."""
    _bars("Memory Usage per server", "mem", lambda value: size_text(int(value)), as_json=json)


def _bars(title: str, key: str, text: Any, *, as_json: bool) -> None:
    with connect() as connection:
        found = _system(connection).ping()
    values = {each.name: float(each.stats.get(key, 0)) for each in found}
    if as_json:
        print_json(values)
        return
    line(f"{title}\n")
    highest = max(values.values()) or 1.0
    width = max(len(name) for name in values)
    for name, value in sorted(values.items(), key=lambda item: -item[1]):
        bar = "█" * round(value / highest * _BAR_WIDTH)
        line(f"{name:>{width + 2}}: {bar} ({text(value)})")


@app.command("health")
def health(account: AccountFlag = "", json: JsonFlag = False) -> int:
    """Show the health of servers; exit code 1 if one is unhealthy."""
    options = {"details": True} | ({"account": account} if account else {})
    with connect() as connection:
        answers = _system(connection).ask("HEALTHZ", options)
    answers.sort(key=lambda each: str(each["server"].get("name", "")))
    bad = [each for each in answers if (each.get("data") or {}).get("status") != "ok"]
    if json:
        print_json(answers)
        return 1 if bad else 0
    table = Table(
        "Health Report",
        *("Server", "Cluster", "Domain", "Status", "Error"),
        shorten=("Error",),
        drop=("Domain", "Cluster"),
    )
    for each in answers:
        data, server = each.get("data") or {}, each["server"]
        status = str(data.get("status", "unknown"))
        problems = [str(item.get("error", item)) for item in data.get("errors") or ()]
        table.row(
            server.get("name", ""),
            server.get("cluster", ""),
            server.get("domain", ""),
            styled(status, "green" if status == "ok" else "red"),
            str(data.get("error", "")) or "; ".join(problems),
        )
    table.print()
    return 1 if bad else 0


@app.command("routes", aliases=("route",))
def routes(json: JsonFlag = False) -> None:
    """Show routes between servers."""
    with connect() as connection:
        answers = _system(connection).ask("ROUTEZ")
    if json:
        print_json(answers)
        return
    table = Table(
        "Route Report",
        *("Server", "Name", "Remote", "IP", "In Msgs", "Out Msgs", "RTT"),
        drop=("Remote", "RTT"),
    )
    for each in answers:
        for route in (each.get("data") or {}).get("routes") or ():
            table.row(
                each["server"].get("name", ""),
                route.get("remote_name", ""),
                route.get("remote_id", ""),
                f"{route.get('ip', '')}:{route.get('port', '')}",
                int(route.get("in_msgs", 0)),
                int(route.get("out_msgs", 0)),
                short_duration_of(route.get("rtt", "")),
            )
    if table.rows:
        table.print()
    else:
        line("No routes")
