"""A declarative pipeline of Spark that keeps the current value of each key of a bucket in a table.

`spark-pipelines run` starts it; README.md beside this file says how, and what it needs. The
server's address comes from the configuration of the pipeline.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
SERVER = spark.conf.get("prices.server")


@dp.temporary_view
def changes() -> DataFrame:
    """The changes of the bucket, in the order of their revisions."""
    bucket = spark.readStream.format("jetstream").options(servers=SERVER, bucket="PRICES").load()
    return bucket.selectExpr(
        "key", "cast(cast(value as string) as double) as price", "revision", "operation"
    )


dp.create_streaming_table("prices")
dp.create_auto_cdc_flow(
    target="prices",
    source="changes",
    keys=["key"],
    sequence_by="revision",
    apply_as_deletes="operation <> 'PUT'",
    except_column_list=["operation"],
)
