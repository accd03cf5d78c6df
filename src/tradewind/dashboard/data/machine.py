"""The pipelines and processes on the dashboard's machine.

Owns only the combination of the two: known pipelines, and programs started by the dashboard. The
object is shared by all logins; `web` decides who may use it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tradewind.dashboard.data.pipeline_data import PipelineShelf
from tradewind.dashboard.data.runs import Runs


@dataclass
class Machine:
    """The machine of one dashboard."""

    shelf: PipelineShelf = field(default_factory=PipelineShelf)
    runs: Runs = field(default_factory=Runs)

    async def close(self) -> None:
        """End all programs that were started here."""
        await self.runs.close()
