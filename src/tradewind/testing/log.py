"""A log that keeps its lines in memory."""

from __future__ import annotations


class MemoryLog:
    """Stands in for the server's log; `lines` holds (level, text) in order."""

    def __init__(self, *, debug: bool = False, trace: bool = False) -> None:
        self.debug_enabled = debug
        self.trace_enabled = trace
        self.lines: list[tuple[str, str]] = []

    def texts(self, level: str) -> list[str]:
        """The texts of one level: "notice", "warn", "error", "debug" or "trace"."""
        return [text for line_level, text in self.lines if line_level == level]

    def notice(self, text: str) -> None:
        """Record a fact of interest to operators."""
        self.lines.append(("notice", text))

    def warn(self, text: str) -> None:
        """Record a warning to operators."""
        self.lines.append(("warn", text))

    def error(self, text: str) -> None:
        """Record a failure."""
        self.lines.append(("error", text))

    def debug(self, text: str) -> None:
        """Record a detail for developers; only if enabled."""
        if self.debug_enabled:
            self.lines.append(("debug", text))

    def trace(self, text: str) -> None:
        """Record a protocol line; only if enabled."""
        if self.trace_enabled:
            self.lines.append(("trace", text))
