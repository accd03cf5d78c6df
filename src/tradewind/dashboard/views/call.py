"""The input and output of a view.

Owns the checks of numbers and times that visitors enter. A view never uses HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tradewind.api.times import parse_time
from tradewind.dashboard.data.problems import NotAllowedError
from tradewind.durations import parse_duration_ns
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.dashboard.data.machine import Machine
    from tradewind.dashboard.data.series import ChartWindow
    from tradewind.dashboard.data.workspace import Workspace
    from tradewind.dashboard.look.page_layout import Visit

NUMBER_MAX: Final = 2**64 - 1
NUMBER_DIGITS: Final = 20


class BadFormError(TradewindError):
    """A value in a form is not valid; the text names the field."""


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
    """A duration like `24h` in nanoseconds; 0 if the field is empty or missing."""
    text = fields.get(name, "").strip()
    found = parse_duration_ns(text) if text else 0
    if found is None or found < 0:
        raise BadFormError(f"{name} must be a duration like 24h or 90m, not {text[:40]!r}")
    return found


def number(fields: Mapping[str, str], name: str, *, least: int = 0) -> int:
    """A whole number; `least` if the field is empty or missing."""
    text = fields.get(name, "").strip()
    if not text:
        return least
    if not (text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS):
        raise BadFormError(f"{name} must be a whole number, not {text[:40]!r}")
    value = int(text)
    if not least <= value <= NUMBER_MAX:
        raise BadFormError(f"{name} must be from {least} to {NUMBER_MAX}, not {text}")
    return value


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
            f"{name} must be a time like 2026-01-31 12:00:00 (UTC), not {text[:40]!r}"
        ) from None
