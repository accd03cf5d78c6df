"""A step of orders_pipeline.yaml in Python: takes tables, returns a table."""

from __future__ import annotations

from pyspark.sql import DataFrame


def with_tax(orders: DataFrame, taxes: DataFrame) -> DataFrame:
    """Orders with the tax of their country; a country without one has none."""
    joined = orders.join(taxes, "country", "left")
    return joined.selectExpr(
        "id",
        "country",
        "time",
        "amount",
        "cast(amount * (1 + coalesce(rate, 0)) as decimal(12,2)) as gross",
    )
