"""Accounts and their limits, as far as the login may see them, and the login itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tradewind.dashboard.data.account_data import ask_detail, limits_of
from tradewind.dashboard.data.page_texts import UNLIMITED, count, size
from tradewind.dashboard.data.problems import Problem, problem_of
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import (
    badge,
    card,
    facts,
    grid,
    heading,
    live,
    page,
    problem_note,
    table,
)
from tradewind.dashboard.views.call import Answer, Call, PageAnswer
from tradewind.dashboard.views.overview import usage_card
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.dashboard.data.account_data import AccountLogin, Accounts, Row
    from tradewind.dashboard.data.load_and_usage import AccountSnapshot

COLUMNS: Final = (
    "Account",
    "Connections#",
    "Leaf connections#",
    "Subscriptions#",
    "In#",
    "Out#",
    "On disk#",
    "In memory#",
)
OTHERS: Final = Problem(
    "denied",
    "Other accounts, and the limits of connections: not allowed for this login. A login of the "
    "system account sees them.",
)
BYTES: Final = frozenset(("Bytes", "Largest message", "JetStream memory", "JetStream disk"))


async def show(call: Call) -> Answer:
    """Show the accounts, or one of them."""
    seen = await call.workspace.account()
    account = seen.value
    is_whole = account is not None and account.load.is_whole
    name = call.query.get("name", "")
    if name and is_whole:
        return await _one(call, name)
    found = await call.workspace.accounts(is_whole=is_whole)
    body: list[Child] = [problem_note(found.problem or seen.problem)]
    if found.value is not None:
        body += _content(found.value, account, is_whole=is_whole)
    top = heading("Accounts")
    return PageAnswer(page(call.visit, "accounts", "Accounts", top, live("accounts", body)))


def _content(found: Accounts, account: AccountSnapshot | None, *, is_whole: bool) -> list[Child]:
    # If only one account is visible, its storage is in its own card.
    columns = COLUMNS if is_whole else COLUMNS[:-2]
    rows = [_row(row, is_whole=is_whole)[: len(columns)] for row in found.rows]
    parts: list[Child] = [
        card("", table(columns, rows, empty="No server reports accounts.")),
        problem_note(None if is_whole else OTHERS),
    ]
    cards = [_login(found.login)]
    if account is not None and not is_whole:
        cards.append(usage_card(account))
    return [*parts, grid(*cards)]


def _row(row: Row, *, is_whole: bool) -> list[Child]:
    name: Child = row.name
    if is_whole:
        name = tag("a", row.name, href=address("accounts", name=row.name))
    slow = badge(f"{count(row.slow_consumers)} slow", "warning") if row.slow_consumers else None
    return [
        [name, " ", slow],
        count(row.connections),
        count(row.leafnodes),
        count(row.subscriptions),
        count(row.messages_in),
        count(row.messages_out),
        "" if row.storage is None else size(row.storage),
        "" if row.memory is None else size(row.memory),
    ]


def _login(login: AccountLogin) -> Markup:
    pairs: list[tuple[str, Child]] = [
        ("User", login.user or "none"),
        ("Account", login.account or "unknown"),
    ]
    for label, subjects in (
        ("May publish to", login.publish_allow),
        ("May not publish to", login.publish_deny),
        ("May subscribe to", login.subscribe_allow),
        ("May not subscribe to", login.subscribe_deny),
    ):
        if subjects:
            pairs.append((label, tag("span", ", ".join(subjects), class_="mono")))
    if len(pairs) == 2:
        pairs.append(("Permissions", "everything in its account"))
    return card("This login", facts(pairs))


async def _one(call: Call, name: str) -> Answer:
    top = heading(name, above=tag("a", "Accounts", href="/accounts"))
    try:
        detail = await ask_detail(call.workspace.system, name)
    except TradewindError as error:
        note = problem_note(problem_of(error))
        return PageAnswer(page(call.visit, "accounts", name, top, note))
    if not detail:
        note = problem_note(Problem("missing", "No server knows this account."))
        return PageAnswer(page(call.visit, "accounts", name, top, note), 404)
    words = [
        (label, _said(detail.get(member)))
        for label, member in (
            ("JetStream", "jetstream_enabled"),
            ("Connections", "client_connections"),
            ("Leaf connections", "leafnode_connections"),
            ("Subscriptions", "subscriptions"),
            ("Expired", "expired"),
            ("System account", "is_system"),
        )
        if member in detail
    ]
    limits: list[tuple[str, Child]] = [
        (label, _limit(label, most)) for label, most in limits_of(detail)
    ]
    empty = (
        "Servers report the limits of accounts that have a JWT; those of others are in the "
        "configuration."
    )
    told: Child = facts(limits) if limits else tag("p", empty, class_="empty")
    return PageAnswer(
        page(
            call.visit,
            "accounts",
            name,
            top,
            grid(card("State", facts(words)), card("Limits", told)),
        )
    )


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return count(value) if isinstance(value, int) else str(value)[:200]


def _limit(label: str, most: int) -> str:
    if most < 0:
        return UNLIMITED
    return size(most) if label in BYTES else count(most)
