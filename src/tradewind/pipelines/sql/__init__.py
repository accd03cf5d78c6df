"""SQL on streams: statements, a warm session, answers from a stream's state, a service.

The package imports nothing: a client of the service must not load Spark.
"""
