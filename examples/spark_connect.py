"""Reads and writes streams through Spark Connect: a thin client, and Spark elsewhere.

    pip install '.[spark,declarative]'
    python examples/spark_connect.py local nats://127.0.0.1:4222 ORDERS COPIES

`local` starts a Spark Connect server on this machine for as long as the program runs; an address
such as sc://host:15002 names one that is there. Tradewind has to be installed where that server and
its executors run; the client needs Spark's packages only.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(remote: str, servers: str, source: str, target: str) -> None:
    """Copy the messages of one stream to another, and show how many of each subject there are."""
    spark = SparkSession.builder.remote(remote).getOrCreate()
    messages = spark.read.format("jetstream").options(servers=servers, stream=source).load()
    messages.groupBy("subject").count().orderBy("subject").show(truncate=False)
    copies = messages.selectExpr("concat('copies.', subject) as subject", "data")
    copies.write.format("jetstream").mode("append").options(servers=servers, stream=target).save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
