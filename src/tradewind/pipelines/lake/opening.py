"""Opens the table of a sink, Delta or Iceberg.

Owns the choice between the two, so that no other module needs to know both.
"""

from __future__ import annotations

from tradewind.pipelines.definition.model import Pipeline, Sink
from tradewind.pipelines.lake.delta_tables import DeltaLake
from tradewind.pipelines.lake.iceberg_tables import IcebergLake


def lake_table(pipeline: Pipeline, sink: Sink) -> DeltaLake | IcebergLake:
    """The table that a sink writes; PipelineError if its library is not installed."""
    if sink.iceberg is not None:
        return IcebergLake(sink.iceberg, pipeline.place(sink.iceberg.warehouse))
    return DeltaLake(pipeline.place(sink.delta))
