"""SQL on streams: statements, a warm session, answers from a stream's state, a service.

It never imports anything: a client of the service must not load Spark.
"""
