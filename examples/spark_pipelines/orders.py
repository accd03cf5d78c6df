"""A declarative pipeline of Spark: orders of one stream go to another one with their region.

`spark-pipelines run` starts it; README.md beside this file says how. The server's address comes
from the configuration of the pipeline.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
SERVER = spark.conf.get("orders.server")

dp.create_sink(
    "paid", "jetstream", {"servers": SERVER, "stream": "PAID", "subject": "paid.{region}"}
)


@dp.temporary_view
def orders() -> DataFrame:
    """The stream as rows; Spark remembers how far it has come."""
    return spark.readStream.format("jetstream").options(servers=SERVER, stream="ORDERS").load()


@dp.append_flow(target="paid")
def orders_with_region() -> DataFrame:
    """Subject orders.north becomes paid.north; the other columns become JSON."""
    return spark.readStream.table("orders").selectExpr(
        "substring_index(subject, '.', -1) as region", "seq as number"
    )
