"""SQL on streams: statements, a session that stays warm, answers from a stream's state, a service.

Nothing is imported here: what only asks a service must not pay for Spark.
"""
