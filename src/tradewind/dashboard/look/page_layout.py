"""The frame around every page, and the common parts of pages.

Owns navigation, cards, tables, forms and notes, so that all pages look the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tradewind._version import __version__
from tradewind.dashboard.data.page_texts import count
from tradewind.dashboard.data.problems import Problem
from tradewind.dashboard.look.elements import Child, Markup, address, join, tag
from tradewind.dashboard.look.table_order import TableColumn, TableOrder

if TYPE_CHECKING:
    from tradewind.client.why.reasons import Reason
    from tradewind.dashboard.data.workspace import LinkState

PLACES: Final = (
    ("overview", "Overview", "/"),
    ("streams", "Streams", "/streams"),
    ("consumers", "Consumers", "/consumers"),
    ("dead-letters", "Dead letters", "/dead-letters"),
    ("kv", "Key-value", "/kv"),
    ("objects", "Objects", "/objects"),
    ("schedules", "Schedules", "/schedules"),
    ("services", "Services", "/services"),
    ("pipelines", "Pipelines", "/pipelines"),
    ("tables", "Tables", "/tables"),
    ("sql", "SQL", "/sql"),
    ("templates", "Templates", "/templates"),
    ("map", "Map", "/map"),
    ("connections", "Connections", "/connections"),
    ("accounts", "Accounts", "/accounts"),
)
STORAGES: Final = (("file", "On disk"), ("memory", "In memory"))
# The label of the context that the dashboard was started with.
MAIN_CONTEXT: Final = "(the first)"
_WORDS: Final = {
    "connecting": "Connecting to",
    "reconnecting": "Reconnecting to",
    "refused": "No connection to",
}


@dataclass(frozen=True)
class Visit:
    """The visitor of a page: their rights, and the token of their forms."""

    link: LinkState
    csrf: str
    is_read_only: bool = False
    user: str = ""  # "" if no login is required
    notice: str = ""
    # The contexts that one can switch to, and the present one; "" is the one of the start.
    contexts: tuple[str, ...] = ()
    context: str = ""


def page(visit: Visit, place: str, title: str, *content: Child) -> str:
    """A whole page."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="csrf", content=visit.csrf),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} - Tradewind"),
        tag("link", rel="icon", type="image/svg+xml", href="/static/icon.svg"),
        tag("link", rel="stylesheet", href="/static/style.css"),
        tag("script", src="/static/dashboard.js", defer=True),
    )
    body = tag(
        "body",
        tag("a", "Skip to the content", href="#content", class_="skip"),
        _side(visit, place),
        tag("main", live("state", _state(visit)), _notice(visit), content, id="content"),
    )
    return f"<!doctype html>{tag('html', head, body, lang='en')}"


