"""The search field of every page: streams, consumers, buckets and object stores by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tradewind.api.names import KV_STREAM, OBJECT_STREAM
from tradewind.dashboard.data.catalog import chosen
from tradewind.dashboard.data.page_texts import count
from tradewind.dashboard.look.elements import Child, Markup, address, tag
from tradewind.dashboard.look.page_layout import card, heading, page, problem_note
from tradewind.dashboard.views.call import Answer, Call, PageAnswer, RedirectAnswer

if TYPE_CHECKING:
    from tradewind.dashboard.data.survey import Survey

FOUND_MAX: Final = 50
SURVEY_SECONDS: Final = 0.5


async def show(call: Call) -> Answer:
    """Show what has a text in its name; an exact name leads to its page."""
    search = call.query.get("search", "").strip()
    if not search:
        return RedirectAnswer("/streams")
    names = await call.workspace.catalog.names()
    survey = call.workspace.survey
    await survey.watched(SURVEY_SECONDS)
    listed = names.value.names if names.value is not None else []
    exact = [name for name in listed if _shown_name(name) == search or name == search]
    consumers = _consumers(survey, search)
    named = [key for key in consumers if key[1] == search]
    if len(exact) == 1 and not named:
        return RedirectAnswer(_place(exact[0]))
    if len(named) == 1 and not exact:
        return RedirectAnswer(_consumer_place(*named[0]))
    streams = chosen(listed, search)
    found = [
        _card(title, [(_shown_name(name), _place(name)) for name in streams if _kind(name) == kind])
        for title, kind in (("Streams", ""), ("Buckets", KV_STREAM), ("Stores", OBJECT_STREAM))
    ]
    pairs = [(f"{name} of {stream}", _consumer_place(stream, name)) for stream, name in consumers]
    found.append(_card("Consumers", pairs))
    nothing = f"No stream, consumer, bucket or store has {search!r} in its name."
    content: list[Child] = [problem_note(names.problem), *found]
    if not any(found):
        content.append(tag("p", nothing, class_="empty"))
    if not survey.is_whole and survey.problem is None:
        text = "Not all consumers were examined yet; search again in a moment."
        content.append(tag("p", text, class_="faint"))
    return PageAnswer(page(call.visit, "", "Search", heading(f"Search: {search}"), content))


def _consumers(survey: Survey, search: str) -> list[tuple[str, str]]:
    """The consumers with a text in their names, by stream and name."""
    wanted = search.casefold()
    return sorted(
        (stream, name)
        for stream, known in survey.consumers.items()
        for name in known
        if wanted in name.casefold()
    )


def _kind(name: str) -> str:
    kinds = (KV_STREAM, OBJECT_STREAM)
    return next((prefix for prefix in kinds if name.startswith(prefix)), "")


def _shown_name(name: str) -> str:
    return name.removeprefix(_kind(name))


def _place(name: str) -> str:
    """The page of a stream, bucket or store."""
    folder = {KV_STREAM: "kv", OBJECT_STREAM: "objects"}.get(_kind(name), "streams")
    return address(folder, _shown_name(name))


def _consumer_place(stream: str, name: str) -> str:
    return address("streams", stream, "consumers", name)


def _card(title: str, found: list[tuple[str, str]]) -> Markup | None:
    if not found:
        return None
    items = [tag("li", tag("a", text, href=target)) for text, target in found[:FOUND_MAX]]
    more = len(found) - FOUND_MAX
    rest = tag("p", f"And {count(more)} more.", class_="faint") if more > 0 else None
    return card(title, tag("ul", items, class_="plain-list"), rest)
