"""The card on top of the overview that says what needs attention, and the badges of states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tradewind.dashboard.data.attention import AttentionItem, attention_items
from tradewind.dashboard.data.page_texts import count, many
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import badge, card, problem_note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tradewind.client.why.states import State, StateReason
    from tradewind.dashboard.data.load_and_usage import AccountSnapshot
    from tradewind.dashboard.data.survey import Survey

ITEMS_SHOWN: Final = 12
_MOODS: Final[dict[State, str]] = {"ok": "good", "attention": "warning", "stopped": "bad"}


def state_badge(verdict: StateReason, *, is_paused: bool = False) -> Markup:
    """A state as a word; its reason is shown under the pointer."""
    word = "paused" if is_paused else verdict.state
    return tag(
        "span",
        word,
        class_=f"badge state-badge {_MOODS[verdict.state]}",
        title=" ".join(part for part in (verdict.text, verdict.advice) if part) or None,
        data_sort=verdict.rank,
    )


def attention_card(
    survey: Survey,
    account: AccountSnapshot | None,
    health: Mapping[str, str] | None,
    slow_clients: int,
) -> Markup:
    """The card with all that needs attention, worst first; one quiet line if all is well."""
    items = attention_items(survey, account, health, slow_clients)
    if survey.problem is not None and not survey.streams:
        return card("Needs attention", problem_note(survey.problem)) if items else _quiet(survey)
    if not items:
        return _quiet(survey)
    stopped = sum(item.state == "stopped" for item in items)
    counts = [
        badge(f"{count(stopped)} stopped", "bad") if stopped else None,
        badge(f"{count(len(items) - stopped)} attention", "warning")
        if len(items) > stopped
        else None,
    ]
    more = len(items) - ITEMS_SHOWN
    rest = [
        tag("a", "streams", href=address("streams")),
        " and ",
        tag("a", "consumers", href=address("consumers")),
    ]
    return tag(
        "section",
        tag("h2", "Needs attention", counts),
        tag("ul", [_row(item) for item in items[:ITEMS_SHOWN]], class_="attention-list"),
        tag("p", f"And {count(more)} more: see the states of ", rest, ".") if more > 0 else None,
        _coverage(survey) if not survey.is_whole or survey.is_cut else None,
        class_=f"card attention {'stopped' if stopped else 'waiting'}",
        id="attention",
    )


def _row(item: AttentionItem) -> Markup:
    subject: Child = item.subject
    if item.place:
        subject = tag("a", item.subject, href=address(*item.place))
    return tag(
        "li",
        tag("i", class_=f"lamp {_MOODS[item.state]}", title=item.state),
        tag("div", tag("strong", subject), " ", tag("span", item.text)),
    )


def _quiet(survey: Survey) -> Markup:
    """The card without items: it says what was examined, so that silence can be trusted."""
    if survey.problem is not None:
        return card("State", problem_note(survey.problem))
    if not survey.is_whole:
        text = _coverage(survey)
        return tag("section", text, class_="card attention", id="attention", aria_live="polite")
    looked = (
        f"{many(len(survey.streams), 'stream')} and {many(survey.consumers_known, 'consumer')} "
        "were examined."
    )
    return tag(
        "section",
        tag("i", class_="lamp good"),
        tag("p", tag("strong", "All is well."), " ", looked),
        _coverage(survey) if survey.is_cut else None,
        class_="card attention well",
        id="attention",
    )


def _coverage(survey: Survey) -> Markup:
    """How much has been examined, while that is not everything."""
    total = max(survey.streams_total, len(survey.streams))
    if not total and not survey.is_whole:
        return tag("p", "The state of streams and consumers is being determined.", class_="faint")
    text = (
        f"Examined so far: {count(len(survey.streams))} of {many(total, 'stream')}, "
        f"{many(survey.consumers_known, 'consumer')}."
    )
    if survey.is_cut:
        text += (
            " There are more than the dashboard examines; tradewind stream why and consumer why "
            "examine any of them."
        )
    return tag("p", text, class_="faint")
