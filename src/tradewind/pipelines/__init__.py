"""Data pipelines on Spark: pipeline files, ready-made jobs, and SQL on streams.

Owns the layer between a user's file or command and the source and sink of `tradewind.spark`. The
package uses no server internals: everything works with nats-server too.
"""
