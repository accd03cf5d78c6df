"""Data pipelines on Spark: files that describe them, ready-made jobs, and SQL on streams.

Owns what lies between a user's file or command and the source and sink of `tradewind.spark`. Never
talks to the inside of a server: everything works with the official one too.
"""
