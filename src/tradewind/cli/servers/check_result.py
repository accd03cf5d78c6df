"""The result of a check for monitoring systems: status, problems and figures.

Owns the four statuses with their exit codes and the formats nagios, json, prometheus and text. It
never contacts a server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from tradewind.cli.frame.output import json_text
from tradewind.errors import ConfigError


class Status(IntEnum):
    """An outcome; its number is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class CheckFigure:
    """A measured value with the thresholds it was compared with; None where there is none."""

    name: str
    value: float
    unit: str = ""
    warning: float | None = None
    critical: float | None = None
    help: str = ""


@dataclass(slots=True)
class CheckResult:
    """The findings of a check; its status is OK unless there are others."""

    check: str
    name: str
    oks: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    criticals: list[str] = field(default_factory=list)
    unknown: str = ""
    figures: list[CheckFigure] = field(default_factory=list)

    @property
    def status(self) -> Status:
        """The worst of all that was found."""
        if self.unknown:
            return Status.UNKNOWN
        if self.criticals:
            return Status.CRITICAL
        return Status.WARNING if self.warnings else Status.OK

    def ok(self, text: str) -> None:
        """Record a finding that is as it should be."""
        self.oks.append(text)

    def warn(self, text: str) -> None:
        """Record a finding that deserves a warning."""
        self.warnings.append(text)

    def critical(self, text: str) -> None:
        """Record a critical finding."""
        self.criticals.append(text)

    def expect(self, is_right: bool, right: str, wrong: str) -> None:
        """A thing is either as it should be, or that is critical."""
        (self.ok if is_right else self.critical)(right if is_right else wrong)

    def measure(
        self, figure: CheckFigure, text: str, *, at_least: bool = False, may_invert: bool = False
    ) -> None:
        """A figure, and whether it passes its thresholds; `at_least`: it must not fall to them.

        With `may_invert` a warning threshold above the critical one means just that, as with other
        tools for such checks: less is worse.
        """
        self.figures.append(figure)
        warning, critical = figure.warning, figure.critical
        turned = may_invert and warning is not None and critical is not None and critical < warning
        inverted = at_least or turned

        def passes(limit: float | None) -> bool:
            if limit is None:
                return False
            return figure.value <= limit if inverted else figure.value >= limit

        if passes(critical):
            self.critical(text)
        elif passes(warning):
            self.warn(text)
        else:
            self.ok(text)

    def render(self, format_name: str, namespace: str = "nats_server_check") -> str:
        """The result in one of the formats."""
        if format_name not in _FORMATS:
            raise ConfigError(f"--format: one of {', '.join(_FORMATS)}, not {format_name!r}")
        return _FORMATS[format_name](self, namespace)


def _nagios(result: CheckResult, _: str) -> str:
    found = [f"UNKNOWN:{result.unknown}"] if result.unknown else []
    found += [f"Crit:{text}" for text in result.criticals]
    found += [f"Warn:{text}" for text in result.warnings]
    found += [f"OK:{text}" for text in result.oks]
    line = " ".join([result.status.name, result.name, *found])
    figures = " ".join(_performance(figure) for figure in result.figures)
    return f"{line} | {figures}" if figures else line


def _performance(figure: CheckFigure) -> str:
    limits = (figure.warning, figure.critical)
    text = f"{figure.name}={_number(figure.value)}{figure.unit}"
    if limits == (None, None):
        return text
    return ";".join([text, *("" if limit is None else _number(limit) for limit in limits)])


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4f}"


def _text(result: CheckResult, _: str) -> str:
    lines = [f"{result.name}: {result.status.name}", ""]
    if result.unknown:
        lines += [f"  UNKNOWN: {result.unknown}"]
    for title, texts in (
        ("CRITICAL", result.criticals),
        ("WARNING", result.warnings),
        ("OK", result.oks),
    ):
        lines += [f"  {title}: {text}" for text in texts]
    if result.figures:
        width = max(len(figure.name) for figure in result.figures)
        lines += ["", "Figures:", ""]
        lines += [
            f"  {figure.name:>{width}}: {_number(figure.value)}{figure.unit}"
            for figure in result.figures
        ]
    return "\n".join(lines)


def _json(result: CheckResult, _: str) -> str:
    document: dict[str, Any] = {
        "status": result.status.name,
        "check_suite": result.check,
        "check_name": result.name,
    }
    if result.unknown:
        document["unknown"] = result.unknown
    named = {"critical": result.criticals, "warning": result.warnings, "ok": result.oks}
    document |= {key: texts for key, texts in named.items() if texts}
    document["perf_data"] = [
        {
            "name": figure.name,
            "value": figure.value,
            "unit": figure.unit,
            **({} if figure.warning is None else {"warning": figure.warning}),
            **({} if figure.critical is None else {"critical": figure.critical}),
        }
        for figure in result.figures
    ]
    return json_text(document)


def _prometheus(result: CheckResult, namespace: str) -> str:
    item = result.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    lines = []
    for figure in result.figures:
        name = f"{namespace}_{result.check}_{figure.name}"
        lines += [
            f"# HELP {name} {figure.help or figure.name.replace('_', ' ')}",
            f"# TYPE {name} gauge",
            f'{name}{{item="{item}"}} {figure.value:g}',
        ]
    name = f"{namespace}_{result.check}_status_code"
    lines += [
        f"# HELP {name} Nagios compatible status code for {result.check}",
        f"# TYPE {name} gauge",
        f'{name}{{item="{item}",status="{result.status.name}"}} {int(result.status)}',
    ]
    return "\n".join(lines)


_FORMATS: Final[dict[str, Callable[[CheckResult, str], str]]] = {
    "nagios": _nagios,
    "json": _json,
    "prometheus": _prometheus,
    "text": _text,
}
FORMATS: Final = tuple(_FORMATS)
