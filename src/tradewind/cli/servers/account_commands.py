"""`tradewind account`: the current user, and the usage and limits of its account.

Owns the display only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tradewind.cli.frame.frame import CommandApp, JsonFlag
from tradewind.cli.frame.output import Columns, print_json
from tradewind.cli.frame.settings import connect, manager
from tradewind.cli.frame.text_formats import count_text, duration_text, limit_text, size_text
from tradewind.cli.streams.stream_backup import account_app
from tradewind.client.errors import JetStreamUnavailableError, NoRespondersError
from tradewind.durations import format_duration

if TYPE_CHECKING:
    from tradewind.api.responses import AccountInfo, Tier
    from tradewind.sync import Connection

app = CommandApp("Account information")
app.include(account_app)


@app.command("info", aliases=("nfo",))
def show_info(json: JsonFlag = False) -> None:
    """Show the connection, the account and its JetStream usage."""
    with connect() as connection:
        user = _user_info(connection)
        rtt_ns = round(connection.rtt() * 1e9)
        try:
            account = manager(connection).account_info()
        except JetStreamUnavailableError:
            account = None
        if json:
            print_json({"user": user, "server": connection.info, "jetstream": account})
            return
        columns = Columns("Account Information")
        _show_connection(columns, connection, user, rtt_ns)
    columns.section("JetStream Account Information")
    if account is None:
        columns.text("   JetStream is not enabled for this account")
    else:
        _show_jetstream(columns, account)
    columns.print()


def _user_info(connection: Connection) -> dict[str, Any]:
    """The server's information about this login; empty if it does not provide any."""
    try:
        answer = connection.request("$SYS.REQ.USER.INFO")
    except NoRespondersError:
        return {}
    data: dict[str, Any] = msgspec.json.decode(answer.data).get("data") or {}
    return data


def _show_connection(
    columns: Columns, connection: Connection, user: dict[str, Any], rtt_ns: int
) -> None:
    info = connection.info
    columns.row("User", user.get("user", ""))
    columns.row("Account", user.get("account", ""))
    expires_ns = int(user.get("expires", 0))
    columns.row("Expires", duration_text(expires_ns) if expires_ns else "never")
    columns.row("Client ID", str(info.client_id))
    columns.row("Client IP", info.client_ip)
    columns.row("RTT", format_duration(rtt_ns // 1000 * 1000))
    columns.row("Headers Supported", info.headers)
    columns.row("Maximum Payload", size_text(info.max_payload))
    columns.row_if("Connected Cluster", info.cluster)
    columns.row("Connected URL", connection.url)
    columns.row("Connected Server ID", info.server_id)
    columns.row("Connected Server Name", info.server_name)
    columns.row("Connected Server Version", info.version)
    columns.row_if("Tradewind Version", info.tradewind)
    columns.row("TLS", connection.url.startswith(("tls:", "wss:")) or info.tls_required)


def _show_jetstream(columns: Columns, account: AccountInfo) -> None:
    columns.row_if("Domain", account.domain)
    columns.section("Account Usage")
    _show_usage(columns, account)
    for name, tier in account.tiers.items():
        columns.section(f"Tier {name} Usage")
        _show_usage(columns, tier)
        columns.section(f"Tier {name} Limits")
        _show_limits(columns, tier)
    columns.row("API Requests", account.api.total)
    columns.row("API Errors", account.api.errors)
    if not account.tiers:
        columns.section("Account Limits")
        _show_limits(columns, account)


def _show_usage(columns: Columns, tier: Tier) -> None:
    columns.row("Storage", size_text(tier.storage))
    columns.row("Memory", size_text(tier.memory))
    columns.row("Streams", tier.streams)
    columns.row("Consumers", tier.consumers)


def _show_limits(columns: Columns, tier: Tier) -> None:
    limits = tier.limits
    columns.row("Storage", _of(limits.max_storage, tier.storage, tier.reserved_storage))
    columns.row("Memory", _of(limits.max_memory, tier.memory, tier.reserved_memory))
    columns.row("Streams", limit_text(limits.max_streams))
    columns.row("Consumers", limit_text(limits.max_consumers))
    columns.row("Max Ack Pending", limit_text(limits.max_ack_pending))
    columns.row(
        "Max Storage Stream",
        limit_text(limits.storage_max_stream_bytes, size_text(limits.storage_max_stream_bytes)),
    )
    columns.row(
        "Max Memory Stream",
        limit_text(limits.memory_max_stream_bytes, size_text(limits.memory_max_stream_bytes)),
    )
    columns.row("Max Bytes Required", limits.max_bytes_required)


def _of(limit: int, used: int, reserved: int) -> str:
    if limit < 0:
        return "unlimited"
    share = f" ({count_text(used * 100 // limit)} % used)" if limit else ""
    held = f", {size_text(reserved)} reserved" if reserved else ""
    return f"{size_text(limit)}{share}{held}"
