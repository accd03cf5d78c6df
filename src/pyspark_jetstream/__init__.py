"""Lets Spark find the data source `jetstream` by itself: it looks for modules named `pyspark_*`.

Owns nothing; the source is in `tradewind.spark`.
"""

from tradewind.spark.source import JetStreamSource as DefaultSource

__all__ = ["DefaultSource"]
