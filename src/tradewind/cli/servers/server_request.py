"""`tradewind server request`: what servers say about themselves, as they say it.

Owns the flags of each question; the answers are printed as JSON, one per server.
"""

from __future__ import annotations

from typing import Annotated, Any

from tradewind.cli.frame.frame import Argument, CommandApp, Option
from tradewind.cli.frame.output import print_json
from tradewind.cli.frame.settings import connect, current
from tradewind.cli.servers.system import SystemRequests

app = CommandApp("Ask servers, and print their answers as JSON")

NameFlag = Annotated[str, Option("--name", help="Only the server of this name or id")]
AccountFlag = Annotated[str, Option("--account", help="Only about this account")]
DetailFlag = Annotated[bool, Option("--detail", help="With all subscriptions")]


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
    """Settings and counters."""
    _request("VARZ", name)


@app.command("connections", aliases=("conns", "connz"))
def connections(
    name: NameFlag = "",
    account: Annotated[str, Option("--filter-account", help="Of this account")] = "",
    user: Annotated[str, Option("--filter-user", help="Of this user")] = "",
    state: Annotated[
        str, Option("--filter-state", help="Open or not", metavar="open|closed|all")
    ] = "open",
    subject: Annotated[str, Option("--filter-subject", help="Subscribed to this")] = "",
    cid: Annotated[int, Option("--filter-cid", help="Of this number")] = 0,
    sort: Annotated[str, Option("--sort", help="By this property")] = "",
    subscriptions: Annotated[bool, Option("--subscriptions", help="With their subjects")] = False,
    limit: Annotated[int, Option("--limit", help="At most so many")] = 0,
) -> None:
    """Connections."""
    states = {"open": 0, "closed": 1, "all": 2, "any": 2}
    _request(
        "CONNZ",
        name,
        acc=account,
        user=user,
        state=states.get(state, 0),
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
    account: Annotated[str, Option("--filter-account", help="Of this account")] = "",
    test: Annotated[str, Option("--test", help="That would get this subject")] = "",
) -> None:
    """Subscriptions."""
    _request("SUBSZ", name, subscriptions=detail, account=account, test=test)


@app.command("jetstream", aliases=("js", "jsz"))
def jetstream(
    name: NameFlag = "",
    account: AccountFlag = "",
    streams: Annotated[bool, Option("--streams", help="With streams")] = False,
    consumers: Annotated[bool, Option("--consumers", "--consumer", help="With consumers")] = False,
    config: Annotated[bool, Option("--config", help="With their configuration")] = False,
    everything: Annotated[bool, Option("--all", help="With all of these")] = False,
    accounts: Annotated[bool, Option("--accounts", help="With accounts")] = False,
) -> None:
    """JetStream: accounts, streams and consumers."""
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
    js_enabled: Annotated[bool, Option("--js-enabled", help="Is JetStream on")] = False,
    server_only: Annotated[bool, Option("--server-only", help="Leave out streams")] = False,
    details: Annotated[bool, Option("--details", help="All that is wrong")] = False,
) -> None:
    """Whether servers are in order."""
    options = {"js-enabled-only": js_enabled, "js-server-only": server_only, "details": details}
    _request("HEALTHZ", name, account=account, stream=stream, consumer=consumer, **options)


@app.command("accounts", aliases=("account", "acct", "accountz"))
def accounts(name: NameFlag = "", account: AccountFlag = "") -> None:
    """Accounts."""
    _request("ACCOUNTZ", name, account=account)


@app.command("routes", aliases=("route", "routez"))
def routes(name: NameFlag = "", detail: DetailFlag = False) -> None:
    """Routes to other servers of a cluster."""
    _request("ROUTEZ", name, subscriptions=detail)


@app.command("gateways", aliases=("gateway", "gw", "gatewayz"))
def gateways(name: NameFlag = "") -> None:
    """Gateways to other clusters."""
    _request("GATEWAYZ", name)


@app.command("leafnodes", aliases=("leaf", "leafnode", "leafz"))
def leafnodes(name: NameFlag = "", account: AccountFlag = "") -> None:
    """Leaf nodes."""
    _request("LEAFZ", name, account=account)


@app.command("kick")
def kick(
    client: Annotated[int, Argument(help="Number of the connection (cid)")],
    server: Annotated[str, Argument(help="Id or name of its server")],
) -> None:
    """Close a connection."""
    with connect() as connection:
        system = SystemRequests(connection, current().timeout)
        print_json(system.ask_one(server, "KICK", {"cid": client}))
