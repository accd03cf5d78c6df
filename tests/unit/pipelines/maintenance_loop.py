"""Maintains one table again and again, until it is killed.

python maintenance_loop.py FOLDER delta|iceberg
"""

from __future__ import annotations

import sys

from tradewind.pipelines.definition.model import Iceberg
from tradewind.pipelines.lake import lake_expiry
from tradewind.pipelines.lake.delta_tables import DeltaLake
from tradewind.pipelines.lake.iceberg_tables import IcebergLake
from tradewind.pipelines.lake.maintenance import MaintenancePolicy, maintain

# All versions go at once, and so do all small files; what readers and writers use stays.
EAGER = MaintenancePolicy(expire_seconds=0, keep_snapshots=3, is_thorough=True)


def table_of(folder: str, kind: str) -> DeltaLake | IcebergLake:
    """The table in a folder, as `lake_kit` makes it."""
    if kind == "delta":
        return DeltaLake(f"{folder}/delta")
    return IcebergLake(Iceberg("sales.orders", ""), f"{folder}/ice")


if __name__ == "__main__":
    lake_expiry.SETTLED_SECONDS = 0.0
    table = table_of(sys.argv[1], sys.argv[2])
    while True:
        maintain(table, EAGER)
        sys.stdout.write("round\n")
        sys.stdout.flush()
