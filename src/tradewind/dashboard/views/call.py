"""The input and output of a view.

Owns the checks of numbers and times that visitors enter. A view never uses HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tradewind.api.times import parse_time
from tradewind.dashboard.data.human_values import (
    BadValueError,
    parse_duration_entry,
    parse_size_entry,
)
from tradewind.dashboard.data.problems import NotAllowedError
from tradewind.dashboard.look.inputs import Inputs, refusal_note
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.dashboard.data.machine import Machine
    from tradewind.dashboard.data.series import ChartWindow
    from tradewind.dashboard.data.workspace import Workspace
    from tradewind.dashboard.look.elements import Markup
    from tradewind.dashboard.look.page_layout import Visit

NUMBER_MAX: Final = 2**64 - 1
NUMBER_DIGITS: Final = 20


class BadFormError(TradewindError):
    """A value in a form is not valid; the text names the field.

    `errors` has a text for each field that is not valid, by the name of its input.
    """

    def __init__(
        self, text: str, *, field: str = "", errors: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(text)
        self.errors: Mapping[str, str] = errors or ({field: text} if field else {})


@dataclass(frozen=True)
class FormRefusal:
    """The reason why a form was not accepted; its page is shown again with what was entered."""

    text: str
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """One request: its visitor, the parts of its path, its query and the fields of its form.

    `run_refusal` returns why this visitor may run nothing on the machine; empty if they may.
    """

    workspace: Workspace
    visit: Visit
    machine: Machine
    run_refusal: Callable[[], str]
    parts: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    body: AsyncIterator[bytes] | None = None
    refusal: FormRefusal | None = None

    def inputs(self) -> Inputs:
        """The inputs of the form of a page: with what was entered, if it was refused."""
        if self.refusal is None:
            return Inputs()
        return Inputs(self.fields, self.refusal.errors)

    def refusal_note(self, labels: Mapping[str, str]) -> Markup | None:
        """The reason above a form that was refused, with links to its inputs."""
        if self.refusal is None:
            return None
        return refusal_note(self.refusal.text, self.refusal.errors, labels)

    async def refusal_of(
        self, endpoint: str, stream: str = "", consumer: str = "", rest: str = ""
    ) -> str:
        """Why the login may not use an endpoint of the API; empty if it may, or if that is not
        known.
        """
        rights = await self.workspace.rights()
        try:
            subject = self.workspace.jetstream.api.subject(endpoint, stream, consumer, rest)
        except TradewindError:
            return ""
        return rights.refusal(subject)

    @cached_property
    def window(self) -> ChartWindow:
        """The time that all charts of the page show."""
        return self.workspace.history.window(self.query)

    def check_may_run(self) -> None:
        """NotAllowedError if this visitor may run nothing on the machine."""
        if refusal := self.run_refusal():
            raise NotAllowedError(refusal)


@dataclass(frozen=True)
class PageAnswer:
    """A page as the answer."""

    html: str
    status: int = 200


@dataclass(frozen=True)
class RedirectAnswer:
    """A redirect to another page, with a sentence about what was done."""

    target: str
    notice: str = ""


@dataclass(frozen=True)
class Download:
    """Bytes that a browser saves and never displays; `size` if it is known in advance."""

    name: str
    chunks: AsyncIterator[bytes]
    size: int | None = None


@dataclass(frozen=True)
class TextAnswer:
    """A plain text for the script of the page."""

    text: str
    status: int = 200


Answer = PageAnswer | RedirectAnswer | Download | TextAnswer


def duration_ns(fields: Mapping[str, str], name: str) -> int:
    """A duration like `24h` or `7 days` in nanoseconds; 0 if the field is empty or missing."""
    text = fields.get(name, "")
    try:
        found = parse_duration_entry(text)
    except BadValueError as error:
        raise BadFormError(f"{name} {error}", field=name) from None
    return found


def number(fields: Mapping[str, str], name: str, *, least: int = 0) -> int:
    """A whole number; `least` if the field is empty or missing."""
    text = fields.get(name, "").strip()
    if not text:
        return least
    if not (text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS):
        raise BadFormError(f"{name} must be a whole number, not {text[:40]!r}", field=name)
    value = int(text)
    if not least <= value <= NUMBER_MAX:
        raise BadFormError(f"{name} must be from {least} to {NUMBER_MAX}, not {text}", field=name)
    return value


def size_bytes(fields: Mapping[str, str], name: str) -> int:
    """A size like `64 KiB` in bytes; 0 if the field is empty or missing."""
    try:
        return parse_size_entry(fields.get(name, ""))
    except BadValueError as error:
        raise BadFormError(f"{name} {error}", field=name) from None


def time_ns(fields: Mapping[str, str], name: str) -> int:
    """A time in nanoseconds since 1970, 0 if the field is empty or missing. A time without a zone
    is UTC.
    """
    text = fields.get(name, "").strip()
    if not text:
        return 0
    written = text.replace(" UTC", "Z").replace(" ", "T")
    if len(written) == len("2026-01-31T12:00"):
        written += ":00"
    if not written.endswith("Z") and "+" not in written and written.count("-") < 3:
        written += "Z"
    try:
        return parse_time(written)
    except ValueError:
        raise BadFormError(
            f"{name} must be a time like 2026-01-31 12:00:00 (UTC), not {text[:40]!r}", field=name
        ) from None