def bare_page(title: str, *content: Child) -> str:
    """A page without navigation, for refusals and visitors who are not logged in."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} - Tradewind"),
        tag("link", rel="icon", type="image/svg+xml", href="/static/icon.svg"),
        tag("link", rel="stylesheet", href="/static/style.css"),
        tag("script", src="/static/dashboard.js", defer=True),
    )
    body = tag("body", tag("main", brand(), content, class_="alone"), class_="bare")
    return f"<!doctype html>{tag('html', head, body, lang='en')}"


def brand() -> Markup:
    """The name with its logo."""
    return tag(
        "a",
        tag("img", src="/static/icon.svg", alt="", class_="sign"),
        "Tradewind",
        href="/",
        class_="brand",
    )


def _side(visit: Visit, place: str) -> Markup:
    links = [
        tag("a", label, href=target, aria_current="page" if key == place else None)
        for key, label, target in PLACES
    ]
    foot: list[Child] = [
        tag("button", "Theme", type="button", id="theme", class_="plain"),
        tag("button", "Times: local", type="button", id="zone", class_="plain"),
        tag("span", f"Version {__version__}", class_="faint"),
    ]
    if visit.is_read_only:
        foot.insert(0, badge("read only", "warning"))
    if visit.user:
        foot.insert(0, tag("span", f"Logged in as {visit.user}", class_="faint"))
        foot.append(form(visit, "/logout", tag("button", "Log out", class_="plain")))
    search = tag(
        "form",
        tag(
            "input",
            type="search",
            name="search",
            id="search",
            placeholder="Search  /",
            aria_label="Search streams, consumers, buckets and stores",
            autocomplete="off",
        ),
        action="/search",
        method="get",
        role="search",
    )
    here = next((label for key, label, _ in PLACES if key == place), "Menu")
    menu = tag(
        "button",
        tag("span", here),
        tag("i", class_="menu-lines", aria_hidden="true"),
        type="button",
        id="menu",
        aria_expanded="false",
        aria_controls="places",
        aria_label=f"Menu, now {here}" if here != "Menu" else "Menu",
    )
    return tag(
        "nav",
        tag("div", brand(), menu, class_="top"),
        _switch_context(visit),
        search,
        tag("div", links, class_="places", id="places"),
        tag("div", foot, class_="foot"),
    )


def _switch_context(visit: Visit) -> Markup | None:
    """The choice of a server, if there are several."""
    if not visit.contexts:
        return None
    if visit.user:
        return tag("p", visit.context or MAIN_CONTEXT, class_="faint context", id="context")
    options = [("", MAIN_CONTEXT), *((name, name) for name in visit.contexts)]
    made = [
        tag("option", label, value=value, selected=value == visit.context)
        for value, label in options
    ]
    return form(
        visit,
        "/context",
        tag("select", made, name="context", id="context", aria_label="Server"),
        tag("button", "Switch"),
        class_="row context",
    )


def _state(visit: Visit) -> Markup:
    link = visit.link
    if link.state == "connected":
        return tag("p", tag("i", class_="lamp good"), link.server, class_="state", id="link-state")
    reason = f" ({link.text})" if link.text else ""
    mood = "bad" if link.state == "refused" else "warning"
    return tag(
        "p",
        tag("i", class_=f"lamp {mood}"),
        tag("strong", f"{_WORDS[link.state]} {link.server}"),
        reason,
        class_=f"state away {mood}",
        id="link-state",
        role="status",
    )


def _notice(visit: Visit) -> Markup | None:
    return tag("p", visit.notice, class_="notice good", role="status") if visit.notice else None


def live(name: str, *content: Child) -> Markup:
    """A part that the script replaces with its newest state while the page is visible."""
    return tag("div", content, id=f"live-{name}", data_live=True)


def heading(title: str, *actions: Child, above: Child = None, note: Child = None) -> Markup:
    """The heading of a page: where it is, its name, and its actions."""
    return tag(
        "header",
        tag(
            "div",
            tag("p", above, class_="crumbs") if above is not None else None,
            tag("h1", title),
            tag("p", note, class_="faint") if note is not None else None,
        ),
        tag("div", actions, class_="actions") if actions else None,
        class_="head",
    )


def card(title: str, *content: Child, wide: bool = False, actions: Child = None) -> Markup:
    """A part of a page with a title."""
    return tag(
        "section",
        tag("h2", title, tag("span", actions, class_="actions") if actions is not None else None)
        if title
        else None,
        content,
        class_="card wide" if wide else "card",
    )


def grid(*cards: Child) -> Markup:
    """Cards side by side where there is room."""
    return tag("div", cards, class_="cards")


def figure_card(label: str, value: str, note: Child = None, mood: str = "") -> Markup:
    """A card with one number and its meaning."""
    return tag(
        "div",
        tag("span", label, class_="label"),
        tag("strong", value, class_=mood or None),
        tag("span", note, class_="faint") if note is not None else None,
        class_="number",
    )


def table(
    columns: Sequence[str | TableColumn],
    rows: Sequence[Sequence[Child]],
    *,
    empty: str,
    sorting: TableOrder | None = None,
) -> Markup:
    """A table; a column whose name ends with `#` holds numbers.

    With `sorting`, the rows are some of many, and the dashboard sorts them; otherwise the script
    of the page does.
    """
    if not rows:
        return tag("p", empty, class_="empty")
    made = [TableColumn(each) if isinstance(each, str) else each for each in columns]
    numeric = [column.name.endswith("#") for column in made]
    names = [column.name.removesuffix("#") for column in made]
    head = [
        tag(
            "th",
            sorting.header(column) if sorting is not None and column.key else name,
            class_="number-cell" if is_number else None,
            scope="col",
            aria_sort=sorting.mark(column) if sorting is not None else None,
        )
        for column, name, is_number in zip(made, names, numeric, strict=True)
    ]
    body = [
        tag(
            "tr",
            [
                tag("td", cell, class_="number-cell" if is_number else None, data_label=name)
                for cell, name, is_number in zip(row, names, numeric, strict=True)
            ],
        )
        for row in rows
    ]
    return tag(
        "div",
        tag(
            "table",
            tag("thead", tag("tr", head)),
            tag("tbody", body),
            data_sorted=sorting.text if sorting is not None else None,
        ),
        class_="scroll",
    )


def facts(pairs: Sequence[tuple[str, Child]]) -> Markup:
    """Names with values, one below the other."""
    return tag(
        "dl", [join(tag("dt", name), tag("dd", value)) for name, value in pairs], class_="facts"
    )


def badge(text: str, mood: str = "") -> Markup:
    """A word in a small frame."""
    return tag("span", text, class_=f"badge {mood}".rstrip())


def why_card(reason: Reason, question: str, otherwise: str) -> Markup:
    """A card about why something does not move, what to do, and the command for it."""
    return tag(
        "section",
        tag("h2", question if reason.mood in ("stuck", "waiting") else otherwise),
        tag("p", reason.text, class_="sentence", id="reason"),
        tag("p", reason.advice, class_="faint") if reason.advice else None,
        tag("p", tag("code", reason.command)) if reason.command else None,
        class_=f"card why {reason.mood}",
    )


def problem_note(problem: Problem | None) -> Markup | None:
    """A note that says why something is not shown."""
    if problem is None:
        return None
    mood = {"denied": "locked", "missing": "", "away": "warning"}.get(problem.kind, "bad")
    return tag("p", problem.text, class_=f"notice {mood}".rstrip(), data_problem=problem.kind)


def absence(problem: Problem) -> Markup | None:
    """The reason why a row of a table has nothing more to show."""
    return badge("no longer exists") if problem.kind == "missing" else problem_note(problem)


def form(visit: Visit, action: str, *content: Child, class_: str | None = None) -> Markup:
    """A form that changes something, with the visitor's token."""
    return tag(
        "form",
        tag("input", type="hidden", name="csrf", value=visit.csrf),
        content,
        action=action,
        method="post",
        class_=class_,
    )


