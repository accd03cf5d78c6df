"""JetStream as a Spark data source and sink: batch and streaming reads and writes.

Owns what runs inside Spark's Python processes, in the driver and on the executors. The server never
imports it; Spark and Arrow come with the extra `spark`, and only the modules that need
them import them.
"""
