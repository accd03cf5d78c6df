"""The exceptions of the Spark source and sink.

Owns the exceptions of this package; each text is one line that says what to change.
"""

from __future__ import annotations

from tradewind.errors import TradewindError


class SparkSetupError(TradewindError):
    """Spark, Arrow or Java is missing, or not one that works here."""


class OptionError(TradewindError):
    """An option of the data source is wrong; `option` is its name."""

    def __init__(self, option: str, text: str) -> None:
        self.option = option
        super().__init__(f"option {option}: {text}")

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str]]:
        return type(self), (self.option, str(self).removeprefix(f"option {self.option}: "))


class DataLossError(TradewindError):
    """Messages that were to be read are gone, or the stream is another one."""


class CheckpointError(TradewindError):
    """The checkpoint of a query cannot be read."""


class RowError(TradewindError):
    """A row cannot be written: its subject, key, id or headers are none."""


class UnknownOutcomeError(TradewindError):
    """The outcome is unknown: rows may or may not be in the stream already."""


class SupersededError(TradewindError):
    """Another attempt at the same rows has taken over; this one stops."""
