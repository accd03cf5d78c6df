"""Connections: user, address, client, and pending bytes."""

from __future__ import annotations

from typing import Final

from tradewind.dashboard.data.connection_data import ORDERS, ROWS, Client, Clients, ask_clients
from tradewind.dashboard.data.page_texts import count, size
from tradewind.dashboard.data.samplers import Question
from tradewind.dashboard.look.elements import Child, tag
from tradewind.dashboard.look.page_layout import (
    badge,
    card,
    heading,
    live,
    page,
    pager,
    problem_note,
    table,
)
from tradewind.dashboard.views.call import Answer, BadFormError, Call, PageAnswer, number
from tradewind.own_addresses import address_text

SECONDS: Final = 3.0
COLUMNS: Final = (
    "Name",
    "From",
    "Login",
    "Client",
    "Subscriptions#",
    "In#",
    "Out#",
    "Pending#",
    "Since",
)


async def show(call: Call) -> Answer:
    """Show the connections that the login may see."""
    order = call.query.get("sort", "cid")
    if order not in ORDERS:
        raise BadFormError(f"sort must be one of {', '.join(ORDERS)}, not {order[:40]!r}")
    first = number(call.query, "first")

    async def ask() -> Clients:
        return await ask_clients(call.workspace.system, order, first)

    key = ("connections", order, first)
    seen = await call.workspace.samplers.see(Question(key, ask, SECONDS))
    choose = tag(
        "form",
        tag(
            "select",
            [
                tag("option", f"By {text}", value=name, selected=name == order)
                for name, text in ORDERS.items()
            ],
            name="sort",
            aria_label="Order",
        ),
        tag("button", "Sort"),
        action="/connections",
        method="get",
        class_="row",
    )
    content: list[Child] = [problem_note(seen.problem)]
    if seen.value is not None:
        found = seen.value
        rows = [_row(server, client) for server, client in found.clients]
        load = (await call.workspace.account()).value
        is_whole = load is not None and load.load.is_whole
        scope = "of all servers" if is_whole else "of this account"
        content += [
            card(
                f"{count(found.total)} {scope}",
                table(COLUMNS, rows, empty="Nobody is connected."),
                pager(("connections",), first, ROWS, found.total, sort=order),
            )
        ]
    top = heading("Connections", choose)
    return PageAnswer(
        page(call.visit, "connections", "Connections", top, live("connections", content))
    )


def _row(server: str, client: Client) -> list[Child]:
    login = client.authorized_user or "none"
    return [
        [client.name or f"connection {client.cid}", tag("small", server[:24])],
        address_text(client.ip, client.port),
        [login, tag("small", client.account) if client.account else None],
        f"{client.lang} {client.version}".strip(),
        count(client.subscriptions),
        [count(client.in_msgs), tag("small", size(client.in_bytes))],
        [count(client.out_msgs), tag("small", size(client.out_bytes))],
        badge(size(client.pending_bytes), "warning") if client.pending_bytes else "0 B",
        client.uptime,
    ]