def field(
    label: str,
    name: str,
    value: str = "",
    *,
    hint: str = "",
    kind: str = "text",
    required: bool = False,
    placeholder: str = "",
) -> Markup:
    """A labelled input."""
    return tag(
        "label",
        tag("span", label),
        tag(
            "input",
            type=kind,
            name=name,
            value=value,
            required=required,
            placeholder=placeholder or None,
            autocomplete="off",
        ),
        tag("small", hint) if hint else None,
    )


def choice(label: str, name: str, options: Sequence[tuple[str, str]], chosen: str = "") -> Markup:
    """A labelled selection of values with their texts."""
    made = [tag("option", text, value=value, selected=value == chosen) for value, text in options]
    return tag("label", tag("span", label), tag("select", made, name=name))


def switch(label: str, name: str, *, checked: bool = False) -> Markup:
    """A labelled checkbox."""
    box = tag("input", type="checkbox", name=name, value="1", checked=checked)
    return tag("label", tag("span", box, " ", label))


def pager(path: Sequence[str], first: int, rows: int, total: int, **query: str) -> Markup | None:
    """Links to the previous and next rows."""
    if total <= rows and first == 0:
        return None
    links: list[Child] = []
    if first > 0:
        before = max(first - rows, 0)
        links.append(
            tag("a", "Previous", href=address(*path, first=before or None, **query), rel="prev")
        )
    links.append(
        tag("span", f"{count(first + 1)} to {count(min(first + rows, total))} of {count(total)}")
    )
    if first + rows < total:
        links.append(tag("a", "Next", href=address(*path, first=first + rows, **query), rel="next"))
    return tag("p", links, class_="pager")


def tabs(links: Sequence[tuple[str, str, bool]]) -> Markup:
    """Links to the parts of one thing: (label, address, whether it is the current one)."""
    return tag(
        "p",
        [
            tag("a", label, href=target, aria_current="page" if here else None)
            for label, target, here in links
        ],
        class_="tabs",
    )
