"""`tradewind server request`: prints the monitoring data of servers unchanged.

Owns the flags of each request; the responses are printed as JSON, one per server.
"""

from __future__ import annotations

from typing import Annotated, Any

from tradewind.cli.frame.choices import OneOf
from tradewind.cli.frame.frame import Argument, CommandApp, Option
from tradewind.cli.frame.output import print_json
from tradewind.cli.frame.settings import connect, current
from tradewind.cli.servers.system import SystemRequests

app = CommandApp("Request monitoring data from servers as JSON")

NameFlag = Annotated[str, Option("--name", help="Only the server with this name or ID")]
AccountFlag = Annotated[str, Option("--account", help="Only this account")]
DetailFlag = Annotated[bool, Option("--detail", help="Include subscriptions")]


def _request(endpoint: str, name: str, **options: Any) -> None:
    """Ask one server or all, and print what they answer."""
    wanted = {key: value for key, value in options.items() if value}
    with connect() as connection:
        system = SystemRequests(connection, current().timeout)
        if name:
            print_json(system.ask_one(name, endpoint, wanted))
            return
        for answer in system.ask(endpoint, wanted):
            print_json(answer)


@app.command("variables", aliases=("vars", "varz"))
def variables(name: NameFlag = "") -> None:
    """Request general server information (varz)."""
    _request("VARZ", name)


@app.command("connections", aliases=("conns", "connz"))
def connections(
    name: NameFlag = "",
    account: Annotated[str, Option("--filter-account", help="Filter by account")] = "",
    user: Annotated[str, Option("--filter-user", help="Filter by user")] = "",
    state: Annotated[
        str,
        Option(
            "--filter-state",
            help="Connection state",
            click_type=OneOf("open", "closed", "all", also={"any": "all"}),
        ),
    ] = "open",
    subject: Annotated[str, Option("--filter-subject", help="Filter by subscribed subject")] = "",
    cid: Annotated[int, Option("--filter-cid", min=0, help="Filter by connection ID")] = 0,
    sort: Annotated[str, Option("--sort", help="Sort by this property")] = "",
    subscriptions: Annotated[bool, Option("--subscriptions", help="Include subjects")] = False,
    limit: Annotated[int, Option("--limit", min=0, help="Maximum number of results")] = 0,
) -> None:
    """Request connections (connz)."""
    states = {"open": 0, "closed": 1, "all": 2}
    _request(
        "CONNZ",
        name,
        acc=account,
        user=user,
        state=states[state],
        filter_subject=subject,
        cid=cid,
        sort=sort,
        subscriptions=subscriptions,
        limit=limit,
        auth=True,
    )


@app.command("subscriptions", aliases=("sub", "subs", "subsz"))
def subscriptions(
    name: NameFlag = "",
    detail: DetailFlag = False,
    account: Annotated[str, Option("--filter-account", help="Filter by account")] = "",
    test: Annotated[str, Option("--test", help="Only subscriptions that match this subject")] = "",
) -> None:
    """Request subscriptions (subsz)."""
    _request("SUBSZ", name, subscriptions=detail, account=account, test=test)


@app.command("jetstream", aliases=("js", "jsz"))
def jetstream(
    name: NameFlag = "",
    account: AccountFlag = "",
    streams: Annotated[bool, Option("--streams", help="Include streams")] = False,
    consumers: Annotated[
        bool, Option("--consumers", "--consumer", help="Include consumers")
    ] = False,
    config: Annotated[bool, Option("--config", help="Include configuration")] = False,
    everything: Annotated[bool, Option("--all", help="Include all details")] = False,
    accounts: Annotated[bool, Option("--accounts", help="Include accounts")] = False,
) -> None:
    """Request JetStream details (jsz)."""
    _request(
        "JSZ",
        name,
        account=account,
        accounts=accounts or streams or consumers or everything,
        streams=streams or consumers or everything,
        consumer=consumers or everything,
        config=config or everything,
    )


@app.command("jetstream-health", aliases=("health", "healthz"))
def health(
    name: NameFlag = "",
    account: AccountFlag = "",
    stream: Annotated[str, Option("--stream", help="Only this stream")] = "",
    consumer: Annotated[str, Option("--consumer", help="Only this consumer")] = "",
    js_enabled: Annotated[
        bool, Option("--js-enabled", help="Check only that JetStream is enabled")
    ] = False,
    server_only: Annotated[
        bool, Option("--server-only", help="Skip streams and consumers")
    ] = False,
    details: Annotated[bool, Option("--details", help="Include all problems")] = False,
) -> None:
    """Request health status (healthz)."""
    options = {"js-enabled-only": js_enabled, "js-server-only": server_only, "details": details}
    _request("HEALTHZ", name, account=account, stream=stream, consumer=consumer, **options)


@app.command("accounts", aliases=("account", "acct", "accountz"))
def accounts(name: NameFlag = "", account: AccountFlag = "") -> None:
    """Request accounts (accountz)."""
    _request("ACCOUNTZ", name, account=account)


@app.command("routes", aliases=("route", "routez"))
def routes(name: NameFlag = "", detail: DetailFlag = False) -> None:
    """Request routes (routez)."""
    _request("ROUTEZ", name, subscriptions=detail)


@app.command("gateways", aliases=("gateway", "gw", "gatewayz"))
def gateways(name: NameFlag = "") -> None:
    """Request gateways (gatewayz)."""
    _request("GATEWAYZ", name)


@app.command("leafnodes", aliases=("leaf", "leafnode", "leafz"))
def leafnodes(name: NameFlag = "", account: AccountFlag = "") -> None:
    """Request leaf nodes (leafz)."""
    _request("LEAFZ", name, account=account)


@app.command("kick")
def kick(
    client: Annotated[int, Argument(min=1, help="Connection ID (cid)")],
    server: Annotated[str, Argument(help="Server ID or name")],
) -> None:
    """Close a connection."""
    with connect() as connection:
        system = SystemRequests(connection, current().timeout)
        print_json(system.ask_one(server, "KICK", {"cid": client}))
