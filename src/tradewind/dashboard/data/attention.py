"""The list of what needs attention, worst first.

Owns the choice and the order, and works on given facts: the survey of streams and consumers, the
load of the servers, their health. It never sends requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.client.why.states import STATES, State
from tradewind.dashboard.data.page_texts import many, size

if TYPE_CHECKING:
    from tradewind.dashboard.data.load_and_usage import AccountSnapshot
    from tradewind.dashboard.data.survey import Survey

# The share of a limit from which on it is reported.
NEARLY_FULL: Final = 0.9


class AttentionItem(msgspec.Struct, frozen=True):
    """One fact that needs attention; `place` is the path of the page about it."""

    state: State
    subject: str
    text: str
    place: tuple[str, ...] = ()


def attention_items(
    survey: Survey,
    account: AccountSnapshot | None = None,
    health: Mapping[str, str] | None = None,
    slow_clients: int = 0,
) -> list[AttentionItem]:
    """All items; `slow_clients` is how many were disconnected in the time that charts show."""
    items = [
        *_servers(health or {}),
        *_limits(account),
        *_streams(survey),
        *_dead_letters(survey),
        *_consumers(survey),
    ]
    if slow_clients:
        text = f"{many(slow_clients, 'client')} read too slowly and lost the connection."
        items.append(AttentionItem("attention", "Slow clients", text, ("connections",)))
    return sorted(items, key=lambda item: STATES.index(item.state))


def _servers(health: Mapping[str, str]) -> Iterable[AttentionItem]:
    for name, text in health.items():
        if text != "ok":
            yield AttentionItem("stopped", f"Server {name}", text)


def _limits(account: AccountSnapshot | None) -> Iterable[AttentionItem]:
    usage = account.usage if account is not None else None
    if usage is None:
        return
    for what, used, most in (
        ("on disk", usage.storage, usage.limits.max_storage),
        ("in memory", usage.memory, usage.limits.max_memory),
    ):
        if most > 0 and used >= most * NEARLY_FULL:
            state: State = "stopped" if used >= most else "attention"
            text = f"JetStream uses {size(used)} of the {size(most)} that it may store {what}."
            yield AttentionItem(state, "Storage", text, ("accounts",))


def _streams(survey: Survey) -> Iterable[AttentionItem]:
    for stream in survey.streams.values():
        if stream.verdict.state != "ok":
            place = ("streams", stream.name)
            yield AttentionItem(
                stream.verdict.state, f"Stream {stream.name}", stream.verdict.text, place
            )


def _dead_letters(survey: Survey) -> Iterable[AttentionItem]:
    targets = {
        consumer.dead_letter_stream
        for known in survey.consumers.values()
        for consumer in known.values()
        if consumer.dead_letter_stream
    }
    for name in sorted(targets):
        stream = survey.streams.get(name)
        if stream is not None and stream.messages:
            text = f"{many(stream.messages, 'message')} could not be processed and waits."
            if stream.messages != 1:
                text = text.replace("waits", "wait")
            yield AttentionItem(
                "attention", f"Dead letters in {name}", text, ("dead-letters", name)
            )


def _consumers(survey: Survey) -> Iterable[AttentionItem]:
    """Durable consumers; an unused ephemeral one is removed by the server."""
    for known in survey.consumers.values():
        for consumer in known.values():
            if consumer.verdict.state == "ok" or not consumer.is_durable:
                continue
            yield AttentionItem(
                consumer.verdict.state,
                f"Consumer {consumer.name} of {consumer.stream}",
                consumer.verdict.text,
                ("streams", consumer.stream, "consumers", consumer.name),
            )
